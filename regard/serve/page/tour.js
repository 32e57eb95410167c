// A tour of five minutes through this page: one idea a stop, in a beginner's words. It can be left at any time.

import { announce, button, h, put } from "./dom.js";
import { crossing, withoutAttention } from "./guide.js";
import { state } from "./state.js";

/** A part of the step of the chosen word. */
const part = (sub) => () => ({ view: "steps", whole: false, layer: null, head: null, t: crossing().t, s: null, sub });

const STOPS = [
  {
    title: "The bottleneck",
    text: "A model without attention reads the whole sentence into one list of numbers and writes from that alone. Compare the two translations of the long sentence: much did not fit.",
    at: () => ({ view: "compare", comparing: "length", length: null }),
    shown: "regard-compare .contrast:last-of-type",
    possible: withoutAttention,
  },
  {
    title: "The query",
    text: "With attention, the model asks before every word: what do I need now? This question is a list of numbers too. It is called the query.",
    at: part(1),
    shown: ".box.query",
  },
  {
    title: "The scores",
    text: "The query is compared with every word of your sentence. The better a word fits the question, the higher its score.",
    at: part(2),
    shown: ".columns .score",
  },
  {
    title: "The weights",
    text: "The scores become weights: shares that add up to 1. A long bar means that the model looks here.",
    at: part(3),
    shown: ".columns .weight",
  },
  {
    title: "The context",
    text: "Each word of the sentence is a list of numbers. They are mixed in these shares; the mix is the context: what the model has just seen.",
    at: part(4),
    shown: ".columns .context",
  },
  {
    title: "The next word",
    text: "From the context, every word that the model knows gets a probability. The model writes one of the best and asks again.",
    at: part(5),
    shown: ".box.output",
  },
  {
    title: "Heads",
    text: "This model looks many times at once. Each small picture is one head with its own query: some follow the meaning, some the order of the words.",
    at: () => ({ view: "compare", comparing: "heads" }),
    shown: "regard-compare .thumbnails",
    possible: () => state.get("trace").leading.some((seen) => seen.weights.shape[0] > 1),
  },
  {
    title: "What if?",
    text: "Now it is your turn. Drag a weight to another word, or click a word and hide it: which word does the model write then?",
    at: part(5),
    shown: ".box.source .rows",
  },
];

class Tour extends HTMLElement {
  connectedCallback() {
    this.hidden = true;
    this.className = "card tour";
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Tour");
    document.addEventListener("keydown", (event) => {
      const { target } = event; // what has its own use of the key keeps it
      if (event.key !== "Escape" || this.hidden || event.defaultPrevented) return;
      if (!target.matches?.("input, select, textarea") && !document.querySelector("dialog[open], .popover")) this.leave();
    });
    this.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.leave();
      if (event.key !== "Tab") event.stopPropagation(); // arrows here do not move the step
    });
  }

  start() {
    if (!state.get("trace")?.looks) return announce("Translate a sentence with a model that has attention first.");
    this.stops = STOPS.filter((one) => !one.possible || one.possible());
    this.from = document.activeElement;
    this.hidden = false;
    this.go(0);
  }

  go(at) {
    const stop = this.stops[at];
    state.set({ ...stop.at(), preview: null });
    const last = at === this.stops.length - 1;
    const next = button(last ? "Done" : "Next", () => (last ? this.leave() : this.go(at + 1)), { class: "strong" });
    put(
      this,
      h("h2", {}, stop.title, h("span", { class: "small" }, ` ${at + 1} of ${this.stops.length}`)),
      h("p", {}, stop.text),
      h(
        "div",
        { class: "row" },
        at > 0 && button("Back", () => this.go(at - 1)),
        next,
        !last && button("Leave the tour", () => this.leave(), { class: "quiet" }),
      ),
    );
    next.focus({ preventScroll: true });
    announce(`${stop.title}. ${stop.text}`);
    this.point(stop.shown);
  }

  /** Mark what the stop is about: as soon as it is there, and again whenever the view is drawn again. */
  point(selector) {
    const mark = () => {
      const found = document.querySelector(selector);
      if (!found || found.classList.contains("toured")) return;
      this.unmark();
      found.classList.add("toured");
      found.scrollIntoView({ block: "nearest" });
    };
    this.drawn?.disconnect();
    this.drawn = new MutationObserver(mark);
    this.drawn.observe(document.getElementById("view"), { childList: true, subtree: true });
    this.unmark();
    mark();
  }

  unmark() {
    for (const one of document.querySelectorAll(".toured")) one.classList.remove("toured");
  }

  leave() {
    this.hidden = true;
    this.drawn.disconnect();
    this.unmark();
    this.from?.focus?.({ preventScroll: true });
  }
}

customElements.define("regard-tour", Tour);

/** Begin the tour. */
export function startTour() {
  let tour = document.querySelector("regard-tour");
  if (!tour) document.body.append((tour = h("regard-tour", {})));
  tour.start();
}
