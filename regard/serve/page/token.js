// A form for the token of a server that needs one.

import { keepToken } from "./api.js";
import { h, put } from "./dom.js";

/** Ask for the token in the main part of a page, which then loads again. */
export function askForToken(message) {
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", size: 36 });
  const form = h(
    "form",
    {
      class: "card token",
      onsubmit: (event) => {
        event.preventDefault();
        keepToken(input.value);
        location.reload();
      },
    },
    h("h2", {}, "This server needs a token"),
    h("p", { class: "note" }, message),
    h("div", { class: "row" }, input, h("button", { class: "strong" }, "Open")),
  );
  put(document.querySelector("main"), form);
  input.focus();
}
