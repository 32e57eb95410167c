// The formulas of the models as MathML, and a sentence about the query.

import { math } from "./dom.js";

const i = (name) => math("mi", {}, name);
const o = (sign) => math("mo", {}, sign);
const n = (number) => math("mn", {}, number);
const row = (...parts) => math("mrow", {}, ...parts);
const sub = (base, ...index) => math("msub", {}, typeof base === "string" ? i(base) : base, row(...index.map(letter)));
const letter = (part) =>
  typeof part === "string" ? (/^[a-z~]+$/i.test(part) ? i(part) : /^[0-9]+$/.test(part) ? n(part) : o(part)) : part;
const sup = (base, top) => math("msup", {}, i(base), i(top));
const call = (name, ...inside) => row(i(name), o("("), ...inside, o(")"));
const formula = (...parts) => math("math", {}, row(...parts));

const before = () => sub("s", "t", "\u2212", "1");
const after = () => sub("h", "t");
const word = () => sub("h", "j");
const e = () => sub("e", "t", "j");
const alpha = () => sub("\u03b1", "t", "j");
const context = () => sub("c", "t");

const SCORES = {
  additive: () => formula(e(), o("="), sup("v", "\u22a4"), call("tanh", i("W"), before(), o("+"), i("U"), word())),
  dot: () => formula(e(), o("="), after(), o("\u00b7"), word()),
  general: () => formula(e(), o("="), sub("h", "t"), o("\u00b7"), i("W"), word()),
  concat: () => formula(e(), o("="), sup("v", "\u22a4"), call("tanh", i("W"), o("["), after(), o(";"), word(), o("]"))),
  "concat as released": () => formula(e(), o("="), sup("v", "\u22a4"), call("tanh", i("W"), after(), o("+"), word())),
  location: () => formula(e(), o("="), sub(row(o("("), i("W"), after(), o(")")), "j")),
  "scaled dot": () =>
    formula(e(), o("="), math("mfrac", {}, row(sub("q", "t"), o("\u00b7"), sub("k", "j")), row(o("\u221a"), i("d")))),
  cosine: () => formula(e(), o("="), i("\u03b2"), call("cos", sub("q", "t"), o(","), sub("k", "j"))),
};

/** The formula of a score, or null. */
export const scoreFormula = (name) => SCORES[name]?.() ?? null;

/** Weights from scores. */
export function weightFormula(name) {
  if (name === "Gaussian window")
    return formula(
      alpha(),
      o("="),
      sub("softmax", "j"),
      o("("),
      e(),
      o(")"),
      o("\u00b7"),
      call("gauss", i("j"), o("\u2212"), sub("p", "t")),
    );
  const sparse = name.replace("causal ", "");
  if (sparse === "sparsemax" || sparse === "entmax15")
    return formula(sub("\u03b1", "t"), o("="), call(sparse, sub("e", "t")));
  return formula(
    alpha(),
    o("="),
    math("mfrac", {}, call("exp", e()), row(math("munder", {}, o("\u2211"), i("k")), call("exp", sub("e", "t", "k")))),
  );
}

/** The context from the weights; `symbol` names what a word offers. */
export const contextFormula = (symbol) =>
  formula(context(), o("="), math("munder", {}, o("\u2211"), i("j")), alpha(), sub(symbol, "j"));

/** A recurrent decoder attends to the encoder's states h, a Transformer to values v that were projected from them. */
export const valueSymbol = (kind) => (kind === "transformer" ? "v" : "h");

const probability = (...inside) => formula(call("p", sub("y", "t")), o("="), call("softmax", ...inside));
const feed = () => sub(math("mover", {}, i("h"), o("~")), "t");
const last = () => sub("y", "t", "\u2212", "1");

const OUTPUTS = {
  bahdanau: () => [
    formula(sub("s", "t"), o("="), call("GRU", before(), o(","), last(), o(","), context())),
    formula(sub("m", "t"), o("="), call("maxout", sub("s", "t"), o(","), last(), o(","), context())),
    probability(i("W"), sub("m", "t")),
  ],
  luong: () => [
    formula(feed(), o("="), call("tanh", i("W"), o("["), context(), o(";"), after(), o("]"))),
    probability(i("W\u2032"), feed()),
  ],
};
OUTPUTS.rnnencdec = OUTPUTS.bahdanau;

/** The output from the context, in one to three lines. */
export const outputFormula = (kind) => OUTPUTS[kind]?.() ?? [probability(sub("z", "t"))];

const read = (sign, ...index) => sub(math("mover", { accent: "true" }, i("h"), o(sign)), ...index);
const recurrence = (cell, state, other) => formula(state("j"), o("="), call(cell, state(...other), o(","), sub("x", "j")));
const forwards = (cell) => recurrence(cell, (...index) => sub("h", ...index), ["j", "\u2212", "1"]);

/** How the source is read: words, and formulas where the encoder is recurrent. */
const READS = {
  transformer: () => [
    "Layer by layer, every word looked at the others: its vector now knows its neighbours. Each strip is the part " +
      "of it that this head offers, v\u2c7c.",
  ],
  bahdanau: () => [
    "Two GRUs read the sentence, one from each end. Each of their states holds a word and what was read before it; " +
      "both together are what the word offers, h\u2c7c.",
    recurrence("GRU", read.bind(null, "\u2192"), ["j", "\u2212", "1"]),
    recurrence("GRU", read.bind(null, "\u2190"), ["j", "+", "1"]),
    formula(word(), o("="), o("["), read("\u2192", "j"), o(";"), read("\u2190", "j"), o("]")),
  ],
  luong: () => ["An LSTM reads the sentence. Its state after a word is what that word offers, h\u2c7c.", forwards("LSTM")],
  cho: () => ["A GRU reads the sentence word by word. Only its last state is kept.", forwards("GRU")],
  sutskever: () => ["An LSTM reads the sentence word by word. Only its last state is kept.", forwards("LSTM")],
};
READS.rnnencdec = READS.bahdanau;

/** How the vectors of the source came about. */
export const readWords = (kind) => READS[kind]?.() ?? ["The encoder made a vector of each word and of its neighbours."];

/** What the query is; `reading` where a word of the source has it. */
export function queryWords(kind, query, reading) {
  if (reading) return "The word at this place, as this layer receives it, projected to a query by this head.";
  if (kind === "transformer") return "The word just read, projected to a query by this head of this layer.";
  if (query === "previous")
    return "s\u209c\u208b\u2081, the decoder state before it reads its last word: attention first, then the step.";
  return "h\u209c, the decoder state after it has read its last word: the step first, then attention.";
}
