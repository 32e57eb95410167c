// A trace as regard/look/html.py sends it: arrays unpacked, and tables chosen among those that Python computed.

import { setColours } from "./palette.js";

/** Numbers of one shape. */
export class Numbers {
  /** @param {number[]} shape @param {Float32Array | Float64Array} data */
  constructor(shape, data) {
    this.shape = shape;
    this.data = data;
  }

  /** Row `at` of the first dimension, flat. */
  row(at) {
    const size = this.data.length / this.shape[0];
    return this.data.subarray(at * size, (at + 1) * size);
  }

  /** The part `at` of the first dimension. */
  part(at) {
    return new Numbers(this.shape.slice(1), this.row(at));
  }

  /** A matrix as nested lists. @returns {number[][]} */
  rows() {
    return Array.from({ length: this.shape[0] }, (_, t) => Array.from(this.row(t)));
  }
}

const unpacked = new WeakMap(); // by what was stored: a step is shown more often than it comes

/** An array of a trace: base64 of float32 or float16, or nested lists in which null is -Infinity. Unpacked once. */
export function unpack(stored) {
  if (stored === null || stored === undefined || stored instanceof Numbers) return stored ?? null;
  if (!unpacked.has(stored)) unpacked.set(stored, decode(stored));
  return unpacked.get(stored);
}

function decode(stored) {
  if (Array.isArray(stored)) {
    const shape = [];
    for (let part = stored; Array.isArray(part); part = part[0]) shape.push(part.length);
    const values = stored.flat(Infinity);
    return new Numbers(
      shape,
      Float32Array.from(values, (value) => value ?? -Infinity),
    );
  }
  const text = atob(stored.base64),
    bytes = new Uint8Array(text.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = text.charCodeAt(at);
  if (stored.dtype === "float32") return new Numbers(stored.shape, new Float32Array(bytes.buffer));
  return new Numbers(stored.shape, Float32Array.from(new Uint16Array(bytes.buffer), half));
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** A trace ready to use. */
export class Trace {
  constructor(tree) {
    const { views, ...plain } = tree;
    this.tree = tree;
    this.plain = plain;
    this.model = plain.model ?? {};
    this.source = plain.source;
    this.target = plain.target;
    this.beam = plain.beam ?? null;
    this.translations = plain.translations ?? [];
    this.changes = plain.changes ?? [];
    /** How long the server took, in milliseconds. */
    this.waited = undefined;
    this.modules = views.modules.map((one) => {
      const seen = plain.attention[one.name];
      const arrays = Object.fromEntries(["weights", "scores", "centre"].map((name) => [name, unpack(seen[name])]));
      const words = one.words?.map((table) => ({ ...table, weights: unpack(table.weights) })) ?? null;
      const key = one.leading ? String(seen.layer) : (one.method ?? one.name); // how the state names it
      return { ...seen, ...one, ...arrays, key, combined: unpack(one.combined), words };
    });
    /** The modules that connect target and source, by layer. */
    this.leading = this.modules.filter((seen) => seen.leading);
    this.kind = this.leading[0]?.kind ?? "none";
    this.changed = views.changed;
    this.rightToLeft = views.right_to_left;
    this.maps = views.maps;
    this.default = views.default;
    /** The head of the default module that aligns words, if the run names one. */
    this.aligning = views.aligning ?? null;
    /** The module to go through step by step, and the sentence beside a head whose rows belong to the word just read. */
    this.stepped = views.step;
    this.shifted = views.shifted;
    setColours(views.ramps);
    this.summaries = views.summaries;
  }

  /** Whether the model attends to the words of the source. */
  get looks() {
    return this.kind === "cross";
  }

  /** The module that the state names: a layer of the leading ones, an attribution, or a name; else the default. */
  module(layer) {
    const by = (part, value) => this.modules.find((seen) => seen[part] === value);
    return (layer === null ? null : (by("key", String(layer)) ?? by("name", layer))) ?? by("name", this.default) ?? null;
  }

  /** The module to go through step by step: the chosen one, or the one whose rows belong to the word being written. */
  stepModule(layer, head) {
    const explained = this.module(layer)?.kind === "attribution"; // which has no steps
    return this.module(explained || (layer === null && head === null) ? this.stepped : layer);
  }

  /** This trace with the attribution by a method that another trace of the same words has. */
  with(other, method) {
    const { views } = this.tree,
      added = other.tree.views.modules.filter((one) => one.method === method),
      { name } = added[0];
    return new Trace({
      ...this.tree,
      attention: { ...this.tree.attention, [name]: other.tree.attention[name] },
      steps: [...(this.tree.steps ?? []), ...(other.tree.steps ?? []).filter((one) => one.name === name)],
      views: { ...views, modules: [...views.modules, ...added] },
    });
  }

  /** What to say beside step t of a head that aligns the word just read; nothing for all others. */
  shiftNote(seen, head, t) {
    if (!seen.shift && !seen.shifted_heads?.includes(head)) return "";
    const read = t > 0 ? `\u2018\u2068${this.target.tokens[t - 1].text}\u2069\u2019` : "the start of the sentence";
    return this.shifted.replace("{read}", read);
  }

  /** The head that aligns words where none is chosen, so that it is seen first; else what is chosen. */
  head(seen, chosen) {
    return chosen === null && seen.name === this.default ? (this.aligning?.head ?? null) : chosen;
  }

  /** Whether a choice of heads is the one that aligns words. */
  aligns(seen, head) {
    if (this.aligning === null || seen.name !== this.default) return false;
    return String(head ?? "mean") === String(this.aligning.head ?? "mean");
  }

  /** The pieces of the translation up to step t, as the server takes them back. */
  pieces(until = Infinity) {
    const tokens = this.target.tokens.slice(0, until);
    return tokens.filter((token) => !token.special).map((token) => token.piece);
  }

  /** Whether the model writes pieces of words: a token is then not a word. */
  get pieced() {
    return this.target.tokens.some((token) => !token.special && token.piece !== token.text);
  }

  /** The probability of a word, the product of those of its tokens; null where they are not known. */
  probability({ tokens }) {
    const known = tokens.map((t) => this.target.tokens[t].logprob).filter((one) => one !== undefined);
    return known.length ? Math.exp(known.reduce((sum, one) => sum + one, 0)) : null;
  }

  /** The calibrated confidence in the word of a label; null where the model is not calibrated. */
  confidence({ tokens }) {
    return this.target.tokens[tokens[0]]?.confidence ?? null;
  }

  /** The cells of the picture, where there is one. */
  get cells() {
    return this.plain.image ? this.leading[0].pieces[0].columns : [];
  }

  /** The tokens of a module's rows, with their probabilities. */
  written(seen) {
    return (seen.kind === "encoder" ? this.source : this.target).tokens;
  }

  /** What a trace holds of step t: less than the server knows, so that some panels stay short. */
  step(t, seen, head) {
    const found = this.plain.steps?.find((one) => one.t === t && one.name === seen.name);
    const vector = (values) => (values?.length ? new Numbers([values.length], Float64Array.from(values)) : null);
    const row = (stack) => new Numbers([seen.weights.shape[2]], stack.part(head).row(t));
    const token = this.written(seen)[t] ?? { text: "", piece: "" };
    const top = token.topk ?? [];
    const best = top.some((one) => one.text === token.piece || one.text === token.text) || token.logprob === undefined;
    const words = [...top, ...(best ? [] : [{ text: token.text, logprob: token.logprob }])];
    return {
      t,
      name: seen.name,
      head,
      query: vector(found?.query),
      scores: seen.scores ? row(seen.scores) : null,
      weights: row(seen.weights),
      values: null,
      context: vector(found?.context),
      centre: seen.centre?.data[t] ?? null,
      half_width: seen.half_width,
      changed: this.changes.length > 0,
      formula: { kind: seen.kind === "fixed" ? "fixed" : "", left: null, right: null, v: null },
      output: {
        words: words.map((one) => ({
          ...one,
          text: one.text.replaceAll("\u2581", " ").trim() || one.text,
          chosen: one.text === token.piece || one.text === token.text,
        })),
        vocabulary: null,
      },
    };
  }
}

/** What is drawn when nothing else was chosen. */
export const DRAWN = { layer: null, head: null, words: true, special: false, renormalise: false, shift: null };

/**
 * One module and head as a table: rows are target words, columns source words. Nothing is merged here: special tokens
 * are left out, a row is divided by its sum where that is wanted, and several chosen heads are averaged.
 * @param {Trace} trace @param {Partial<typeof DRAWN>} options
 */
export function tableOf(trace, options = {}) {
  const chosen = { ...DRAWN, ...options };
  const seen = trace.module(chosen.layer);
  if (!seen) return null;
  const tables = chosen.words && seen.words ? seen.words : seen.pieces;
  const head = trace.head(seen, chosen.head),
    aligning = trace.aligns(seen, head);
  const heads = headsOf(seen, head);
  const own = heads.length === 1 && seen.shifted_heads?.includes(heads[0]) ? 1 : seen.shift;
  const wanted = Number(chosen.shift ?? own ?? 0);
  const shift = tables[wanted]?.rows.length ? wanted : 0, // the only row has none after it
    whole = tables[shift];
  const special = chosen.special || whole.rows.every((label) => label.special); // an empty translation
  const stack = (head) => {
    if (whole.weights) return whole.weights.part(head).rows();
    const count = seen.weights.shape[0];
    return (head < count ? seen.weights.part(head) : seen.combined.part(head - count)).rows().slice(shift);
  };
  const all = mean(heads.map(stack));
  const kept = (labels) => [...labels.keys()].filter((at) => special || !labels[at].special);
  const rows = kept(whole.rows),
    columns = kept(whole.columns);
  const weights = rows.map((row) => columns.map((column) => all[row][column]));
  const lost = heads.reduce((sum, head) => sum + whole.hidden[head], 0) / heads.length;
  const caption = whole.captions[special ? "shown" : chosen.renormalise ? "renormalised" : "hidden"];
  const name = heads.length > 1 ? `mean of heads ${heads.join(", ")}` : seen.heads[heads[0]];
  return {
    seen,
    rows: rows.map((at) => whole.rows[at]),
    columns: columns.map((at) => whole.columns[at]),
    weights: chosen.renormalise ? weights.map(shares) : weights,
    shift,
    aligning: aligning && heads.length === 1 && heads[0] < seen.weights.shape[0] && seen.weights.shape[0] > 1,
    rightToLeft: whole.right_to_left,
    changed: trace.changed,
    summaries: trace.summaries,
    caption: caption.replace("{head}", name).replace("{lost}", lost.toFixed(2)),
    head: name,
    lost,
    unseen: whole.columns.filter((label) => label.special && !special).map((label) => label.text),
  };
}

/** The places of the chosen heads among the heads, their mean and the largest of them. */
function headsOf(seen, head) {
  const count = seen.weights.shape[0];
  if (count === 1) return [0];
  if (head === null || head === undefined || head === "mean") return [count];
  if (head === "max") return [count + 1];
  const some = String(head)
    .split(",")
    .map(Number)
    .filter((one) => one >= 0 && one < count);
  return some.length ? some : [0];
}

const mean = (tables) =>
  tables.length === 1
    ? tables[0]
    : tables[0].map((row, t) => row.map((_, s) => tables.reduce((sum, one) => sum + one[t][s], 0) / tables.length));

const shares = (row) => {
  const all = row.reduce((sum, weight) => sum + weight, 0);
  return row.map((weight) => (all > 0 ? weight / all : 0));
};

/** The fewest positions, strongest first, that hold a share of the row's mass; as regard.look.draw.ribbons. */
export function strongest(row, share) {
  const order = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b);
  const all = row.reduce((sum, weight) => sum + weight, 0);
  const kept = [];
  for (let held = 0, at = 0; at < order.length && row[order[at]] > 0 && held < share * all * (1 - 1e-6); at++) {
    kept.push(order[at]);
    held += row[order[at]];
  }
  return kept;
}

/** One sentence about a table, as regard/look/table.py writes it. */
export function summary({ rows, columns, weights, seen, summaries }) {
  if (!rows.length || !columns.length) return summaries.nothing;
  const best = weights.map((row) => Math.max(...row)),
    weight = Math.max(...best),
    t = best.indexOf(weight);
  const quoted = (label) => `\u2018\u2068${label.text}\u2069\u2019`;
  const found = {
    sure: best.filter((one) => one >= 0.5).length,
    rows: rows.length,
    columns: columns.length,
    weight: weight.toFixed(2),
    row: quoted(rows[t]),
    column: quoted(columns[weights[t].indexOf(weight)]),
  };
  return summaries[seen.kind === "fixed" ? "fixed" : "links"].replace(/\{(\w+)\}/g, (_, name) => found[name]);
}

/** The head to go through step by step: the chosen one, or that whose rows belong to the word being written. */
export function stepHead(seen, head) {
  const chosen = Number.parseInt(head, 10);
  return chosen >= 0 && chosen < seen.weights.shape[0] ? chosen : seen.step_head;
}
