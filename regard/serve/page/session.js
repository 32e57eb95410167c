// What happens when the text, the model or a what-if changes: requests to the server, and their answers in the state.

import { get, post, ready, Refused, stop, stream } from "./api.js";
import { announce } from "./dom.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const cache = new Map(); // answers of this visit, by their requests
const MOST_KEPT = 80;

/** The description of the chosen model. */
export const model = () => state.get("models").find((one) => one.id === state.get("model")) ?? state.get("models")[0];

/** The models that translate. */
export const translators = () => state.get("models").filter((one) => one.kind !== "caption" && !one.through);

/** The same, and the pairs of languages that are translated through English, with two of them. */
export const directions = () => [...translators(), ...state.get("models").filter((one) => one.through)];

/** What a choice of words leaves of the selection. */
export const NOTHING = { t: null, s: null, prefix: null, changes: [], swapped: null, node: null, replay: null };

/** Choose a model; the selection of another one's words is cleared. */
export const choose = (one) =>
  state.set({ ...NOTHING, model: one.id, layer: null, head: null, shift: null, example: null, trace: null, error: "" });

/** What this server offers: the limit of a text, and whether it takes files. */
export let settings = { charLimit: 5000, filesTranslation: false, supportedFilesFormat: [] };

/** Load the list of models; while the server is still loading them, `waiting` is called and it is tried again. */
export async function begin(waiting) {
  let found = null;
  while (!found)
    found = await Promise.all([get("/api/v1/models"), get("/frontend/settings")]).catch(async (error) => {
      if (error.status !== 503) throw error;
      waiting();
      await new Promise((done) => setTimeout(done, 500));
      return null;
    });
  const [{ models: loaded, pivots = [] }, offered] = found;
  settings = offered;
  const pivoted = pivots.map((one) => {
    const { examples, target } = loaded.find(({ id }) => id === one.through[0]);
    return { ...one, examples, idea: `Two models: the text is translated into ${target.name} first.` };
  });
  const models = [...loaded, ...pivoted];
  const known = models.some((one) => one.id === state.get("model"));
  state.set({ models, model: known ? state.get("model") : (models[0]?.id ?? "") });
}

/** Request a trace, or take it from the answers so far. */
export async function trace(body, path = "/api/v1/trace", lane) {
  const key = path + JSON.stringify(body);
  if (!cache.has(key)) {
    await ready(body.model);
    const began = performance.now();
    const plain = await post(path, body, lane);
    const found = plain.trace ? new Trace(plain) : plain;
    found.waited = performance.now() - began;
    cache.set(key, found);
    if (cache.size > MOST_KEPT) cache.delete(cache.keys().next().value);
  }
  return cache.get(key);
}

const NEVER = /[\p{L}\p{N}]/u;
let current = null; // the request behind the shown trace
let streamed = ""; // the text and model behind the shown sentences
let turn = 0; // the number of the latest translation

/** The sentence that is looked into. */
export const sentence = () => state.get("sentences")[state.get("line")] ?? null;

/** Translate the text in the box, sentence by sentence as it is written, then look into the chosen sentence. */
export async function translate() {
  const text = state.get("text"),
    chosen = model(),
    mine = ++turn;
  if (!NEVER.test(text) || !chosen) {
    stop("trace");
    streamed = "";
    state.set({ trace: null, sentences: [], busy: false, error: "" });
    return;
  }
  state.set({ busy: true, error: "" });
  try {
    const key = `${chosen.id}\n${text}`;
    if (key !== streamed) await write(text, chosen, key, mine);
    if (mine !== turn) return; // overtaken: a look now would abort the newer one
    if (chosen.through) await readBetween(text, chosen);
    else if (model().id === chosen.id) await look();
    else state.set({ busy: false }); // a captioner was chosen meanwhile, which cannot look into a sentence
  } catch (error) {
    if (error.name === "AbortError") return;
    state.set({ busy: false, error: error instanceof Refused ? error.message : String(error.message ?? error) });
    announce(state.get("error"));
  }
}

/** The translation as it is written: each event names a sentence and what there is of it. */
async function write(text, chosen, key, mine) {
  streamed = "";
  const sentences = [];
  const body = { q: text, source: chosen.source.code, target: chosen.target.code, model: chosen.id, stream: true };
  state.set({ trace: null });
  await stream("/translate", body, "trace", (event) => {
    if (event.error) throw new Refused(500, event.error);
    if (event.sentence === undefined || mine !== turn) return;
    sentences[event.sentence] = { ...event, of: text }; // the box may change before the next answer
    state.set({ sentences: [...sentences] });
  });
  if (mine !== turn) return;
  if (state.get("line") >= sentences.length) state.set({ line: 0 });
  streamed = key;
}

/** The text between the two models of a pair. */
async function readBetween(text, { source, through }) {
  const { id, target } = state.get("models").find((one) => one.id === through[0]);
  const found = await post("/translate", { q: text, source: source.code, target: target.code, model: id }, "trace");
  state.set({ between: found.translatedText, busy: false });
}

/** Look into the chosen sentence. What goes wrong here belongs to that sentence; the text stays translated. */
export async function look() {
  const found = sentence();
  if (!found || model().through) {
    state.set({ trace: null, busy: false });
    return;
  }
  const { prefix, changes } = state.values;
  const body = {
    model: model().id,
    text: [...state.get("text")].slice(...found.source).join(""),
    beam: state.get("beam"),
  };
  current =
    prefix || changes.length
      ? { path: "/api/v1/what-if", body: { ...body, prefix: prefix ?? [], changes: changes.flatMap(single) } }
      : { path: "/api/v1/beam", body };
  try {
    const seen = await trace(current.body, current.path, "trace");
    const last = seen.target.tokens.length - 1;
    state.set({
      trace: seen,
      busy: false,
      t: state.get("t") === null ? null : Math.max(0, Math.min(state.get("t"), last)),
      s: state.get("s") === null || state.get("s") < seen.source.tokens.length ? state.get("s") : null,
    });
    state.settle();
    if (!document.body.classList.contains("stepping")) announce(`Translation: ${seen.target.text}`);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const sentences = [...state.get("sentences")];
    sentences[state.get("line")] = { ...found, error: error.message };
    state.set({ sentences, trace: null, busy: false });
    announce(error.message);
  }
}

/** Stop writing; what is there stays. */
export function halt() {
  if (!state.get("busy")) return false;
  stop("trace");
  state.set({ busy: false });
  announce("Stopped");
  return true;
}

/** A hidden word is a change of every piece of it. */
const single = ({ positions, ...change }) =>
  positions ? positions.map((position) => ({ ...change, position })) : [change];

/** The words that could follow a prefix of the translation, most likely first. */
export async function alternatives(prefix) {
  const { model: id, text } = current.body;
  const found = await trace({ model: id, text, prefix, most: 8 }, "/api/v1/alternatives", "alternatives");
  return found.alternatives;
}

const stepOf = (t, { name }, head, changes, lane) => {
  const { model: id, text } = current.body;
  return trace({ model: id, text, target: state.get("trace").pieces(), changes, t, name, head }, "/api/v1/steps", lane);
};

/** The numbers of step t in full. */
export const step = (t, seen, head, lane = "steps") => stepOf(t, seen, head, current.body.changes ?? [], lane);

/** The same step on the same words, without the what-ifs. */
export const before = (t, seen, head) => stepOf(t, seen, head, [], "before");

const written = () => {
  const { model: id, text, changes } = current.body;
  return { model: id, text, target: state.get("trace").pieces(), changes: changes ?? [] };
};

/** The way of step t through the layers of a Transformer: those of the decoder, or of the encoder that `seen` is in. */
export const path = async (t, { kind, name }, lane = "path") =>
  model().name === "transformer"
    ? trace({ ...written(), t, ...(kind === "encoder" ? { name } : {}) }, "/api/v1/path", lane)
    : null;

/** The source words that each word of the translation came from, by a method; `against` is a piece to compare with. */
export const attribute = (method, against) =>
  trace({ ...written(), by: method, ...(against ? { against } : {}) }, "/api/v1/trace", "attribute");

/** How much less likely the translation is without each head. */
export const worth = async () => (await trace(written(), "/api/v1/worth", "worth")).heads;

/** Translate again after a prefix, given as pieces or as text. */
export function goOn(prefix) {
  state.set({ prefix, changes: [], node: null, replay: null });
  return translate();
}

/** How well each head of the model aligns, where the links between the words of its corpus are known; else null. */
export async function alignmentErrors() {
  const chosen = model();
  if (!chosen?.aligned) return null;
  const key = `heads of ${chosen.id}`;
  if (!cache.has(key)) cache.set(key, get(`/api/v1/heads?${new URLSearchParams({ model: chosen.id })}`));
  return cache.get(key);
}

/** Another model's trace of the same sentence, or of another one. */
export const elsewhere = (id, text = current?.body.text, lane = `elsewhere ${id}`) =>
  trace({ model: id, text, beam: state.get("beam") }, "/api/v1/beam", lane);
