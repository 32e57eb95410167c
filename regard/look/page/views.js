// The views below the translation, one at a time, as tabs.

import "./alignment.js";
import "./beam.js";
import "./compare.js";
import "./picture.js";
import "./steps.js";
import { h, put, renew } from "./dom.js";
import { host } from "./host.js";
import { state } from "./state.js";

const SENTENCE = [
  { id: "alignment", title: "Where it looked", element: "regard-alignment" },
  { id: "steps", title: "Step by step", element: "regard-steps" },
  { id: "compare", title: "Compare", element: "regard-compare" },
  { id: "beam", title: "Search", element: "regard-beam" },
];
const PICTURE = [{ id: "picture", title: "Where it looked", element: "regard-picture" }];

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
    state.on(["view", "trace", "models", "model"], (changed) => this.show(changed));
    this.show(new Set(["view"]));
  }

  get shown() {
    const trace = state.get("trace");
    return (trace ? trace.plain.image : host.model()?.kind === "caption") ? PICTURE : SENTENCE;
  }

  show(changed) {
    const chosen = this.shown.find((view) => view.id === state.get("view")) ?? this.shown[0];
    this.tabs.hidden = this.shown.length < 2;
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
