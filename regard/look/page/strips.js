// A vector as a strip of coloured cells: purple below zero, orange above, wider vectors averaged into bins.

import { h, svg } from "./dom.js";
import { bins } from "./maths.js";
import { signedHues } from "./palette.js";

/** The largest absolute value among vectors, so that strips beside each other share a scale. */
export const largest = (...vectors) => Math.max(1e-9, ...vectors.flatMap((vector) => bins(vector).map(Math.abs)));

/** The colours of the cells, on a scale from -most to most. */
function hues(vector, most) {
  const hue = signedHues();
  return bins(vector).map((value) => hue(value / most));
}

/** A strip as one element with hard stops: a step may have a hundred strips. */
export function strip(vector, most, { label = "vector", height = 18 } = {}) {
  const cells = hues(vector, most),
    share = (at) => `${((100 * at) / cells.length).toFixed(2)}%`;
  const stops = cells.map((colour, at) => `${colour} ${share(at)} ${share(at + 1)}`);
  return h("span", {
    class: "strip",
    role: "img",
    "aria-label": label,
    style: { height: `${height}px`, "background-image": `linear-gradient(to right, ${stops.join(", ")})` },
  });
}

/** The same as a drawing, for a picture that is saved. @param {{x: number, y: number, width: number, height: number}} place */
export function drawnStrip(vector, most, label, place) {
  const cells = hues(vector, most);
  return svg(
    "svg",
    { ...place, viewBox: `0 0 ${cells.length} 1`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    cells.map((fill, at) => svg("rect", { x: at, y: 0, width: 1.02, height: 1, fill })),
  );
}
