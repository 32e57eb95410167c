// What happens when the text, the model or a what-if changes: ask the server, and put the answer into the state.

import { get, post, Refused } from "./api.js";
import { announce } from "./dom.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const cache = new Map(); // answers of this visit, by what was asked
const MOST_KEPT = 60;

/** The lines of the text that hold something to translate, and where each stands. */
export const lines = () => state.get("text").split("\n").map((text, at) => ({ text, at })).filter((line) => /[\p{L}\p{N}]/u.test(line.text));

/** The description of the chosen model. */
export const model = () => state.get("models").find((one) => one.id === state.get("model")) ?? state.get("models")[0];

/** Load the list of models. */
export async function begin() {
  const { models } = await get("/api/v1/models");
  const known = models.some((one) => one.id === state.get("model"));
  state.set({ models, model: known ? state.get("model") : models[0]?.id ?? "" });
}

/** Ask for a trace, or take it from what was asked before. @param {object} body @param {string} path @param {string} [lane] */
export async function trace(body, path = "/api/v1/trace", lane) {
  const key = path + JSON.stringify(body);
  if (!cache.has(key)) {
    const plain = await post(path, body, lane);
    cache.set(key, plain.trace ? new Trace(plain) : plain);
    if (cache.size > MOST_KEPT) cache.delete(cache.keys().next().value);
  }
  return cache.get(key);
}

/** What the current selection asks the server: the line, the model, the beginning and the changes. */
export function asked() {
  const line = lines()[Math.min(state.get("line"), lines().length - 1)];
  if (!line) return null;
  const body = { model: model()?.id, text: line.text.trim(), beam: state.get("beam") };
  if (state.get("prefix")) body.prefix = state.get("prefix");
  if (state.get("changes").length) body.changes = state.get("changes");
  return body;
}

/** Translate what stands in the box. An older request that is still under way is given up. */
export async function translate() {
  const body = asked();
  if (!body || !body.model) {
    state.set({ trace: null, lines: [], error: "", busy: false });
    return;
  }
  state.set({ busy: true, error: "" });
  try {
    const path = body.changes || body.prefix ? "/api/v1/what-if" : "/api/v1/beam";
    const found = await trace(body, path, "trace");
    const last = found.target.tokens.length - 1;
    state.set({
      trace: found, busy: false,
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

/** The other lines of a longer text, translated without looking inside. */
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

/** What could stand at position t of the translation, most likely first. */
export async function alternatives(t) {
  const body = asked();
  const pieces = state.get("trace").target.tokens.slice(0, t).map((token) => token.piece);
  const found = await trace({ model: body.model, text: body.text, prefix: pieces, most: 8 }, "/api/v1/alternatives", "alternatives");
  return found.alternatives;
}

/** The arithmetic of step t in full. */
export function arithmetic(t, name, head) {
  const { beam, ...body } = asked();
  return trace({ ...body, beam, t, name, head }, "/api/v1/steps", "steps");
}

/** Write the translation anew from position t on, beginning with `piece` there. */
export function goOnFrom(t, piece) {
  const pieces = state.get("trace").target.tokens.slice(0, t).map((token) => token.piece);
  state.set({ prefix: [...pieces, piece] });
}
