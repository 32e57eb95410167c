// The first minute: three short captions, each an action that is done when it is clicked. They can be skipped for ever.

import { button, h, put, taps } from "./dom.js";
import { model, translators } from "./session.js";
import { state } from "./state.js";
import { tableOf } from "./trace.js";
import { hide, sourceWord } from "./whatif.js";

const KEY = "regard-guide";
const NEGATIONS = /^(not|never|no|pas|jamais|ne)$/i;

/** Where the order of the languages crosses most clearly; else the word whose attention is farthest from its place. */
export function crossing() {
  const table = tableOf(state.get("trace"));
  const best = table.weights.map((row) => row.indexOf(Math.max(...row)));
  const sure = best.map((s, t) => table.weights[t][s]);
  const crossed = best.map((s, t) => (s > best[t + 1] ? sure[t] * sure[t + 1] : 0));
  const far = best.map((s, t) => Math.abs(s / table.columns.length - t / best.length) * sure[t]);
  const measured = Math.max(...crossed) > 0.25 ? crossed : far,
    t = measured.indexOf(Math.max(...measured));
  return { t: table.rows[t].tokens[0], s: table.columns[best[t]].tokens[0] };
}

const point = () => state.set({ view: "alignment", form: "ribbons", ...crossing() });

/** Hide the negation, or the word that gets most attention. */
function conceal() {
  const trace = state.get("trace"),
    table = tableOf(trace);
  const total = table.columns.map((_, s) => table.weights.reduce((sum, row) => sum + row[s], 0));
  const not = table.columns.findIndex((label) => NEGATIONS.test(label.text));
  const label = table.columns[not >= 0 ? not : total.indexOf(Math.max(...total))];
  state.set({ view: "alignment" });
  hide(sourceWord(trace, label.tokens[0]));
}

/** A model of the same pair without attention. */
export const withoutAttention = () => {
  const here = model();
  return translators().find(
    (one) => one.fixed && one.source.code === here.source?.code && one.target.code === here.target?.code, // captions have none
  );
};

const STEPS = [
  {
    id: "point",
    title: `${taps() ? "Tap" : "Point at"} a word`,
    text: "Where did the model look while it wrote it?",
    act: point,
    looks: true,
  },
  { id: "hide", title: "Hide a word", text: "What changes when the model cannot see it?", act: conceal, looks: true },
  {
    id: "away",
    title: "Take attention away",
    text: "Your sentence and a long example from one fixed vector: how much of them is left?",
    act: () => state.set({ view: "compare", comparing: "length" }),
    possible: withoutAttention,
  },
];

class Guide extends HTMLElement {
  connectedCallback() {
    this.done = new Set();
    state.on(["trace", "models", "model"], () => this.show());
  }

  show() {
    const trace = state.get("trace");
    const offered = STEPS.filter((one) => (!one.possible || one.possible()) && (!one.looks || trace?.looks));
    this.hidden = localStorage.getItem(KEY) === "skip" || !trace || trace.plain.image || !offered.length;
    if (this.hidden) return;
    put(
      this,
      offered.map((one, at) =>
        h(
          "button",
          {
            type: "button",
            class: `caption-card${this.done.has(one.id) ? " done" : ""}`,
            "data-step": one.id,
            onclick: () => {
              this.done.add(one.id);
              one.act();
              this.show();
              document.querySelector(".views").scrollIntoView({ block: "nearest" });
            },
          },
          h("b", {}, `${this.done.has(one.id) ? "✓" : at + 1} ${one.title}`),
          h("span", {}, one.text),
        ),
      ),
      button("Do not show this again", () => this.skip(), { class: "quiet" }),
    );
  }

  skip() {
    localStorage.setItem(KEY, "skip");
    this.show();
    document.getElementById("source").focus();
  }
}

customElements.define("regard-guide", Guide);
