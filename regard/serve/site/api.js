// In place of the server: the same functions as the api.js of the server's page, answered by the engine in this browser.

import constants from "./constants.js";
import { Model, Refused, start } from "./engine.js";
import { file, index, say } from "./loading.js";
import { hasWords, points, takeSentences } from "./text.js";

export { Refused };

/** There is no server to send requests to from elsewhere. */
export const address = null;
export const keepToken = () => {};
export const hasToken = () => false;

/** The page of an exported file, without data. */
export const emptyFile = async () => (await fetch(new URL("file.html", import.meta.url))).text();

const models = new Map(); // id -> promise of a model
let runtime = null;

/** A model, loaded when it is first needed. */
function model(id) {
  if (!models.has(id)) {
    const opened = (async () => {
      if (typeof WebAssembly !== "object")
        throw new Refused(0, "This browser has no WebAssembly, which runs the model; use a current one, or allow it.");
      runtime ??= file("runtime.bin").then(start);
      const names = ["model", "encoder", "step", "weights"];
      const [, plain, ...parts] = await Promise.all([runtime, ...names.map((name) => file(`${id}/${name}.bin`))]);
      say("Starting the model\u2026");
      return Model.open(JSON.parse(new TextDecoder().decode(plain)), ...parts);
    })()
      .catch((error) => {
        models.delete(id);
        runtime = null;
        throw said(error);
      })
      .finally(() => say(""));
    models.set(id, opened);
  }
  return models.get(id);
}

/** Wait until a model is loaded, so that loading is no part of the time that an answer takes. */
export const ready = (id) => model(id);

/** What went wrong, in one sentence. */
function said(error) {
  if (error instanceof Refused || error.name === "AbortError") return error;
  const text = String(error?.message ?? error);
  if (error instanceof RangeError || /memory|allocat|bad_alloc/i.test(text))
    return new Refused(0, "This browser has not enough memory for the model; close other tabs, or choose a smaller model.");
  return new Refused(0, `The model cannot be run in this browser (${text.slice(0, 200)}).`);
}

/** A text that is looked into: one line with words, not too long. */
function line(text) {
  const size = points(text).length,
    most = constants.limits.characters;
  if (size > most) throw new Refused(422, `Invalid request: request (${size}) exceeds text limit (${most})`);
  if (text.includes("\n")) throw new Refused(422, "text must be one line; send each line in its own request.");
  if (!hasWords(text)) throw new Refused(422, "text must contain at least one letter or digit.");
  return text;
}

const looked = async (body, signal) => ({ chosen: await model(body.model), look: { ...body, text: line(body.text), signal } });
const answer = (act) => async (body, signal) => {
  const { chosen, look } = await looked(body, signal);
  return act(chosen, look);
};

const PATHS = {
  "/api/v1/trace": answer((chosen, look) => chosen.look(look)),
  "/api/v1/beam": answer((chosen, look) => chosen.look({ ...look, tree: true })),
  "/api/v1/what-if": answer((chosen, look) => chosen.look(look)),
  "/api/v1/steps": answer((chosen, look) => chosen.explain({ head: 0, ...look })),
  "/api/v1/path": answer((chosen, look) => chosen.path(look)),
  "/api/v1/worth": answer((chosen, look) => chosen.worth(look)),
  "/api/v1/alternatives": answer((chosen, look) => chosen.alternatives(look)),
};

/** GET a path: what a server says about itself and its models. */
export async function get(path) {
  const { models: known, limits } = await index();
  if (path === "/api/v1/models") return { models: known };
  if (path === "/frontend/settings") return { charLimit: limits.characters, filesTranslation: false, supportedFilesFormat: [] };
  const asked = new URLSearchParams(path.split("?")[1]).get("model");
  return (await model(asked)).plain.errors;
}

const running = new Map(); // by lane

/** Stop what runs in a lane. */
export const stop = (lane) => running.get(lane)?.abort();

/** Work in a lane: an older one in it is stopped. */
async function within(lane, work) {
  const control = new AbortController();
  if (lane) {
    running.get(lane)?.abort();
    running.set(lane, control);
  }
  try {
    return await work(control.signal);
  } catch (error) {
    throw said(error);
  } finally {
    if (running.get(lane) === control) running.delete(lane);
  }
}

/** POST a body. @param {string} path @param {object} body @param {string} [lane] */
export const post = (path, body, lane) => within(lane, (signal) => PATHS[path](body, signal));

/** The translation as it is written: each event names a sentence and what there is of it. */
export const stream = (path, body, lane, receive) =>
  within(lane, async (signal) => {
    const size = points(body.q).length,
      most = constants.limits.characters;
    if (size > most) throw new Refused(422, `Invalid request: request (${size}) exceeds text limit (${most})`);
    const chosen = await model(body.model),
      characters = points(body.q);
    for (const [sentence, source] of takeSentences(body.q, constants.limits.line).entries()) {
      const event = (translatedText, more) => receive({ sentence, source, translatedText, ...more });
      const found = await chosen.translate(characters.slice(...source).join(""), { signal, partial: event });
      const { text, flags, notes, unknown } = found;
      event(text, { done: true, flags, notes, unknown: unknown.slice(0, 20) });
    }
  });

// Files are not offered: `settings` says so.
export const sendFile = null;
export const download = null;

if (globalThis.top !== globalThis.self) document.documentElement.classList.add("framed"); // a figure of the docs
if (globalThis.navigator?.serviceWorker) navigator.serviceWorker.register(new URL("../sw.js", import.meta.url)).catch(() => {});
