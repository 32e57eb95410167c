// The six panels of one decoding step, in reading order. One role, one colour: query, scores, weights, context, output.

import { h, word } from "./dom.js";
import { contextFormula, outputFormula, queryWords, scoreFormula, weightFormula } from "./formulas.js";
import { difference, norm, normalise, percent, score, show, tiny, weigh } from "./maths.js";
import { state } from "./state.js";
import { largest, strip } from "./strips.js";

const MOST_STATES = 9;

/** A panel with its number, title, formula and contents. */
const panel = (number, role, title, formula, ...contents) =>
  h(
    "section",
    { class: `panel ${role}`, "data-sub": number, "aria-label": `${number}: ${title}` },
    h("h3", {}, h("span", { class: "badge", "aria-hidden": "true" }, number), title),
    formula && h("div", { class: "formula" }, formula),
    ...contents,
  );

/** What was recomputed here, and how far it is from the model's own number. */
function check(text, far) {
  const good = far < 1e-4;
  return h(
    "p",
    { class: `check${good ? "" : " off"}` },
    h("span", { "aria-hidden": "true" }, good ? "\u2713 " : "\u2260 "),
    `${text}: largest difference ${far === 0 ? "0" : tiny(far)}`,
  );
}

/** All panels of a step. @param {object} step what the server told @param {object} about names and tokens */
export function panels(step, about) {
  const fixed = step.formula.kind === "fixed";
  return fixed
    ? [queryPanel(step, about), fixedPanel(step), outputPanel(step, about), wordPanel(step, about)]
    : [
        queryPanel(step, about),
        scorePanel(step, about),
        weightPanel(step, about),
        contextPanel(step, about),
        outputPanel(step, about),
        wordPanel(step, about),
      ];
}

function queryPanel(step, { kind, seen }) {
  const fixed = step.formula.kind === "fixed";
  return panel(
    1,
    "query",
    "The question",
    null,
    h(
      "p",
      {},
      fixed
        ? "The writer\u2019s state. It cannot ask anything of the source: there is one vector, whatever it wants."
        : queryWords(kind, seen.query),
    ),
    strip(step.query.data, largest(step.query.data), {
      label: `query vector of ${step.query.data.length} numbers`,
      height: 26,
    }),
    h("p", { class: "small" }, `${step.query.data.length} numbers, length ${show(norm(step.query.data))}`),
  );
}

/** A list that may have to be scrolled can be reached with the keyboard. */
const reachable = (length, label) => (length > 12 ? { tabindex: 0, "aria-label": label } : {});

function bars(tokens, values, { signed = false, digits = 2, role, most } = {}) {
  const finite = Array.from(values).filter(Number.isFinite);
  const top = most ?? Math.max(1e-9, ...finite.map(Math.abs));
  return h(
    "ol",
    { class: `bars ${role}${signed ? " signed" : ""}`, ...reachable(tokens.length, role) },
    tokens.map((token, s) =>
      h(
        "li",
        {
          class: `${state.get("s") === s ? "on" : ""}${Number.isFinite(values[s]) ? "" : " masked"}`,
          "data-s": s,
          onpointerenter: () => state.set({ preview: { t: state.get("t"), s } }),
          onpointerleave: () => state.set({ preview: null }),
          onclick: () => state.set({ s }),
        },
        word(token.text, { class: token.special ? "special" : "" }),
        h(
          "span",
          { class: "track" },
          h("span", {
            class: `bar${values[s] < 0 ? " below" : ""}`,
            style: { "--share": Number.isFinite(values[s]) ? Math.min(1, Math.abs(values[s]) / top).toFixed(4) : "0" },
          }),
        ),
        h("span", { class: "number" }, Number.isFinite(values[s]) ? show(values[s], digits) : "masked"),
      ),
    ),
  );
}

function scorePanel(step, { seen, tokens }) {
  const again = score(step.formula, step.scores.data.length);
  const told = again && again.map((value, s) => (Number.isFinite(step.scores.data[s]) ? value : -Infinity));
  return panel(
    2,
    "score",
    "How well does each word answer?",
    scoreFormula(seen.score),
    bars(tokens, step.scores.data, { signed: true, role: "score" }),
    step.changed
      ? h("p", { class: "check changed" }, "The scores were changed by hand.")
      : told
        ? check("computed again from query and keys", difference(told, step.scores.data))
        : null,
  );
}

function weightPanel(step, { seen, tokens }) {
  const again = normalise(seen.normalise, step.scores.data, step.centre, step.half_width);
  const total = step.weights.data.reduce((sum, weight) => sum + weight, 0);
  const forced = step.changed && again && difference(again, step.weights.data) > 1e-3;
  return panel(
    3,
    "weight",
    "Where to look",
    weightFormula(seen.normalise),
    bars(tokens, step.weights.data, { role: "weight", most: 1, digits: 3 }),
    h("p", { class: "small" }, `sum = ${show(total, 3)}`),
    forced
      ? h("p", { class: "check changed" }, "The weights were set by hand.")
      : again
        ? check(`${seen.normalise} of the scores`, difference(again, step.weights.data))
        : null,
  );
}

function contextPanel(step, { tokens }) {
  const weights = Array.from(step.weights.data);
  const order = [...weights.keys()]
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, MOST_STATES)
    .sort((a, b) => a - b);
  const rest = weights.reduce((sum, weight, s) => sum + (order.includes(s) ? 0 : weight), 0);
  const most = largest(step.context.data, ...order.map((s) => step.values.row(s)));
  const again = weigh(weights, step.values);
  return panel(
    4,
    "context",
    "What is seen",
    contextFormula(),
    h(
      "ol",
      { class: "states" },
      order.map((s) =>
        h(
          "li",
          {
            class: state.get("s") === s ? "on" : "",
            "data-s": s,
            onpointerenter: () => state.set({ preview: { t: state.get("t"), s } }),
            onpointerleave: () => state.set({ preview: null }),
            onclick: () => state.set({ s }),
          },
          word(tokens[s]?.text ?? "", { class: tokens[s]?.special ? "special" : "" }),
          h(
            "span",
            { class: "faded", style: { "--share": Math.max(0.1, weights[s]).toFixed(3) } },
            strip(step.values.row(s), most, { label: `state of ${tokens[s]?.text}` }),
          ),
          h("span", { class: "number" }, `\u00d7 ${weights[s].toFixed(2)}`),
        ),
      ),
    ),
    weights.length > order.length &&
      h("p", { class: "small" }, `and ${weights.length - order.length} more words with ${show(rest)} together`),
    h(
      "div",
      { class: "sum" },
      h("span", { class: "symbol" }, "c\u209c"),
      strip(step.context.data, most, { label: "context vector", height: 26 }),
    ),
    check("weighted sum of all states", difference(again, step.context.data)),
  );
}

function fixedPanel(step) {
  return panel(
    "2\u20134",
    "context fixed",
    "There is nowhere to look",
    null,
    h(
      "p",
      {},
      "This model has no attention. The whole sentence, short or long, was squeezed into this one vector before" +
        " the first word was written. Its weight is 1 at every step:",
    ),
    strip(step.context.data, largest(step.context.data), { label: "the one fixed vector", height: 34 }),
    h(
      "p",
      { class: "small" },
      `${step.context.data.length} numbers, length ${show(norm(step.context.data))}, the same at every step`,
    ),
    h(
      "p",
      {},
      "The longer the sentence, the more must fit into it. Attention was invented to let the writer look back instead.",
    ),
    check(
      "weight 1 times the one vector",
      difference(weigh(Array.from(step.weights.data), step.values), step.context.data),
    ),
  );
}

function outputPanel(step, { kind, token }) {
  const shares = step.output.words.map((one) => Math.exp(one.logit - step.output.log_total));
  const chosen = step.output.words.findIndex((one) => one.chosen);
  const far = token.logprob === undefined || chosen < 0 ? null : Math.abs(shares[chosen] - Math.exp(token.logprob));
  return panel(
    5,
    "output",
    "Which word comes next?",
    outputFormula(kind),
    h(
      "ol",
      { class: "bars output" },
      step.output.words.map((one, at) =>
        h(
          "li",
          { class: one.chosen ? "chosen" : "" },
          word(one.text ?? one.piece),
          h("span", { class: "track" }, h("span", { class: "bar", style: { "--share": shares[at].toFixed(4) } })),
          h("span", { class: "number" }, percent(shares[at])),
        ),
      ),
    ),
    h("p", { class: "small" }, `the best of ${step.output.vocabulary.toLocaleString("en")} words`),
    far === null ? null : check("softmax of the logits", far),
  );
}

function wordPanel(step, { tokens, token, written }) {
  const weights = Array.from(step.weights.data),
    best = weights.indexOf(Math.max(...weights));
  const probability = token.logprob === undefined ? null : Math.exp(token.logprob);
  const looked =
    step.formula.kind === "fixed"
      ? null
      : h(
          "p",
          {},
          "It looked ",
          h("b", {}, percent(weights[best])),
          " at ",
          h("b", {}, word(tokens[best]?.text ?? "")),
          ".",
        );
  return panel(
    6,
    "word",
    "The word is written",
    null,
    h(
      "p",
      { class: "sentence written", dir: "auto" },
      written.map((one, at) => [at ? " " : "", word(one.text)]),
      " ",
      h("mark", {}, word(token.special ? "end of sentence" : token.text)),
    ),
    probability !== null && h("p", { class: "small" }, `probability ${percent(probability)}`),
    looked,
    h(
      "p",
      { class: "small next" },
      token.special ? "The sentence is finished." : ["Then it reads ", word(token.text), ", and asks again."],
    ),
  );
}
