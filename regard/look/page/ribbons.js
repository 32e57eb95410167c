// The alignment as ribbons: source words above, target words below, and bands as wide as the weight. A long sentence is
// wrapped into lines; attention that leaves a line is a point that leads to the lines before or after it.

import { announce, h, isolate, svg, visible } from "./dom.js";
import { cell, describe, fit, gridKeys, labelClass, marked, pin, room, wide } from "./grid.js";
import { lines } from "./lines.js";
import { state } from "./state.js";
import { strongest } from "./trace.js";

const FAR = 190, // between the two sides
  NEAR = 118, // the same where there are several lines
  EDGE = 38, // room for a line of words above or below
  BETWEEN = 20, // two lines
  POINT = [22, 40]; // of attention to another line: how far it goes to the side and away
const serif = () => getComputedStyle(document.documentElement).getPropertyValue("--serif") || "serif";

/** Ribbons of a table. @returns {{element: Element, mark: () => void}} */
export function drawRibbons(table, trace) {
  const plan = layout(table, trace);
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
  return { element: h("div", { class: "unbounded" }, drawing), mark: () => mark(drawing, table, links) };
}

/** The place of every word: {x, size, line, y}, y where its bands begin. */
function layout(table, trace) {
  const across = room() - 16,
    [font, gap] = across < 500 ? [18, 11] : [20, 18];
  const reversed = {
    columns: table.rightToLeft,
    rows: table.seen.kind === "encoder" ? table.rightToLeft : trace.rightToLeft,
  };
  const text = (label) => fit(visible(label.text), across - 20, font, serif());
  const size = (label) => Math.max(14, wide(text(label), font, serif())) + 6;
  const sizes = { columns: table.columns.map(size), rows: table.rows.map(size) };
  const spaced = (all) => all.map((one) => one + gap);
  const cut = lines(spaced(sizes.columns), spaced(sizes.rows), table.weights, across + gap);
  const far = cut.length > 1 ? NEAR : FAR,
    high = far + 2 * EDGE + 2;
  const places = { columns: [], rows: [] };
  const length = (side, [first, end]) => spaced(sizes[side].slice(first, end)).reduce((sum, one) => sum + one, -gap);
  const width = Math.max(220, ...cut.flatMap((one) => [length("columns", one.columns), length("rows", one.rows)])) + 16;
  cut.forEach((one, line) =>
    ["columns", "rows"].forEach((side) => {
      const [first, end] = one[side],
        order = Array.from({ length: end - first }, (_, at) => first + at);
      let x = (width - length(side, one[side])) / 2;
      for (const at of reversed[side] ? order.reverse() : order) {
        const y = line * (high + BETWEEN) + EDGE + (side === "rows" ? far : 0);
        places[side][at] = { x, size: sizes[side][at], line, y };
        x += sizes[side][at] + gap;
      }
    }),
  );
  return { width, height: Math.max(1, cut.length) * (high + BETWEEN) - BETWEEN, places, font, text };
}

/** The bands: side by side at both ends, none wider than its word. */
function bandsOf(table, plan, place) {
  const { columns, rows } = plan.places,
    used = { columns: new Float64Array(table.columns.length), rows: new Float64Array(table.rows.length) };
  const total = table.columns.map((_, s) => table.weights.reduce((sum, row) => sum + row[s], 0));
  const links = [];
  table.weights.forEach((row, t) =>
    [...strongest(row, state.get("mass"))]
      .sort((a, b) => a - b)
      .forEach((s) => {
        const w = row[s];
        const one = w * Math.min(1, 1 / Math.max(total[s], 1e-9)) * (columns[s].size - 4),
          two = w * (rows[t].size - 4);
        const from = { x: columns[s].x + 2 + used.columns[s], y: columns[s].y, wide: Math.max(1.2, one) },
          to = { x: rows[t].x + 2 + used.rows[t], y: rows[t].y, wide: Math.max(1.2, two) };
        used.columns[s] += one;
        used.rows[t] += two;
        const ahead = columns[s].line - rows[t].line;
        const path = svg("path", {
          class: "band",
          d: ahead ? point(from, -ahead, 1) + point(to, ahead, -1) : band(from, to),
          "fill-opacity": (0.16 + 0.62 * w).toFixed(3),
        });
        links.push({ t, s, path });
        place.append(path);
      }),
  );
  return links;
}

function band(from, to) {
  const middle = (from.y + to.y) / 2;
  return (
    `M${from.x} ${from.y}C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y}h${to.wide}` +
    `C${to.x + to.wide} ${middle} ${from.x + from.wide} ${middle} ${from.x + from.wide} ${from.y}Z`
  );
}

/** A band that leaves its line: to the left for lines before, to the right for lines after. */
function point({ x, y, wide: width }, ahead, down) {
  const [aside, away] = POINT,
    tip = x + width / 2 + Math.sign(ahead) * aside;
  return `M${x} ${y}Q${x} ${y + (down * away) / 2} ${tip} ${y + down * away}Q${x + width} ${y + (down * away) / 2} ${x + width} ${y}Z`;
}

function words(table, side, plan) {
  const name = `data-${side.slice(0, -1)}`,
    above = side === "columns";
  return svg(
    "g",
    { class: "labels", "aria-hidden": "true" },
    table[side].map((label, at) => {
      const { x, y, size } = plan.places[side][at];
      return [
        svg("rect", { class: "hit", [name]: at, x: x - 6, y: above ? y - 34 : y + 2, width: size + 12, height: 32 }),
        svg(
          "text",
          {
            class: `serif ${labelClass(table, label, side)}`,
            [name]: at,
            "font-size": plan.font,
            direction: "ltr",
            x: x + size / 2,
            y: above ? y - 12 : y + 22,
            "text-anchor": "middle",
          },
          isolate(plan.text(label)),
        ),
      ];
    }),
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
  const some = row >= 0 || column >= 0,
    linked = { row: new Set([row]), column: new Set([column]) };
  drawing.classList.toggle("chosen", some);
  for (const link of links) {
    const on = some && (state.get("preview") || row < 0 ? link.t === row || link.s === column : link.t === row);
    link.path.classList.toggle("on", on);
    if (on) {
      linked.row.add(link.t);
      linked.column.add(link.s);
    }
  }
  drawing.querySelectorAll("text").forEach((text) => {
    const side = text.dataset.row !== undefined ? "row" : "column",
      at = Number(text.dataset[side]);
    text.classList.toggle("on", at === (side === "row" ? row : column));
    text.classList.toggle("far", some && !linked[side].has(at));
  });
}
