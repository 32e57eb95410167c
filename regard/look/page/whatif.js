// What if? Changes, always marked: soften the attention, hide a word, set a row, write another word.

import { h, select, visible, word } from "./dom.js";
import { host } from "./host.js";
import { state } from "./state.js";

const change = (changes) => {
  state.set({ changes, prefix: null });
  host.translate();
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
      : h("p", { class: "note" }, "This model has no attention, so only the words can be changed."),
    h(
      "div",
      { class: "row" },
      instead(trace, t, step),
      h(
        "button",
        { type: "button", class: "strong", disabled: !changes.length, onclick: () => host.goOn(trace.pieces(t)) },
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

/** The source words; hiding one masks all its pieces, as `regard look --mask` does. */
function source(trace, t) {
  const seen = trace.leading[0];
  const words = (seen.words ?? seen.pieces)[0].columns;
  const chosen = () => words.find((label) => label.tokens.includes(state.get("s") ?? 0)) ?? words[0];
  const same = (each) => String(each.positions) === String(chosen().tokens);
  const hidden = () => state.get("changes").some((each) => each.kind === "mask" && same(each));
  const hide = h("button", {
    type: "button",
    onclick: () => change(replaced("mask", hidden() ? null : { kind: "mask", positions: chosen().tokens }, same)),
  });
  const only = h(
    "button",
    {
      type: "button",
      onclick: () => {
        const all = { kind: "set-row", t, position: state.get("s") ?? chosen().tokens[0] };
        change(replaced("set-row", all, (each) => each.t === t));
      },
    },
    "All attention there",
  );
  const options = words.map((label) => ({ value: String(label.tokens[0]), text: label.text }));
  const box = select("Source word", options, String(chosen().tokens[0]), (value) => state.set({ s: Number(value) }));
  const show = () => {
    box.querySelector("select").value = String(chosen().tokens[0]);
    hide.textContent = hidden() ? "Show it again" : "Hide it";
  };
  show();
  return h("div", { class: "row", onregardselect: show }, box, hide, only);
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
      { type: "button", disabled: !others.length, onclick: () => host.goOn([...trace.pieces(t), box.value]) },
      "Write it and continue",
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
              host.translate();
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
          host.translate();
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
    : prefix.length
      ? `begins with ${prefix.length} chosen pieces`
      : "decoded again from the start";
}

function describe(each, trace) {
  const name = (s) => `\u2018${trace.source.tokens[s]?.text ?? s}\u2019`;
  if (each.kind === "temperature") return `temperature ${each.value}`;
  if (each.kind === "mask") return `${each.positions.map(name).join("")} hidden`;
  if (each.kind === "set-row") return `step ${each.t + 1} gives all attention to ${name(each.position)}`;
  return each.kind;
}
