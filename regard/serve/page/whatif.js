// What if? Changes by hand, always marked: soften the attention, hide a word, force a look, write another word.

import { h, select, visible, word } from "./dom.js";
import { goOn, pieces, translate } from "./session.js";
import { state } from "./state.js";

const change = (changes) => {
  state.set({ changes, prefix: null });
  translate();
};

/** A change with another of its kind replaced. */
const replaced = (kind, one, same = () => true) => [
  ...state.get("changes").filter((each) => each.kind !== kind || !same(each)),
  ...(one ? [one] : []),
];

/** The bar of what-ifs for step t. */
export function whatIf(trace, t, step) {
  const changes = state.get("changes"),
    touched = changes.length > 0 || state.get("prefix") !== null;
  return h(
    "section",
    { class: `card${touched ? " touched" : ""}`, "aria-label": "What if" },
    h("h3", {}, "What if\u2026"),
    trace.looks
      ? h("div", { class: "row" }, temperature(), source(trace, t))
      : h("p", { class: "note" }, "This model does not look, so there is nothing to change but the words."),
    h(
      "div",
      { class: "row" },
      instead(trace, t, step),
      h(
        "button",
        { type: "button", class: "strong", disabled: !changes.length, onclick: () => goOn(pieces(trace, t)) },
        "Continue decoding from here",
      ),
    ),
    touched && chips(trace),
  );
}

function temperature() {
  const now = state.get("changes").find((each) => each.kind === "temperature")?.value ?? 1;
  const input = h("input", {
    type: "range",
    min: -2,
    max: 2,
    step: 0.25,
    value: Math.log2(now),
    "aria-valuetext": `temperature ${now}`,
    onchange: () =>
      change(
        replaced(
          "temperature",
          Number(input.value) ? { kind: "temperature", value: Math.round(100 * 2 ** Number(input.value)) / 100 } : null,
        ),
      ),
  });
  return h("label", { class: "field" }, h("span", {}, "Attention temperature"), input, h("output", {}, now.toFixed(2)));
}

function source(trace, t) {
  const options = trace.source.tokens.map((token, at) => ({ value: String(at), text: visible(token.text) }));
  const chosen = () => Math.min(state.get("s") ?? 0, options.length - 1);
  const hidden = () => state.get("changes").some((each) => each.kind === "mask" && each.position === chosen());
  const hide = h("button", {
    type: "button",
    onclick: () =>
      change(
        replaced("mask", hidden() ? null : { kind: "mask", position: chosen() }, (each) => each.position === chosen()),
      ),
  });
  const look = h(
    "button",
    {
      type: "button",
      onclick: () => change(replaced("set-row", { kind: "set-row", t, position: chosen() }, (each) => each.t === t)),
    },
    "Look only there",
  );
  const box = select("Source word", options, String(chosen()), (value) => state.set({ s: Number(value) }));
  const show = () => {
    box.querySelector("select").value = String(chosen());
    hide.textContent = hidden() ? "Show it again" : "Hide it";
  };
  show();
  return h("div", { class: "row", onregardselect: show }, box, hide, look);
}

function instead(trace, t, step) {
  const others = step.output.words.filter((one) => !one.chosen && !one.special);
  const box = h(
    "select",
    {},
    others.map((one) => h("option", { value: one.piece }, visible(one.text ?? one.piece))),
  );
  return h(
    "div",
    { class: "row" },
    h("label", { class: "field" }, h("span", {}, "Write instead"), box),
    h(
      "button",
      { type: "button", disabled: !others.length, onclick: () => goOn([...pieces(trace, t), box.value]) },
      "Write it, and go on",
    ),
  );
}

function chips(trace) {
  const list = [
    ...state.get("changes").map((each) => ({
      text: describe(each, trace),
      act: () => change(state.get("changes").filter((other) => other !== each)),
    })),
    ...(state.get("prefix")
      ? [
          {
            text: beginning(),
            act: () => {
              state.set({ prefix: null });
              translate();
            },
          },
        ]
      : []),
  ];
  return h(
    "p",
    { class: "chips" },
    list.map((each) =>
      h(
        "button",
        { type: "button", class: "chip", title: "Take this change back", onclick: each.act },
        word(each.text),
        " \u00d7",
      ),
    ),
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => {
          state.set({ changes: [], prefix: null });
          translate();
        },
      },
      "Undo everything",
    ),
  );
}

/** The words for a forced beginning. */
function beginning() {
  const prefix = state.get("prefix");
  return typeof prefix === "string"
    ? `begins with \u201c${prefix}\u201d`
    : `begins with ${prefix.length} chosen pieces`;
}

function describe(each, trace) {
  const name = (s) => `\u2018${trace.source.tokens[s]?.text ?? s}\u2019`;
  if (each.kind === "temperature") return `temperature ${each.value}`;
  if (each.kind === "mask") return `${name(each.position)} hidden`;
  if (each.kind === "set-row") return `step ${each.t + 1} looks only at ${name(each.position)}`;
  return each.kind;
}
