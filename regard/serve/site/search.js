// Beam search, as regard/decode/beam.py: the K best beginnings of a sentence, one token longer each time.

import { END, PAD, START, UNKNOWN } from "./text.js";

/** GNMT's lp(Y) = ((k + |Y|) / (k + 1))^alpha. */
const penalty = (length, { length_penalty: alpha, length_offset: k }) => ((k + length) / (k + 1)) ** alpha;

/** The most tokens of a translation of `count` source tokens, END counted on both sides. */
export const longest = (count, { max_ratio, max_extra }) => Math.max(1, Math.ceil(max_ratio * (count - 1)) + max_extra);

/** log sum exp. Its loops count, since this is where a search spends most time outside of the model. */
export function logTotal(row) {
  let top = -Infinity,
    total = 0;
  for (let at = 0; at < row.length; at++) if (row[at] > top) top = row[at];
  for (let at = 0; at < row.length; at++) total += Math.exp(row[at] - top);
  return Math.log(total) + top;
}

/** log softmax of a row, each number rounded to float32; one that is not finite makes all of them -Infinity. */
export function logSoftmax(row) {
  const log = logTotal(row);
  const logprobs = new Float32Array(row.length).fill(-Infinity);
  if (Number.isFinite(log)) for (let at = 0; at < row.length; at++) logprobs[at] = row[at] - log;
  return logprobs;
}

/** The places of the `count` largest values, the largest first, and of equal ones the first. */
export function largest(values, count) {
  const best = [];
  let least = -Infinity; // of the best, once they are `count`
  for (let at = 0; at < values.length; at++) {
    if (best.length === count && !(values[at] > least)) continue;
    let place = best.length;
    while (place > 0 && values[at] > values[best[place - 1]]) place--;
    best.splice(place, 0, at);
    if (best.length > count) best.pop();
    least = values[best.at(-1)];
  }
  return best;
}

/** Give -Infinity, in place, to the tokens that may not come next. */
function applyRules(logprobs, config, written, prefix) {
  const forced = prefix[written.length],
    kept = forced === undefined ? 0 : logprobs[forced];
  logprobs[PAD] = logprobs[START] = -Infinity;
  if (config.ban_unknown) logprobs[UNKNOWN] = -Infinity;
  if (written.length < config.min_length) logprobs[END] = -Infinity;
  const size = config.no_repeat_ngram;
  if (size && written.length >= size) {
    const last = written.slice(written.length - size + 1);
    for (let at = 0; at + size <= written.length; at++)
      if (last.every((token, place) => token === written[at + place])) logprobs[written[at + size - 1]] = -Infinity;
  }
  if (forced !== undefined) {
    logprobs.fill(-Infinity);
    logprobs[forced] = kept;
  }
}

/**
 * Search for the best hypotheses of one sentence, the best first: {ids, logprob, score, ended, logprobs}.
 * @param {(tokens: number[], rows: number[] | null) => Promise<Float32Array[]>} step reads a token for every beam after
 *   its state was put into the order of `rows`, the beams they continue; gives logits
 * @param {object} config the [decode] settings
 * @param {number} limit the most tokens, END counted
 * @param {{prefix?: number[], observe?: (step: object[]) => void | Promise<void>}} request
 */
export async function search(step, config, limit, { prefix = [], observe } = {}) {
  const { beam: K, nbest } = config;
  limit = Math.max(limit, prefix.length ? prefix.length + 1 : 0);
  const bound = penalty(limit, config);
  let beams = [{ ids: [], total: 0, logprobs: [] }],
    rows = null,
    finished = [],
    broken = false;
  for (let length = 0; length < limit; length++) {
    const logits = await step(
      beams.map(({ ids }) => (ids.length ? ids.at(-1) : START)),
      rows,
    );
    const candidates = beams.flatMap((beam, parent) => {
      const logprobs = logSoftmax(logits[parent]);
      applyRules(logprobs, config, beam.ids, prefix);
      return largest(logprobs, Math.min(K + 1, logprobs.length)).map((token) => ({
        parent,
        token,
        logprob: logprobs[token],
        total: beam.total + logprobs[token],
      }));
    });
    const best = candidates
      .map((one, at) => [one, at])
      .sort(([a, i], [b, j]) => (b.total === a.total ? i - j : b.total - a.total))
      .slice(0, 2 * K)
      .map(([one]) => one)
      .filter(({ total }) => total > -Infinity);
    const lp = penalty(length + 1, config);
    let slots = 0;
    const next = [];
    const seen = best.map((one, place) => {
      const ended = one.token === END && place < K,
        slot = one.token !== END && slots < K ? slots++ : -1;
      const { ids, logprobs } = beams[one.parent];
      if (ended)
        finished.push({ ids, logprob: one.total, score: one.total / lp, ended: "end", logprobs: [...logprobs, one.logprob] });
      if (slot >= 0)
        next.push({ ids: [...ids, one.token], total: one.total, logprobs: [...logprobs, one.logprob], parent: one.parent });
      return { ...one, score: one.total / lp, slot, ended };
    });
    await observe?.(seen);
    finished = finished
      .map((one, at) => [one, at])
      .sort(([a, i], [b, j]) => b.score - a.score || i - j)
      .slice(0, K)
      .map(([one]) => one);
    if (!next.length) {
      broken = true;
      break;
    }
    const alive = next[0].total;
    beams = next;
    rows = next.map(({ parent }) => parent);
    const enough = finished.length === K && (!config.patient || alive / lp <= finished[K - 1].score);
    if (enough || (finished.length >= nbest && alive / bound <= finished[nbest - 1].score)) break;
  }
  const found = finished.slice(0, nbest);
  const cut = broken ? (found.length ? 0 : 1) : nbest - found.length;
  const open = [...beams].sort((a, b) => b.total - a.total).slice(0, cut);
  for (const { ids, total, logprobs } of open)
    found.push({
      ids,
      logprob: total,
      score: total / penalty(ids.length, config),
      ended: broken ? "not finite" : "length",
      logprobs,
    });
  return found;
}
