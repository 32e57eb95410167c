// The engine: a translator that runs in this browser. It loads a model, reads a sentence, searches for its translation,
// and looks inside, with the numbers that the Python package computes. It knows nothing of the page around it.

import { asModule, attend, contrasts, occlude } from "./attribution.js";
import { rateWords } from "./confidence.js";
import constants from "./constants.js";
import { bare, labels, pageTree, store } from "./drawn.js";
import * as ort from "./ort.mjs";
import { largest, logTotal, longest, search } from "./search.js";
import { copyUnknown, drafts, END, endAlike, hasPlaceholders, inWords, keeps, languageNote, lostNumbers, PAD, points, restore, START, stripEnd, UNKNOWN, unseen, Vocabulary, withSmallNumbers, wordsOf, writeNumbers, wrongWith } from "./text.js";

const BEST = 10; // words of the output to list
const LIKELIEST = 3; // words that a layer would predict
const TOPK = 5; // alternatives to each token of a trace
const TOGETHER = 16; // heads to leave out in one batch
const KEPT = 4; // searches, and passes over a sentence with their states, that are kept
const PAUSE = 30; // milliseconds after which the page may draw

/** A request that cannot be answered, in one sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (count) => [...Array(count).keys()];

/** Let the page draw. A timer would wait 4 ms more: browsers slow down timers that are set again and again. */
const pause = () =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(port1.close());
    port2.postMessage(null);
  });

/** Start the runtime with its WebAssembly. @param {ArrayBuffer} wasm */
export function start(wasm) {
  ort.env.wasm.numThreads = 1; // more need headers that a static host does not send
  ort.env.wasm.wasmBinary = wasm;
}

/** Weights as the graphs refer to them: all in float32. */
function expand(index, size, file) {
  const memory = new Uint8Array(size);
  for (const { at, scale, type, shape, turned, to } of index) {
    const [rows, columns] = shape,
      count = rows * columns,
      full = new Float32Array(memory.buffer, to, count);
    const given = { int8: Int8Array, float16: Uint16Array, float32: Float32Array }[type];
    const values = new given(file, at, count);
    const scales = scale === undefined ? null : new Float32Array(file, scale, rows);
    for (let row = 0, from = 0; row < rows; row++)
      for (let column = 0; column < columns; column++, from++) {
        const value = type === "float16" ? half(values[from]) : values[from];
        full[turned ? column * rows + row : from] = scales ? value * scales[row] : value;
      }
  }
  return memory;
}

function half(bits) {
  const exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

let last = Promise.resolve();
let drawn = 0;

/** One run at a time, and time for the page to draw. */
function run(session, inputs, outputs, signal) {
  const next = last.then(async () => {
    if (performance.now() - drawn > PAUSE) {
      await pause();
      drawn = performance.now();
    }
    signal?.throwIfAborted();
    return session.run(inputs, outputs);
  });
  last = next.catch(() => {});
  return next;
}

const floats = (shape, values) => new ort.Tensor("float32", values, shape);
const full = (value, ...shape) => floats(shape, new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(value));
const integers = (values, ...shape) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);

/** Some rows of a tensor. */
function take(tensor, rows) {
  const size = tensor.data.length / tensor.dims[0],
    data = new tensor.data.constructor(size * rows.length);
  for (const [to, from] of rows.entries()) data.set(tensor.data.subarray(from * size, (from + 1) * size), to * size);
  return new ort.Tensor(tensor.type, data, [rows.length, ...tensor.dims.slice(1)]);
}

/** The part [T or S, D] of one head of a tensor [1, (H), T or S, D]. */
function ofHead({ dims, data }, head) {
  const size = dims.at(-1) * dims.at(-2),
    first = dims.length === 4 && dims[1] > 1 ? head * size : 0;
  return { shape: [dims.at(-2), dims.at(-1)], data: data.subarray(first, first + size) };
}

const rowOf = ({ shape, data }, t) => data.subarray(t * shape[1], (t + 1) * shape[1]);

export class Model {
  /**
   * @param {object} plain what the page must know of a model
   * @param {ArrayBuffer} encoder @param {ArrayBuffer} step its graphs @param {ArrayBuffer} weights
   */
  static async open(plain, encoder, step, weights) {
    const data = expand(plain.graphs.weights, plain.graphs.expanded, weights);
    const options = { externalData: [{ path: "weights", data }] };
    const sessions = [];
    for (const graph of [encoder, step]) sessions.push(await ort.InferenceSession.create(new Uint8Array(graph), options));
    return new Model(plain, ...sessions);
  }

  constructor(plain, encoder, decoder) {
    Object.assign(this, { plain, encoder, decoder, passes: new Map(), searches: new Map() });
    this.config = plain.decode;
    this.source = new Vocabulary(plain.vocabularies.source);
    this.target = plain.vocabularies.target ? new Vocabulary(plain.vocabularies.target) : this.source;
    const { source } = plain.vocabularies;
    this.reader = plain.lowercases ? new Vocabulary({ ...source, lowercase: true }) : this.source;
    const { encoder: read, step } = plain.graphs;
    this.modules = [...read, ...step];
    this.cross = step.filter((module) => module.cross);
    this.names = plain.graphs.state.map(({ name }) => name);
    this.moving = plain.graphs.state.filter(({ fixed }) => !fixed).map(({ name }) => name);
  }

  /** The pieces of a source sentence, without END. */
  encode(text) {
    return this.reader.encode(points(text.replaceAll("\n", " ")).join(""));
  }

  // --- running the graphs

  /** Where a change acts: [module, head] pairs. */
  heads(change) {
    const chosen = change.name
      ? this.modules.filter(({ name }) => name === change.name || name.startsWith(`${change.name}.`))
      : this.modules.filter(({ cross }) => cross);
    if (!chosen.length) throw new Refused(422, `There is no attention module ${change.name}.`);
    return chosen.flatMap((module) => {
      const count = module.heads || 1;
      if (change.head != null && !(change.head >= 0 && change.head < count))
        throw new Refused(422, `There is no head ${change.head}: ${module.name} has ${count} head${count > 1 ? "s" : ""}.`);
      return range(count)
        .filter((head) => change.head == null || head === change.head)
        .map((head) => [module, head]);
    });
  }

  /** The place of a head among those of a list of modules. */
  static place(modules, module, head) {
    const at = modules.indexOf(module);
    return at < 0 ? -1 : sum(modules.slice(0, at).map((one) => one.heads || 1)) + head;
  }

  /** Refuse changes that cannot be made. */
  check(changes, slots) {
    if (changes.length > constants.limits.changes)
      throw new Refused(422, `At most ${constants.limits.changes} changes are possible at once; got ${changes.length}.`);
    if (changes.length && this.plain.about.fixed)
      throw new Refused(422, `${this.plain.name} has no attention to words to change (model ${this.plain.about.name}); force words of the translation, or use another model, such as bahdanau, luong or transformer.`);
    for (const change of changes) {
      if (!["mask", "temperature", "set-row", "silence"].includes(change.kind))
        throw new Refused(422, `The change ${change.kind} needs regard serve.`);
      if (change.kind !== "silence" && this.heads(change).some(([module]) => !this.cross.includes(module)))
        throw new Refused(422, `Here only attention to the source can be changed by ${change.kind}; silence works everywhere.`);
      for (const position of [change.position].filter((one) => one != null))
        if (!(position >= 0 && position < slots))
          throw new Refused(422, `There is no source position ${position}: this sentence has ${slots} positions.`);
      if (change.weights && change.weights.length > slots)
        throw new Refused(422, `A row of ${slots} source positions cannot take ${change.weights.length} weights.`);
    }
  }

  /**
   * The inputs of a graph that describe changes, for step t (null: reading). Each of the `rows` of the batch may also
   * leave out a head, [module, head], and hide source positions: {out, hidden}.
   */
  changed(changes, t, slots, rows) {
    const reading = t === null,
      batch = rows.length,
      modules = reading ? this.plain.graphs.encoder : this.plain.graphs.step;
    const count = Math.max(1, sum(modules.map(({ heads }) => heads || 1))),
      over = reading ? 1 : Math.max(1, sum(this.cross.map(({ heads }) => heads || 1)));
    const inputs = { keep: full(1, batch, count), hide: full(0, batch, over, slots) };
    if (!reading) Object.assign(inputs, { temperature: full(1, batch, over), fixed: full(0, batch, over, slots) });
    const { keep, temperature, hide, fixed } = Object.fromEntries(Object.entries(inputs).map(([name, { data }]) => [name, data]));
    for (const [b, { out, hidden = [] }] of rows.entries()) {
      const place = out ? Model.place(modules, ...out) : -1;
      if (place >= 0) keep[b * count + place] = 0;
      for (const position of hidden) for (let at = b * over; at < (b + 1) * over; at++) hide[at * slots + position] = -Infinity;
    }
    for (const change of changes)
      for (const [module, head] of this.heads(change))
        for (let b = 0; b < batch; b++) {
          const place = b * count + Model.place(modules, module, head),
            at = b * over + Model.place(this.cross, module, head);
          if (!modules.includes(module)) continue;
          if (change.kind === "silence") {
            keep[place] = 0;
            if (fixed && this.cross.includes(module)) fixed.fill(0, at * slots, (at + 1) * slots);
          } else if (change.kind === "temperature") temperature[at] *= change.value;
          else if (change.kind === "mask") hide[at * slots + change.position] = -Infinity;
          else if (change.t === t) {
            keep[place] = 0;
            fixed.fill(0, at * slots, (at + 1) * slots);
            if (change.position != null) fixed[at * slots + change.position] = 1;
            else fixed.set(change.weights, at * slots);
          }
        }
    return inputs;
  }

  /** The state before the first token, and recorded parts, of a batch of sources {ids, out, hidden}. */
  async read(rows, changes, parts, signal) {
    const size = Math.max(...rows.map(({ ids }) => ids.length)) + 1;
    const padded = rows.flatMap(({ ids }) => [...ids, END, ...Array(size - 1 - ids.length).fill(PAD)]);
    const inputs = {
      source: integers(padded, rows.length, size),
      lengths: integers(
        rows.map(({ ids }) => ids.length + 1),
        rows.length,
      ),
      ...this.changed(changes, null, size, rows),
    };
    return run(this.encoder, inputs, [...this.names, ...parts], signal);
  }

  slots(ids) {
    return this.plain.graphs.slots === "source" ? ids.length + 1 : this.plain.graphs.slots;
  }

  /** One step of a batch: logits, the next state, and recorded parts. */
  async step(tokens, t, state, ids, changes, parts, signal, lens = [], rows = tokens.map(() => ({}))) {
    const inputs = {
      token: integers(tokens, tokens.length),
      ...this.changed(changes, t, this.slots(ids), rows),
      lens: integers(lens, lens.length),
      ...state,
    };
    const fetched = ["logits", ...this.moving.map((name) => `next.${name}`), ...parts];
    const found = await run(this.decoder, inputs, fetched, signal);
    const after = { ...state };
    for (const name of this.moving) after[name] = found[`next.${name}`];
    return { found, state: after };
  }

  /** The value of each written word, by `value(logits, id)`, after each of some sources {ids, out, hidden}: [row][t] */
  async forced(rows, written, changes, value, signal) {
    const read = await this.read(rows, changes, [], signal);
    const { ids } = rows.reduce((best, one) => (one.ids.length > best.ids.length ? one : best));
    let state = Object.fromEntries(this.names.map((name) => [name, read[name]]));
    const values = rows.map(() => []);
    for (const [t, id] of written.entries()) {
      const tokens = rows.map(() => (t ? written[t - 1] : START));
      const after = await this.step(tokens, t, state, ids, changes, [], signal, [], rows);
      state = after.state;
      const { data, dims } = after.found.logits;
      for (const [row, own] of values.entries()) own.push(value(data.subarray(row * dims[1], (row + 1) * dims[1]), id));
    }
    return values;
  }

  // --- searching

  /** The best hypothesis of a source under changes. A search is kept: a translation is looked into after it. */
  async search(ids, { beam, prefix = [], changes = [], observe, signal }) {
    const config = { ...this.config, beam: beam ?? this.config.beam, nbest: 1 };
    if (!ids.length) return { ids: [], logprob: 0, score: 0, ended: "end", logprobs: [0] };
    const key = JSON.stringify([ids, config.beam, prefix, changes]);
    if (!this.searches.has(key)) {
      const steps = [];
      const watch = (step) => {
        steps.push(step);
        return observe?.(step);
      };
      const [found] = await this.searchNow(ids, config, prefix, changes, watch, signal);
      this.searches.set(key, { found, steps });
      if (this.searches.size > KEPT) this.searches.delete(this.searches.keys().next().value);
      return found;
    }
    const { found, steps } = this.searches.get(key);
    for (const step of steps) observe?.(step);
    return found;
  }

  async searchNow(ids, config, prefix, changes, observe, signal) {
    const found = await this.read([{ ids }], changes, [], signal);
    let state = Object.fromEntries(this.names.map((name) => [name, found[name]])),
      t = 0;
    const most = this.plain.longest ?? Infinity;
    if (prefix.length + 1 > most)
      throw new Refused(422, `The model writes at most ${most} tokens, END counted; got a prefix of ${prefix.length}. Shorten the prefix.`);
    const limit = Math.min(longest(ids.length + 1, config), most);
    let batch = 1;
    const step = async (tokens, rows) => {
      if (rows && (rows.length !== batch || rows.some((row, at) => row !== at))) {
        // What the steps do not change is the same for all beams of a sentence.
        const names = rows.length === batch ? this.moving : this.names;
        for (const name of names) state[name] = take(state[name], names === this.names && !this.moving.includes(name) ? rows.map(() => 0) : rows);
        batch = rows.length;
      }
      const after = await this.step(tokens, t++, state, ids, changes, [], signal);
      state = after.state;
      const { logits } = after.found,
        size = logits.dims[1];
      return tokens.map((_, row) => logits.data.subarray(row * size, (row + 1) * size));
    };
    return search(step, config, limit, { prefix, observe });
  }

  /** The translation of a sentence: {text, flags, notes, unknown, finished}; `partial` gets what is there so far. */
  async translate(text, { beam, signal, partial } = {}) {
    const { drafts: parts, cut } = drafts(text, (one) => this.encode(one), this.plain.max_length);
    const characters = points(text),
      unknown = [];
    let noted = inWords(cut ? ["cut"] : []), // flag -> note
      written = "",
      reached = 0,
      finished = "end";
    for (const draft of parts) {
      const live = parts.length === 1 && partial ? this.live(partial) : undefined;
      let found = await this.search(draft.encoded.ids, { beam, signal, observe: live });
      let own = await this.write(draft, found, signal),
        read = draft.encoded;
      const small = withSmallNumbers(draft, own, ...this.languages);
      if (small) {
        small.encoded = this.encode(small.words);
        const again = await this.search(small.encoded.ids, { beam, signal });
        const text = keeps(small.standIns, this.target.decode(again.ids)) ? await this.write(small, again, signal) : "";
        if (text && !lostNumbers(draft.source, text)) [found, own, read] = [again, text, small.encoded];
      }
      const seen = this.checkSource(read),
        wrong = wrongWith(draft.source, own, found.ended, this.same);
      if (hasPlaceholders(draft.source)) wrong.push("kept");
      noted = { ...seen.noted, ...inWords(wrong), ...noted };
      unknown.push(...seen.unknown);
      if (found.ended !== "end") finished = found.ended;
      written += characters.slice(reached, draft.span[0]).join("") + own;
      reached = draft.span[1];
    }
    written += characters.slice(reached).join("");
    const flags = Object.keys(constants.notes).filter((flag) => flag in noted);
    return { text: written, flags, notes: flags.map((flag) => noted[flag]), unknown, finished };
  }

  get languages() {
    return [this.plain.source_language, this.plain.target_language];
  }

  get same() {
    return this.plain.source_language === this.plain.target_language;
  }

  /** The text of what was found for a draft. */
  async write(draft, found, signal) {
    const own = await this.spell(draft.encoded, found.ids, signal);
    const text = restore(draft.standIns ?? [], writeNumbers(draft.words, endAlike(draft.words, own), ...this.languages));
    return draft.recased ? text.toUpperCase() : text;
  }

  /** The parts of a sentence that were never seen in training, and its flags with their notes. */
  checkSource(encoded) {
    const unknown = unseen(encoded),
      noted = inWords(unknown.length ? ["unseen"] : []);
    const language = languageNote(encoded.text, this.plain.source_language);
    if (language) noted.language = language;
    if (this.plain.lowercases && encoded.text.toLowerCase() !== encoded.text) Object.assign(noted, inWords(["lower-cased"]));
    return { unknown, noted };
  }

  /** The text of ids; unknown words are copied from the source words with their largest weights. */
  async spell(encoded, ids, signal) {
    const { target } = this;
    if (!ids.includes(UNKNOWN) || this.plain.about.fixed || !this.cross.length) return target.decode(ids);
    const trace = await this.trace(encoded, [...ids, END], [], signal);
    const { layer, head, shift } = this.plain.heads;
    const cross = Object.values(trace.attention).filter(({ kind }) => kind === "cross");
    const seen = layer === null ? (cross.at(-2) ?? cross[0]) : cross[layer];
    const moved = shift ?? this.plain.layout.shift;
    const weights = ids.map((_, t) => {
      const row = Math.min(t + moved, ids.length);
      return encoded.ids.map((_, s) => (head === null ? sum(seen.weights.map((one) => one[row][s])) : seen.weights[head][row][s]));
    });
    return copyUnknown(encoded, ids, weights, target);
  }

  /** An observer of a search that passes on the best translation so far. */
  live(partial) {
    let beams = [[]],
      ended = -Infinity,
      said = "";
    return (step) => {
      const before = beams;
      beams = [];
      for (const one of step) {
        if (one.ended) ended = Math.max(ended, one.score);
        if (one.slot >= 0) beams[one.slot] = [...before[one.parent], one.token];
      }
      const best = step.find(({ slot }) => slot >= 0);
      if (!best || best.score < ended) return;
      const text = this.target.decode(beams[best.slot]);
      if (text && text !== said) partial((said = text));
    };
  }

  // --- looking inside

  /** A pass over written ids under changes, whose states are kept: `at(t, parts)` computes step t again. */
  async pass(ids, written, changes, signal) {
    const key = JSON.stringify([ids, written, changes]);
    const kept = this.passes.get(key);
    if (kept) return kept;
    const parts = this.plain.graphs.outputs.encoder;
    const read = await this.read([{ ids }], changes, parts, signal);
    const states = [Object.fromEntries(this.names.map((name) => [name, read[name]]))];
    const at = async (t, parts, own, lens = []) => {
      for (let done = states.length - 1; done < t; done++)
        states[done + 1] = (await this.step([done ? written[done - 1] : 1], done, states[done], ids, changes, [], own)).state;
      const { found, state } = await this.step([t ? written[t - 1] : 1], t, states[t], ids, changes, parts, own, lens);
      states[t + 1] ??= state;
      return found;
    };
    this.passes.set(key, { read, at });
    if (this.passes.size > KEPT) this.passes.delete(this.passes.keys().next().value);
    return { read, at };
  }

  /** The trace of an encoded source and written ids, weights and scores as [H][T][S]. */
  async trace(encoded, written, changes, signal) {
    const { graphs, layout, attention } = this.plain;
    const pass = await this.pass(encoded.ids, written, changes, signal);
    const parts = graphs.step.flatMap(({ name }) =>
      ["weights", "scores", "query", "context", "centre"].map((part) => `${name}:${part}`).filter((one) => graphs.outputs.step.includes(one)),
    );
    if (graphs.outputs.step.includes("copy")) parts.push("copy");
    const found = [];
    for (const t of written.keys()) found.push(await pass.at(t, parts, signal));
    const S = encoded.ids.length + 1,
      T = written.length;
    const traced = {};
    const kinds = {};
    for (const module of this.modules) {
      const { name, cross } = module,
        fixed = attention[name],
        reading = graphs.encoder.includes(module);
      const slots = (reading ? pass.read : found[0])[`${name}:weights`].dims.at(-1);
      const kind = cross ? (slots === 1 && S > 1 ? "fixed" : "cross") : fixed.kind;
      const rows = kind === "encoder" ? S : T,
        columns = { encoder: S, cross: S, decoder: T }[kind] ?? slots;
      kinds[kind] = (kinds[kind] ?? -1) + 1;
      const once = kind === "fixed" && reading; // one call before the first word: the same for all words
      const of = (part, t, head) => {
        const tensor = (reading ? pass.read : found[t])[`${name}:${part}`];
        return rowOf(ofHead(tensor, head), reading && !once ? t : 0);
      };
      const heads = range(module.heads || 1);
      const padded = (row, fill) => Array.from({ length: columns }, (_, s) => row[s] ?? fill);
      const weights = heads.map((head) => range(rows).map((t) => padded(of("weights", t, head), 0)));
      let scores = heads.map((head) => range(rows).map((t) => padded(of("scores", t, head), -Infinity)));
      if (fixed.hides) scores = scores.map((head, h) => head.map((row, t) => row.map((one, s) => (weights[h][t][s] === 0 ? -Infinity : one))));
      const flat = (part) => range(once ? 1 : rows).map((t) => heads.flatMap((head) => Array.from(of(part, t, head))));
      const centre = graphs.outputs.step.includes(`${name}:centre`) ? found.map((one) => one[`${name}:centre`].data[0]) : null;
      const context = flat("context"),
        size = context[0].length / heads.length;
      const norms = heads.map((head) => range(rows).map((t) => Math.hypot(...context[once ? 0 : t].slice(head * size, (head + 1) * size))));
      traced[name] = {
        name,
        method: null,
        weights,
        kind,
        layer: fixed.layer ?? kinds[kind],
        scores,
        context_norms: norms,
        query: cross ? layout.query : "current",
        shift: cross && kind === "cross" ? layout.shift : 0,
        score: fixed.score,
        normalise: fixed.normalise,
        centre,
        half_width: fixed.half_width,
        shifted_heads: [],
        aligning: null,
        query_vectors: cross ? flat("query").map(bins) : null,
        context_vectors: cross ? context.map(bins) : null,
        step_values: cross && found[0].copy ? { copy: found.map(({ copy }) => Math.round(copy.data[0] * 1e6) / 1e6) } : {},
      };
    }
    const written_logits = found.map(({ logits }) => logits.data);
    return { attention: this.align(traced), logits: written_logits };
  }

  /** Mark the head of the run that aligns words. */
  align(attention) {
    const { layer, head, shift } = this.plain.heads;
    const cross = Object.values(attention).filter(({ kind }) => kind === "cross");
    if (!cross.length || (layer === null && head === null && shift === null)) return attention;
    const seen = layer === null ? (cross.at(-2) ?? cross[0]) : cross.find((one) => one.layer === layer);
    if (head === null) Object.assign(seen, { aligning: "mean", shift: shift ?? seen.shift });
    else Object.assign(seen, { aligning: head, shifted_heads: shift ? [head] : [] });
    return attention;
  }

  /** What `look` of the server answers: a trace with everything that the page draws. */
  async look({ text, target, prefix, beam, changes = [], tree = false, by, against, signal }) {
    const encoded = this.encode(text);
    this.sizes(encoded.ids, "text");
    this.check(changes, this.slots(encoded.ids));
    if (by != null || against != null) this.checkMethod(by, against, changes);
    const limits = constants.limits,
      cost = (encoded.ids.length + 1) * (beam ?? this.config.beam);
    if (tree && cost > limits.tree)
      throw new Refused(422, `The search tree has ${cost} tokens times beam, more than ${limits.tree}; send a shorter text or a smaller beam.`);
    const forced = prefix == null ? [] : this.ids(prefix, "prefix");
    const seen = this.checkSource(encoded);
    let written,
      steps = [];
    if (target != null) written = [...this.ids(target, "translation"), END];
    else {
      const observe = tree ? (step) => steps.push(step) : undefined;
      const found = await this.search(encoded.ids, { beam, prefix: forced, changes, observe, signal });
      const ended = found.ended === "end" || !found.ids.length;
      written = ended || !tree ? [...found.ids, END] : found.ids;
      if (tree) Object.assign(seen.noted, inWords(wrongWith(text, this.target.decode(found.ids), found.ended, this.same)));
    }
    this.room(encoded.ids.length + 1, written.length);
    const { attention, logits } = await this.trace(encoded, written, changes, signal);
    const plain = written.filter((id) => id !== END);
    const side = tokensOf(this.target.tokenised(plain), plain.length < written.length);
    this.probabilities(side.tokens, written, logits);
    if (this.plain.confidence) this.rate(encoded.text, plain, side.tokens);
    const source = tokensOf(encoded, true);
    if (by != null) {
      const found = await this.attribute(by, against, { attention, encoded, source, written, signal });
      attention[found.name] = found;
    }
    const { layout, about_trace: about, kind } = this.plain;
    const answer = pageTree({
      model: { kind, layers: layout.layers, ...about, ...(layout.key_heads ? { key_heads: layout.key_heads } : {}) },
      source,
      target: side,
      attention,
      beam: steps.length ? this.beam(steps) : null,
      changes: [...changes.map(describe).map(unreached(written.length)), ...this.begun(forced)],
      notes: [
        ...(seen.unknown.length ? [{ flag: "unseen", text: constants.notes.unseen, words: seen.unknown }] : []),
        ...Object.entries(seen.noted).flatMap(([flag, text]) => (flag === "unseen" ? [] : [{ flag, text }])),
      ],
    });
    if (answer.beam) answer.translations = this.translations(answer.beam);
    return answer;
  }

  /** Add the confidence of its word to each token. */
  rate(source, ids, tokens) {
    const text = this.target.decode(ids);
    let words = this.target.wordIndices(ids);
    // Bytes that are no characters, or white space alone.
    if (words.length && Math.max(...words) !== wordsOf(text).length - 1) words = this.target.tokenised(ids).words;
    const chances = rateWords(this.plain.confidence, { source, text, words, logprobs: tokens.map(({ logprob }) => logprob) });
    for (const token of tokens) if (token.word != null && !token.special) token.confidence = Math.round(chances[token.word] * 1e4) / 1e4;
  }

  /** Refuse an attribution that is not possible here. */
  checkMethod(by, against, changes) {
    if (by == null) throw new Refused(422, "A word to compare with needs a method; choose one.");
    if (changes.length) throw new Refused(422, "An attribution explains the model as it is; leave out the what-ifs that change attention.");
    const [method, place] = by.split(":"),
      { methods } = this.plain.about;
    if (!methods.includes(method)) throw new Refused(422, `The method ${method.slice(0, 40)} needs regard serve; here there are: ${methods.join(", ")}.`);
    if (against != null && !contrasts(method))
      throw new Refused(422, `The method ${method} does not depend on the word that is written, so that two words cannot be compared by it.`);
    if (place !== undefined && !(method === "attention" && /^\d{1,4}(\.\d{1,4})?$/.test(place)))
      throw new Refused(422, `A layer and a head are for the method attention, as in attention:1.0; got ${by.slice(0, 60)}.`);
  }

  /** From which source words each written word came, by a method, as a module of the trace. */
  async attribute(by, against, { attention, encoded, source, written, signal }) {
    const [method, place] = by.split(":"),
      words = labels(source.text, source.tokens, true).map(({ tokens }) => tokens);
    if (!contrasts(method)) {
      const [layer, head, shift] = place ? place.split(".").map(Number) : ["layer", "head", "shift"].map((part) => this.plain.heads[part]);
      const cross = Object.values(attention).filter(({ kind }) => kind === "cross"),
        seen = cross[layer ?? Math.max(cross.length - 2, 0)];
      if (!seen) throw new Refused(422, `There is no layer ${layer} of attention over the source; it has ${cross.length}.`);
      if (head >= seen.weights.length) throw new Refused(422, `There is no head ${head}: this attention has ${seen.weights.length}.`);
      return asModule(attention, by, against, attend(seen, head, shift ?? 0), words);
    }
    const other = against == null ? null : this.candidate(against);
    const value = other === null ? logprobOf : (logits, id) => logits[id] - logits[other];
    const values = await occlude(method, encoded.ids, words, (rows) => this.forced(rows, written, [], value, signal));
    return asModule(attention, by, against, values, words);
  }

  /** The token that a word begins with, to compare others with; a piece of the vocabulary is that token. */
  candidate(word) {
    const { target } = this,
      encoded = target.encode(points(word.replaceAll("\n", " ")).join(""));
    const found = target.numbers.get(word) ?? encoded.ids[0] ?? UNKNOWN;
    if ([PAD, START, UNKNOWN].includes(found) || (!target.numbers.has(word) && unseen(encoded).length))
      throw new Refused(422, `There is no word '${word.slice(0, 60)}' in the target vocabulary to compare with; pass another one.`);
    return found;
  }

  begun(ids) {
    if (!ids.length) return [];
    return [{ kind: "force", text: `begins with '${this.target.decode(ids)}'`, rows: range(ids.length) }];
  }

  /** The log-probability of each token and of the best alternatives at its place. */
  probabilities(tokens, written, logits) {
    const rounded = (value) => Math.round(value * 1e6) / 1e6;
    for (const [t, token] of tokens.entries()) {
      const total = logTotal(logits[t]);
      token.logprob = rounded(logits[t][written[t]] - total);
      token.topk = largest(logits[t], TOPK).map((id) => ({ text: this.target.pieces[id], logprob: rounded(logits[t][id] - total) }));
    }
  }

  /** The search tree: every candidate, its parent, and whether it was kept. */
  beam(steps) {
    const nodes = [];
    let living = [],
      size = 1;
    for (const [number, step] of steps.entries()) {
      const born = [];
      for (const { parent, token, logprob, total, score, slot, ended } of step) {
        const id = nodes.length;
        const pruned = slot < 0 && !ended;
        nodes.push({ id, parent: number ? living[parent] : null, step: number + 1, token: this.target.pieces[token], logprob, total, score, finished: ended, pruned });
        if (slot >= 0) born[slot] = id;
        size = Math.max(size, slot + 1);
      }
      living = born;
    }
    const ranked = nodes.filter((node) => node.finished).sort((a, b) => b.score - a.score);
    return { size, nodes, ranked: ranked.map(({ id }) => id) };
  }

  translations({ nodes, ranked }) {
    return ranked.map((node) => {
      const pieces = [];
      for (let at = nodes[node].parent; at !== null; at = nodes[at].parent) pieces.unshift(nodes[at].token);
      const text = this.target.decode(pieces.map((piece) => this.target.numbers.get(piece)));
      return { node, text, score: nodes[node].score, logprob: nodes[node].total };
    });
  }

  /** Every number of step t: of the translation, or of the source for a module of the encoder. */
  async explain({ text, target, prefix, beam, changes = [], t, name, head, signal }) {
    const cross = this.cross.length ? this.cross : this.modules.filter((module) => module.cross);
    const module = name ? this.modules.find((one) => one.name === name) : (cross.at(-2) ?? cross[0]);
    if (!module) throw new Refused(422, `There is no attention module ${name}.`);
    const count = module.heads || 1;
    if (!(head >= 0 && head < count)) throw new Refused(422, `There is no head ${head}: this attention has ${count} head${count > 1 ? "s" : ""}.`);
    const own = this.plain.graphs.encoder.includes(module),
      reading = module.name.startsWith("encoder");
    const { encoded, written, pass } = await this.written({ text, target, prefix, beam, changes, t, reading, signal });
    const { outputs } = this.plain.graphs;
    const names = ["query", "left", "right", "visible", "weights", "values", "context", "centre"].filter((part) =>
      outputs[own ? "encoder" : "step"].includes(`${module.name}:${part}`),
    );
    const stepped = reading ? null : await pass.at(t, own ? [] : names.map((part) => `${module.name}:${part}`), signal);
    const found = own ? pass.read : stepped;
    const part = (one) => (names.includes(one) ? ofHead(found[`${module.name}:${one}`], head) : null);
    const row = (one) => {
      const values = part(one);
      return values && rowOf(values, own && values.shape[0] > 1 ? t : 0);
    };
    const vector = (values) => store([values.length], values);
    const formula = { ...module.formula };
    if (formula.v) formula.v = vector(formula.v);
    if (row("left")) formula.left = vector(row("left"));
    if (part("right")) formula.right = store(part("right").shape, part("right").data);
    return {
      t,
      name: module.name,
      head,
      changed: changes.length > 0,
      heads: count,
      query: vector(row("query")),
      formula,
      scores: vector(row("visible")),
      weights: vector(row("weights")),
      values: store(part("values").shape, part("values").data),
      context: vector(row("context")),
      centre: names.includes("centre") ? found[`${module.name}:centre`].data[own ? t : 0] : null,
      half_width: this.plain.attention[module.name].half_width,
      output: reading ? null : this.output(stepped.logits.data, written[t]),
    };
  }

  output(logits, chosen) {
    const listed = largest(logits, Math.min(BEST, logits.length));
    if (!listed.includes(chosen)) listed.push(chosen);
    return {
      words: listed.map((id) => ({ ...this.word(id), logit: logits[id], chosen: id === chosen })),
      log_total: logTotal(logits),
      vocabulary: logits.length,
    };
  }

  /** A given or found translation with END, and the pass over it. */
  async written({ text, target, prefix, beam, changes, t = 0, reading = false, signal }) {
    const encoded = this.encode(text);
    this.sizes(encoded.ids, "text");
    this.check(changes, this.slots(encoded.ids));
    const forced = prefix == null ? [] : this.ids(prefix, "prefix");
    const ids = target != null ? this.ids(target, "translation") : (await this.search(encoded.ids, { beam, prefix: forced, changes, signal })).ids;
    const written = [...ids, END],
      steps = reading ? encoded.ids.length + 1 : written.length;
    if (!(t >= 0 && t < steps))
      throw new Refused(422, `There is no step ${t}: this ${reading ? "sentence" : "translation"} has steps 0 to ${steps - 1}.`);
    return { encoded, written, pass: await this.pass(encoded.ids, written, changes, signal) };
  }

  /** The path of step t through the layers of a Transformer. */
  async path({ t, name, signal, ...look }) {
    const reading = Boolean(name?.startsWith("encoder")),
      kind = reading ? "encoder" : "decoder",
      adds = this.plain.layers[kind];
    if (!adds.length) throw new Refused(422, "Only a Transformer has a path through layers to show; this model has none.");
    const { pass } = await this.written({ ...look, changes: look.changes ?? [], t, reading, signal });
    const names = this.plain.graphs.outputs[reading ? "encoder" : "step"].filter((one) => one.startsWith(`${kind}.`) && /^\w+\.\d+:/.test(one));
    const found = reading ? pass.read : await pass.at(t, [...names, "early"], signal, range(adds.length));
    const layers = adds.map((sums, layer) => {
      const own = names.filter((one) => one.startsWith(`${kind}.${layer}:`));
      const parts = own.map((one) => {
        const { dims, data } = found[one],
          at = reading ? t : 0,
          width = dims.at(-1);
        if (dims.length === 3) return [one.split(":")[1], store([width], data.subarray(at * width, (at + 1) * width))];
        const rows = range(dims[1]).flatMap((head) => Array.from(data.subarray((head * dims[2] + at) * width, (head * dims[2] + at + 1) * width)));
        return [one.split(":")[1], store([dims[1], width], rows)];
      });
      const lens = reading ? {} : { lens: this.likeliest(found.early, layer) };
      return { layer, adds: sums, ...Object.fromEntries(parts), ...lens };
    });
    return { t, layers };
  }

  likeliest({ dims, data }, layer) {
    const logits = data.subarray(layer * dims[2], (layer + 1) * dims[2]),
      total = logTotal(logits);
    return largest(logits, LIKELIEST).map((id) => ({ ...this.word(id), probability: Math.exp(logits[id] - total) }));
  }

  /** The drop of the translation's log-probability without each head, the most important head first. */
  async worth({ changes = [], signal, ...look }) {
    const { encoded, written } = await this.written({ ...look, changes, signal });
    const places = this.modules.flatMap((module) => range(module.heads || 1).map((head) => [module, head]));
    const score = async (out) => {
      const rows = out.map((head) => ({ ids: encoded.ids, out: head }));
      return (await this.forced(rows, written, changes, logprobOf, signal)).map(sum);
    };
    const [whole] = await score([null]);
    const without = [];
    for (let first = 0; first < places.length; first += TOGETHER) without.push(...(await score(places.slice(first, first + TOGETHER))));
    const heads = places.map(([{ name }, head], at) => ({ name, head, drop: whole - without[at] }));
    return { heads: heads.sort((a, b) => b.drop - a.drop) };
  }

  /** The pieces that could follow a prefix, likeliest first. */
  async alternatives({ text, prefix, most = BEST, signal }) {
    const ids = this.ids(prefix, "prefix"),
      encoded = this.encode(text);
    this.sizes(encoded.ids, "text");
    const pass = await this.pass(encoded.ids, [...ids, END], [], signal);
    const logits = (await pass.at(ids.length, [], signal)).logits.data,
      total = logTotal(logits);
    const words = largest(logits, Math.min(most + END + 1, logits.length)).map((id) => ({ ...this.word(id), probability: Math.exp(logits[id] - total) }));
    const likely = words.filter(({ special }) => !special).slice(0, most);
    return { alternatives: likely.map(({ piece, text: shown, probability }) => ({ piece, text: shown, probability })) };
  }

  /** Refuse a trace that is too large to be drawn. */
  room(source, target) {
    const cells = ({ name, cross }) => {
      const rows = name.startsWith("encoder") ? source : target;
      return rows * (cross ? source : rows);
    };
    const numbers = sum(this.modules.map((module) => 2 * (module.heads || 1) * cells(module)));
    if (numbers > constants.limits.numbers)
      throw new Refused(422, `The attention of this trace has ${numbers} numbers, more than ${constants.limits.numbers}; send a shorter text.`);
  }

  // --- pieces

  sizes(ids, name) {
    const { tokens } = constants.limits;
    if (ids.length > tokens) throw new Refused(422, `The ${name} has ${ids.length} tokens; send at most ${tokens}.`);
    return ids;
  }

  /** The ids of a translation or a prefix, given as text or pieces. */
  ids(given, name) {
    if (typeof given === "string") return this.sizes(this.target.encode(stripEnd(given)).ids, name);
    const ids = given.map((piece) => {
      const id = this.target.numbers.get(piece);
      if (!(id > END)) throw new Refused(422, `There is no piece '${piece.slice(0, 40)}' in the target vocabulary.`);
      return id;
    });
    return this.sizes(ids, name);
  }

  word(id) {
    const piece = this.target.pieces[id];
    return { piece, text: this.target.decode([id]) || piece, special: id <= END };
  }
}

const logprobOf = (logits, id) => logits[id] - logTotal(logits);

/** At most 32 means of neighbours. */
function bins(values) {
  const count = Math.min(32, values.length),
    edges = range(count + 1).map((at) => Math.floor((at * values.length) / count));
  return range(count).map((at) => {
    const own = values.slice(edges[at], edges[at + 1]);
    return Math.round((sum(own) / own.length) * 1e5) / 1e5;
  });
}

/** One side of a trace: {text, tokens}. */
function tokensOf({ text, pieces, spans, words }, ended) {
  const characters = points(text);
  const tokens = pieces.map((piece, at) => {
    const [start, end] = spans[at];
    const shown = bare(characters.slice(start, end).join(""));
    return { text: shown || piece, piece, start, end, special: false, word: words[at] };
  });
  const size = characters.length;
  if (ended) tokens.push({ text: "</s>", piece: "</s>", start: size, end: size, special: true });
  return { text, tokens };
}

/** A description of a change; one of a row that the translation does not have says so. */
const unreached = (rows) => (one) =>
  (one.row ?? 0) < rows ? one : { ...one, text: `${one.text} (no effect: the translation has ${rows > 1 ? `rows 0 to ${rows - 1}` : "one row, 0"})` };

/** A change as a trace keeps it. */
function describe({ kind, position, value, t, weights, name, head }) {
  if (kind === "mask") return { kind, text: `source position ${position} masked`, column: position };
  if (kind === "temperature") return { kind, text: `temperature ${Number(value.toPrecision(6))}` };
  if (kind === "silence") return { kind, text: `${head == null ? name : `head ${head} of ${name}`} silenced`, name, head: head ?? null };
  return { kind, text: `row ${t} set ${weights ? "by hand" : `all on source position ${position}`}`, row: t, head: head ?? null };
}
