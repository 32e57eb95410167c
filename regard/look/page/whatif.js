// What if? Every change is named in a bar above all views until it is undone; nothing is changed silently.

import { button, h, put, visible, word } from "./dom.js";
import { host } from "./host.js";
import { differing } from "./sides.js";
import { state } from "./state.js";

/** Make changes; the words before step `t` stay, where it is given. */
export function change(changes, t = null) {
  const trace = state.get("trace");
  state.set({ changes, prefix: t ? trace.pieces(t) : null, ...(t === null ? { t: null, s: null } : {}) });
  host.translate();
}

/** The changes with those of a kind replaced. */
const replaced = (kind, one, same = () => true) => [
  ...state.get("changes").filter((each) => each.kind !== kind || !same(each)),
  ...(one ? [one] : []),
];

/** Soften or sharpen attention; 1 is the model's own. */
export const setTemperature = (value, t) =>
  change(replaced("temperature", value === 1 ? null : { kind: "temperature", value }), t);

/** The temperature that is set. */
export const temperature = () => state.get("changes").find((each) => each.kind === "temperature")?.value ?? 1;

/** Every word gets nearly the same weight at this temperature. */
export const UNIFORM = 1000;

/** The label of the source word that holds a token: hiding it masks all its pieces, as `regard look --mask` does. */
export function sourceWord(trace, s) {
  const seen = trace.leading[0];
  return (seen.words ?? seen.pieces)[0].columns.find((label) => label.tokens.includes(s));
}

const masks = (label) => (each) => each.kind === "mask" && String(each.positions) === String(label.tokens);

/** Whether a source word is hidden. */
export const isHidden = (label) => state.get("changes").some(masks(label));

/** Hide a source word, or show it again. */
export const hide = (label, t = null) =>
  change(replaced("mask", isHidden(label) ? null : { kind: "mask", positions: label.tokens }, masks(label)), t);

/** Give all attention of step t to one source token. */
export const lookOnly = (t, s) =>
  change(
    replaced("set-row", { kind: "set-row", t, position: s }, (each) => each.t === t),
    t,
  );

/** Set all weights of step t, one for each source token. */
export const setWeights = (t, weights) =>
  change(
    replaced("set-row", { kind: "set-row", t, weights: weights.map((one) => Number(one.toFixed(4))) }, (each) => each.t === t),
    t,
  );

/** Swap a source word with the next one: another sentence, named until it is undone. */
export function swap(trace, s) {
  const seen = trace.leading[0];
  const labels = (seen.words ?? seen.pieces)[0].columns.filter((label) => !label.special);
  const at = labels.findIndex((label) => label.tokens.includes(s));
  const [one, two] = [labels[at], labels[at + 1]];
  if (!one || !two) return;
  const span = ({ tokens }) => [trace.source.tokens[tokens[0]].start, trace.source.tokens[tokens.at(-1)].end];
  const points = [...trace.source.text],
    [[a, b], [c, d]] = [span(one), span(two)];
  const part = (from, to) => points.slice(from, to).join("");
  const text = part(0, a) + part(c, d) + part(b, c) + part(a, b) + part(d);
  const before = state.get("text");
  state.set({
    text: before.replace(trace.source.text, () => text),
    swapped: { before, words: [one.text, two.text] },
    changes: [],
    prefix: null,
  });
  host.translate();
}

/** Whether there is a word after `s` to swap with. */
export const canSwap = (trace, s) => {
  const label = sourceWord(trace, s),
    next = label && trace.source.tokens[label.tokens.at(-1) + 1];
  return Boolean(label && !label.special && next && !next.special && state.get("text").includes(trace.source.text));
};

/** Undo everything. */
export function undoAll() {
  const swapped = state.get("swapped");
  state.set({ changes: [], prefix: null, swapped: null, ...(swapped ? { text: swapped.before } : {}) });
  host.translate();
}

const quoted = (text) => `‘${visible(text)}’`;

function described(each, trace) {
  const unit = trace?.pieced ? "piece" : "word";
  const name = (s) => quoted(trace?.source.tokens[s]?.text ?? String(s));
  if (each.kind === "temperature")
    return each.value >= UNIFORM
      ? "every word gets the same attention"
      : `attention is ${each.value > 1 ? "softer" : "sharper"} (temperature ${each.value})`;
  if (each.kind === "mask") {
    const label = trace && sourceWord(trace, each.positions[0]);
    return `${label ? quoted(label.text) : name(each.positions[0])} is hidden`;
  }
  if (each.kind === "set-row" && each.weights) return `the weights of ${unit} ${each.t + 1} are set by hand`;
  if (each.kind === "set-row") return `${unit} ${each.t + 1} looks only at ${name(each.position)}`;
  return each.kind;
}

/** The words for a forced beginning. */
function beginning(prefix, trace) {
  if (typeof prefix === "string") return `it must begin with ${quoted(prefix)}`;
  if (!prefix.length) return "written again from the start";
  const last = trace?.target.tokens[prefix.length - 1];
  const text = last ? [...trace.target.text].slice(0, last.end).join("") : prefix.join("").replaceAll("▁", " ").trim();
  return `it must begin with ${quoted(text)}`;
}

/** The bar that names what is changed. */
class Changes extends HTMLElement {
  connectedCallback() {
    this.listed = h("span", { class: "parts" });
    this.was = h("span", { class: "parts" });
    put(this, this.listed, this.was);
    this.key = null;
    this.end = state.on(["changes", "prefix", "swapped", "trace"], () => this.show());
    this.show();
  }

  disconnectedCallback() {
    this.end();
  }

  /** The translation without the changes, where it is another one. */
  before() {
    const { sentences, line, swapped, trace } = state.values,
      was = swapped ? undefined : sentences[line]?.translatedText;
    if (!trace || was === undefined || was === trace.target.text) return null;
    return h("span", { class: "before" }, "before: ", h("bdi", { dir: "auto" }, differing(was, trace.target.text)));
  }

  show() {
    const { changes, prefix, swapped, trace } = state.values;
    const list = (host.live ? changes : []).map((each) => ({
      text: described(each, trace),
      undo: () => {
        const left = changes.filter((other) => other !== each);
        state.set({ changes: left, ...(left.length ? {} : { prefix: null }) });
        host.translate();
      },
    }));
    if (host.live && prefix && !changes.length)
      list.push({ text: beginning(prefix, trace), undo: () => (state.set({ prefix: null }), host.translate()) });
    if (swapped) list.push({ text: `${swapped.words.map(quoted).join(" and ")} are swapped`, undo: undoAll });
    if (!host.live) list.push(...(trace?.changes ?? []).map(({ text }) => ({ text })));
    this.hidden = !list.length;
    this.setAttribute("role", "status");
    put(this.was, list.length > 0 && this.before());
    const key = JSON.stringify([list.map((each) => each.text), changes, prefix, swapped]);
    if (key === this.key) return; // a button stays the same while it is pressed, though a trace arrives
    this.key = key;
    put(
      this.listed,
      list.length > 0 && h("b", {}, "Changed: "),
      list.map((each) =>
        h(
          "span",
          { class: "changed" },
          word(each.text),
          host.live && button("undo", each.undo, { class: "quiet" }),
        ),
      ),
      list.length > 1 && host.live && button("Undo all", undoAll, { class: "quiet" }),
    );
  }
}

customElements.define("regard-changes", Changes);
