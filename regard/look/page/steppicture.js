// One step as one drawing, for export: query, scores, weights, values with their sum, and the likeliest words.

import { isolate, svg, visible } from "./dom.js";
import { wide } from "./grid.js";
import { percent, show } from "./maths.js";
import { probability } from "./stage.js";
import { drawnStrip, largest } from "./strips.js";
import { csvLines } from "./tables.js";

const LINE = 22,
  BAR = 150,
  NUMBER = 64,
  GAP = 24,
  TOP = 92;

/** The drawing. @returns {SVGElement} */
export function stepPicture(step, { tokens, token }) {
  const words = step.output?.words ?? [],
    shares = words.map((one) => probability(one, step));
  const scores = Array.from(step.scores?.data ?? tokens, (value) => (Number.isFinite(value) ? value : NaN)),
    most = Math.max(1e-9, ...scores.filter(Number.isFinite).map(Math.abs));
  const room = (texts) => 12 + Math.max(60, ...texts.map((text) => wide(visible(text), 13)));
  const names = room(tokens.map((one) => one.text)),
    likely = room(words.map((one) => one.text ?? one.piece));
  const at = { score: names };
  at.weight = at.score + BAR + NUMBER + GAP;
  at.value = at.weight + BAR + NUMBER + GAP;
  at.word = at.value + BAR + GAP + likely;
  const width = at.word + BAR + NUMBER + 8,
    rows = Math.max(tokens.length + 2, words.length),
    height = TOP + rows * LINE + 12;
  const text = (x, y, what, more = {}) => svg("text", { x, y: y + 15, "font-size": 13, ...more }, what);
  const end = { "text-anchor": "end" };
  const bar = (x, y, share, role) =>
    svg("rect", {
      class: role,
      x: share < 0 ? x + BAR * share : x,
      y: y + 5,
      width: Math.max(0.5, Math.abs(share) * BAR),
      height: 11,
      rx: 2,
    });
  const cells = (vector, x, y, name) => {
    if (!vector) return null;
    return drawnStrip(vector, largest(vector), name, { x, y: y + 4, width: BAR, height: 14 });
  };
  const left = tokens.flatMap((one, s) => {
    const y = TOP + s * LINE,
      hidden = !Number.isFinite(scores[s]);
    return [
      text(names - 8, y, isolate(visible(one.text)), end),
      !hidden && bar(at.score + BAR / 2, y, scores[s] / most / 2, "score"),
      text(at.score + BAR + NUMBER, y, hidden ? (step.scores ? "hidden" : "") : show(scores[s]), end),
      bar(at.weight, y, step.weights.data[s], "weight"),
      text(at.weight + BAR + NUMBER, y, step.weights.data[s].toFixed(3), end),
      step.values && cells(step.values.row(s), at.value, y, `vector of ${one.text}`),
    ];
  });
  const right = words.flatMap((one, place) => {
    const y = TOP + place * LINE;
    return [
      text(at.word - 8, y, isolate(visible(one.text ?? one.piece)), {
        ...end,
        "font-weight": one.chosen ? 700 : 400,
      }),
      bar(at.word, y, shares[place], "output"),
      text(at.word + BAR + NUMBER, y, percent(shares[place]), end),
    ];
  });
  const sum = TOP + (tokens.length + 0.5) * LINE;
  return svg(
    "svg",
    { class: "steppicture", width, height, viewBox: `0 0 ${width} ${height}` },
    text(names - 8, 8, "1 query", end),
    cells(step.query?.data, at.score, 8, "query"),
    text(at.score, TOP - 28, "2 scores"),
    text(at.weight, TOP - 28, "3 weights"),
    text(at.value, TOP - 28, "4 vectors, and their weighted sum"),
    words.length > 0 && text(at.word, TOP - 28, `5, 6 next word: ${visible(token.text)}`),
    left,
    text(at.value - 8, sum, "context", end),
    cells(step.context?.data, at.value, sum, "context"),
    right,
  );
}

/** The numbers of a step for a spreadsheet. */
export function stepTable(step, { tokens }) {
  const rows = tokens.map((one, s) => [one.text, step.scores?.data[s], step.weights.data[s]]);
  return csvLines([["source", "score", "weight"], ...rows]);
}
