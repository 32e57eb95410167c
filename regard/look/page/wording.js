// What is drawn, in plain words.

import { select } from "./dom.js";

const OWN = {
  bahdanau: "Bahdanau’s attention",
  luong: "Luong’s attention",
  transformer: "The Transformer’s attention",
};

const KINDS = {
  cross: (name) => OWN[name] ?? "The model’s attention",
  encoder: () => "Self-attention of the encoder, source words looking at source words",
  decoder: () => "Self-attention of the decoder, each word looking at the words before it",
  fixed: () => "No attention: one vector of the whole sentence",
  attribution: (_, { method }) => `Not attention, but ${named(method)}`,
};

/** The methods that say which source words a word came from, in words; those of METHODS in look/attribution.py. */
const METHODS = {
  attention: "attention",
  "attention-norm": "attention times the length of the values",
  rollout: "attention rollout",
  alti: "ALTI+",
  "value-zeroing": "value zeroing",
  gradient: "gradient times input",
  "integrated-gradients": "integrated gradients",
  "occlusion-masked": "what is lost when a word is masked",
  "occlusion-unknown": "what is lost when a word is replaced",
  "occlusion-removed": "what is lost when a word is removed",
};
const AGAINST = " against ";

/** Whether a method compares two words: gradients and occlusion do. */
export const compares = (method) => /^(gradient|integrated|occlusion)/.test(method);

/** A method alone, and with the word that it compares with, as a trace names it. */
export const methodOf = (name) => name.split(AGAINST)[0];
export const nameOf = (method, against) => method + (against ? AGAINST + against : "");

/** A piece as a word of its own. */
export const spelled = (piece) => piece.replaceAll("\u2581", " ").trim() || piece;

/** The name of an attribution in words. */
export function named(name) {
  const [method, against] = name.split(AGAINST);
  const [first, place] = method.split(":");
  const text = (METHODS[first] ?? first) + (place ? ` (${place})` : "");
  return against ? `${text}, why not \u2018\u2068${spelled(against)}\u2069\u2019` : text;
}

/** What the head is for that is shown first. */
export const ALIGNING = "the head that aligns words";

/** The names of the kinds of attention that one model may have. */
const SIDES = { cross: "to the source", encoder: "inside the source", decoder: "inside the translation" };

/** A box to choose the kind of attention; none where the model has one kind. */
export function kindBox(trace, kind, onchange) {
  const kinds = Object.keys(SIDES).filter((one) => trace.modules.some((seen) => seen.kind === one));
  const options = kinds.map((value) => ({ value, text: SIDES[value] }));
  return kinds.length > 1 && select("Attention", options, kind, onchange);
}

/** One sentence or two about a table. @param {object} table @param {object} trace @param {object} chosen the switches */
export function caption(table, trace, { words, renormalise }) {
  const { seen } = table;
  const many = trace.modules.filter((one) => one.kind === seen.kind).length > 1;
  const parts = [
    (KINDS[seen.kind] ?? KINDS.cross)(trace.model.name, seen),
    many && seen.kind !== "attribution" && `layer ${seen.layer}`,
    seen.weights.shape[0] > 1 && table.head,
    table.aligning && ALIGNING,
    seen.kind === "cross" && seen.query === "previous" && "computed from the state before each word",
    seen.kind !== "fixed" && (words ? "whole words" : "word pieces"),
    table.shift && "shown one word later, when the word is read",
  ];
  const first = parts.filter(Boolean).join(", ");
  const hidden = table.unseen.length && seen.kind !== "fixed";
  const mass = `${Math.round(100 * table.lost)} % of the weight`;
  const marks = [...new Set(table.unseen.map((text) => (text === "<s>" ? "start mark" : "end mark")))];
  const one = marks.length === 1;
  const second = hidden
    ? ` The ${marks.join(" and the ")} ${one ? "is" : "are"} not drawn; ${one ? "it takes" : "they take"} ${mass}` +
      `${renormalise ? ", and the rest was scaled up" : ""}.`
    : "";
  return `${first}.${second}`;
}
