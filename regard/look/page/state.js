// The one shared selection: what every view shows. On a server's page it is in the address, so that it can be linked.

import { host } from "./host.js";

export const DEFAULTS = {
  text: "",
  model: "",
  line: 0, // the sentence that is looked into
  view: "alignment",
  t: null,
  s: null,
  layer: null,
  head: null, // the selection
  form: "ribbons",
  words: true,
  special: false,
  renormalise: false,
  shift: null,
  rowScale: false, // how V2 draws
  numbers: true,
  mass: 0.75,
  palette: "blue",
  sub: 0,
  whole: false, // all layers of a step
  changes: [],
  prefix: null, // the step view
  swapped: null,
  other: "",
  sort: "layer",
  comparing: "",
  length: null, // compare
  tree: "", // a drawing, or where there is no room for it a list
  pruned: false,
  replay: null,
  beam: 5,
  node: null,
  example: null,
  tint: "spotlight",
  opacity: 0.7,
  smooth: false,
  listed: false, // a picture
};
// What is not part of an address.
const QUIET = new Set(["trace", "picture", "models", "preview", "error", "busy", "sentences", "theme", "region", "between"]);

class State extends EventTarget {
  constructor() {
    super();
    this.values = {
      ...DEFAULTS,
      trace: null,
      picture: null,
      models: [],
      preview: null,
      error: "",
      busy: false,
      sentences: [],
      between: "", // a text that is translated by two models, after the first
      theme: "",
      region: null,
    };
  }

  get(name) {
    return this.values[name];
  }

  /** Change several values at once; views are notified which. */
  set(changes) {
    const same = (name) =>
      this.values[name] === changes[name] ||
      (name === "preview" && JSON.stringify(this.values.preview) === JSON.stringify(changes.preview));
    const changed = Object.keys(changes).filter((name) => !same(name));
    if (!changed.length) return;
    // Earlier requests stay in the history; the first change of the text or the model begins another entry.
    if (host.live && this.settled && !this.reading && changed.some((name) => name === "text" || name === "model")) {
      this.settled = false;
      history.pushState(null, "", location.href);
    }
    for (const name of changed) this.values[name] = changes[name];
    if (host.live && changed.some((name) => !QUIET.has(name))) this.write();
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(changed) }));
  }

  /** The answer is there: the next request is another entry of the history. */
  settle() {
    this.settled = true;
  }

  /** Call `act` when one of the names changes. @returns {() => void} what ends it */
  on(names, act) {
    const listen = (event) => names.some((name) => event.detail.has(name)) && act(event.detail);
    this.addEventListener("change", listen);
    return () => this.removeEventListener("change", listen);
  }

  /** The selection as the fragment of an address: it is never sent to a server. */
  write() {
    const parts = new URLSearchParams();
    for (const [name, value] of Object.entries(this.values)) {
      if (QUIET.has(name) || JSON.stringify(value) === JSON.stringify(DEFAULTS[name])) continue;
      parts.set(name, typeof value === "string" ? value : JSON.stringify(value));
    }
    const fragment = `#${parts}`;
    if (location.hash !== fragment) history.replaceState(null, "", fragment === "#" ? location.pathname : fragment);
  }

  /** Read the address; what it does not name goes back to its default. @returns {URLSearchParams} */
  read() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const values = { ...DEFAULTS };
    for (const [name, value] of parts) {
      if (!(name in DEFAULTS)) continue;
      const wanted = DEFAULTS[name];
      if (typeof wanted === "string") values[name] = value;
      else {
        try {
          const parsed = JSON.parse(value);
          if (wanted === null || typeof parsed === typeof wanted) values[name] = parsed;
        } catch {
          if (wanted === null) values[name] = value; // a name such as "mean"; anything else is a damaged address
        }
      }
    }
    this.reading = true;
    this.set(values);
    this.reading = false;
    return parts;
  }
}

export const state = new State();
