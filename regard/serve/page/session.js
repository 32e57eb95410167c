// What happens when the text, the model or a what-if changes: a request to the server, and its answer in the state.

import { get, post, Refused } from "./api.js";
import { announce } from "./dom.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const cache = new Map(); // answers of this visit, by their requests
const MOST_KEPT = 60;

/** The lines of the text that hold something to translate, and the position of each. */
export const lines = () =>
  state
    .get("text")
    .split("\n")
    .map((text, at) => ({ text, at }))
    .filter((line) => /[\p{L}\p{N}]/u.test(line.text));

/** The description of the chosen model. */
export const model = () => state.get("models").find((one) => one.id === state.get("model")) ?? state.get("models")[0];

/** The models that translate. */
export const translators = () => state.get("models").filter((one) => one.kind !== "caption");

/** Choose a model; the selection of another one's words is cleared. */
export const choose = (one) =>
  state.set({
    model: one.id,
    t: null,
    s: null,
    layer: null,
    head: null,
    shift: null,
    prefix: null,
    changes: [],
    node: null,
    example: null,
    trace: null,
    error: "",
  });

/** Load the list of models. */
export async function begin() {
  const { models } = await get("/api/v1/models");
  const known = models.some((one) => one.id === state.get("model"));
  state.set({ models, model: known ? state.get("model") : (models[0]?.id ?? "") });
}

/** Request a trace, or take it from the answers so far. */
export async function trace(body, path = "/api/v1/trace", lane) {
  const key = path + JSON.stringify(body);
  if (!cache.has(key)) {
    const began = performance.now();
    const plain = await post(path, body, lane);
    const found = plain.trace ? new Trace(plain) : plain;
    found.waited = performance.now() - began;
    cache.set(key, found);
    if (cache.size > MOST_KEPT) cache.delete(cache.keys().next().value);
  }
  return cache.get(key);
}

let current = null; // the request behind the shown trace

/** The request of the current selection: the line, the model, and the prefix or the changes. */
async function wanted() {
  const line = lines()[Math.max(0, Math.min(state.get("line"), lines().length - 1))];
  if (!line || !model()) return null;
  const body = { model: model().id, text: line.text.trim(), beam: state.get("beam") };
  const { prefix, changes } = state.values;
  if (!prefix && !changes.length) return { path: "/api/v1/beam", body };
  // A change is first shown on the same words; only going on from a prefix writes others.
  const same = prefix ? { prefix } : { target: (await trace(body, "/api/v1/beam", "trace")).pieces() };
  return { path: "/api/v1/what-if", body: { ...body, ...same, changes: changes.flatMap(single) } };
}

/** A hidden word is a change of every piece of it. */
const single = ({ positions, ...change }) =>
  positions ? positions.map((position) => ({ ...change, position })) : [change];

/** Translate the text in the box. An older request that is still running is aborted. */
export async function translate() {
  state.set({ busy: true, error: "" });
  try {
    current = await wanted();
    if (!current) {
      state.set({ trace: null, lines: [], busy: false });
      return;
    }
    const found = await trace(current.body, current.path, "trace");
    const last = found.target.tokens.length - 1;
    state.set({
      trace: found,
      busy: false,
      t: state.get("t") === null ? null : Math.max(0, Math.min(state.get("t"), last)),
      s: state.get("s") === null || state.get("s") < found.source.tokens.length ? state.get("s") : null,
    });
    announce(`Translation: ${found.target.text}`);
    await others();
  } catch (error) {
    if (error.name === "AbortError") return;
    state.set({ busy: false, error: error instanceof Refused ? error.message : String(error.message ?? error) });
    announce(state.get("error"));
  }
}

/** The other lines of a longer text, translated without a trace. */
async function others() {
  const all = lines();
  if (all.length < 2) {
    state.set({ lines: [] });
    return;
  }
  const chosen = model();
  const { translatedText } = await post(
    "/translate",
    { q: all.map((line) => line.text), source: chosen.source.code, target: chosen.target.code, model: chosen.id },
    "lines",
  );
  state.set({ lines: translatedText });
}

/** The words that could follow a prefix of the translation, most likely first. */
export async function alternatives(prefix) {
  const { model: id, text } = current.body;
  const found = await trace({ model: id, text, prefix, most: 8 }, "/api/v1/alternatives", "alternatives");
  return found.alternatives;
}

/** The numbers of step t in full. */
export function step(t, { name }, head, lane = "steps") {
  const { model: id, text, changes } = current.body;
  return trace(
    { model: id, text, target: state.get("trace").pieces(), changes: changes ?? [], t, name, head },
    "/api/v1/steps",
    lane,
  );
}

/** Translate again after a prefix, given as pieces or as text. */
export function goOn(prefix) {
  state.set({ prefix, node: null, replay: null });
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

/** Another model's trace of the same sentence. */
export const elsewhere = (id) =>
  trace({ model: id, text: current.body.text, beam: current.body.beam }, "/api/v1/beam", "elsewhere");
