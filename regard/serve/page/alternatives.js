// What else could stand here: a list with probabilities. Choosing one writes the rest anew.

import { announce, h, put, word } from "./dom.js";
import { percent } from "./maths.js";
import { alternatives, goOnFrom } from "./session.js";
import { state } from "./state.js";

let open = null;

/** Close the list, and give the focus back to the word it belongs to. */
export function closeAlternatives(focus = true) {
  if (!open) return;
  const { list, anchor } = open;
  open = null;
  list.remove();
  if (focus) document.querySelector(`.translation [data-t="${anchor}"]`)?.focus();
}

/** Open the list of alternatives at target position t below a word. */
export async function openAlternatives(button, t) {
  closeAlternatives(false);
  const list = h(
    "div",
    { class: "popover", role: "dialog", "aria-label": "Alternatives at this position" },
    h("p", { class: "note" }, "Asking the model\u2026"),
  );
  document.body.append(list);
  open = { list, anchor: t };
  place(list, button.getBoundingClientRect());
  list.addEventListener("keydown", (event) => event.key === "Escape" && (event.stopPropagation(), closeAlternatives()));
  try {
    const found = await alternatives(t);
    if (open?.list !== list) return;
    const current = state.get("trace").target.tokens[t]?.piece;
    put(
      list,
      h("p", { class: "note" }, "What could stand here"),
      h(
        "ul",
        {},
        found.map((one) => h("li", {}, choice(one, t, one.piece === current))),
      ),
    );
    list.querySelector("button:not([disabled])")?.focus();
    announce(
      `${found.length} alternatives. ${found
        .slice(0, 3)
        .map((one) => `${one.text}, ${percent(one.probability)}`)
        .join("; ")}`,
    );
  } catch (error) {
    if (error.name !== "AbortError") put(list, h("p", { class: "error" }, error.message));
  }
}

function choice(one, t, current) {
  return h(
    "button",
    {
      type: "button",
      class: current ? "current" : "",
      "aria-current": current ? "true" : null,
      onclick: () => {
        closeAlternatives();
        if (current) return;
        goOnFrom(t, one.piece);
      },
    },
    word(one.text),
    h("span", { class: "bar", style: { "--share": one.probability.toFixed(4) } }),
    h("span", { class: "number" }, percent(one.probability)),
  );
}

function place(list, anchor) {
  const wide = Math.min(288, innerWidth - 16);
  list.style.setProperty("left", `${Math.max(8, Math.min(anchor.left, innerWidth - wide - 8)) + scrollX}px`);
  list.style.setProperty("top", `${anchor.bottom + scrollY + 6}px`);
  list.style.setProperty("width", `${wide}px`);
}

document.addEventListener("pointerdown", (event) => {
  if (open && !open.list.contains(event.target)) closeAlternatives(false);
});
