// Maps of a caption's attention on the true grid of its picture, and all of them on one sheet.

import { isolate, svg, visible } from "./dom.js";
import { fit, scale, wide } from "./grid.js";
import { show } from "./maths.js";
import { legendHues, palettes, shades } from "./palette.js";
import { csvLines, rounded } from "./tables.js";

/** Colours of a map; the first darkens cells of small weight and leaves the rest of the picture alone. */
export const tints = () => ["spotlight", ...palettes().reverse()];
const FEW = 5; // regions that the sentence of a map sums up
const FINE = 8; // parts of a cell's side where the map is smoothed

/**
 * How maps are painted.
 * @typedef {{grid: number[], square: string, side: number, tint: string, smooth: boolean, opacity: number}} Style
 */

/** The colour of a share of the scale, and how much of it: 0 lets the picture through. */
const paint = (style, share) =>
  style.tint === "spotlight" ? ["#000000", 1 - share] : [shades(style.tint)(share).fill, 1];

/** The picture alone. @param {Style} style @param {number} size */
export const background = (style, size) =>
  style.square
    ? svg("image", {
        href: style.square,
        width: size,
        height: size,
        preserveAspectRatio: "none",
        "image-rendering": style.side < 128 ? "pixelated" : null,
      })
    : svg("rect", { class: "nothing", width: size, height: size });

/** The map of `values`, one for each cell, on a scale from 0 to `most`. */
export const map = (style, values, most, size) =>
  svg(
    "g",
    { class: "map", opacity: style.opacity, "aria-hidden": "true" },
    style.smooth ? blended(style, values, most, size) : cells(style, values, most, size),
  );

function cells(style, values, most, size) {
  const [rows, columns] = style.grid;
  return values.map((value, at) => {
    const [fill, cover] = paint(style, value / most);
    return svg("rect", {
      x: ((at % columns) * size) / columns,
      y: (Math.floor(at / columns) * size) / rows,
      width: size / columns,
      height: size / rows,
      fill,
      "fill-opacity": cover === 1 ? null : cover.toFixed(4),
      "shape-rendering": "crispEdges",
    });
  });
}

/** The cells blended into each other, for the eye alone: between their middles, values are mixed linearly. */
function blended(style, values, most, size) {
  const [rows, columns] = style.grid;
  const canvas = document.createElement("canvas");
  canvas.width = columns * FINE;
  canvas.height = rows * FINE;
  const brush = canvas.getContext("2d");
  for (let y = 0; y < canvas.height; y++)
    for (let x = 0; x < canvas.width; x++) {
      const [colour, cover] = paint(style, between(values, style.grid, (y + 0.5) / FINE, (x + 0.5) / FINE) / most);
      brush.globalAlpha = cover;
      brush.fillStyle = colour;
      brush.fillRect(x, y, 1, 1);
    }
  return svg("image", { href: canvas.toDataURL(), width: size, height: size, preserveAspectRatio: "none" });
}

/** The value at a place of the grid, in cells from the top left; beyond the outermost middles it stays as it is. */
export function between(values, [rows, columns], down, right) {
  const place = (at, count) => {
    const from = Math.min(Math.max(at - 0.5, 0), count - 1),
      low = Math.min(Math.floor(from), Math.max(0, count - 2));
    return { low, high: Math.min(low + 1, count - 1), part: from - low };
  };
  const y = place(down, rows),
    x = place(right, columns);
  const row = (at) => values[at * columns + x.low] * (1 - x.part) + values[at * columns + x.high] * x.part;
  return row(y.low) * (1 - y.part) + row(y.high) * y.part;
}

/** The lines between the cells; none where they are blended. */
export function lines(style, size) {
  if (style.smooth) return null;
  const [rows, columns] = style.grid;
  const across = Array.from({ length: rows - 1 }, (_, at) => `M0 ${((at + 1) * size) / rows}H${size}`);
  const down = Array.from({ length: columns - 1 }, (_, at) => `M${((at + 1) * size) / columns} 0V${size}`);
  return svg("path", { class: "lines", d: [...across, ...down].join(""), "aria-hidden": "true" });
}

/** The scale of a map, from 0 to `most`. */
export function legend(style, most, what = "weight") {
  const hues =
    style.tint === "spotlight" ? ["#000000", "#404040", "#808080", "#c0c0c0", "#ffffff"] : legendHues(style.tint);
  return svg(
    "svg",
    { class: "legend", width: 150, height: 32, role: "img", "aria-label": `Scale from 0 to ${show(most)}` },
    scale(hues, 3, 3, what, show(most)),
  );
}

/** The weights of all words together. */
export const coverage = (table) => table.columns.map((_, at) => table.weights.reduce((sum, row) => sum + row[at], 0));

/** "row 5, column 9": people count from 1. */
const where = (at, [, columns]) => `row ${Math.floor(at / columns) + 1}, column ${(at % columns) + 1}`;

/** Python's sentence about the map of a row; -1 is all words together. */
export const describeMap = (said, row) => said.maps[row + 1];

const topShare = (values) =>
  [...values]
    .sort((a, b) => b - a)
    .slice(0, FEW)
    .reduce((sum, value) => sum + value, 0);

/** The words with what is known of each: probability, gate, strongest region. */
export const measured = (table, trace, grid) =>
  table.rows.map((label, row) => {
    const gates = label.tokens.map((t) => trace.plain.steps?.[t]?.norms?.gate).filter((gate) => gate !== undefined);
    const values = table.weights[row],
      best = values.indexOf(Math.max(...values));
    return {
      label,
      values,
      probability: trace.probability(label),
      gate: gates.length ? gates.reduce((sum, gate) => sum + gate, 0) / gates.length : null,
      best,
      where: where(best, grid),
      top: topShare(values),
    };
  });

/** The words and their weights for a spreadsheet. */
export function wordLines(table, words) {
  const cells = table.columns.map((label) => `row ${label.text.replace(",", ", column ")}`);
  const body = words.map((one) => [one.label.text, one.probability, one.gate, ...one.values.map(rounded)]);
  return csvLines([["word", "probability", "gate", ...cells], ...body]);
}

/** Everything on one sheet, for export: the picture, the chosen map, and below the map of every word. */
export function sheet(style, table, words, row, most, caption, said) {
  const size = 240,
    frame = 112,
    gap = 14,
    width = 6 * (frame + gap) + gap;
  const values = row < 0 ? coverage(table) : table.weights[row];
  const colours = legend(style, most(row), row < 0 ? "sum of weights" : "weight");
  colours.setAttribute("x", 2 * size + 3 * gap);
  colours.setAttribute("y", 44);
  const blended = style.smooth ? " Smoothed for display." : "";
  const text = wrapped(describeMap(said, row) + blended, width - 2 * size - 4 * gap);
  const lower = size + 76;
  const height = lower + Math.ceil(words.length / 6) * (frame + 44);
  const move = (x, y, ...parts) => svg("g", { transform: `translate(${x} ${y})` }, parts);
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, class: "sheet" },
    serif(caption, gap, 28, width - 2 * gap, 19),
    move(gap, 44, background(style, size)),
    move(size + 2 * gap, 44, background(style, size), map(style, values, most(row), size), lines(style, size)),
    colours,
    text.map((line, at) => svg("text", { x: 2 * size + 3 * gap, y: 100 + at * 19, "font-size": 13.5 }, line)),
    words.map((one, at) =>
      move(
        gap + (at % 6) * (frame + gap),
        lower + Math.floor(at / 6) * (frame + 44),
        background(style, frame),
        map(style, one.values, most(at), frame),
        serif(one.label.text, 0, frame + 17, frame, 14),
        one.gate !== null && svg("text", { x: 0, y: frame + 32, "font-size": 11 }, `\u03b2 ${show(one.gate)}`),
      ),
    ),
  );
}

const serif = (text, x, y, width, size) =>
  svg("text", { class: "serif", x, y, "font-size": size }, isolate(fit(visible(text), width, size)));

function wrapped(text, width) {
  const found = [""];
  for (const part of text.split(" ")) {
    const longer = found.at(-1) ? `${found.at(-1)} ${part}` : part;
    if (wide(longer, 13.5) <= width) found[found.length - 1] = longer;
    else found.push(fit(part, width, 13.5));
  }
  return found;
}
