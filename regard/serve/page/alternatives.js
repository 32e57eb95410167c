// Alternatives at a position, with probabilities. Choosing one translates the rest again.

import { announce, h, put, word } from "./dom.js";
import { percent } from "./maths.js";
import { alternatives, goOn } from "./session.js";

const ROOM = 260; // pixels of the list that can be seen, at least
let open = null;

/** Close the list, and give the focus back to where it came from. */
function close(focus = true) {
  if (!open) return;
  const { list, back } = open;
  open = null;
  list.remove();
  if (focus) back();
}

/**
 * Open the list of words that could follow a prefix.
 * @param {Element} anchor the list opens below it
 * @param {string[]} prefix the pieces before this place
 * @param {string | null} current the piece that is there now
 * @param {() => void} back gives the focus back when the list closes
 */
export async function openAlternatives(anchor, prefix, current, back) {
  close(false);
  const list = h(
    "div",
    { class: "popover", role: "dialog", "aria-label": "Alternatives at this position" },
    h("p", { class: "note" }, "Waiting for the model\u2026"),
  );
  document.body.append(list);
  open = { list, back };
  place(list, anchor);
  list.addEventListener("keydown", (event) => event.key === "Escape" && (event.stopPropagation(), close()));
  try {
    const found = await alternatives(prefix);
    if (open?.list !== list) return;
    put(
      list,
      h(
        "p",
        { class: "note" },
        found.some((one) => one.piece !== one.text)
          ? "Alternatives from here; some are only the first piece of a word"
          : "Alternatives for this word",
      ),
      h(
        "ul",
        {},
        found.map((one) => h("li", {}, choice(one, prefix, one.piece === current))),
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

function choice(one, prefix, current) {
  return h(
    "button",
    {
      type: "button",
      class: current ? "current" : "",
      "aria-current": current ? "true" : null,
      onclick: () => {
        close();
        if (!current) goOn([...prefix, one.piece]);
      },
    },
    word(one.text),
    h("span", { class: "bar", style: { "--share": one.probability.toFixed(4) } }),
    h("span", { class: "number" }, percent(one.probability)),
  );
}

/** Below a word, and below the sentence about its attention, which belongs to the word. */
function place(list, word) {
  const anchor = word.getBoundingClientRect(),
    said = word.closest(".pane")?.querySelector(".sure").getBoundingClientRect(),
    bottom = said?.bottom ?? anchor.bottom;
  const wide = Math.min(288, innerWidth - 16);
  list.style.setProperty("left", `${Math.max(8, Math.min(anchor.left, innerWidth - wide - 8)) + scrollX}px`);
  list.style.setProperty("top", `${bottom + scrollY + 6}px`);
  // On a phone the list is at the bottom of the screen: the sentence is moved up until there is room for some rows.
  const room = innerHeight - bottom - 6;
  list.style.setProperty("--room", `${Math.max(ROOM, room)}px`);
  if (getComputedStyle(list).position === "fixed" && room < ROOM) scrollBy({ top: ROOM - room, behavior: "instant" });
  list.style.setProperty("width", `${wide}px`);
}

document.addEventListener("pointerdown", (event) => {
  if (open && !open.list.contains(event.target)) close(false);
});
