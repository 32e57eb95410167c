// One step as one drawing, for export: scores, weights and the likeliest words.

import { svg, visible } from "./dom.js";
import { quote } from "./tables.js";
import { percent, show } from "./maths.js";
import { probability } from "./panels.js";

const LINE = 22,
  NAME = 130,
  BAR = 170;

/** The drawing. @returns {SVGElement} */
export function stepPicture(step, { tokens, token }) {
  const shares = step.output.words.map((one) => probability(one, step));
  const scores = Array.from(step.scores?.data ?? tokens, (value) => (Number.isFinite(value) ? value : NaN)),
    most = Math.max(1e-9, ...scores.filter(Number.isFinite).map(Math.abs));
  const rows = Math.max(tokens.length, shares.length),
    width = NAME + 2 * BAR + 80 + NAME + BAR + 100,
    height = rows * LINE + 60;
  const text = (x, y, what, more = {}) => svg("text", { x, y: y + 15, "font-size": 13, ...more }, what);
  const bar = (x, y, share, role) =>
    svg("rect", {
      class: role,
      x: share < 0 ? x + BAR * share : x,
      y: y + 5,
      width: Math.max(0.5, Math.abs(share) * BAR),
      height: 11,
      rx: 2,
    });
  const left = tokens.flatMap((one, s) => {
    const y = 34 + s * LINE,
      hidden = !Number.isFinite(scores[s]);
    return [
      text(NAME - 8, y, `\u2068${visible(one.text)}\u2069`, { "text-anchor": "end" }),
      !hidden && bar(NAME + BAR / 2, y, scores[s] / most / 2, "score"),
      text(NAME + BAR + 4, y, hidden ? (step.scores ? "masked" : "") : show(scores[s])),
      bar(NAME + BAR + 70, y, step.weights.data[s], "weight"),
      text(NAME + 2 * BAR + 76, y, step.weights.data[s].toFixed(3)),
    ];
  });
  const x = NAME + 2 * BAR + 130;
  const right = step.output.words.flatMap((one, at) => {
    const y = 34 + at * LINE;
    return [
      text(x + NAME - 8, y, `\u2068${visible(one.text ?? one.piece)}\u2069`, {
        "text-anchor": "end",
        "font-weight": one.chosen ? 700 : 400,
      }),
      bar(x + NAME, y, shares[at], "output"),
      text(x + NAME + BAR + 4, y, percent(shares[at])),
    ];
  });
  return svg(
    "svg",
    { class: "steppicture", width, height, viewBox: `0 0 ${width} ${height}` },
    text(NAME, 4, "scores"),
    text(NAME + BAR + 70, 4, "weights"),
    text(x + NAME, 4, `next word: ${visible(token.text)}`),
    left,
    right,
  );
}

/** The numbers of a step for a spreadsheet. */
export function stepTable(step, { tokens }) {
  const rows = tokens.map((one, s) => [quote(one.text), step.scores?.data[s] ?? "", step.weights.data[s]].join(","));
  return ["source,score,weight", ...rows].join("\r\n");
}
