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
export function csv(shown) {
  const lines = [["", ...shown.columns.map((label) => label.text)].map(quote).join(",")];
  shown.weights.forEach((row, r) =>
    lines.push([quote(shown.rows[r].text), ...row.map((weight) => weight.toFixed(6))].join(",")),
  );
  return `${lines.join("\r\n")}\r\n`;
}

/** A text as one field of such a line. */
export const quote = (text) => `"${guard(String(text)).replaceAll('"', '""')}"`;

// A spreadsheet would take a word that begins like a formula for one.
const guard = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
