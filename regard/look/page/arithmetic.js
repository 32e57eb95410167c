// The arithmetic behind one source word: its score term by term, its weight, its part of the context.

import { h, word } from "./dom.js";
import { difference, norm, normalise, score, show, tiny } from "./maths.js";

const TERMS = 3; // of a sum that are written out

const line = (...parts) => h("p", { class: "sum-line" }, ...parts);

/** What was recomputed here, and how far it is from the model's own number. */
export function check(text, far) {
  const good = far < 1e-4;
  return h(
    "p",
    { class: `check${good ? "" : " off"}` },
    h("span", { "aria-hidden": "true" }, good ? "✓ " : "≠ "),
    `${text}, off by ${far === 0 ? "0" : tiny(far)}`,
  );
}

/** The largest terms of a sum, and how many are left out. @param {{value: number, text: string}[]} terms */
function largestTerms(terms) {
  const kept = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, TERMS);
  const rest = terms.length - kept.length;
  return kept.map((term) => term.text).join(" + ") + (rest > 0 ? ` + ${rest} smaller terms` : "");
}

const WRITTEN = {
  dot: ({ left, right, scale }, s) => {
    const key = right.row(s);
    const terms = Array.from(key, (value, i) => ({
      value: left.data[i] * value,
      text: `(${show(left.data[i])} × ${show(value)})`,
    }));
    const divided = scale === 1 ? "" : ` ÷ √${key.length}`;
    return `q · k${divided} = [${largestTerms(terms)}]${divided}`;
  },
  cosine: ({ left, right, scale }, s) =>
    `${show(scale)} × cos(q, k), with lengths ${show(norm(left.data))} and ${show(norm(right.row(s)))}`,
  additive: ({ left, right, v }, s) => {
    const terms = Array.from(right.row(s), (value, i) => {
      const bent = Math.tanh(left.data[i] + value);
      return { value: v.data[i] * bent, text: `${show(v.data[i])} × tanh(${show(left.data[i])} + ${show(value)})` };
    });
    return `v · tanh(W q + U k) = ${largestTerms(terms)}`;
  },
  location: () => "the row of W q at this place",
};

/** The part of the arithmetic that is known at a sub-step. @param {number} s @param {number} sub */
export function arithmetic(step, about, s, sub) {
  const { tokens, seen } = about;
  const name = word(tokens[s]?.text ?? "");
  if (sub < 2) return [line("The numbers of ", name, " come with the scores.")];
  const { scores, weights, values, formula } = step;
  const lines = about.whole?.size && (about.inner.has(s) || about.whole.has(s)) ? [line("of the piece ", name, ":")] : [];
  if (scores) {
    const value = scores.data[s],
      again = Number.isFinite(value) ? score(formula, scores.data.length)?.[s] : undefined;
    const far = again === undefined || step.changed ? null : Math.abs(again - value);
    const other = step.changed && again !== undefined && Math.abs(again - value) > 1e-4; // such as a temperature
    const result = other ? `${show(again, 3)}, changed to ${show(value, 3)} by the what-if` : show(value, 3);
    lines.push(
      line(
        h("b", { class: "score" }, "score "),
        Number.isFinite(value)
          ? `${WRITTEN[formula.kind]?.(formula, s) ?? "of the model"} = ${result}`
          : "none: this word is hidden",
        far !== null && h("span", { class: far < 1e-4 ? "good" : "bad" }, far < 1e-4 ? " ✓" : ` ≠ ${tiny(far)}`),
      ),
    );
  }
  if (sub >= 3) lines.push(line(h("b", { class: "weight" }, "weight "), weightText(step, seen, s)));
  if (sub >= 4 && values)
    lines.push(
      line(
        h("b", { class: "context" }, "share of the context "),
        `${show(weights.data[s], 3)} × a vector of ${values.shape[1]} numbers and length ${show(norm(values.row(s)))}`,
      ),
    );
  return lines;
}

/** The weight as the model computed it in this step; a weight that a what-if has set comes from no score. */
export function weightText({ scores, weights, centre, half_width: half, changed }, seen, s) {
  const given = show(weights.data[s], 3);
  if (!scores) return given;
  const again = normalise(seen.normalise, scores.data, centre, half);
  if (changed && again && difference(again, weights.data) > 1e-3)
    return `set to ${given} by the what-if; the scores alone would give ${show(again[s], 3)}`;
  const sign = again && difference([again[s]], [weights.data[s]]) < 1e-4 ? " ✓" : "";
  if (!["softmax", "causal softmax", "window"].includes(seen.normalise) || !Number.isFinite(scores.data[s]))
    return `${seen.normalise} of the scores = ${given}${sign}`;
  const top = Math.max(...scores.data),
    total = scores.data.reduce((sum, one) => sum + Math.exp(one - top), 0);
  const above = `exp(${show(scores.data[s])} − ${top < 0 ? `(${show(top)})` : show(top)})`;
  return `${above} ÷ Σ = ${show(Math.exp(scores.data[s] - top), 3)} ÷ ${show(total, 3)} = ${given}${sign}`;
}
