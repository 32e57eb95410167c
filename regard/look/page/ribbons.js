// The alignment as ribbons: source words on one side, target words on the other, and bands as wide as the weight. They
// run from above to below; where the words do not fit beside each other, from left to right, so that nothing is cut.

import { announce, h, svg, visible } from "./dom.js";
import { cell, describe, fit, gridKeys, labelClass, marked, pin, wide } from "./grid.js";
import { state } from "./state.js";
import { strongest } from "./trace.js";

const GAP = 18,
  SIZE = 20,
  FAR = 190, // between the two sides
  LINE = 27, // of words below each other
  EDGE = 38; // room for a line of words above or below
const serif = () => getComputedStyle(document.documentElement).getPropertyValue("--serif") || "serif";

/** Ribbons of a table. @returns {{element: Element, mark: () => void}} */
export function drawRibbons(table, trace) {
  const room = document.querySelector(".views")?.clientWidth ?? 800;
  const reversed = [table.rightToLeft, table.seen.kind === "encoder" ? table.rightToLeft : trace.rightToLeft];
  const sides = [table.columns, table.rows].map((labels, at) => across(labels, reversed[at]));
  const plan =
    Math.max(sides[0].length, sides[1].length) <= room - 10
      ? acrossPlan(sides)
      : downPlan([table.columns, table.rows].map(down), room);
  const drawing = svg("svg", {
    class: "ribbons",
    width: plan.width,
    height: plan.height,
    viewBox: `0 0 ${plan.width} ${plan.height}`,
    tabindex: 0,
    role: "application",
    "aria-label": "Links between source words and target words: arrow keys move, Enter opens the step",
    onkeydown: (event) => gridKeys(event, table),
  });
  const bands = svg("g", { class: "bands" });
  const links = bandsOf(table, plan, bands);
  drawing.append(
    svg("title", {}, "Links between words"),
    bands,
    words(table, "columns", plan),
    words(table, "rows", plan),
  );
  pointing(drawing, table);
  return { element: h("div", { class: "scroller centred" }, drawing), mark: () => mark(drawing, table, links) };
}

/** Words beside each other. */
function across(labels, reversed) {
  const sizes = labels.map((label) => Math.max(14, wide(visible(label.text), SIZE, serif())) + 6),
    starts = [],
    order = [...sizes.keys()];
  let at = 8;
  for (const one of reversed ? order.reverse() : order) {
    starts[one] = at;
    at += sizes[one] + GAP;
  }
  return { sizes, starts, length: at - GAP + 8 };
}

/** Words below each other. */
const down = (labels) => ({
  sizes: labels.map(() => LINE - 3),
  starts: labels.map((_, at) => 4 + at * LINE),
  length: labels.length * LINE + 8,
});

function acrossPlan(sides) {
  const width = Math.max(sides[0].length, sides[1].length, 220),
    height = FAR + 2 * EDGE + 2;
  const [columns, rows] = sides.map((side) => ({ ...side, offset: (width - side.length) / 2 }));
  const place = (side, y) => (at) => ({
    x: side.offset + side.starts[at] + side.sizes[at] / 2,
    y,
    "text-anchor": "middle",
  });
  const hit = (side, y) => (at) => ({
    x: side.offset + side.starts[at] - 6,
    y,
    width: side.sizes[at] + 12,
    height: 30,
  });
  return {
    width,
    height,
    sides: { columns, rows },
    text: { columns: place(columns, 26), rows: place(rows, height - 18) },
    hit: { columns: hit(columns, 4), rows: hit(rows, height - 40) },
    most: Infinity,
    band: (x0, top, x1, bottom) => {
      const [y0, y1] = [EDGE, EDGE + FAR],
        middle = (y0 + y1) / 2;
      const there = `M${x0} ${y0}C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`;
      return `${there}h${bottom}C${x1 + bottom} ${middle} ${x0 + top} ${middle} ${x0 + top} ${y0}Z`;
    },
  };
}

function downPlan(sides, room) {
  const width = Math.min(room - 10, 760),
    most = width * 0.34,
    height = Math.max(sides[0].length, sides[1].length);
  const [columns, rows] = sides.map((side) => ({ ...side, offset: 0 }));
  const middle = (side, at) => side.starts[at] + side.sizes[at] / 2 + 6;
  const [left, right] = [most + 8, width - most - 8];
  return {
    width,
    height,
    sides: { columns, rows },
    text: {
      columns: (at) => ({ x: most, y: middle(columns, at), "text-anchor": "end" }),
      rows: (at) => ({ x: width - most, y: middle(rows, at), "text-anchor": "start" }),
    },
    hit: {
      columns: (at) => ({ x: 0, y: columns.starts[at], width: most, height: LINE }),
      rows: (at) => ({ x: width - most, y: rows.starts[at], width: most, height: LINE }),
    },
    most,
    band: (y0, top, y1, bottom) => {
      const half = (left + right) / 2;
      const there = `M${left} ${y0}C${half} ${y0} ${half} ${y1} ${right} ${y1}`;
      return `${there}v${bottom}C${half} ${y1 + bottom} ${half} ${y0 + top} ${left} ${y0 + top}Z`;
    },
  };
}

/** The bands: side by side at both ends, none wider than its word. */
function bandsOf(table, plan, place) {
  const { columns, rows } = plan.sides,
    used = { columns: new Float64Array(table.columns.length), rows: new Float64Array(table.rows.length) };
  const total = table.columns.map((_, s) => table.weights.reduce((sum, row) => sum + row[s], 0));
  const links = [];
  table.weights.forEach((row, t) =>
    [...strongest(row, state.get("mass"))]
      .sort((a, b) => a - b)
      .forEach((s) => {
        const w = row[s];
        const one = w * Math.min(1, 1 / Math.max(total[s], 1e-9)) * (columns.sizes[s] - 4),
          two = w * (rows.sizes[t] - 4);
        const from = columns.offset + columns.starts[s] + 2 + used.columns[s],
          to = rows.offset + rows.starts[t] + 2 + used.rows[t];
        used.columns[s] += one;
        used.rows[t] += two;
        const path = svg("path", {
          class: "band",
          d: plan.band(from, Math.max(1.2, one), to, Math.max(1.2, two)),
          "fill-opacity": (0.16 + 0.62 * w).toFixed(3),
        });
        links.push({ t, s, path });
        place.append(path);
      }),
  );
  return links;
}

function words(table, side, plan) {
  const name = `data-${side.slice(0, -1)}`;
  return svg(
    "g",
    { class: "labels", "aria-hidden": "true" },
    table[side].map((label, at) => [
      svg("rect", { class: "hit", [name]: at, ...plan.hit[side](at) }),
      svg(
        "text",
        {
          class: `serif ${labelClass(table, label, side)}`,
          [name]: at,
          "font-size": SIZE,
          direction: "ltr",
          ...plan.text[side](at),
        },
        `\u2068${fit(visible(label.text), plan.most, SIZE)}\u2069`,
      ),
    ]),
  );
}

function pointing(drawing, table) {
  const at = (event) => {
    const one = event.target.closest?.("text, .hit");
    if (!one) return null;
    return one.dataset.row !== undefined
      ? { t: table.rows[one.dataset.row].tokens[0], s: null }
      : { t: null, s: table.columns[one.dataset.column].tokens[0] };
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
    const on = state.get("preview") || row < 0 ? link.t === row || link.s === column : link.t === row;
    link.path.classList.toggle("on", some && on);
  }
  drawing.querySelectorAll("text").forEach((text) => {
    const on =
      text.dataset.row !== undefined ? Number(text.dataset.row) === row : Number(text.dataset.column) === column;
    text.classList.toggle("on", on);
  });
}
