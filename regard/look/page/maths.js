// The arithmetic of attention, done again in the browser from the numbers that the server sent.

/** exp(e) / sum exp(e) over the finite scores; zeros where nothing is visible. @param {ArrayLike<number>} scores */
export function softmax(scores) {
  const values = Array.from(scores);
  const highest = Math.max(...values);
  if (!Number.isFinite(highest)) return values.map(() => 0);
  const powers = values.map((score) => Math.exp(score - highest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

/** The point of the simplex nearest to the scores (Martins 2016). */
export function sparsemax(scores) {
  const ordered = Array.from(scores)
    .filter(Number.isFinite)
    .sort((a, b) => b - a);
  let sum = 0,
    tau = 0;
  ordered.forEach((score, place) => {
    sum += score;
    const candidate = (sum - 1) / (place + 1);
    if (score > candidate) tau = candidate;
  });
  return Array.from(scores, (score) => Math.max(score - tau, 0));
}

/** 1.5-entmax (Peters 2019). */
export function entmax15(scores) {
  const halves = Array.from(scores, (score) => score / 2);
  const ordered = halves.filter(Number.isFinite).sort((a, b) => b - a);
  let sum = 0,
    squares = 0,
    tau = 0;
  ordered.forEach((score, place) => {
    sum += score;
    squares += score * score;
    const count = place + 1,
      mean = sum / count;
    const candidate = mean - Math.sqrt(Math.max(0, 1 / count - (squares / count - mean * mean)));
    if (candidate <= score) tau = candidate;
  });
  return halves.map((score) => Math.max(score - tau, 0) ** 2);
}

function argmax(scores) {
  const best = Math.max(...scores);
  const place = Array.from(scores).indexOf(best);
  return Array.from(scores, (_, s) => (s === place && Number.isFinite(best) ? 1 : 0));
}

/** Weights from scores by the model's own normaliser, or null for one that is not known here. */
export function normalise(kind, scores, centre, halfWidth) {
  if (kind === "Gaussian window") {
    const sigma = halfWidth / 2;
    return softmax(scores).map((weight, s) => weight * Math.exp(-((s - centre) ** 2) / (2 * sigma * sigma)));
  }
  const known = { softmax, window: softmax, sparsemax, entmax15, argmax };
  const act = known[kind.replace("causal ", "")];
  return act ? act(scores) : null;
}

/** Scores from the two sides of the model's formula, or null for one that is not known here. */
export function score(formula, slots) {
  const { kind, left, right, v, scale } = formula;
  const each = (act) => Array.from({ length: slots }, (_, s) => act(right ? right.row(s) : null, s));
  if (kind === "dot") return each((key) => dot(left.data, key) * scale);
  if (kind === "cosine")
    return each((key) => (scale * dot(left.data, key)) / Math.max(1e-8, norm(left.data) * norm(key)));
  if (kind === "additive")
    return each((key) => key.reduce((sum, value, i) => sum + v.data[i] * Math.tanh(left.data[i] + value), 0));
  if (kind === "location") return each((_, s) => (s < left.data.length ? left.data[s] : -Infinity));
  if (kind === "fixed") return each(() => 0);
  return null;
}

/** The weighted sum of the rows of `values`. @returns {Float64Array} */
export function weigh(weights, values) {
  const sum = new Float64Array(values.shape[1]);
  weights.forEach((weight, s) => values.row(s).forEach((value, d) => (sum[d] += weight * value)));
  return sum;
}

/** @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** @param {ArrayLike<number>} a */
export const norm = (a) => Math.sqrt(dot(a, a));

/** The largest difference of two rows; places that are -Infinity in both do not count. */
export function difference(a, b) {
  let largest = 0;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) largest = Math.max(largest, Math.abs(a[i] - b[i]));
  return largest;
}

/** Neighbours averaged into at most `count` bins, for a strip. */
export function bins(vector, count = 48) {
  const size = Math.min(count, vector.length);
  return Array.from({ length: size }, (_, i) => {
    const from = Math.floor((i * vector.length) / size),
      to = Math.max(from + 1, Math.floor(((i + 1) * vector.length) / size));
    let sum = 0;
    for (let at = from; at < to; at++) sum += vector[at];
    return sum / (to - from);
  });
}

/** A number for people: few digits, a real minus sign. */
export function show(value, digits = 2) {
  if (value === -Infinity) return "\u2212\u221e";
  return value.toFixed(digits).replace("-", "\u2212");
}

/** A small number as 3e-8. */
export const tiny = (value) => (value === 0 ? "0" : value.toExponential(0).replaceAll("-", "\u2212"));

/** A probability in per cent. */
export const percent = (share) =>
  share >= 0.9995
    ? "100\u00a0%"
    : share < 0.001
      ? "<\u00a00.1\u00a0%"
      : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;
