// The six panels of one decoding step, in reading order. One role, one colour: query, scores, weights, context, output.

import { h, word } from "./dom.js";
import { contextFormula, outputFormula, queryWords, scoreFormula, weightFormula } from "./formulas.js";
import { difference, norm, normalise, percent, score, show, tiny, weigh } from "./maths.js";
import { state } from "./state.js";
import { unpack } from "./trace.js";
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

/** All panels of a step. @param {object} step its numbers @param {object} about names and tokens */
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
    "The query",
    null,
    h(
      "p",
      {},
      fixed
        ? "The decoder\u2019s state. It is compared with nothing: there is one vector of the source."
        : queryWords(kind, seen.query),
    ),
    vector(step.query, "query vector", 26),
  );
}

/** A vector as a strip, with its size and length; a trace keeps averages of it, or nothing. */
const vector = (values, label, height, more = "") =>
  values
    ? [
        strip(values.data, largest(values.data), { label: `${label} of ${values.data.length} numbers`, height }),
        h("p", { class: "small" }, `${values.data.length} numbers, length ${show(norm(values.data))}${more}`),
      ]
    : h("p", { class: "small" }, "not recorded");

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
  const known = step.scores?.data;
  const again = known && score(step.formula, known.length);
  const masked = again && again.map((value, s) => (Number.isFinite(known[s]) ? value : -Infinity));
  return panel(
    2,
    "score",
    "The scores",
    scoreFormula(seen.score),
    known ? bars(tokens, known, { signed: true, role: "score" }) : h("p", { class: "small" }, "not recorded"),
    step.changed && known
      ? h("p", { class: "check changed" }, "A what-if changed the scores.")
      : masked
        ? check("recomputed from query and keys", difference(masked, known))
        : null,
  );
}

function weightPanel(step, { seen, tokens }) {
  const again = step.scores && normalise(seen.normalise, step.scores.data, step.centre, step.half_width);
  const total = step.weights.data.reduce((sum, weight) => sum + weight, 0);
  const forced = step.changed && again && difference(again, step.weights.data) > 1e-3;
  return panel(
    3,
    "weight",
    "The weights",
    weightFormula(seen.normalise),
    bars(tokens, step.weights.data, { role: "weight", most: 1, digits: 3 }),
    h("p", { class: "small" }, `sum = ${show(total, 3)}`),
    forced
      ? h("p", { class: "check changed" }, "A what-if set the weights.")
      : again
        ? check(`${seen.normalise} of the scores`, difference(again, step.weights.data))
        : null,
  );
}

function contextPanel(step, { tokens, seen }) {
  if (!step.values) {
    const length = seen.context_norms ? unpack(seen.context_norms).part(step.head).data[step.t] : null;
    const note = length !== null && h("p", { class: "small" }, `length of the context ${show(length)}`);
    return panel(4, "context", "The context", contextFormula(), vector(step.context, "context vector", 26), note);
  }
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
    "The context",
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
    "One fixed vector",
    null,
    h(
      "p",
      {},
      "This model has no attention. The whole sentence, short or long, was squeezed into this one vector before" +
        " the first word was written. Its weight is 1 at every step:",
    ),
    vector(step.context, "the one fixed vector", 34, ", the same at every step"),
    h(
      "p",
      {},
      "The longer the sentence, the more must fit into it. Attention was invented to let the decoder see every word.",
    ),
    step.values && check(
      "weight 1 times the one vector",
      difference(weigh(Array.from(step.weights.data), step.values), step.context.data),
    ),
  );
}

/** The probability of a likely word: from its logit, or as the trace has it. */
export const probability = (one, step) =>
  one.logit === undefined ? Math.exp(one.logprob) : Math.exp(one.logit - step.output.log_total);

function outputPanel(step, { kind, token }) {
  const shares = step.output.words.map((one) => probability(one, step));
  const chosen = step.output.words.findIndex((one) => one.chosen);
  const far = token.logprob === undefined || chosen < 0 ? null : Math.abs(shares[chosen] - Math.exp(token.logprob));
  return panel(
    5,
    "output",
    "The next word",
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
    step.output.vocabulary &&
      h("p", { class: "small" }, `the best of ${step.output.vocabulary.toLocaleString("en")} words`),
    far === null || !step.output.log_total ? null : check("softmax of the logits", far),
  );
}

function wordPanel(step, { tokens, token, written }) {
  const weights = Array.from(step.weights.data),
    best = weights.indexOf(Math.max(...weights));
  const sure = token.logprob === undefined ? null : Math.exp(token.logprob);
  const looked =
    step.formula.kind === "fixed"
      ? null
      : h(
          "p",
          {},
          "Largest weight: ",
          h("b", {}, percent(weights[best])),
          " on ",
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
    sure !== null && h("p", { class: "small" }, `probability ${percent(sure)}`),
    looked,
    h(
      "p",
      { class: "small next" },
      token.special ? "The sentence is finished." : ["Next, it reads ", word(token.text), "."],
    ),
  );
}
