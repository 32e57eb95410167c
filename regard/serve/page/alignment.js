// V2: where the model looked, as ribbons, as a matrix or as a table, and exactly what is drawn.

import { h, put, renew, segments, select, toggle } from "./dom.js";
import { exporter } from "./export.js";
import { drawMatrix } from "./matrix.js";
import { drawRibbons } from "./ribbons.js";
import { state } from "./state.js";
import { table as asTable } from "./tables.js";
import { arrange, summary } from "./trace.js";

const NAMES = [
  "form",
  "layer",
  "head",
  "words",
  "special",
  "renormalise",
  "shift",
  "rowScale",
  "numbers",
  "mass",
  "palette",
];

const LEADS = {
  ribbons:
    "While it writes a word (below), the model looks back at the sentence (above). The wider the band, the more " +
    "it looks: that is attention.",
  matrix:
    "Each row is a word being written; the stronger the colour of a cell, the more the model looked at the source" +
    " word above it. A row’s weights sum to one.",
  table:
    "Each row is a word being written, each number how much the model looked at a source word. A row’s weights " +
    "sum to one.",
};

const FIXED =
  "This model does not look at words: it has read the whole sentence into one vector, and writes from that. " +
  "Compare it with a model that looks.";

/** The table that the selection asks for. */
export const chosenTable = (trace) =>
  arrange(trace, {
    layer: state.get("layer"),
    head: state.get("head"),
    words: state.get("words"),
    special: state.get("special"),
    renormalise: state.get("renormalise"),
    shift: state.get("shift"),
  });

class Alignment extends HTMLElement {
  connectedCallback() {
    this.lead = h("div", { class: "headline" });
    this.controls = h("div", { class: "controls" });
    this.picture = h("div", { class: "picture" });
    this.caption = h("p", { class: "caption" });
    this.summary = h("p", { class: "note" });
    put(this, this.lead, this.controls, this.picture, this.caption, this.summary);
    this.ends = [
      state.on(["trace", "models", "theme", ...NAMES], () => this.show()),
      state.on(["t", "s", "preview"], () => this.mark?.()),
    ];
    this.show();
  }

  disconnectedCallback() {
    for (const end of this.ends) end();
  }

  show() {
    const trace = state.get("trace");
    if (!trace) {
      put(this.lead);
      put(this.controls);
      put(this.picture, h("p", { class: "empty" }, "Translate a sentence to see where the model looked."));
      put(this.caption);
      put(this.summary);
      return;
    }
    const shown = chosenTable(trace);
    const form = state.get("form");
    const draw = { matrix: drawMatrix, ribbons: drawRibbons, table: asTable }[form] ?? drawRibbons;
    const { element, mark } = draw(shown, trace);
    this.mark = mark;
    renew(this.picture, element);
    put(
      this.lead,
      h("p", { class: "lead" }, trace.looks ? (LEADS[form] ?? LEADS.ribbons) : FIXED),
      exporter(
        "alignment",
        () => this.picture.querySelector("svg") ?? drawMatrix(shown, trace).element.firstChild,
        () => ({ shown, trace }),
      ),
    );
    renew(this.controls, this.buttons(trace, shown));
    const detail =
      form === "ribbons"
        ? `; links that hold ${Math.round(100 * state.get("mass"))} % of each row`
        : state.get("rowScale") && form === "matrix"
          ? "; each row scaled to its largest"
          : "";
    put(this.caption, shown.caption + detail);
    put(this.summary, summary(shown));
    mark?.();
  }

  buttons(trace, shown) {
    const set = (name) => (value) => state.set({ [name]: value });
    const heads = shown.seen.weights.shape[0];
    const form = state.get("form");
    const on = (name, text) => toggle(text, state.get(name), set(name));
    return [
      segments(
        "Form",
        [
          { value: "ribbons", text: "Ribbons" },
          { value: "matrix", text: "Matrix" },
          { value: "table", text: "Table" },
        ],
        form,
        set("form"),
      ),
      trace.leading.length > 1 &&
        select(
          "Layer",
          trace.leading.map((seen) => ({ value: String(seen.layer), text: String(seen.layer) })),
          String(shown.seen.layer),
          set("layer"),
        ),
      heads > 1 &&
        select(
          "Head",
          [
            { value: "mean", text: "mean" },
            { value: "max", text: "largest" },
            ...Array.from({ length: heads }, (_, head) => ({ value: String(head), text: String(head) })),
            ...(String(state.get("head")).includes(",") ? [{ value: state.get("head"), text: state.get("head") }] : []),
          ],
          String(state.get("head") ?? "mean"),
          (head) => state.set({ head }),
        ),
      on("words", "Whole words"),
      on("special", "Special tokens"),
      on("renormalise", "Renormalise"),
      trace.looks &&
        toggle("Shift by one", Boolean(shown.shift), (value) => state.set({ shift: value ? 1 : 0 }), {
          title: "Show what was looked at just after a word was read",
        }),
      form === "matrix" && on("rowScale", "Scale each row"),
      form === "matrix" && on("numbers", "Numbers"),
      form === "matrix" &&
        select(
          "Colours",
          ["blue", "cividis", "viridis"].map((name) => ({ value: name, text: name })),
          state.get("palette"),
          set("palette"),
        ),
      form === "ribbons" && this.slider(),
    ];
  }

  slider() {
    const input = h("input", {
      type: "range",
      min: 10,
      max: 100,
      step: 5,
      value: Math.round(100 * state.get("mass")),
      onchange: () => state.set({ mass: Number(input.value) / 100 }),
    });
    return h(
      "label",
      { class: "field" },
      h("span", {}, "Mass shown"),
      input,
      h("output", {}, `${Math.round(100 * state.get("mass"))} %`),
    );
  }
}

customElements.define("regard-alignment", Alignment);
