// The path of one step through a Transformer: in each layer the heads, their concatenation, the residual stream and the
// feed-forward net; then the logits. A layer becomes visible when it is computed.

import { check } from "./arithmetic.js";
import { h, word } from "./dom.js";
import { percent, show, difference, norm } from "./maths.js";
import { appear } from "./motion.js";
import { state } from "./state.js";
import { largest, strip } from "./strips.js";
import { unpack } from "./trace.js";

/** The sub-steps of a path through some layers; a word of the source is not written at its end. */
export const pathSubs = (layers, reading) => [
  "read",
  ...Array.from({ length: layers }, (_, at) => `layer ${at}`),
  ...(reading ? [] : ["next word", "written"]),
];

/** What happens at a sub-step. */
export function pathSaid(sub, layers, reading) {
  if (sub === 0)
    return `The ${reading ? "" : "last "}word is read: its vector, with its place in the sentence, begins the residual stream.`;
  if (sub <= layers)
    return (
      "Every head looks for itself; their contexts side by side, times W, are added to the stream. " +
      "So is what the feed-forward net makes of it."
    );
  return sub === layers + 1
    ? "The stream behind the last layer gives every word of the vocabulary a probability."
    : "The word is written, and read back for the next step.";
}

const name = (text) => (text === "<s>" ? "the start" : `‘${text}’`);

/** A vector of the stream with its length. */
function line(text, vector) {
  return h(
    "div",
    { class: "line" },
    h("span", { class: "small" }, text),
    h("span", { class: "number", title: "length of this vector" }, show(norm(vector))),
    strip(vector, largest(vector), { label: text, height: 11 }),
  );
}

const ADDED = "+ heads × W";

/** The end of a layer: what the feed-forward net adds, the sum, and whether the parts shown add up to it. */
const ending = (one) => [
  line("+ feed-forward", one.feed),
  line(one.adds ? "= residual stream" : "= normalised sum", one.stream),
  one.adds &&
    check(
      "the parts add up",
      difference(
        one.before.map((value, at) => value + one.self[at] + (one.cross?.[at] ?? 0) + one.feed[at]),
        one.stream,
      ),
    ),
];

/** What a layer of the encoder makes of a word: the last box of its step. @param {object} plain the layer, as it came */
export function grown(plain, last) {
  const one = plain && { ...plain, ...parts(plain) };
  return [
    h(
      "p",
      {},
      "The contexts of all heads side by side, times W, are added to the word’s vector. So is what the feed-forward " +
        "net makes of it.",
    ),
    one
      ? [line("the word before", one.before), line(ADDED, one.self), ending(one)]
      : h("p", { class: "small" }, "not recorded"),
    h(
      "p",
      {},
      last
        ? "The word now knows its neighbours: this is what the decoder attends to."
        : "The word now knows more of its neighbours. The next layer reads it.",
    ),
  ];
}

/**
 * The stage of a path.
 * @param {object[]} layers as the server sends them @param {object} trace @param {number} t
 * @param {Element | null} output the last box; a word of the source has none
 */
export class PathStage {
  constructor(layers, trace, t, output) {
    Object.assign(this, { trace, t, own: output ? "decoder" : "encoder" });
    this.layers = layers.map((one) => ({ ...one, ...parts(one) }));
    output?.classList.remove("from-5");
    this.columns = [this.reading(), ...this.layers.map((one) => this.layer(one)), output].filter(Boolean);
    this.element = h(
      "div",
      { class: `stagegrid pathgrid ${this.own}`, style: { "--layers": String(layers.length) }, tabindex: 0, role: "group" },
      this.columns,
    );
    this.element.setAttribute("aria-label", "The path of this step through the layers");
  }

  /** Show what is computed up to `sub`. */
  reveal(sub) {
    this.element.dataset.sub = sub;
    const last = this.columns.length - 1;
    this.columns.forEach((one, at) => {
      one.classList.toggle("later", at > sub);
      one.classList.toggle("now", at === Math.min(sub, last));
    });
  }

  /** What is new at a sub-step appears. */
  move(sub) {
    this.columns[sub]?.querySelectorAll(".strip, .track.output .fill").forEach((one, at) => appear(one, at * 60));
  }

  mark() {}

  reading() {
    const [first] = this.layers,
      before = this.own === "encoder" ? this.trace.source.tokens[this.t] : this.trace.target.tokens[this.t - 1];
    return h(
      "section",
      { class: "box reading", "aria-label": "The word that is read" },
      h("h2", { class: "part" }, "The stream begins"),
      h("p", { class: "small" }, "read: ", word(before?.text ?? "the start")),
      line("word + place", first.before),
    );
  }

  layer(one) {
    const best = one.lens?.[0],
      decoder = this.own === "decoder";
    return h(
      "section",
      { class: "box layer", "aria-label": `Layer ${one.layer}` },
      h("h2", { class: "part" }, `Layer ${one.layer}`),
      this.heads(one, "self", this.own, `looking at the ${decoder ? "words so far" : "source"}`),
      line(ADDED, one.self),
      one.cross && [this.heads(one, "cross", "cross", "looking at the source"), line(ADDED, one.cross)],
      ending(one),
      best &&
        h(
          "p",
          { class: "would" },
          "would write ",
          word(best.special ? "end of sentence" : best.text),
          h("span", { class: "number" }, percent(best.probability)),
        ),
    );
  }

  /** The heads of one attention: where each looks most, and the context that it brings. */
  heads(one, part, kind, title) {
    const contexts = one[`${part}_heads`],
      seen = this.trace.modules.find((module) => module.kind === kind && module.layer === one.layer);
    if (!contexts || !seen) return null;
    return h(
      "div",
      { class: `heads${contexts.length > 6 ? " many" : ""}`, role: "group", "aria-label": title },
      h("p", { class: "small" }, title),
      contexts.map((context, head) => {
        const weights = Array.from(seen.weights.part(head).row(this.t)),
          best = weights.indexOf(Math.max(...weights)),
          looked = seen.pieces[0].columns[best].text;
        return h(
          "button",
          {
            type: "button",
            title: `Layer ${one.layer}, head ${head}: ${percent(weights[best])} at ${name(looked)}. Open this head`,
            onclick: () =>
              state.set({
                whole: false,
                layer: seen.key,
                head: String(head),
                s: null,
                sub: 4,
              }),
          },
          h("span", { class: "number" }, head),
          word(looked === "<s>" ? "start" : looked),
          h("span", { class: "number" }, percent(weights[best])),
          strip(context, largest(context), { label: `context of head ${head}`, height: 9 }),
        );
      }),
    );
  }
}

/** The arrays of a layer, unpacked. */
function parts(one) {
  const whole = ["before", "self", "cross", "feed", "stream"]
    .filter((part) => one[part])
    .map((part) => [part, unpack(one[part]).data]);
  const heads = ["self_heads", "cross_heads"]
    .filter((part) => one[part])
    .map((part) => {
      const stack = unpack(one[part]);
      return [part, Array.from({ length: stack.shape[0] }, (_, at) => stack.row(at))];
    });
  return Object.fromEntries([...whole, ...heads]);
}

/** What the model would write if each layer were its last. */
export const lens = (layers) =>
  h(
    "div",
    { class: "lens" },
    h("b", { class: "small" }, "If it ended after layer …"),
    h(
      "ol",
      { start: 0 },
      layers.map(({ lens: [best] }) =>
        h(
          "li",
          {},
          word(best.special ? "end of sentence" : best.text),
          h("span", { class: "number" }, percent(best.probability)),
        ),
      ),
    ),
  );
