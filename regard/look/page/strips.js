// A vector as a strip of coloured cells: purple below zero, orange above, wider vectors averaged into bins.

import { svg } from "./dom.js";
import { bins } from "./maths.js";
import { signedColour } from "./palette.js";

/** The largest absolute value among vectors, so that strips beside each other share a scale. */
export const largest = (...vectors) => Math.max(1e-9, ...vectors.flatMap((vector) => bins(vector).map(Math.abs)));

/** A strip, coloured on a scale from -most to most. */
export function strip(vector, most, { label = "vector", height = 18 } = {}) {
  const cells = bins(vector);
  return svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${cells.length} 1`,
      preserveAspectRatio: "none",
      height,
      role: "img",
      "aria-label": label,
    },
    cells.map((value, at) => svg("rect", { x: at, y: 0, width: 1.02, height: 1, fill: signedColour(value, most) })),
  );
}
