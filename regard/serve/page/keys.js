// The list of keys, opened with "?".

import { h } from "./dom.js";

const KEYS = [
  [
    "Anywhere",
    [
      ["?", "this list"],
      ["Esc", "stop writing; clear the selection"],
      ["1 \u2013 4", "choose a view"],
    ],
  ],
  [
    "In the text box",
    [
      ["Ctrl + Enter", "translate at once"],
      ["Tab", "leave the box"],
    ],
  ],
  [
    "On a word of the translation",
    [
      ["Enter", "alternatives at this place"],
      ["\u2190 \u2192", "word before, word after"],
    ],
  ],
  [
    "Where it looked",
    [
      ["\u2190 \u2191 \u2192 \u2193", "move from cell to cell"],
      ["Home, End", "first and last source word"],
      ["Page up, down", "ten target words on"],
      ["Enter", "open the step"],
    ],
  ],
  [
    "Step by step",
    [
      ["\u2190 \u2192", "back, next"],
      ["Shift + \u2190 \u2192", "word before, word after"],
      ["Space", "play, pause"],
      ["Home, End", "first and last word"],
      ["\u2191 \u2193", "in the list: open the numbers of a source word"],
      ["+ \u2212", "in the list: set the weight of that word; the others give way"],
    ],
  ],
  [
    "In a picture",
    [
      ["\u2190 \u2192", "word before, word after"],
      ["Enter", "into the regions"],
      ["\u2190 \u2191 \u2192 \u2193", "there: from region to region"],
      ["Esc", "out of the regions"],
    ],
  ],
  [
    "Search",
    [
      ["\u2190 \u2191 \u2192 \u2193", "move through the tree"],
      ["Backspace", "up"],
      ["Enter", "alternatives after this node"],
      ["a letter", "write another word here"],
    ],
  ],
];

/** Open the list. */
export function showKeys() {
  const dialog = h(
    "dialog",
    { class: "keys", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h(
      "div",
      { class: "columns" },
      KEYS.map(([where, keys]) =>
        h(
          "section",
          {},
          h("h3", {}, where),
          h(
            "dl",
            {},
            keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]),
          ),
        ),
      ),
    ),
    h("form", { method: "dialog" }, h("button", { class: "strong" }, "Close")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
