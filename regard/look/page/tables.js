// Any table of words as a table of numbers, for reading and for those who do not see pictures.

import { h, word } from "./dom.js";
import { marked, pin } from "./grid.js";

/** The table itself. @returns {{element: Element, mark: () => void}} */
export function table(shown) {
  const rows = shown.weights.map((weights, r) => {
    const best = weights.indexOf(Math.max(...weights));
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, word(shown.rows[r].text)),
      weights.map((weight, c) =>
        h("td", { class: c === best ? "best" : "", onclick: () => pin(shown, r, c) }, weight.toFixed(3)),
      ),
    );
  });
  const element = h(
    "div",
    { class: "scroller", tabindex: 0, role: "region", "aria-label": "Weights as a table" },
    h(
      "table",
      { class: "numbers" },
      h(
        "caption",
        { class: "hidden" },
        "Rows are target words, columns source words; the largest weight of each row is bold.",
      ),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("td", {}),
          shown.columns.map((label) => h("th", { scope: "col" }, word(label.text))),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
  const mark = () => {
    const { row } = marked(shown);
    rows.forEach((line, r) => line.classList.toggle("on", r === row));
  };
  return { element, mark };
}

/** A plain list of columns and rows as a table. @param {string} caption @param {string[]} head @param {any[][]} body */
export const plainTable = (caption, head, body) =>
  h(
    "div",
    { class: "scroller", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { class: "numbers" },
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        {},
        body.map((row) =>
          h(
            "tr",
            {},
            row.map((value, at) => h(at ? "td" : "th", at ? {} : { scope: "row" }, value)),
          ),
        ),
      ),
    ),
  );

/** A table of weights as text that a spreadsheet reads. */
export const csv = ({ rows, columns, weights }) =>
  csvLines([["", ...columns.map((label) => label.text)], ...weights.map((row, r) => [rows[r].text, ...row.map(rounded)])]);

/** A number with six digits behind the point. */
export const rounded = (value) => Number(value.toFixed(6));

/** Rows of texts and numbers as such text; what is null is left empty. @param {any[][]} rows */
export const csvLines = (rows) => rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");

const field = (value) => (typeof value === "string" ? `"${guard(value).replaceAll('"', '""')}"` : (value ?? ""));

// A spreadsheet would take a word that begins like a formula for one.
const guard = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
