// What all pictures of a table share: the selection as a cell, the keys that move it, and the words for it.

import { announce, svg, visible } from "./dom.js";
import { state } from "./state.js";

/** The row and column of a table that hold the selected tokens; -1 where none is. */
export function cell(table, selection) {
  const find = (labels, at) =>
    at === null || at === undefined ? -1 : labels.findIndex((label) => label.tokens.includes(at));
  return { row: find(table.rows, selection.t), column: find(table.columns, selection.s) };
}

/** The cell to mark: what is pointed at, else what is pinned. */
export const marked = (table) => cell(table, state.get("preview") ?? { t: state.get("t"), s: state.get("s") });

/** The words for a cell: "target 'zone', source 'Area', weight 0.97, rank 1 of 15". */
export function describe(table, row, column) {
  const weights = table.weights[row],
    weight = weights[column];
  const rank = weights.filter((other) => other > weight).length + 1;
  const [target, source] = [table.rows[row], table.columns[column]].map((label) => visible(label.text));
  const words = `target \u2018${target}\u2019, source \u2018${source}\u2019`;
  return `${words}, weight ${weight.toFixed(2)}, rank ${rank} of ${weights.length}`;
}

/** Select a cell. */
export function pin(table, row, column) {
  state.set({ t: table.rows[row]?.tokens[0] ?? null, s: table.columns[column]?.tokens[0] ?? null, preview: null });
}

/** Move the selected cell with the keys of a grid; Enter opens the step, Escape clears the selection. */
export function gridKeys(event, table) {
  const { row, column } = cell(table, { t: state.get("t"), s: state.get("s") });
  const rows = table.rows.length,
    columns = table.columns.length;
  const from = { row: Math.max(0, row), column: Math.max(0, column) };
  const moves = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, table.rightToLeft ? 1 : -1],
    ArrowRight: [0, table.rightToLeft ? -1 : 1],
    PageUp: [-10, 0],
    PageDown: [10, 0],
    Home: [0, -columns],
    End: [0, columns],
  };
  if (event.key in moves) {
    event.preventDefault();
    const [down, right] = row < 0 || column < 0 ? [0, 0] : moves[event.key];
    const next = {
      row: Math.max(0, Math.min(rows - 1, from.row + down)),
      column: Math.max(0, Math.min(columns - 1, from.column + right)),
    };
    pin(table, next.row, next.column);
    announce(describe(table, next.row, next.column));
  } else if (event.key === "Enter" && row >= 0) {
    event.preventDefault();
    state.set({ view: "steps", sub: 6 });
  } else if (event.key === "Escape") {
    state.set({ t: null, s: null, preview: null });
    announce("nothing selected");
  }
}

/** A scale of colours from 0 to `most`, 144 pixels wide, with words below it. @param {string[]} hues */
export function scale(hues, x, y, what, most) {
  const width = 144 / hues.length;
  const text = (at, anchor, words) =>
    svg("text", { x: x + at, y: y + 24, "font-size": 11, "text-anchor": anchor }, words);
  return [
    hues.map((fill, at) => svg("rect", { x: x + at * width, y, width: width + 0.3, height: 10, fill })),
    svg("rect", { class: "frame", x: x - 0.5, y: y - 0.5, width: 145, height: 11, fill: "none" }),
    text(0, "start", "0"),
    text(72, "middle", what),
    text(144, "end", most),
  ];
}

/** How wide a picture may be. */
export const room = () => document.querySelector(".views")?.clientWidth ?? 800;

const canvas = document.createElement("canvas").getContext("2d");

/** How a label is written: special tokens and changed words differ. @param {"rows" | "columns"} side */
export function labelClass(table, label, side) {
  const changed = label.tokens.some((at) => table.changed?.[side].includes(at));
  return `label${label.special ? " special" : ""}${changed ? " changed" : ""}`;
}

/** How wide a text is, in pixels. */
export function wide(text, size = 14, family = "system-ui, sans-serif", weight = 400) {
  canvas.font = `${weight} ${size}px ${family}`;
  return canvas.measureText(text).width;
}

/** A text that fits, cut with an ellipsis if it must. */
export function fit(text, width, size = 14, family = undefined) {
  if (wide(text, size, family) <= width) return text;
  const points = [...text];
  let low = 0,
    high = points.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (wide(`${points.slice(0, middle).join("")}\u2026`, size, family) <= width) low = middle;
    else high = middle - 1;
  }
  return `${points.slice(0, low).join("")}\u2026`;
}
