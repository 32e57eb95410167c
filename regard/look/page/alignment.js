// Attention as ribbons, as a matrix or as a table, and exactly what is drawn.

import { field, h, menu, put, renew, segments, select, toggle } from "./dom.js";
import { exporter } from "./export.js";
import { drawMatrix } from "./matrix.js";
import { drawRibbons } from "./ribbons.js";
import { state } from "./state.js";
import { table as asTable } from "./tables.js";
import { palettes } from "./palette.js";
import { summary, tableOf } from "./trace.js";
import { View } from "./views.js";
import { caption, kindBox } from "./wording.js";

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
    "For each word that it writes (below), the model weighs the source words (above): the wider the band, the larger the weight.",
  matrix: "Each row is a word being written; the stronger a cell, the larger the weight of the source word above it.",
  table: "Each row is a word being written, each number the weight of a source word. The weights of a row add up to 1.",
};

const SELF = {
  encoder:
    "Self-attention: while it reads, each word of the source (SIDE) takes in some of the other words of the same sentence.",
  decoder:
    "Self-attention: before it writes a word (SIDE), the model weighs the words that it has written so far.",
};
const SIDES = { ribbons: "below", matrix: "a row", table: "a row" };

/** What is drawn, in one sentence for each kind of attention. */
function lead(kind, form) {
  if (SELF[kind]) return SELF[kind].replace("SIDE", SIDES[form] ?? SIDES.ribbons);
  return LEADS[form] ?? LEADS.ribbons;
}

const FIXED =
  "This model has no attention: it reads the whole sentence into one vector, and writes from that. " +
  "Compare it with a model that has attention.";

/** The selected table. */
export const chosenTable = (trace) =>
  tableOf(trace, {
    layer: state.get("layer"),
    head: state.get("head"),
    words: state.get("words"),
    special: state.get("special"),
    renormalise: state.get("renormalise"),
    shift: state.get("shift"),
  });

class Alignment extends View {
  connectedCallback() {
    this.place = h("div", { class: "picture" });
    this.caption = h("p", { class: "caption" });
    this.summary = h("p", { class: "summary" });
    this.begin(
      [this.place, this.caption, this.summary],
      [["trace", "models", "theme", ...NAMES], () => this.show()],
      [["t", "s", "preview"], () => this.mark?.()],
    );
  }

  show() {
    const trace = state.get("trace");
    if (!trace) return this.showEmpty("Translate a sentence to see its attention.");
    const shown = chosenTable(trace);
    const form = state.get("form");
    const draw = { matrix: drawMatrix, ribbons: drawRibbons, table: asTable }[form] ?? drawRibbons;
    const { element, mark } = draw(shown, trace);
    this.mark = mark;
    renew(this.place, element);
    const drawing = () => this.place.querySelector("svg") ?? drawMatrix(shown, trace).element.firstChild;
    this.showLead(
      trace.looks ? lead(shown.seen.kind, form) : FIXED,
      exporter("alignment", drawing, () => ({ shown, trace })),
    );
    renew(this.controls, this.buttons(trace, shown));
    const detail = !trace.looks
      ? ""
      : form === "ribbons"
        ? ` Bands hold ${Math.round(100 * state.get("mass"))} % of each word’s attention.`
        : state.get("rowScale") && form === "matrix"
          ? " Each row is scaled to its largest weight."
          : "";
    put(this.caption, caption(shown, trace, state.values) + detail);
    this.caption.title = shown.caption; // the same in the words of `regard look`
    put(this.summary, summary(shown));
    mark?.();
  }

  buttons(trace, shown) {
    const set = (name) => (value) => state.set({ [name]: value });
    const heads = shown.seen.weights.shape[0];
    const form = state.get("form");
    const on = (name, text) => toggle(text, state.get(name), set(name));
    const { kind } = shown.seen;
    const layers = trace.modules.filter((seen) => seen.kind === kind);
    const choose = (layer) => state.set({ layer, head: null, t: null, s: null, preview: null });
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
      kindBox(trace, kind, (one) =>
        choose(one === "cross" ? null : trace.modules.findLast((seen) => seen.kind === one).key),
      ),
      layers.length > 1 &&
        select(
          "Layer",
          layers.map((seen) => ({ value: seen.key, text: String(seen.layer) })),
          shown.seen.key,
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
          String(trace.head(shown.seen, state.get("head")) ?? "mean"),
          set("head"),
        ),
      menu(
        "More",
        on("words", "Whole words"),
        on("special", "Special tokens"),
        on("renormalise", "Renormalise"),
        shown.seen.pieces.length > 1 &&
          toggle("Shift by one", Boolean(shown.shift), (value) => state.set({ shift: value ? 1 : 0 }), {
            title: "Show the attention just after a word was read",
          }),
        form === "matrix" && on("rowScale", "Scale each row"),
        form === "matrix" && on("numbers", "Numbers"),
        form === "matrix" &&
          select(
            "Colours",
            palettes().map((name) => ({ value: name, text: name })),
            state.get("palette"),
            set("palette"),
          ),
        form === "ribbons" && this.slider(),
      ),
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
    return field("Mass shown", input, h("output", {}, `${Math.round(100 * state.get("mass"))} %`));
  }
}

customElements.define("regard-alignment", Alignment);
