// Where the words of a caption looked in a picture: maps on the true grid, the words for them, and all on one sheet.

import { svg, visible } from "./dom.js";
import { fit, wide } from "./grid.js";
import { show } from "./maths.js";
import { steps, weightColour } from "./palette.js";
import { quote } from "./tables.js";

/** Colours of a map; the first darkens what was not looked at and leaves the rest of the picture alone. */
export const TINTS = ["spotlight", "viridis", "cividis", "blue"];
const FEW = 5; // regions that the sentence of a map sums up
const HARDLY = 0.05;
const FINE = 8; // parts of a cell's side where the map is smoothed

/**
 * How maps are painted.
 * @typedef {{grid: number[], square: string, side: number, tint: string, smooth: boolean, opacity: number}} Look
 */

/** The colour of a share of the scale, and how much of it: 0 lets the picture through. */
const paint = (look, share) =>
  look.tint === "spotlight" ? ["#000000", 1 - share] : [weightColour(share, look.tint), 1];

/** The picture alone. @param {Look} look @param {number} size */
export const background = (look, size) =>
  look.square
    ? svg("image", {
        href: look.square,
        width: size,
        height: size,
        preserveAspectRatio: "none",
        "image-rendering": look.side < 128 ? "pixelated" : null,
      })
    : svg("rect", { class: "nothing", width: size, height: size });

/** The map of `values`, one for each cell, on a scale from 0 to `most`. */
export const map = (look, values, most, size) =>
  svg(
    "g",
    { class: "map", opacity: look.opacity, "aria-hidden": "true" },
    look.smooth ? blended(look, values, most, size) : cells(look, values, most, size),
  );

function cells(look, values, most, size) {
  const [rows, columns] = look.grid;
  return values.map((value, at) => {
    const [fill, cover] = paint(look, value / most);
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
function blended(look, values, most, size) {
  const [rows, columns] = look.grid;
  const canvas = document.createElement("canvas");
  canvas.width = columns * FINE;
  canvas.height = rows * FINE;
  const brush = canvas.getContext("2d");
  for (let y = 0; y < canvas.height; y++)
    for (let x = 0; x < canvas.width; x++) {
      const [colour, cover] = paint(look, between(values, look.grid, (y + 0.5) / FINE, (x + 0.5) / FINE) / most);
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
export function lines(look, size) {
  if (look.smooth) return null;
  const [rows, columns] = look.grid;
  const across = Array.from({ length: rows - 1 }, (_, at) => `M0 ${((at + 1) * size) / rows}H${size}`);
  const down = Array.from({ length: columns - 1 }, (_, at) => `M${((at + 1) * size) / columns} 0V${size}`);
  return svg("path", { class: "lines", d: [...across, ...down].join(""), "aria-hidden": "true" });
}

/** The scale of a map, from 0 to `most`. */
export function legend(look, most, what = "weight") {
  const shades = look.tint === "spotlight" ? ["#000000", "#404040", "#808080", "#c0c0c0", "#ffffff"] : steps(look.tint);
  const width = 144 / shades.length;
  return svg(
    "svg",
    { class: "legend", width: 150, height: 32, role: "img", "aria-label": `Scale from 0 to ${show(most)}` },
    shades.map((fill, at) => svg("rect", { x: 3 + at * width, y: 3, width: width + 0.3, height: 10, fill })),
    svg("rect", { class: "frame", x: 2.5, y: 2.5, width: 145, height: 11, fill: "none" }),
    svg("text", { x: 3, y: 27, "font-size": 11 }, "0"),
    svg("text", { x: 75, y: 27, "font-size": 11, "text-anchor": "middle" }, what),
    svg("text", { x: 147, y: 27, "font-size": 11, "text-anchor": "end" }, show(most)),
  );
}

/** How much every cell was looked at by all words together. */
export const coverage = (table) => table.columns.map((_, at) => table.weights.reduce((sum, row) => sum + row[at], 0));

/** "row 5, column 9 (from 0)": counted as in the trace and in `regard look --cell`. */
const where = (at, [, columns]) => `row ${Math.floor(at / columns)}, column ${at % columns} (from 0)`;

const COUNTED = ["no", "one", "two", "three", "four", "five"];
const named = (label) => `\u2018${visible(label.text)}\u2019`;

/** One sentence of where a word looked, or all of them (row -1). */
export function tell(table, row, grid) {
  if (!table.rows.length) return "Nothing was written.";
  const values = row < 0 ? coverage(table) : table.weights[row];
  const best = values.indexOf(Math.max(...values));
  const strongest = `strongest at ${where(best, grid)}, ${show(values[best])}`;
  if (row < 0) {
    const hardly = values.filter((value) => value < HARDLY).length;
    const rest = hardly ? `${hardly} of ${values.length} regions were hardly looked at` : "no region was left out";
    return `All ${table.rows.length} words together: ${strongest}; ${rest}.`;
  }
  const few = Math.min(FEW, values.length);
  return `${named(table.rows[row])}: ${strongest}; top ${COUNTED[few]} regions hold ${show(topShare(values))}.`;
}

const topShare = (values) =>
  [...values]
    .sort((a, b) => b - a)
    .slice(0, FEW)
    .reduce((sum, value) => sum + value, 0);

/** One sentence of who looked at a region. */
export function tellRegion(table, at, grid) {
  const order = [...table.rows.keys()].sort((a, b) => table.weights[b][at] - table.weights[a][at]);
  const said = order.slice(0, 2).map((row) => `${named(table.rows[row])} ${show(table.weights[row][at])}`);
  const place = where(at, grid);
  return `${place[0].toUpperCase()}${place.slice(1)}: most of all ${said.join(", then ")}.`;
}

/** The words with what is known of each: probability, gate, strongest region. */
export const measured = (table, trace, grid) =>
  table.rows.map((label, row) => {
    const gates = label.tokens.map((t) => trace.plain.steps?.[t]?.norms?.gate).filter((gate) => gate !== undefined);
    const chances = label.tokens.map((t) => trace.target.tokens[t].logprob).filter((chance) => chance !== undefined);
    const values = table.weights[row],
      best = values.indexOf(Math.max(...values));
    return {
      label,
      values,
      probability: chances.length ? Math.exp(chances.reduce((sum, chance) => sum + chance, 0)) : null,
      gate: gates.length ? gates.reduce((sum, gate) => sum + gate, 0) / gates.length : null,
      best,
      where: where(best, grid),
      top: topShare(values),
    };
  });

/** The words and their weights for a spreadsheet. */
export function wordLines(table, words) {
  const number = (value) => (value === null ? "" : value.toFixed(6));
  const head = ["word", "probability", "gate", ...table.columns.map((label) => label.text)].map(quote).join(",");
  const body = words.map((one) =>
    [quote(one.label.text), number(one.probability), number(one.gate), ...one.values.map(number)].join(","),
  );
  return `${[head, ...body].join("\r\n")}\r\n`;
}

/** Everything on one sheet, for export: the picture, the chosen map, and below the map of every word. */
export function sheet(look, table, words, row, most, caption) {
  const size = 240,
    frame = 112,
    gap = 14,
    width = 6 * (frame + gap) + gap;
  const values = row < 0 ? coverage(table) : table.weights[row];
  const scale = legend(look, most(row), row < 0 ? "sum of weights" : "weight");
  scale.setAttribute("x", 2 * size + 3 * gap);
  scale.setAttribute("y", 44);
  const blended = look.smooth ? " Smoothed for display." : "";
  const told = wrapped(tell(table, row, look.grid) + blended, width - 2 * size - 4 * gap);
  const lower = size + 76;
  const height = lower + Math.ceil(words.length / 6) * (frame + 44);
  const move = (x, y, ...parts) => svg("g", { transform: `translate(${x} ${y})` }, parts);
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, class: "sheet" },
    serif(caption, gap, 28, width - 2 * gap, 19),
    move(gap, 44, background(look, size)),
    move(size + 2 * gap, 44, background(look, size), map(look, values, most(row), size), lines(look, size)),
    scale,
    told.map((line, at) => svg("text", { x: 2 * size + 3 * gap, y: 100 + at * 19, "font-size": 13.5 }, line)),
    words.map((one, at) =>
      move(
        gap + (at % 6) * (frame + gap),
        lower + Math.floor(at / 6) * (frame + 44),
        background(look, frame),
        map(look, one.values, most(at), frame),
        serif(one.label.text, 0, frame + 17, frame, 14),
        one.gate !== null && svg("text", { x: 0, y: frame + 32, "font-size": 11 }, `\u03b2 ${show(one.gate)}`),
      ),
    ),
  );
}

const serif = (text, x, y, width, size) =>
  svg("text", { class: "serif", x, y, "font-size": size }, `\u2068${fit(visible(text), width, size)}\u2069`);

function wrapped(text, width) {
  const found = [""];
  for (const part of text.split(" ")) {
    const longer = found.at(-1) ? `${found.at(-1)} ${part}` : part;
    if (wide(longer, 13.5) <= width) found[found.length - 1] = longer;
    else found.push(fit(part, width, 13.5));
  }
  return found;
}
