// The alignment as ribbons: source words above, target words below, and bands between them as wide as the weight.

import { announce, h, svg, visible } from "./dom.js";
import { cell, describe, gridKeys, labelClass, marked, pin, wide } from "./grid.js";
import { state } from "./state.js";
import { strongest } from "./trace.js";

const GAP = 18,
  SIZE = 20,
  TALL = 190;
const serif = () => getComputedStyle(document.documentElement).getPropertyValue("--serif") || "serif";

/** Ribbons of a table. @returns {{element: Element, mark: () => void}} */
export function drawRibbons(table, trace) {
  const share = state.get("mass");
  const above = spread(table.columns, table.rightToLeft),
    below = spread(table.rows, trace.rightToLeft);
  const width = Math.max(above.width, below.width, 220);
  for (const line of [above, below]) line.offset = (width - line.width) / 2;
  const height = TALL + 78;
  const drawing = svg("svg", {
    class: "ribbons",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    tabindex: 0,
    role: "application",
    "aria-label": "Links between source words, above, and target words, below: arrow keys move, Enter opens the step",
    onkeydown: (event) => gridKeys(event, table),
  });
  const bands = svg("g", { class: "bands" });
  const links = [];
  const used = { above: new Float64Array(table.columns.length), below: new Float64Array(table.rows.length) };
  const total = table.columns.map((_, s) => table.weights.reduce((sum, row) => sum + row[s], 0));
  table.weights.forEach((row, t) =>
    [...strongest(row, share)]
      .sort((a, b) => a - b)
      .forEach((s) => {
        const w = row[s];
        const top = w * Math.min(1, 1 / Math.max(total[s], 1e-9)) * (above.widths[s] - 4),
          bottom = w * (below.widths[t] - 4);
        const x0 = above.offset + above.starts[s] + 2 + used.above[s],
          x1 = below.offset + below.starts[t] + 2 + used.below[t];
        used.above[s] += top;
        used.below[t] += bottom;
        const path = svg("path", {
          class: "band",
          d: band(x0, Math.max(1.2, top), x1, Math.max(1.2, bottom)),
          "fill-opacity": (0.16 + 0.62 * w).toFixed(3),
        });
        links.push({ t, s, path });
        bands.append(path);
      }),
  );
  const words = [line(table, "columns", above, 26), line(table, "rows", below, height - 18)];
  drawing.append(svg("title", {}, "Links between words"), bands, ...words);
  pointing(drawing, table);
  const scroller = h("div", { class: "scroller centred" }, drawing);
  return { element: scroller, mark: () => mark(drawing, table, links) };
}

function spread(labels, rightToLeft) {
  const widths = labels.map((label) => Math.max(14, wide(visible(label.text), SIZE, serif())) + 6);
  const starts = [];
  let x = 8;
  const order = [...widths.keys()];
  for (const at of rightToLeft ? order.reverse() : order) {
    starts[at] = x;
    x += widths[at] + GAP;
  }
  return { widths, starts, width: x - GAP + 8, offset: 0 };
}

function band(x0, top, x1, bottom) {
  const y0 = 38,
    y1 = 38 + TALL,
    middle = (y0 + y1) / 2;
  const down = `M${x0} ${y0}C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`;
  return `${down}h${bottom}C${x1 + bottom} ${middle} ${x0 + top} ${middle} ${x0 + top} ${y0}Z`;
}

function line(table, side, place, y) {
  return svg(
    "g",
    { class: "labels", "aria-hidden": "true" },
    table[side].map((label, at) =>
      svg(
        "text",
        {
          class: `serif ${labelClass(table, label, side)}`,
          [`data-${side.slice(0, -1)}`]: at,
          x: place.offset + place.starts[at] + place.widths[at] / 2,
          y,
          "text-anchor": "middle",
          "font-size": SIZE,
        },
        `\u2068${visible(label.text)}\u2069`,
      ),
    ),
  );
}

function pointing(drawing, table) {
  const at = (event) => {
    const text = event.target.closest?.("text");
    if (!text) return null;
    return text.dataset.row !== undefined
      ? { t: table.rows[text.dataset.row].tokens[0], s: null }
      : { t: null, s: table.columns[text.dataset.column].tokens[0] };
  };
  drawing.addEventListener("pointermove", (event) => state.set({ preview: at(event) }));
  drawing.addEventListener("pointerleave", () => state.set({ preview: null }));
  drawing.addEventListener("click", (event) => {
    const found = at(event);
    if (!found) return;
    const { row, column } = cell(table, found);
    const best = (values) => values.indexOf(Math.max(...values));
    const next = {
      row: row >= 0 ? row : best(table.weights.map((weights) => weights[column])),
      column: column >= 0 ? column : best(table.weights[row]),
    };
    pin(table, next.row, next.column);
    announce(describe(table, next.row, next.column));
  });
}

function mark(drawing, table, links) {
  const { row, column } = marked(table);
  const some = row >= 0 || column >= 0;
  drawing.classList.toggle("chosen", some);
  for (const link of links) {
    const on = state.get("preview") ? link.t === row || link.s === column : link.t === row;
    link.path.classList.toggle("on", some && on);
  }
  drawing.querySelectorAll("text").forEach((text) => {
    const on =
      text.dataset.row !== undefined ? Number(text.dataset.row) === row : Number(text.dataset.column) === column;
    text.classList.toggle("on", on);
  });
}
