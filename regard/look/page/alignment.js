// Attention as ribbons, as a matrix or as a table, and exactly what is drawn.

import { field, h, menu, put, renew, segments, select, toggle } from "./dom.js";
import { exporter } from "./export.js";
import { host } from "./host.js";
import { drawMatrix } from "./matrix.js";
import { drawRibbons } from "./ribbons.js";
import { state } from "./state.js";
import { table as asTable } from "./tables.js";
import { palettes } from "./palette.js";
import { summary, tableOf } from "./trace.js";
import { View } from "./views.js";
import { caption, compares, kindBox, methodOf, named, nameOf, spelled } from "./wording.js";

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

const EXPLAINS =
  "For each word that it writes, from which source words it came, by a method other than attention: the stronger, the more.";
const COMPARES = " Choose a word of the translation to see why it was written and not another one.";

const SELF = {
  encoder:
    "Self-attention: while it reads, each word of the source (SIDE) takes in some of the other words of the same sentence.",
  decoder:
    "Self-attention: before it writes a word (SIDE), the model weighs the words that it has written so far.",
};
const SIDES = { ribbons: "below", matrix: "a row", table: "a row" };

/** What is drawn, in one sentence for each kind of attention. */
function lead({ kind, method }, form) {
  if (kind === "attribution") return EXPLAINS + (host.live && compares(method) ? COMPARES : "");
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
      [["t"], () => this.other && this.showButtons()],
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
      trace.looks || shown.seen.kind === "attribution" ? lead(shown.seen, form) : FIXED,
      exporter("alignment", drawing, () => ({ shown, trace })),
    );
    this.showButtons();
    const { layer, changes } = state.values; // another sentence is explained by the same method
    if (host.model()?.methods?.includes(layer) && shown.seen.method !== layer && !changes.length && this.asked !== trace) {
      this.asked = trace;
      this.attribute(layer, "");
    }
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

  showButtons() {
    const trace = state.get("trace");
    renew(this.controls, this.buttons(trace, chosenTable(trace)));
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
      kindBox(trace, kind === "attribution" ? trace.kind : kind, (one) =>
        choose(one === "cross" ? null : trace.modules.findLast((seen) => seen.kind === one).key),
      ),
      this.methods(trace, shown.seen, choose),
      layers.length > 1 &&
        kind !== "attribution" &&
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

  /** Attention, or another method to say which source words a word came from; and the word that it is compared with. */
  methods(trace, seen, choose) {
    const here = trace.modules.filter((one) => one.method).map((one) => one.method);
    const able = host.live && !state.get("changes").length ? (host.model()?.methods ?? []) : [];
    const unlisted = host.model()?.other_methods; // why some are not among these
    const chosen = seen.method ?? "";
    const method = methodOf(chosen),
      t = state.get("t");
    const others = host.live && compares(method) && t !== null ? (trace.target.tokens[t]?.topk ?? []) : [];
    this.other = host.live && compares(method);
    const show = (name, against = "") =>
      !name || here.includes(nameOf(name, against))
        ? choose(name ? nameOf(name, against) : null)
        : this.attribute(name, against);
    const names = [...new Set([...able, ...here.map((name) => (host.live ? methodOf(name) : name))])];
    const pieces = others.map((one) => one.text).filter((piece) => piece !== trace.target.tokens[t].piece);
    return [
      names.length > 0 &&
        select(
          "Explained by",
          [
            { value: "", text: "its own attention" },
            ...names.map((value) => ({ value, text: named(value) })),
            ...(able.length && unlisted ? [{ value: "other", text: unlisted, disabled: true }] : []),
          ],
          host.live ? method : chosen,
          (name) => show(name),
        ),
      pieces.length > 0 &&
        select(
          "and not",
          [{ value: "", text: "\u2014" }, ...pieces.map((value) => ({ value, text: spelled(value) }))],
          chosen.slice(nameOf(method, " ").length - 1),
          (against) => show(method, against),
        ),
    ];
  }

  /** Let the server attribute the words of the translation, and show what it finds. */
  async attribute(method, against) {
    const trace = state.get("trace"),
      name = nameOf(method, against);
    put(this.caption, "Waiting for the model\u2026");
    try {
      const found = await host.attribute(method, against);
      if (state.get("trace") === trace) state.set({ trace: trace.with(found, name), layer: name, head: null });
    } catch (error) {
      if (error.name !== "AbortError") put(this.caption, error.message);
    }
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
