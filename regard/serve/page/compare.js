// V4: the heads of one model beside each other, or two models on the same sentence.

import { chosenTable } from "./alignment.js";
import { h, put, segments, select, svg, word } from "./dom.js";
import { exporter } from "./export.js";
import { drawMatrix } from "./matrix.js";
import { diagonality, entropy, show } from "./maths.js";
import { signedColour, weightColour } from "./palette.js";
import { elsewhere, model } from "./session.js";
import { state } from "./state.js";
import { largest, strip } from "./strips.js";
import { csv, plainTable } from "./tables.js";
import { arrange } from "./trace.js";

let mode = "";
let asTable = false;

class Compare extends HTMLElement {
  connectedCallback() {
    this.lead = h("div", { class: "headline" });
    this.controls = h("div", { class: "controls" });
    this.place = h("div", {});
    put(this, this.lead, this.controls, this.place);
    this.ends = [state.on(["trace", "models", "head", "layer", "sort", "other", "words", "special", "theme"], () => this.show()), state.on(["t", "s", "preview"], () => this.marks?.forEach((mark) => mark()))];
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
      put(this.place, h("p", { class: "empty" }, "Translate a sentence to compare how heads and models looked at it."));
      return;
    }
    const many = trace.leading.length * (trace.leading[0]?.weights.shape[0] ?? 0) > 1;
    const chosen = mode || (many ? "heads" : "models");
    const choose = segments("Compare", [{ value: "heads", text: "Heads" }, { value: "models", text: "Models" }], chosen, (value) => { mode = value; this.show(); });
    const table = h("button", { type: "button", class: "switch", "aria-pressed": String(asTable), onclick: () => { asTable = !asTable; this.show(); } }, "Table");
    if (chosen === "heads") this.heads(trace, choose, table);
    else this.models(trace, choose, table);
  }

  head(text, ...more) {
    put(this.lead, h("p", { class: "lead" }, text), ...more);
  }

  // --- heads

  heads(trace, choose, table) {
    const heads = trace.leading.flatMap((seen) => Array.from({ length: seen.weights.shape[0] }, (_, head) => measured(trace, seen, head)));
    const sort = state.get("sort");
    if (sort !== "layer") heads.sort((a, b) => (sort === "entropy" ? a.entropy - b.entropy : b[sort] - a[sort]));
    const orders = [{ value: "layer", text: "layer and head" }, { value: "entropy", text: "sharpest first" }, { value: "diagonality", text: "most diagonal first" }, { value: "special", text: "most on special tokens" }];
    const lines = () => heads.map((one) => [one.layer, one.head, one.entropy, one.diagonality, one.special].map((value, at) => (at > 1 ? value.toFixed(4) : value)).join(","));
    put(this.controls, choose, select("Order", orders, sort, (value) => state.set({ sort: value })), table);
    this.head("A model may look in several ways at once: each head has its own question. Some follow the words, some the order, some rest on the end of the sentence.",
      exporter("heads", () => sheet(heads), () => ({ trace, csv: ["layer,head,entropy,diagonality,special", ...lines()].join("\r\n") })));
    if (asTable) {
      put(this.place, plainTable("Heads", ["layer", "head", "entropy", "diagonality", "on special tokens"], heads.map((one) => [one.layer, one.head, show(one.entropy), show(one.diagonality), show(one.special)])));
      return;
    }
    const picked = String(state.get("head") ?? "").split(",");
    put(this.place,
      heads.length < 2 && h("p", { class: "note" }, "This model has one head. Compare it with another model, or load a Transformer to see many."),
      h("div", { class: "thumbnails" }, heads.map((one) => this.thumbnail(one, picked))),
      h("p", { class: "caption" }, "Click a head to look through it alone; with Shift, to take the mean of several of one layer. Entropy: 0 is one place, larger is more spread."));
  }

  thumbnail(one, picked) {
    const on = String(one.layer) === String(state.get("layer") ?? one.layer) && picked.includes(String(one.head));
    const act = (event) => {
      const several = event.shiftKey && String(state.get("layer")) === String(one.layer) && picked[0] !== "" && !["mean", "max"].includes(picked[0]);
      const heads = several ? (on ? picked.filter((head) => head !== String(one.head)) : [...picked, String(one.head)]) : [String(one.head)];
      state.set({ layer: String(one.layer), head: heads.sort((a, b) => a - b).join(",") || null, ...(several ? {} : { view: "alignment" }) });
    };
    return h("button", { type: "button", class: "thumbnail", "aria-pressed": String(on), "aria-label": `layer ${one.layer}, head ${one.head}: entropy ${show(one.entropy)}, diagonality ${show(one.diagonality)}`, onclick: act },
      tiny(one.rows), h("span", {}, `layer ${one.layer}, head ${one.head}`), h("span", { class: "small" }, `entropy ${show(one.entropy)} \u00b7 diagonal ${show(one.diagonality)}`));
  }

  // --- models

  async models(trace, choose, table) {
    const here = model(), others = state.get("models").filter((one) => one.id !== here?.id && one.source.code === here.source.code);
    if (!others.length) {
      put(this.controls, choose);
      put(this.place, h("p", { class: "note" }, "Only one model is loaded for this language. Start the server with several runs, as in ", h("code", {}, "regard serve RUN1 RUN2"), ", to see them side by side: with and without attention, say, or before and after more training."));
      return;
    }
    const id = others.some((one) => one.id === state.get("other")) ? state.get("other") : others[0].id;
    const pick = select("With", others.map((one) => ({ value: one.id, text: one.id })), id, (value) => state.set({ other: value }));
    try {
      const began = performance.now();
      const other = await elsewhere(id);
      if (trace !== state.get("trace") || !this.isConnected) return;
      this.sides(trace, other, { choose, pick, table, names: [here.id, id], waited: performance.now() - began });
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error" }, error.message));
    }
  }

  sides(trace, other, { choose, pick, table, names }) {
    const tables = [chosenTable(trace), arrange(other, { words: state.get("words"), special: state.get("special") })];
    const drawn = tables.map((one, at) => (one?.seen.kind === "cross" ? drawMatrix(one, [trace, other][at], { bare: true, room: 420, label: `Attention of ${names[at]}` }) : null));
    this.marks = drawn.map((one) => one?.mark ?? (() => {}));
    const gap = difference(tables);
    put(this.controls, choose, pick, table);
    this.head("The same sentence through two models: what each one wrote, and where it looked while it did.",
      exporter("compare", () => this.place.querySelector("svg.matrix") ?? this.place.querySelector("svg"), () => ({ trace, shown: tables[0], csv: gap ? csv(gap) : undefined })));
    const card = (one, at) => h("section", { class: "card", "aria-label": names[at] }, h("h3", {}, names[at]),
      h("p", { class: "sentence", dir: "auto" }, marked(one, at ? trace : other)),
      drawn[at]?.element ?? fixed(one),
      h("p", { class: "small" }, `${one.target.tokens.length} tokens, log-probability ${show(total(one))}`));
    put(this.place, asTable
      ? plainTable("Two models", ["model", "translation", "tokens", "log-probability"], [trace, other].map((one, at) => [names[at], word(one.target.text), one.target.tokens.length, show(total(one))]))
      : h("div", { class: "beside" }, card(trace, 0), card(other, 1)),
    gap && !asTable && h("section", { class: "card" }, h("h3", {}, "Difference"), differenceMap(gap), h("p", { class: "caption" }, `orange: ${names[0]} looks more; purple: ${names[1]} looks more. By position of the word.`)));
    this.marks.forEach((mark) => mark());
  }
}

/** The one vector of a model that does not look. */
function fixed(trace) {
  const vector = trace.plain.steps?.[0]?.context ?? [];
  return [h("p", { class: "fixed-note" }, "No attention: every word was written from this one vector of the whole sentence."),
    vector.length > 0 && strip(vector, largest(vector), { label: "the one fixed vector", height: 30 })];
}

function measured(trace, seen, head) {
  const rows = trace.weights(seen, head);
  const special = trace.source.tokens.map((token) => Boolean(token.special));
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  return {
    layer: seen.layer, head, rows, entropy: mean(rows.map(entropy)), diagonality: diagonality(rows),
    special: mean(rows.map((row) => row.reduce((sum, weight, s) => sum + (special[s] ? weight : 0), 0))),
  };
}

const tiny = (rows, size = 96) => svg("svg", { class: "tiny", width: size, height: size, viewBox: `0 0 ${rows[0]?.length ?? 1} ${rows.length}`, preserveAspectRatio: "none", "aria-hidden": "true" },
  rows.flatMap((row, t) => row.map((weight, s) => svg("rect", { x: s, y: t, width: 1.03, height: 1.03, fill: weightColour(weight) }))));

/** All heads on one sheet, for export. */
function sheet(heads) {
  const across = Math.ceil(Math.sqrt(heads.length)), size = 112;
  return svg("svg", { width: across * size, height: Math.ceil(heads.length / across) * (size + 14) }, heads.map((one, at) => {
    const picture = tiny(one.rows);
    picture.setAttribute("x", (at % across) * size + 8);
    picture.setAttribute("y", Math.floor(at / across) * (size + 14) + 8);
    return [picture, svg("text", { x: (at % across) * size + 8, y: Math.floor(at / across) * (size + 14) + 118, "font-size": 11 }, `layer ${one.layer}, head ${one.head}`)];
  }));
}

const total = (trace) => trace.target.tokens.reduce((sum, token) => sum + (token.logprob ?? 0), 0);

/** The words of a translation; those that are not part of the longest run of words shared with the other are marked. */
function marked(trace, other) {
  const ours = trace.target.text.split(" "), theirs = other.target.text.split(" ");
  const shared = Array.from({ length: ours.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let a = ours.length - 1; a >= 0; a--) {
    for (let b = theirs.length - 1; b >= 0; b--) shared[a][b] = ours[a] === theirs[b] ? shared[a + 1][b + 1] + 1 : Math.max(shared[a + 1][b], shared[a][b + 1]);
  }
  let b = 0;
  return ours.map((text, a) => {
    while (b < theirs.length && ours[a] !== theirs[b] && shared[a][b + 1] === shared[a][b]) b++;
    const same = ours[a] === theirs[b] && shared[a][b] === shared[a + 1][b + 1] + 1;
    if (same) b++;
    return [a ? " " : "", same ? word(text) : h("mark", {}, word(text))];
  });
}

/** Where two tables of the same source differ; rows are compared by their place. */
function difference([one, two]) {
  if (one?.seen.kind !== "cross" || two?.seen.kind !== "cross" || one.columns.length !== two.columns.length) return null;
  const rows = Math.min(one.rows.length, two.rows.length);
  return {
    rows: one.rows.slice(0, rows).map((label, t) => ({ ...label, text: label.text === two.rows[t].text ? label.text : `${label.text} / ${two.rows[t].text}` })),
    columns: one.columns, weights: one.weights.slice(0, rows).map((row, t) => row.map((weight, s) => weight - two.weights[t][s])),
  };
}

function differenceMap(gap) {
  const size = Math.max(14, Math.min(34, 560 / gap.columns.length)), left = 150, top = 80;
  const width = left + gap.columns.length * size + 60, height = top + gap.rows.length * size + 6;
  return h("div", { class: "scroller" }, svg("svg", { class: "matrix", width, height, role: "img", "aria-label": "Difference of the two models\u2019 attention" },
    gap.weights.flatMap((row, t) => row.map((value, s) => svg("rect", { x: left + s * size + 0.5, y: top + t * size + 0.5, width: size - 1, height: size - 1, rx: 2, fill: signedColour(value, 1) }, svg("title", {}, show(value))))),
    gap.rows.map((label, t) => svg("text", { class: "label", x: left - 8, y: top + (t + 0.5) * size, "text-anchor": "end", "dominant-baseline": "central", "font-size": 12 }, label.text)),
    gap.columns.map((label, s) => svg("text", { class: "label", transform: `translate(${left + (s + 0.5) * size} ${top - 8}) rotate(-45)`, "font-size": 12 }, label.text))));
}

customElements.define("regard-compare", Compare);
