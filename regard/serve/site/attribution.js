// From which source words did each target word come? The methods of regard/look/attribution.py that need no gradients
// and nothing of the layers: attention, and what is lost without a source word.

import constants from "./constants.js";
import { UNKNOWN } from "./text.js";

const TOGETHER = 16; // passes in one batch

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Whether a method depends on the word that is written, so that two words can be compared by it. */
export const contrasts = (method) => method in ERASERS;

/** The source that a model reads without a group of positions. */
const ERASERS = {
  "occlusion-masked": (ids, group) => ({ ids, hidden: group }),
  "occlusion-unknown": (ids, group) => ({ ids: ids.map((id, at) => (group.includes(at) ? UNKNOWN : id)) }),
  "occlusion-removed": (ids, group) => ({ ids: ids.filter((_, at) => !group.includes(at)) }),
};

/** The weights [T][S] of one head, or the mean of all, with row t + shift for word t; the last row stays. */
export function attend({ weights }, head, shift) {
  const heads = head == null ? weights : [weights[head]];
  return weights[0].map((row, t) => {
    const rows = heads.map((one) => one[Math.min(t + shift, one.length - 1)]);
    return row.map((_, s) => sum(rows.map((one) => one[s])) / heads.length);
  });
}

/**
 * The value [T][S] that each target word loses without each source word, whose positions share it equally.
 * @param {number[]} ids of the source, without END
 * @param {number[][]} words the positions of each source word
 * @param {(rows: object[]) => Promise<number[][]>} values of the target words [row][t], for some sources
 */
export async function occlude(method, ids, words, values) {
  // END is neither replaced nor removed: a model reads no sentence without it.
  const groups = words.filter((group) => method === "occlusion-masked" || !group.includes(ids.length));
  const rows = [[], ...groups].map((group) => ERASERS[method](ids, group));
  const found = [];
  for (let first = 0; first < rows.length; first += TOGETHER)
    found.push(...(await values(rows.slice(first, first + TOGETHER))));
  const [whole, ...left] = found;
  return whole.map((value, t) => {
    const row = Array(ids.length + 1).fill(0);
    for (const [at, group] of groups.entries()) for (const s of group) row[s] = (value - left[at][t]) / group.length;
    return row;
  });
}

/** An attribution as a module of a trace that has the modules `own`. What it draws of values that are no shares: the
 * positive ones of each row, by words, divided by their sum. */
export function asModule(own, by, against, values, words) {
  const method = against ? `${by} against ${against}` : by;
  const shares = (row) => {
    const worth = words.map((group) => Math.max(0, sum(group.map((s) => row[s])))),
      total = sum(worth);
    return words.flatMap((group, at) => group.map(() => (total > 0 ? worth[at] / total / group.length : 0)));
  };
  return {
    name: method in own ? constants.drawn.by + method : method,
    method,
    weights: [contrasts(by) ? values.map(shares) : values],
    kind: "attribution",
    layer: 0,
    scores: contrasts(by) ? [values] : null,
    context_norms: null,
    query: "current",
    shift: 0,
    score: contrasts(by) ? constants.drawn.shares : "",
    normalise: "shares",
    centre: null,
    half_width: 0,
    shifted_heads: [],
    aligning: null,
  };
}
