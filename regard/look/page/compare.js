// Compare: the heads of one model side by side, or two models on the same sentence.

import { chosenTable } from "./alignment.js";
import { h, put, renew, segments, select, toggle } from "./dom.js";
import { exporter } from "./export.js";
import { BY_ERROR, headLines, headTable, measuredHeads, ORDERS, sheet, thumbnails } from "./heads.js";
import { host } from "./host.js";
import { beside, difference, differenceMap, sideTable } from "./sides.js";
import { state } from "./state.js";
import { csv } from "./tables.js";
import { tableOf } from "./trace.js";

const HEADS =
  "A model may have several heads, each with its own query. Some follow the words, some the order, some give most " +
  "weight to the end of the sentence.";
const MODELS = "The same sentence through two models: the translation of each, and its attention.";
const HINT =
  "Click a head to show it alone; with Shift, to take the mean of several of one layer. Entropy: 0 is one place, " +
  "larger is more spread.";

const ERROR =
  "Alignment error: how far the strongest links of a head, over {} generated sentences whose right links are known, are from " +
  "those; 0 is all right.";

let mode = "";
let asTable = false;

class Compare extends HTMLElement {
  connectedCallback() {
    this.lead = h("div", { class: "headline" });
    this.controls = h("div", { class: "controls" });
    this.place = h("div", {});
    put(this, this.lead, this.controls, this.place);
    const names = ["trace", "models", "head", "layer", "sort", "other", "words", "special", "theme"];
    this.ends = [
      state.on(names, () => this.show()),
      state.on(["t", "s", "preview"], () => this.marks?.forEach((mark) => mark())),
    ];
    this.show();
  }

  disconnectedCallback() {
    for (const end of this.ends) end();
  }

  show() {
    const trace = state.get("trace");
    this.marks = [];
    put(this.lead);
    if (!trace) {
      put(this.controls);
      put(this.place, h("p", { class: "empty" }, "Translate a sentence to compare heads and models."));
      return;
    }
    const many = trace.leading.length * (trace.leading[0]?.weights.shape[0] ?? 0) > 1;
    if ((mode || (many ? "heads" : "models")) === "heads") this.heads(trace);
    else this.models(trace);
  }

  /** The buttons that both kinds share, around their own. */
  buttons(chosen, ...own) {
    const options = [
      { value: "heads", text: "Heads" },
      { value: "models", text: "Models" },
    ];
    const choose = (value) => {
      mode = value;
      this.show();
    };
    const switchTable = (on) => {
      asTable = on;
      this.show();
    };
    renew(this.controls, segments("Compare", options, chosen, choose), own, toggle("Table", asTable, switchTable));
  }

  /** The heads, at first without what the server must still find out. */
  async heads(trace) {
    this.showHeads(trace, null);
    const errors = await host.alignmentErrors().catch(() => null);
    const still = trace === state.get("trace") && this.isConnected && this.controls.querySelector(".order");
    if (errors?.heads.length && still) this.showHeads(trace, errors);
  }

  showHeads(trace, errors) {
    const order = state.get("sort");
    const heads = measuredHeads(trace, order, errors?.heads);
    const orders = errors || order === BY_ERROR.value ? [...ORDERS, BY_ERROR] : ORDERS;
    this.buttons(
      "heads",
      select("Order", orders, order, (sort) => state.set({ sort }), { class: "order" }),
    );
    const data = () => ({ trace, csv: headLines(heads) });
    put(
      this.lead,
      h("p", { class: "lead" }, HEADS),
      exporter("heads", () => sheet(heads), data),
    );
    const one = "This model has one head. Compare it with another model, or load a Transformer to see many.";
    renew(
      this.place,
      heads.length < 2 && h("p", { class: "note" }, one),
      asTable ? headTable(heads) : thumbnails(heads),
      h("p", { class: "caption" }, HINT, errors && ` ${ERROR.replace("{}", errors.sentences)}`),
    );
  }

  async models(trace) {
    const here = host.model();
    const others = host.translators().filter((one) => one.id !== here.id && one.source.code === here.source.code);
    if (!others.length) {
      this.buttons("models");
      put(this.place, host.live ? alone() : h("p", { class: "note" }, "This file holds one model."));
      return;
    }
    const id = others.some((one) => one.id === state.get("other")) ? state.get("other") : others[0].id;
    const names = others.map((one) => ({ value: one.id, text: one.id }));
    this.buttons(
      "models",
      select("With", names, id, (other) => state.set({ other })),
    );
    try {
      const other = await host.elsewhere(id);
      if (trace === state.get("trace") && this.isConnected) this.sides([trace, other], [here.id, id]);
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error" }, error.message));
    }
  }

  sides(traces, names) {
    const options = { words: state.get("words"), special: state.get("special") };
    const tables = [chosenTable(traces[0]), tableOf(traces[1], options)];
    const gap = difference(tables[0], tables[1]);
    const { element, marks } = beside(traces, tables, names);
    this.marks = marks;
    const data = () => ({ trace: traces[0], shown: tables[0], csv: gap ? csv(gap) : undefined });
    const drawing = () => this.place.querySelector("svg.matrix") ?? this.place.querySelector("svg");
    put(this.lead, h("p", { class: "lead" }, MODELS), exporter("compare", drawing, data));
    const colours = `orange: larger weight in ${names[0]}; purple: larger weight in ${names[1]}. Rows are compared by their place.`;
    put(
      this.place,
      asTable ? sideTable(traces, names) : element,
      gap &&
        !asTable &&
        h(
          "section",
          { class: "card" },
          h("h3", {}, "Difference"),
          differenceMap(gap),
          h("p", { class: "caption" }, colours),
        ),
    );
    for (const mark of marks) mark();
  }
}

const alone = () =>
  h(
    "p",
    { class: "note" },
    "Only one model is loaded for this language. Start the server with several runs, as in ",
    h("code", {}, "regard serve RUN1 RUN2"),
    ", to see them side by side: with and without attention, say, or before and after more training.",
  );

customElements.define("regard-compare", Compare);
