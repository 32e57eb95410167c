// The calibrated confidence in each word of a translation, as regard/evaluate/confidence.py computes it: signals of the
// decoding pass, in a function that was fitted to sentences with references.

import constants from "./constants.js";
import { isDigit, isUpper, LETTER, points, wordsOf } from "./text.js";

const EDGES = new RegExp(`^[^${LETTER}]+|(?<![^${LETTER}])[^${LETTER}]+$`, "gu");

/** A word as it is compared: without punctuation at its edges, in lower case. */
const bare = (word) => (word.replace(EDGES, "") || word).toLowerCase();
const surprise = (logprob) => Math.log(constants.sure - logprob);

/** The signals of each word by their names: WORD_SIGNALS. */
function wordSignals({ source, text, words, logprobs }) {
  const written = wordsOf(text),
    plain = written.map(bare),
    known = new Set(wordsOf(source).map(bare));
  const sums = written.map(() => 0),
    pieces = written.map(() => 0);
  for (const [at, word] of words.entries()) {
    sums[word] += logprobs[at];
    pieces[word]++;
  }
  const chances = [0, ...sums, logprobs.at(-1)].map(Math.exp); // before and after: START and END
  const mean = logprobs.reduce((total, one) => total + one, 0) / logprobs.length;
  return written.map((word, at) => ({
    surprise: surprise(sums[at]),
    "sentence surprise": surprise(mean),
    pieces: pieces[at],
    letters: Math.log(Math.max(1, points(plain[at]).length)),
    before: chances[at],
    after: chances[at + 2],
    copied: known.has(plain[at]),
    capital: points(word).some(isUpper),
    digit: points(word).some(isDigit),
  }));
}

/** g(logistic(a + b . signals)), where g connects its knots [x, y] by straight lines. */
function fitted({ intercept, slopes, knots }, signals) {
  const score = Object.entries(slopes).reduce((total, [name, slope]) => total + slope * signals[name], intercept);
  const chance = 1 / (1 + Math.exp(-score)),
    above = knots.findIndex(([x]) => x >= chance);
  if (above <= 0) return knots.at(above)[1]; // before the first knot, or after the last
  const [[x, y], [nextX, nextY]] = knots.slice(above - 1, above + 1);
  return y + ((nextY - y) * (chance - x)) / (nextX - x);
}

/**
 * The confidence in each word of a translation, from 0 to 1.
 * @param {object} calibration of words
 * @param {{source: string, text: string, words: number[], logprobs: number[]}} found `words` has the word of each token
 */
export function rateWords(calibration, found) {
  if (!found.logprobs.every(Number.isFinite)) return wordsOf(found.text).map(() => 0);
  return wordSignals(found).map((signals) => fitted(calibration, signals));
}
