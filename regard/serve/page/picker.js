// The models to choose from: paper, year, idea, size and score.

import { closes, h, word } from "./dom.js";
import { directions, model } from "./session.js";

const millions = (count) => (count < 1e5 ? count.toLocaleString("en") : `${(count / 1e6).toFixed(1)} M`);

/** "Transformer (Vaswani et al. 2017)", or the paper alone where the model is named after its author. */
const titled = (one) => {
  const name = one.name ? one.name[0].toUpperCase() + one.name.slice(1) : one.id;
  if (!one.paper) return name;
  return one.paper.startsWith(name) ? one.paper : `${name} (${one.paper})`;
};

const facts = (one) =>
  [
    one.parameters && `${millions(one.parameters)} parameters`,
    one.bytes && `${Math.round(one.bytes / 1e6)} MB`,
    one.score && `BLEU ${one.score.bleu.toFixed(1)} on ${one.score.name}`,
    one.id,
  ].filter(Boolean);

/** A menu of the models of the chosen pair. @param {(one: object) => void} take */
export function picker(take) {
  const chosen = model(),
    same = (one) => one.source.code === chosen.source.code && one.target.code === chosen.target.code;
  const menu = h(
    "details",
    { class: "menu picker" },
    h("summary", { "aria-label": `Model: ${chosen.id}` }, word(titled(chosen))),
    h(
      "div",
      { class: "sheet", role: "group", "aria-label": "Models" },
      directions()
        .filter(same)
        .map((one) =>
          h(
            "button",
            {
              type: "button",
              "data-model": one.id,
              "aria-pressed": String(one === chosen),
              onclick: () => {
                menu.open = false;
                menu.querySelector("summary").focus();
                take(one);
              },
            },
            h("b", {}, titled(one)),
            h("span", {}, one.idea ?? ""),
            h("span", { class: "small" }, facts(one).join(" · ")),
          ),
        ),
    ),
  );
  closes(menu);
  return menu;
}
