// Compare: the heads of one model, several models on the same sentence, or with and without attention by length.

import { chosenTable } from "./alignment.js";
import { field, h, put, renew, segments, select, toggle, word } from "./dom.js";
import { exporter } from "./export.js";
import {
  BY_ERROR,
  BY_WORTH,
  headLines,
  headTable,
  measuredHeads,
  ORDERS,
  sheet,
  thumbnails,
  worthMap,
} from "./heads.js";
import { host } from "./host.js";
import { beside, difference, differenceMap, differing, sideTable } from "./sides.js";
import { state } from "./state.js";
import { csv } from "./tables.js";
import { tableOf } from "./trace.js";
import { View } from "./views.js";
import { kindBox } from "./wording.js";

const HEADS =
  "A model may have several heads, each with its own query. Some follow the words, some the order, some give most " +
  "weight to the end of the sentence.";
const MODELS =
  "The same sentence through several models: the translation of each, and its attention. Marked words differ from those " +
  "of the first model; in a sentence that was translated back again, from those of your own.";
const LENGTH =
  "With attention the model looks back at every source word while it writes. Without, all it knows is one vector of " +
  "fixed size: enough for a short sentence, not for a long one. " +
  "Marked words differ from those of the model with attention.";
const HINT =
  "Click a head to show it alone; with Shift, to take the mean of several of one layer. Entropy: 0 is one place, " +
  "larger is more spread.";

const WORTH =
  "What each head is worth here: how much the log-probability of this translation falls when the head is silenced. ";
const ERROR =
  "Alignment error: how far the strongest links of a head, over {} generated sentences whose right links are known, are from " +
  "those; 0 is all right.";

const sized = (text) => text.split(/\s+/u).filter(Boolean).length;
const pairOf = (one) => `${one.source.code} ${one.target.code}`;
let asTable = false;

class Compare extends View {
  connectedCallback() {
    this.place = h("div", {});
    const names = [
      "trace",
      "models",
      "head",
      "layer",
      "sort",
      "other",
      "words",
      "special",
      "theme",
      "comparing",
      "length",
    ];
    this.begin(
      [this.place],
      [names, () => this.show()],
      [["t", "s", "preview"], () => this.marks?.forEach((mark) => mark())],
    );
  }

  show() {
    const trace = state.get("trace");
    this.marks = [];
    if (!trace) return this.showEmpty("Translate a sentence to compare heads and models.");
    const many = trace.leading.length * (trace.leading[0]?.weights.shape[0] ?? 0) > 1;
    const chosen = state.get("comparing") || (many ? "heads" : "models");
    if (chosen === "length" && this.rivals().length === 2) this.byLength();
    else if (chosen === "heads") this.heads(trace);
    else this.models(trace);
  }

  /** A model with attention and one without, of the same pair; empty where there are not both. */
  rivals() {
    const here = host.model(),
      same = host.translators().filter((one) => here && pairOf(one) === pairOf(here));
    const without = here?.fixed ? here : same.find((one) => one.fixed),
      has = here?.fixed ? same.find((one) => !one.fixed) : here;
    return has && without ? [has, without] : [];
  }

  /** The buttons that all kinds share, around their own. */
  buttons(chosen, ...own) {
    const options = [
      { value: "heads", text: "Heads" },
      { value: "models", text: "Models" },
      ...(this.rivals().length ? [{ value: "length", text: "With and without attention" }] : []),
    ];
    const switchTable = (on) => {
      asTable = on;
      this.show();
    };
    renew(
      this.controls,
      segments("Compare", options, chosen, (comparing) => state.set({ comparing })),
      own,
      chosen !== "length" && toggle("Table", asTable, switchTable),
    );
  }

  // --- heads

  /** The heads, at first without what the server must still find out. */
  async heads(trace) {
    this.showHeads(trace);
    const still = () => trace === state.get("trace") && this.isConnected && this.controls.querySelector(".order");
    const [errors, worth] = await Promise.all(
      [host.alignmentErrors(), host.worth()].map((one) => one.catch(() => null)),
    );
    if ((errors || worth) && still()) this.showHeads(trace, errors ?? undefined, worth ?? undefined);
  }

  showHeads(trace, errors, worth) {
    const order = state.get("sort"),
      of = (kind) => trace.modules.filter((one) => one.kind === kind);
    const kind = of(this.kind).length ? this.kind : (trace.stepModule(state.get("layer"), state.get("head"))?.kind ?? "cross");
    const modules = of(kind);
    const heads = measuredHeads(trace, modules, order, errors?.heads, worth);
    const orders = [
      ...ORDERS,
      ...(worth || order === BY_WORTH.value ? [BY_WORTH] : []),
      ...(errors || order === BY_ERROR.value ? [BY_ERROR] : []),
    ];
    this.buttons(
      "heads",
      kindBox(trace, kind, (one) => {
        this.kind = one;
        this.show();
      }),
      select("Order", orders, order, (sort) => state.set({ sort }), { class: "order" }),
    );
    const data = () => ({ trace, csv: headLines(heads) });
    this.showLead(
      HEADS,
      exporter("heads", () => sheet(heads), data),
    );
    const one = "This model has one head. Compare it with another model, or load a Transformer to see many.";
    renew(
      this.place,
      heads.length < 2 && h("p", { class: "note" }, one),
      worth &&
        heads.length > 1 &&
        h("div", { class: "row" }, worthMap(heads), h("p", { class: "note worth-note" }, WORTH, h("code", {}, "regard heads"), " measures the same over many sentences.")),
      asTable ? headTable(heads) : thumbnails(heads),
      h("p", { class: "caption" }, HINT, errors && ` ${ERROR.replace("{}", errors.sentences)}`),
    );
  }

  // --- models

  async models(trace) {
    const here = host.model();
    const others = host
      .translators()
      .filter((one) => one.id !== here.id && (one.source.code === here.source.code || pairOf(one) === back(here)));
    if (!others.length) {
      this.buttons("models");
      put(this.lead);
      put(this.place, host.live ? alone() : h("p", { class: "note" }, "This file holds one model."));
      return;
    }
    const wanted = state.get("other").split(",");
    const chosen = others.filter((one) => wanted.includes(one.id));
    if (!chosen.length) chosen.push(others[0]);
    const flip = (one) => (on) => {
      const left = on ? [...chosen, one] : chosen.filter((other) => other !== one);
      state.set({ other: left.map((other) => other.id).join(",") });
    };
    this.buttons(
      "models",
      h("span", { class: "note" }, "With"),
      others.map((one) => toggle(one.id, chosen.includes(one), flip(one))),
    );
    if (!this.place.querySelector(".beside")) put(this.place, h("p", { class: "empty" }, "The models translate…"));
    try {
      const traces = await Promise.all(
        chosen.map((one) => host.elsewhere(one.id, pairOf(one) === back(here) ? trace.target.text : undefined)),
      );
      if (trace === state.get("trace") && this.isConnected)
        this.sides(
          [trace, ...traces],
          [here.id, ...chosen.map((one) => (pairOf(one) === back(here) ? `${one.id}, back again` : one.id))],
          [false, ...chosen.map((one) => pairOf(one) === back(here))],
        );
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error" }, error.message));
    }
  }

  sides(traces, names, backs) {
    const options = { words: state.get("words"), special: state.get("special") };
    const tables = traces.map((trace, at) => (at ? tableOf(trace, options) : chosenTable(trace)));
    const { element, marks } = beside(traces, tables, names, backs);
    const both = this.comparable(traces, tables);
    const [one, two] = both.includes(this.pair?.[1]) && both.includes(this.pair[0]) ? this.pair : both;
    const gap = two === undefined ? null : difference(tables[one], tables[two]);
    this.marks = marks;
    const data = () => ({ trace: traces[0], shown: tables[0], csv: gap ? csv(gap) : undefined });
    const drawing = () => this.place.querySelector("svg.matrix") ?? this.place.querySelector("svg");
    this.showLead(MODELS, exporter("compare", drawing, data));
    const colours =
      `Orange: larger weight in ${names[one]}; purple: larger weight in ${names[two]}. ` +
      "Words that both wrote are compared; a word of one alone shows its own weights.";
    const choose = (place) => (value) => {
      this.pair = [one, two];
      this.pair[place] = Number(value);
      if (this.pair[0] === this.pair[1]) this.pair[1 - place] = place ? one : two; // they change places
      this.sides(traces, names, backs);
    };
    const named = both.map((at) => ({ value: String(at), text: names[at] }));
    put(
      this.place,
      asTable ? sideTable(traces, names) : element,
      gap &&
        !asTable &&
        h(
          "section",
          { class: "card" },
          h("h2", {}, "Difference"),
          both.length > 2 &&
            h(
              "div",
              { class: "row" },
              select("Orange", named, String(one), choose(0)),
              select("Purple", named, String(two), choose(1)),
            ),
          differenceMap(gap),
          h("p", { class: "caption" }, colours),
        ),
    );
    for (const mark of marks) mark();
  }

  /** The models whose weights can be compared: those that read the same words and attend to them. */
  comparable(traces, tables) {
    const { text } = traces[0].source,
      words = tables[0]?.columns.length;
    return [...traces.keys()].filter(
      (at) => traces[at].source.text === text && tables[at]?.seen.kind === "cross" && tables[at].columns.length === words,
    );
  }

  // --- with and without attention

  /** The reader's sentence, and an example of the chosen length, with and without attention. */
  async byLength() {
    const models = this.rivals(),
      texts = [...(models[0].lengths ?? models[0].examples)].sort((a, b) => sized(a) - sized(b));
    const last = texts.length - 1,
      at = Math.max(0, Math.min(last, state.get("length") ?? last));
    const slider = h("input", {
      type: "range",
      min: 0,
      max: last,
      value: at,
      "aria-valuetext": `${sized(texts[at])} words`,
      oninput: () => state.set({ length: Number(slider.value) }),
    });
    this.buttons("length", field("Length", slider, h("output", {}, `${sized(texts[at])} words`)));
    this.showLead(LENGTH);
    const trace = state.get("trace"),
      own = trace.source.text,
      chosen = [...new Set([own, texts[at]])];
    if (!this.place.querySelector(".contrast")) put(this.place, h("p", { class: "empty" }, "Both models translate…"));
    try {
      const rows = await Promise.all(
        chosen.map(async (text) => ({
          text,
          title: text === own ? "Your sentence" : "An example",
          traces: await Promise.all(models.map((one) => host.elsewhere(one.id, text, `${one.id} ${sized(text)}`))),
        })),
      );
      if (!this.isConnected || trace !== state.get("trace")) return;
      if (state.get("comparing") !== "length" || (state.get("length") ?? last) !== at) return;
      put(
        this.place,
        rows.map((row) => this.contrast(row, models)),
      );
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error" }, error.message));
    }
  }

  contrast({ text, title, traces }, models) {
    const card = (trace, at) =>
      h(
        "div",
        { class: "card" },
        h("h3", {}, at ? "Without attention" : "With attention", h("span", { class: "small" }, ` ${models[at].id}`)),
        h("p", { class: "sentence", dir: "auto" }, at ? differing(trace.target.text, traces[0].target.text) : word(trace.target.text)),
      );
    return h(
      "section",
      { class: "contrast" },
      h("h2", {}, `${title}, ${sized(text)} words`),
      h("p", { class: "note" }, word(text)),
      h("div", { class: "beside" }, traces.map(card)),
    );
  }
}

const back = (one) => `${one.target.code} ${one.source.code}`;

const alone = () =>
  h(
    "p",
    { class: "note" },
    "Only one model is loaded for this language. ",
    h("code", {}, "regard serve RUN1 RUN2"),
    " and ",
    h("code", {}, "regard page RUN1 RUN2"),
    " show several side by side: with and without attention, say, or before and after more training.",
  );

customElements.define("regard-compare", Compare);
