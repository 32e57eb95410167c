// Two models on one sentence: their words, their matrices, and where they differ.

import { h, svg, visible, word } from "./dom.js";
import { drawMatrix } from "./matrix.js";
import { show } from "./maths.js";
import { signedColour } from "./palette.js";
import { largest, strip } from "./strips.js";
import { plainTable } from "./tables.js";

const total = (trace) => trace.target.tokens.reduce((sum, token) => sum + (token.logprob ?? 0), 0);

const chance = (trace) => `log-probability ${show(total(trace))}`;
const waited = (trace) => (trace.waited === undefined ? "" : `, ${Math.round(trace.waited)} ms`);

/**
 * The two models beside each other.
 * @param {[object, object]} traces @param {[object, object]} tables @param {[string, string]} names
 * @returns {{element: Element, marks: (() => void)[]}}
 */
export function beside(traces, tables, names) {
  const drawn = tables.map((table, at) =>
    table?.seen.kind === "cross"
      ? drawMatrix(table, traces[at], { bare: true, room: 420, label: `Attention of ${names[at]}` })
      : null,
  );
  const card = (trace, at) =>
    h(
      "section",
      { class: "card", "aria-label": names[at] },
      h("h3", {}, names[at]),
      h("p", { class: "sentence", dir: "auto" }, marked(trace, traces[1 - at])),
      drawn[at]?.element ?? fixed(trace),
      h("p", { class: "small" }, `${trace.target.tokens.length} tokens, ${chance(trace)}${waited(trace)}`),
    );
  return {
    element: h("div", { class: "beside" }, card(traces[0], 0), card(traces[1], 1)),
    marks: drawn.flatMap((one) => (one ? [one.mark] : [])),
  };
}

/** The same in numbers. */
export const sideTable = (traces, names) =>
  plainTable(
    "Two models",
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

/** The words of a translation; those that are not part of the longest run of words shared with the other are marked. */
function marked(trace, other) {
  const ours = trace.target.text.split(" "),
    theirs = other.target.text.split(" ");
  const shared = Array.from({ length: ours.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let a = ours.length - 1; a >= 0; a--) {
    for (let b = theirs.length - 1; b >= 0; b--)
      shared[a][b] = ours[a] === theirs[b] ? shared[a + 1][b + 1] + 1 : Math.max(shared[a + 1][b], shared[a][b + 1]);
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
export function difference(one, two) {
  if (one?.seen.kind !== "cross" || two?.seen.kind !== "cross" || one.columns.length !== two.columns.length)
    return null;
  const rows = Math.min(one.rows.length, two.rows.length);
  return {
    rows: one.rows.slice(0, rows).map((label, t) => ({
      ...label,
      text: label.text === two.rows[t].text ? label.text : `${label.text} / ${two.rows[t].text}`,
    })),
    columns: one.columns,
    weights: one.weights.slice(0, rows).map((row, t) => row.map((weight, s) => weight - two.weights[t][s])),
  };
}

/** The difference as a map: no colour where both are equal. */
export function differenceMap(gap) {
  const size = Math.max(14, Math.min(34, 560 / gap.columns.length)),
    left = 150,
    top = 80;
  const width = left + gap.columns.length * size + 60,
    height = top + gap.rows.length * size + 6;
  return h(
    "div",
    { class: "scroller" },
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
              fill: signedColour(value, 1),
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
          visible(label.text),
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
          visible(label.text),
        ),
      ),
    ),
  );
}
