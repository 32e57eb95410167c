// A trace as the server sends it: arrays unpacked, and one module and head arranged as a table of words.

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

/** Unpack an array of a trace: base64 of float32 or float16, or nested lists in which null is -Infinity. */
export function unpack(stored) {
  if (stored === null || stored === undefined) return null;
  if (Array.isArray(stored)) {
    const shape = [];
    for (let part = stored; Array.isArray(part); part = part[0]) shape.push(part.length);
    return new Numbers(
      shape,
      Float32Array.from(stored.flat(Infinity), (value) => value ?? -Infinity),
    );
  }
  const bytes = Uint8Array.from(atob(stored.base64), (sign) => sign.charCodeAt(0));
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
  constructor(plain) {
    this.plain = plain;
    this.model = plain.model ?? {};
    this.source = plain.source;
    this.target = plain.target;
    this.beam = plain.beam ?? null;
    this.translations = plain.translations ?? [];
    this.changes = plain.changes ?? [];
    /** Every step in full, where a file holds them. */
    this.arithmetic = null;
    /** How long the server took, in milliseconds. */
    this.waited = undefined;
    this.modules = Object.values(plain.attention ?? {}).map((seen) => ({
      ...seen,
      weights: unpack(seen.weights),
      scores: unpack(seen.scores),
      centre: unpack(seen.centre),
    }));
    const kinds = ["cross", "image", "fixed", "decoder", "encoder", "pool"];
    this.kind = kinds.find((kind) => this.modules.some((seen) => seen.kind === kind)) ?? "none";
    /** The modules that connect target and source, by layer. */
    this.leading = this.modules.filter((seen) => seen.kind === this.kind).sort((a, b) => a.layer - b.layer);
  }

  /** Whether the model looks at the words of the source. */
  get looks() {
    return this.kind === "cross";
  }

  /** The module of a layer; by default the last but one, or the only one. */
  module(layer) {
    const chosen = this.leading.find((seen) => String(seen.layer) === String(layer));
    return chosen ?? this.leading[Math.max(0, this.leading.length - 2)] ?? null;
  }

  /** Weights of a head, or of several: their "mean" or "max". @returns {number[][]} */
  weights(seen, head) {
    const count = seen.weights.shape[0];
    const heads =
      head === null || head === undefined || head === "mean" || head === "max"
        ? [...Array(count).keys()]
        : String(head)
            .split(",")
            .map(Number)
            .filter((one) => one >= 0 && one < count);
    const tables = (heads.length ? heads : [0]).map((one) => seen.weights.part(one).rows());
    return tables[0].map((row, t) =>
      row.map((_, s) => {
        const values = tables.map((table) => table[t][s]);
        return head === "max" ? Math.max(...values) : values.reduce((sum, value) => sum + value, 0) / values.length;
      }),
    );
  }

  /** The regions of the picture, row by row, where there is one. */
  get cells() {
    const [rows, columns] = this.plain.image?.grid ?? [0, 0];
    const name = (at) => `row ${Math.floor(at / columns)}, column ${at % columns}`;
    return Array.from({ length: rows * columns }, (_, at) => ({ text: name(at), piece: "" }));
  }

  /** The tokens along a module's rows and columns. */
  sides(seen) {
    const read = [{ text: "<s>", piece: "<s>", special: true }, ...this.target.tokens.slice(0, -1)];
    const whole = [{ text: "the whole sentence", piece: "" }];
    const sides = {
      cross: [this.target.tokens, this.source.tokens],
      encoder: [this.source.tokens, this.source.tokens],
      decoder: [this.target.tokens, read],
      fixed: [this.target.tokens, whole],
      pool: [whole, this.source.tokens],
      image: [this.target.tokens, this.cells],
    };
    return sides[seen.kind] ?? [this.target.tokens, []];
  }
}

/** What is drawn when nothing else was chosen. */
export const DRAWN = { layer: null, head: null, words: true, special: false, renormalise: false, shift: null };

/**
 * One module and head as a table: rows are target words, columns source words; as regard.look.words.arrange.
 * @param {Trace} trace @param {Partial<typeof DRAWN>} options
 */
export function arrange(trace, options = {}) {
  const chosen = { ...DRAWN, ...options };
  const seen = trace.module(chosen.layer);
  if (!seen) return null;
  let weights = trace.weights(seen, chosen.head);
  let [rows, columns] = trace.sides(seen);
  const shift = chosen.shift === null ? (seen.shift ?? 0) : Number(chosen.shift);
  if (shift) [weights, rows] = [weights.slice(1), rows.slice(0, -1)];
  const keepRows = places(rows, chosen.special),
    keepColumns = places(columns, chosen.special);
  const lost = mean(keepRows.map((t) => sum(weights[t]) - sum(keepColumns.map((s) => weights[t][s]))));
  const rowLabels = merge(rows, keepRows, trace.target.text, chosen.words);
  const columnLabels = merge(columns, keepColumns, trace.source.text, chosen.words);
  const table = rowLabels.map((row) =>
    columnLabels.map((column) => mean(row.tokens.map((t) => sum(column.tokens.map((s) => weights[t][s]))))),
  );
  const shown = chosen.renormalise
    ? table.map((row) => {
        const all = sum(row);
        return row.map((w) => (all > 0 ? w / all : 0));
      })
    : table;
  const hidden = [...new Set(columns.filter((_, s) => !keepColumns.includes(s)).map((token) => token.text))];
  return {
    seen,
    rows: rowLabels,
    columns: columnLabels,
    weights: shown,
    shift,
    lost,
    caption: caption(
      trace,
      seen,
      chosen,
      [...rowLabels, ...columnLabels].some((label) => label.tokens.length > 1),
      hidden,
      lost,
      shift,
    ),
  };
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : 0);
const places = (tokens, special) => [...tokens.keys()].filter((at) => special || !tokens[at].special);

function merge(tokens, keep, text, words) {
  const groups = [];
  for (const at of keep) {
    const last = groups.at(-1)?.at(-1);
    const same =
      words &&
      last === at - 1 &&
      tokens[at].word !== undefined &&
      tokens[at].word !== null &&
      tokens[last].word === tokens[at].word;
    if (same) groups.at(-1).push(at);
    else groups.push([at]);
  }
  const points = [...text];
  return groups.map((group) => {
    const first = tokens[group[0]],
      last = tokens[group.at(-1)];
    const joined = group.length > 1 && first.start < last.end;
    return {
      text: joined
        ? points.slice(first.start, last.end).join("")
        : group.length > 1
          ? group.map((at) => tokens[at].text).join("")
          : first.text,
      tokens: group,
      special: Boolean(first.special),
    };
  });
}

const KINDS = {
  cross: "cross-attention",
  encoder: "self-attention of the reader",
  decoder: "self-attention of the writer",
  fixed: "no attention: one fixed vector",
  pool: "pooling attention",
  image: "attention over the picture",
};

function caption(trace, seen, chosen, merged, hidden, lost, shift) {
  const heads = seen.weights.shape[0];
  const parts = [];
  if (trace.leading.length > 1) parts.push(`layer ${seen.layer}`);
  if (heads > 1)
    parts.push(
      chosen.head === "max"
        ? `largest of ${heads} heads`
        : chosen.head === null || chosen.head === "mean"
          ? `mean of ${heads} heads`
          : String(chosen.head).includes(",")
            ? `mean of heads ${String(chosen.head).split(",").join(", ")}`
            : `head ${chosen.head}`,
    );
  parts.push(KINDS[seen.kind] + (seen.score && seen.kind !== "fixed" ? ` (${seen.score})` : ""));
  if (seen.query === "previous" && seen.kind === "cross")
    parts.push("asked by the state before the last word was read");
  parts.push(merged && chosen.words ? "words (source pieces summed, target pieces averaged)" : "tokens");
  const rest = chosen.renormalise ? ", the rest renormalised" : "";
  if (hidden.length) parts.push(`${hidden.slice(0, 3).join(", ")} hidden (${lost.toFixed(2)} of the mass${rest})`);
  if (shift) parts.push("shift 1: each row is what was looked at just after its word was read");
  for (const change of trace.changes) parts.push(`changed: ${change.text}`);
  return parts.join(", ");
}

/** The fewest positions, strongest first, that hold a share of the row's mass. */
export function strongest(row, share) {
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]);
  const all = sum(row);
  const kept = [];
  for (let held = 0, at = 0; at < order.length && row[order[at]] > 0 && held < share * all * (1 - 1e-9); at++) {
    kept.push(order[at]);
    held += row[order[at]];
  }
  return kept;
}

/** One sentence that says what a table shows. */
export function summary(table) {
  if (!table || !table.rows.length || !table.columns.length) return "There is nothing to show.";
  if (table.seen.kind === "fixed")
    return `All ${table.rows.length} words were written from one fixed vector of the whole sentence.`;
  const links = table.weights.map((row, t) => ({ t, s: row.indexOf(Math.max(...row)), w: Math.max(...row) }));
  const best = links.reduce((a, b) => (b.w > a.w ? b : a));
  const sure = links.filter((link) => link.w >= 0.5).length;
  return (
    `${table.rows.length} target words look at ${table.columns.length} source words; ${sure} of them give most of ` +
    `their attention to one word. Strongest: \u201c${table.rows[best.t].text}\u201d looks at ` +
    `\u201c${table.columns[best.s].text}\u201d, ${best.w.toFixed(2)}.`
  );
}
