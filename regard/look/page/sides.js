// Several models on one sentence: their words, their matrices, and where they differ.

import { h, isolate, svg, visible, word } from "./dom.js";
import { room, wide } from "./grid.js";
import { drawMatrix, SEEN } from "./matrix.js";
import { show } from "./maths.js";
import { signedHues } from "./palette.js";
import { largest, strip } from "./strips.js";
import { plainTable } from "./tables.js";

const MOST_BESIDE = 24; // words of a sentence whose matrices stand beside each other

const total = (trace) => trace.target.tokens.reduce((sum, token) => sum + (token.logprob ?? 0), 0);

const chance = (trace) => `log-probability ${show(total(trace))}`;
const waited = (trace) => (trace.waited === undefined ? "" : `, ${Math.round(trace.waited)} ms`);

/**
 * The models beside each other.
 * @param {object[]} traces the first is what the others are compared with @param {object[]} tables @param {string[]} names
 * @returns {{element: Element, marks: (() => void)[]}}
 */
export function beside(traces, tables, names, backs) {
  // Long sentences take the whole width, one below another, so that nothing is cut off.
  const long = tables.some((table) => table && table.columns.length > MOST_BESIDE);
  const space = long ? room() - 60 : Math.min(420, room() - 50);
  const drawn = tables.map((table, at) =>
    table?.seen.kind === "cross"
      ? drawMatrix(table, traces[at], { bare: true, room: space, label: `Attention of ${names[at]}` })
      : null,
  );
  /** What a translation is compared with: the first one; that with another; a translation back with the sentence. */
  const other = (at) => {
    if (backs[at]) return traces[0].source.text;
    return (at ? traces[0] : (traces.find((_, one) => one && !backs[one]) ?? traces[0])).target.text;
  };
  const card = (trace, at) =>
    h(
      "section",
      { class: "card", "aria-label": names[at] },
      h("h2", {}, names[at]),
      h("p", { class: "sentence", dir: "auto" }, differing(trace.target.text, other(at))),
      drawn[at]?.element ?? fixed(trace),
      h("p", { class: "small" }, `${trace.target.tokens.length} tokens, ${chance(trace)}${waited(trace)}`),
    );
  return {
    element: h("div", { class: `beside${long ? " stacked" : ""}` }, traces.map(card)),
    marks: drawn.flatMap((one) => (one ? [one.mark] : [])),
  };
}

/** The same in numbers. */
export const sideTable = (traces, names) =>
  plainTable(
    "Models",
    ["model", "translation", "tokens", "log-probability", "milliseconds"],
    traces.map((trace, at) => [
      names[at],
      word(trace.target.text),
      trace.target.tokens.length,
      show(total(trace)),
      Math.round(trace.waited ?? 0),
    ]),
  );

/** The one vector of a model without attention. */
function fixed(trace) {
  const vector = trace.plain.steps?.[0]?.context ?? [];
  return [
    h("p", { class: "fixed-note" }, "No attention: every word was written from this one vector of the whole sentence."),
    vector.length > 0 && strip(vector, largest(vector), { label: "the one fixed vector", height: 30 }),
  ];
}

/** Places [a, b] of the longest common subsequence of two lists of texts. */
export function matches(ours, theirs) {
  const shared = Array.from({ length: ours.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let a = ours.length - 1; a >= 0; a--)
    for (let b = theirs.length - 1; b >= 0; b--)
      shared[a][b] = ours[a] === theirs[b] ? shared[a + 1][b + 1] + 1 : Math.max(shared[a + 1][b], shared[a][b + 1]);
  const found = [];
  for (let a = 0, b = 0; a < ours.length && b < theirs.length;) {
    if (ours[a] === theirs[b]) found.push([a++, b++]);
    else if (shared[a + 1][b] >= shared[a][b + 1]) a++;
    else b++;
  }
  return found;
}

/** The words of a text; those that the other one does not have in common with it are marked. */
export function differing(text, other) {
  const ours = text.split(" ");
  const same = new Set(matches(ours, other.split(" ")).map(([a]) => a));
  return ours.map((text, a) => [a ? " " : "", same.has(a) ? word(text) : h("mark", {}, word(text))]);
}

/** Where two tables of the same source differ. Equal words are compared; a word of one alone keeps its own weights. */
export function difference(one, two) {
  if (one?.seen.kind !== "cross" || two?.seen.kind !== "cross" || one.columns.length !== two.columns.length)
    return null;
  const texts = (table) => table.rows.map((label) => label.text);
  const pairs = [...matches(texts(one), texts(two)), [one.rows.length, two.rows.length]];
  const rows = [],
    weights = [];
  const add = (label, text, values) => {
    rows.push({ ...label, text });
    weights.push(values);
  };
  let a = 0,
    b = 0;
  for (const [next, other] of pairs) {
    for (; a < next; a++) add(one.rows[a], `${one.rows[a].text} (first only)`, one.weights[a]);
    for (; b < other; b++)
      add(
        two.rows[b],
        `${two.rows[b].text} (second only)`,
        two.weights[b].map((weight) => -weight),
      );
    if (a === one.rows.length || b === two.rows.length) continue;
    add(
      one.rows[a],
      one.rows[a].text,
      one.weights[a].map((weight, s) => weight - two.weights[b][s]),
    );
    a++;
    b++;
  }
  return { rows, columns: one.columns, weights };
}

/** The difference as a map: no colour where both are equal. */
export function differenceMap(gap) {
  const left = 20 + Math.max(...gap.rows.map((label) => wide(visible(label.text)))),
    top = 24 + 0.72 * Math.max(...gap.columns.map((label) => wide(visible(label.text)))),
    size = Math.max(14, Math.min(34, 560 / gap.columns.length, (SEEN - top - 6) / gap.rows.length)),
    hue = signedHues();
  const width = left + gap.columns.length * size + top,
    height = top + gap.rows.length * size + 6;
  return h(
    "div",
    { class: "scroller", tabindex: 0, role: "region", "aria-label": "Difference of the attention" },
    svg(
      "svg",
      { class: "matrix", width, height, role: "img", "aria-label": "Difference of the two models\u2019 attention" },
      gap.weights.flatMap((row, t) =>
        row.map((value, s) =>
          svg(
            "rect",
            {
              x: left + s * size + 0.5,
              y: top + t * size + 0.5,
              width: size - 1,
              height: size - 1,
              rx: 2,
              fill: hue(value),
            },
            svg("title", {}, show(value)),
          ),
        ),
      ),
      gap.rows.map((label, t) =>
        svg(
          "text",
          {
            class: "label",
            x: left - 8,
            y: top + (t + 0.5) * size,
            "text-anchor": "end",
            "dominant-baseline": "central",
            "font-size": 12,
          },
          isolate(visible(label.text)),
        ),
      ),
      gap.columns.map((label, s) =>
        svg(
          "text",
          {
            class: "label",
            transform: `translate(${left + (s + 0.5) * size} ${top - 8}) rotate(-45)`,
            "font-size": 12,
          },
          isolate(visible(label.text)),
        ),
      ),
    ),
  );
}
