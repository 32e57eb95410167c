// The views below the translation, one at a time, as tabs.

import "./alignment.js";
import "./beam.js";
import "./compare.js";
import "./picture.js";
import "./steps.js";
import { h, put, renew } from "./dom.js";
import { state } from "./state.js";

const VIEWS = [
  { id: "alignment", title: "Where it looked", element: "regard-alignment" },
  { id: "steps", title: "Step by step", element: "regard-steps" },
  { id: "compare", title: "Compare", element: "regard-compare" },
  { id: "beam", title: "Search", element: "regard-beam" },
  { id: "picture", title: "Picture", element: "regard-picture", when: (trace) => Boolean(trace?.plain.image) },
];

class Views extends HTMLElement {
  connectedCallback() {
    this.tabs = h("div", {
      class: "tabs",
      role: "tablist",
      "aria-label": "Views",
      onkeydown: (event) => this.key(event),
    });
    this.place = h("div", { class: "view", role: "tabpanel", id: "view", tabindex: -1 });
    put(this, this.tabs, this.place);
    state.on(["view", "trace"], (changed) => this.show(changed));
    this.show(new Set(["view"]));
  }

  get shown() {
    return VIEWS.filter((view) => !view.when || view.when(state.get("trace")));
  }

  show(changed) {
    const chosen = this.shown.find((view) => view.id === state.get("view")) ?? VIEWS[0];
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
            tabindex: view === chosen ? 0 : -1,
            onclick: () => state.set({ view: view.id }),
          },
          view.title,
        ),
      ),
    );
    this.place.setAttribute("aria-labelledby", `tab-${chosen.id}`);
    if (changed.has("view") || this.place.firstElementChild?.localName !== chosen.element)
      put(this.place, h(chosen.element));
  }

  key(event) {
    const views = this.shown,
      at = views.findIndex((view) => view.id === state.get("view"));
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: views.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    state.set({ view: views[(next + views.length) % views.length].id });
    this.tabs.querySelector('[aria-selected="true"]').focus();
  }
}

customElements.define("regard-views", Views);
