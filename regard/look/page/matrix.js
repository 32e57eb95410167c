// The alignment as a matrix: source words across, target words down, as in the paper that introduced it.

import { announce, h, isolate, svg, visible } from "./dom.js";
import { cell, describe, fit, gridKeys, labelClass, marked, pin, room, scale, wide } from "./grid.js";
import { legendHues, shades } from "./palette.js";
import { state } from "./state.js";

const LEAST = 13; // pixels of a cell
const SLANT = 0.72; // how far a label of 45 degrees goes to the side
export const SEEN = 744; // pixels of a drawing that are seen without scrolling in its box
const MOST = 60; // words on a side that are drawn as elements; more are painted

/** A matrix of a table. @returns {{element: Element, mark: () => void}} */
export function drawMatrix(table, trace, options = {}) {
  const plan = layout(table, options);
  const big = table.rows.length > MOST || table.columns.length > MOST;
  const palette = options.palette ?? state.get("palette");
  const scaled = options.rowScale ?? state.get("rowScale");
  const hue = shades(palette);
  const shade = (row, column) => {
    const weights = table.weights[row];
    return hue(scaled ? weights[column] / (Math.max(...weights) || 1) : weights[column]);
  };
  const drawing = svg("svg", {
    class: "matrix",
    width: plan.width,
    height: plan.height,
    viewBox: `0 0 ${plan.width} ${plan.height}`,
    tabindex: 0,
    role: big ? "img" : "grid",
    "aria-label": options.label ?? "Attention matrix: arrow keys move, Enter opens the step",
    onkeydown: (event) => gridKeys(event, table),
  });
  const cursor = svg("g", { class: "cursor", "aria-hidden": "true" });
  const labels = plan.labels(table);
  drawing.append(
    svg("title", {}, "Attention weights"),
    big ? painted(table, plan, shade) : cells(table, plan, shade),
    cursor,
    labels.columns,
    labels.rows,
    legend(plan, palette, scaled),
  );
  const scroller = h("div", { class: "scroller", onscroll: () => stick(scroller, labels) }, drawing);
  pointing(drawing, table, plan);
  return { element: scroller, mark: () => mark(drawing, cursor, labels, table, plan) };
}

function layout(table, options) {
  const rows = table.rows.length,
    columns = table.columns.length;
  const left = Math.min(140, 16 + Math.max(24, ...table.rows.map((label) => wide(visible(label.text)))));
  const lengths = table.columns.map((label) => Math.min(130, wide(visible(label.text))));
  const longest = Math.max(24, ...lengths);
  const end = (column) => (table.rightToLeft ? column : columns - 1 - column); // how far a column is from the last one
  const over = Math.max(0, ...lengths.map((one, column) => one * SLANT - end(column) * LEAST)); // labels beyond the last
  const across = (options.room ?? Math.min(980, room())) - left - over - 10;
  // Beside another one, a matrix is seen whole, as far as its cells are large enough to be seen.
  const down = options.bare ? SEEN - longest * SLANT - 30 : Math.max(560, (560 * rows) / 12);
  const size = options.size ?? Math.max(LEAST, Math.min(46, across / Math.max(1, columns), down / Math.max(1, rows)));
  const slanted = longest > size - 4; // beside each other they would run together
  const top = slanted ? longest * SLANT + 22 : 30;
  const height = top + rows * size + (options.bare ? 8 : 52);
  const x = (column) => left + (table.rightToLeft ? columns - 1 - column : column) * size;
  const ends = slanted ? lengths.map((one, column) => x(column) + size / 2 + one * SLANT + 6) : [];
  const width = Math.max(left + columns * size + 12, options.bare ? 0 : left + 190, ...ends);
  return {
    left,
    top,
    size,
    slanted,
    width,
    height,
    rows,
    columns,
    bare: options.bare,
    x,
    y: (row) => top + row * size,
    labels: (shown) => texts(shown, { left, top, size, slanted, longest, width, height, x }),
  };
}

function texts(table, { left, top, size, slanted, longest, width, height, x }) {
  const font = Math.min(14, Math.max(8, size * 0.8));
  const skip = Math.max(1, Math.ceil(10 / size));
  const columns = svg(
    "g",
    { class: "labels", "aria-hidden": "true" },
    svg("rect", { class: "ground", x: 0, y: 0, width, height: top - 2 }),
    table.columns.map(
      (label, column) =>
        column % skip === 0 &&
        svg(
          "text",
          {
            class: labelClass(table, label, "columns"),
            "data-column": column,
            direction: "ltr",
            "font-size": font,
            transform: `translate(${x(column) + size / 2} ${top - 8})${slanted ? " rotate(-45)" : ""}`,
            "text-anchor": slanted ? "start" : "middle",
          },
          isolate(fit(visible(label.text), longest, 14)),
        ),
    ),
  );
  const rows = svg(
    "g",
    { class: "labels", "aria-hidden": "true" },
    svg("rect", { class: "ground", x: 0, y: top - 1, width: left - 2, height: height - top }),
    table.rows.map(
      (label, row) =>
        row % skip === 0 &&
        svg(
          "text",
          {
            class: labelClass(table, label, "rows"),
            "data-row": row,
            "font-size": font,
            x: left - 8,
            y: top + (row + 0.5) * size,
            "text-anchor": "end",
            "dominant-baseline": "central",
          },
          isolate(fit(visible(label.text), left - 14, 14)),
        ),
    ),
  );
  return { columns, rows };
}


function cells(table, plan, shade) {
  const numbers = state.get("numbers") && plan.size >= 30 && !plan.bare;
  return svg(
    "g",
    { role: "rowgroup" },
    table.weights.map((row, r) => {
      const best = row.indexOf(Math.max(...row));
      return svg(
        "g",
        { role: "row" },
        row.map((weight, c) => {
          const { fill, ink } = shade(r, c);
          const mutual = c === best && table.weights.every((other) => other[c] <= weight);
          return svg(
            "g",
            { role: "gridcell", id: plan.bare ? null : `cell-${r}-${c}`, "aria-label": describe(table, r, c) },
            svg("rect", {
              x: plan.x(c) + 0.5,
              y: plan.y(r) + 0.5,
              width: plan.size - 1,
              height: plan.size - 1,
              rx: Math.min(3, plan.size / 8),
              fill,
            }),
            c === best &&
              weight > 0 &&
              svg("rect", {
                class: mutual ? "link mutual" : "link",
                x: plan.x(c) + 2,
                y: plan.y(r) + 2,
                width: plan.size - 4,
                height: plan.size - 4,
                rx: 2,
                fill: "none",
                stroke: ink,
              }),
            numbers &&
              weight >= 0.005 &&
              svg(
                "text",
                {
                  class: "value",
                  x: plan.x(c) + plan.size / 2,
                  y: plan.y(r) + plan.size / 2,
                  style: { fill: ink },
                  "text-anchor": "middle",
                  "dominant-baseline": "central",
                  "font-size": Math.min(12, plan.size * 0.32),
                },
                weight.toFixed(2).replace(/^0/, ""),
              ),
          );
        }),
      );
    }),
  );
}

function painted(table, plan, shade) {
  const sharp = Math.min(4, Math.max(1, Math.floor(4000 / Math.max(table.rows.length, table.columns.length) / 1)));
  const canvas = h("canvas", { width: table.columns.length * sharp, height: table.rows.length * sharp });
  const brush = canvas.getContext("2d");
  table.weights.forEach((row, r) =>
    row.forEach((_, c) => {
      brush.fillStyle = shade(r, c).fill;
      brush.fillRect((table.rightToLeft ? row.length - 1 - c : c) * sharp, r * sharp, sharp, sharp);
    }),
  );
  return svg("image", {
    href: canvas.toDataURL(),
    x: plan.left,
    y: plan.top,
    width: plan.columns * plan.size,
    height: plan.rows * plan.size,
    preserveAspectRatio: "none",
    "image-rendering": "pixelated",
  });
}

function legend(plan, palette, scaled) {
  if (plan.bare) return svg("g");
  const y = plan.height - 34;
  const most = scaled ? "row\u2019s largest" : "1";
  return svg(
    "g",
    { class: "legend", "aria-hidden": "true" },
    scale(legendHues(palette), plan.left, y, "weight", most),
  );
}

function pointing(drawing, table, plan) {
  const at = (event) => {
    const box = drawing.getBoundingClientRect(),
      scale = plan.width / box.width;
    const across = Math.floor(((event.clientX - box.left) * scale - plan.left) / plan.size);
    const column = table.rightToLeft ? plan.columns - 1 - across : across;
    const row = Math.floor(((event.clientY - box.top) * scale - plan.top) / plan.size);
    return row >= 0 && row < plan.rows && column >= 0 && column < plan.columns ? { row, column } : null;
  };
  drawing.addEventListener("pointermove", (event) => {
    const found = at(event);
    state.set({ preview: found && { t: table.rows[found.row].tokens[0], s: table.columns[found.column].tokens[0] } });
  });
  drawing.addEventListener("pointerleave", () => state.set({ preview: null }));
  drawing.addEventListener("click", (event) => {
    const found = at(event);
    if (!found) return;
    pin(table, found.row, found.column);
    announce(describe(table, found.row, found.column));
  });
}

function mark(drawing, cursor, labels, table, plan) {
  const { row, column } = marked(table);
  const pinned = cell(table, { t: state.get("t"), s: state.get("s") });
  cursor.replaceChildren();
  if (row >= 0)
    cursor.append(
      svg("rect", { class: "cross", x: plan.left, y: plan.y(row), width: plan.columns * plan.size, height: plan.size }),
    );
  if (column >= 0)
    cursor.append(
      svg("rect", { class: "cross", x: plan.x(column), y: plan.top, width: plan.size, height: plan.rows * plan.size }),
    );
  if (row >= 0 && column >= 0)
    cursor.append(
      svg("rect", {
        class: "active",
        x: plan.x(column) - 1,
        y: plan.y(row) - 1,
        width: plan.size + 2,
        height: plan.size + 2,
        rx: 3,
      }),
    );
  if (drawing.getAttribute("role") === "grid") {
    if (pinned.row >= 0 && pinned.column >= 0)
      drawing.setAttribute("aria-activedescendant", `cell-${pinned.row}-${pinned.column}`);
    else drawing.removeAttribute("aria-activedescendant");
  }
  for (const [side, at] of [
    [labels.rows, row],
    [labels.columns, column],
  ]) {
    side
      .querySelectorAll("text")
      .forEach((text) => text.classList.toggle("on", Number(text.dataset.row ?? text.dataset.column) === at));
  }
}

/** The labels stay in sight while the matrix is scrolled. */
function stick(scroller, labels) {
  labels.rows.setAttribute("transform", `translate(${scroller.scrollLeft} 0)`);
  labels.columns.setAttribute("transform", `translate(0 ${scroller.scrollTop})`);
}
