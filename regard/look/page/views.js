// The views below the translation, one at a time, as tabs; above them, what is changed; and what every view has. Whoever
// shows them loads their modules: the page of a file all of them, a server's page those of the chosen model's kind.

import { h, put, renew } from "./dom.js";
import { host } from "./host.js";
import { state } from "./state.js";

const SENTENCE = [
  { id: "alignment", title: "Where it looked", short: "Attention", element: "regard-alignment" },
  { id: "steps", title: "Step by step", short: "Steps", element: "regard-steps" },
  { id: "compare", title: "Compare", short: "Compare", element: "regard-compare" },
  { id: "beam", title: "Search", short: "Search", element: "regard-beam" },
];
const PICTURE = [{ id: "picture", title: "Where it looked", short: "Attention", element: "regard-picture" }];

/** What every view has: a lead with the menu to export it, controls, and a place for what it shows. */
export class View extends HTMLElement {
  /**
   * Build the view and show it; while it is in the page it listens to the state.
   * @param {Element[]} parts its own, `place` among them @param {...[string[], () => void]} listeners names, and what to do
   */
  begin(parts, ...listeners) {
    this.lead = h("div", { class: "headline" });
    this.controls = h("div", { class: "controls" });
    put(this, this.lead, this.controls, parts);
    this.ends = listeners.map(([names, act]) => state.on(names, act));
    this.show();
  }

  disconnectedCallback() {
    for (const end of this.ends) end();
  }

  /** What is to be seen, and the menu to export it. */
  showLead(text, menu) {
    put(this.lead, h("p", { class: "lead" }, text), menu);
  }

  /** A sentence instead of everything, where there is nothing to show. */
  showEmpty(sentence) {
    for (const part of this.children) put(part);
    put(this.place, h("p", { class: "empty" }, sentence));
  }
}

class Views extends HTMLElement {
  connectedCallback() {
    this.tabs = h("div", {
      class: "tabs",
      role: "tablist",
      "aria-label": "Views",
      onkeydown: (event) => this.key(event),
    });
    this.place = h("div", { class: "view", role: "tabpanel", id: "view", tabindex: -1 });
    put(this, h("regard-changes", { hidden: true }), this.tabs, this.place);
    state.on(["view", "trace", "busy", "models", "model"], (changed) => this.show(changed));
    this.show(new Set(["view"]));
  }

  get shown() {
    const trace = state.get("trace");
    return (trace ? trace.plain.image : host.model()?.kind === "caption") ? PICTURE : SENTENCE;
  }

  show(changed) {
    const chosen = this.shown.find((view) => view.id === state.get("view")) ?? this.shown[0];
    this.tabs.hidden = this.shown.length < 2;
    const busy = state.get("busy");
    this.place.setAttribute("aria-busy", String(busy));
    // Where there is nothing to go through, the panes stay: they have the box to write in, and what went wrong.
    document.body.classList.toggle("stepping", chosen.id === "steps" && Boolean(state.get("trace") || busy));
    renew(
      this.tabs,
      this.shown.map((view) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${view.id}`,
            "aria-selected": String(view === chosen),
            "aria-controls": "view",
            "aria-label": view.title,
            tabindex: view === chosen ? 0 : -1,
            onclick: () => this.open(view.id),
          },
          h("span", { class: "long" }, view.title),
          h("span", { class: "short", "aria-hidden": "true" }, view.short),
        ),
      ),
    );
    this.place.setAttribute("aria-labelledby", `tab-${chosen.id}`);
    if (changed.has("view") || this.place.firstElementChild?.localName !== chosen.element)
      put(this.place, h(chosen.element));
  }

  /** Open a view; its keys work at once. */
  open(view) {
    state.set({ view });
    this.place.focus({ preventScroll: true });
  }

  /** The arrows move among the tabs; Enter or Space opens one. */
  key(event) {
    const tabs = [...this.tabs.children],
      at = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    tabs[(next + tabs.length) % tabs.length].focus();
  }
}

customElements.define("regard-views", Views);
