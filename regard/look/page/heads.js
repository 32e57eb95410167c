// The heads of a model: measured, sorted, as thumbnails or as a table.

import { h, svg } from "./dom.js";
import { show } from "./maths.js";
import { shades } from "./palette.js";
import { state } from "./state.js";
import { csvLines, plainTable } from "./tables.js";
import { tableOf } from "./trace.js";

/** The orders in which heads can be shown. */
export const ORDERS = [
  { value: "layer", text: "layer and head" },
  { value: "entropy", text: "sharpest first" },
  { value: "diagonality", text: "most diagonal first" },
  { value: "special", text: "most on special tokens" },
];
export const BY_WORTH = { value: "worth", text: "most important first" };
export const BY_ERROR = { value: "aer", text: "least alignment error" };

/**
 * Every head of some modules with its measures, in the chosen order.
 * @param {{layer: number, head: number, aer: number}[]} errors of heads, where they are known
 * @param {{name: string, head: number, drop: number}[]} worth of heads, where it is known
 */
export function measuredHeads(trace, modules, order, errors = [], worth = []) {
  const heads = modules.flatMap((seen) =>
    Array.from({ length: seen.weights.shape[0] }, (_, head) => ({
      ...measured(trace, seen, head),
      aer: (seen.leading ? errors : []).find((one) => one.layer === seen.layer && one.head === head)?.aer ?? null,
      worth: worth.find((one) => one.name === seen.name && one.head === head)?.drop ?? null,
    })),
  );
  if (order === "entropy") heads.sort((a, b) => a.entropy - b.entropy);
  else if (order === "aer") heads.sort((a, b) => (a.aer ?? Infinity) - (b.aer ?? Infinity));
  else if (order !== "layer") heads.sort((a, b) => (b[order] ?? 0) - (a[order] ?? 0));
  return heads;
}

const known = (heads) => heads.some((one) => one.aer !== null);

/** A head as a table and with the measures that Python computed. */
function measured(trace, seen, head) {
  const { words, special, renormalise } = state.values;
  const table = tableOf(trace, { layer: seen.name, head: String(head), words, special, renormalise });
  return { layer: seen.layer, key: seen.key, head, table, ...seen.measures[head] };
}

/** The measures as a table. */
export const headTable = (heads) =>
  plainTable(
    "Heads",
    ["layer", "head", "entropy", "diagonality", "on special tokens", ...(known(heads) ? ["alignment error"] : [])],
    heads.map((one) => [
      one.layer,
      one.head,
      ...[one.entropy, one.diagonality, one.special, ...(known(heads) ? [one.aer ?? NaN] : [])].map((value) =>
        show(value),
      ),
    ]),
  );

/** The measures for a spreadsheet. */
export function headLines(heads) {
  const columns = ["layer", "head", "entropy", "diagonality", "special", "aer"];
  return csvLines([columns, ...heads.map((one) => columns.map((name) => one[name]))]);
}

/** All heads as pictures that can be chosen. */
export function thumbnails(heads) {
  const picked = String(state.get("head") ?? "").split(","),
    across = Math.max(0, ...heads.map((one) => one.head)) + 1;
  return h(
    "div",
    { class: `thumbnails${state.get("sort") === "layer" ? " layers" : ""}`, style: { "--heads": String(across) } },
    heads.map((one) => thumbnail(one, picked)),
  );
}

/** A head as a button: a click shows it alone, with Shift it joins the other chosen ones of its layer. */
function thumbnail(one, picked) {
  const on = one.key === String(state.get("layer") ?? one.key) && picked.includes(String(one.head));
  const act = (event) => {
    const several =
      event.shiftKey &&
      String(state.get("layer")) === one.key &&
      picked[0] !== "" &&
      !["mean", "max"].includes(picked[0]);
    const heads = several
      ? on
        ? picked.filter((head) => head !== String(one.head))
        : [...picked, String(one.head)]
      : [String(one.head)];
    state.set({
      layer: one.key,
      head: heads.sort((a, b) => a - b).join(",") || null,
      ...(several ? {} : { view: "alignment" }),
    });
  };
  const name = `layer ${one.layer}, head ${one.head}`;
  return h(
    "button",
    {
      type: "button",
      class: "thumbnail",
      "aria-pressed": String(on),
      "aria-label": `${name}: entropy ${show(one.entropy)}, diagonality ${show(one.diagonality)}`,
      onclick: act,
    },
    tiny(one.table),
    h("span", {}, name),
    h("span", { class: "small" }, `entropy ${show(one.entropy)}`),
    h("span", { class: "small" }, `diagonal ${show(one.diagonality)}`),
    one.aer !== null && h("span", { class: "small" }, `alignment error ${show(one.aer)}`),
    one.worth !== null && h("span", { class: "small" }, `worth ${show(one.worth)}`),
  );
}

const tiny = ({ weights: rows, rightToLeft }, hue = shades(), size = 96) =>
  svg(
    "svg",
    {
      class: "tiny",
      width: size,
      height: size,
      viewBox: `0 0 ${rows[0]?.length ?? 1} ${rows.length}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    rows.flatMap((row, t) =>
      row.map((weight, s) =>
        svg("rect", {
          x: rightToLeft ? row.length - 1 - s : s,
          y: t,
          width: 1.03,
          height: 1.03,
          fill: hue(weight).fill,
        }),
      ),
    ),
  );

/** A small map of what each head is worth: layers down, heads across. */
export function worthMap(heads) {
  const most = Math.max(1e-9, ...heads.map((one) => one.worth)),
    cell = 26,
    hue = shades(),
    [left, top] = [64, 18];
  const layers = [...new Set(heads.map((one) => one.layer))].sort((a, b) => a - b),
    across = Math.max(...heads.map((one) => one.head)) + 1;
  const text = (x, y, what, anchor) => svg("text", { x, y, "font-size": 11, "text-anchor": anchor }, what);
  return svg(
    "svg",
    {
      class: "worth",
      width: left + across * cell + 4,
      height: top + layers.length * cell + 4,
      role: "img",
      "aria-label": heads.map((one) => `layer ${one.layer}, head ${one.head}: ${show(one.worth)}`).join("; "),
    },
    Array.from({ length: across }, (_, head) => text(left + (head + 0.5) * cell, 12, head, "middle")),
    layers.map((layer, row) => text(left - 8, top + (row + 0.6) * cell, `layer ${layer}`, "end")),
    heads.map((one) =>
      svg(
        "rect",
        {
          x: left + one.head * cell + 1,
          y: top + layers.indexOf(one.layer) * cell + 1,
          width: cell - 2,
          height: cell - 2,
          rx: 4,
          fill: hue(one.worth / most).fill,
        },
        svg("title", {}, `layer ${one.layer}, head ${one.head}: ${show(one.worth)}`),
      ),
    ),
  );
}

/** All heads on one sheet, for export. */
export function sheet(heads) {
  const across = Math.ceil(Math.sqrt(heads.length)),
    size = 112;
  return svg(
    "svg",
    { width: across * size, height: Math.ceil(heads.length / across) * (size + 14) },
    heads.map((one, at) => {
      const picture = tiny(one.table);
      picture.setAttribute("x", (at % across) * size + 8);
      picture.setAttribute("y", Math.floor(at / across) * (size + 14) + 8);
      return [
        picture,
        svg(
          "text",
          { x: (at % across) * size + 8, y: Math.floor(at / across) * (size + 14) + 118, "font-size": 11 },
          `layer ${one.layer}, head ${one.head}`,
        ),
      ];
    }),
  );
}
