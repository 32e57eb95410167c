// Talking to the server: one place for the address, the token, errors and requests that were overtaken.

const KEY = "regard-token";

/** A refusal of the server, in its own sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Keep a token for this tab; it is sent as a header and never becomes part of an address. */
export const keepToken = (token) => sessionStorage.setItem(KEY, token);

const headers = (extra) => {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
};

async function answer(response) {
  if (response.ok) return response.json(); // a request that is aborted while its answer is read has no answer
  const body = await response.json().catch(() => ({}));
  throw new Refused(response.status, body.error ?? body.message ?? `The server answered ${response.status}.`);
}

async function request(path, options) {
  try {
    return await answer(await fetch(path, options));
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached. Is it still running?");
  }
}

/** GET a path. */
export const get = (path) => request(path, { headers: headers({}) });

const running = new Map();

function open(lane) {
  const control = new AbortController();
  if (lane) {
    running.get(lane)?.abort();
    running.set(lane, control);
  }
  return control;
}

const close = (lane, control) => lane && running.get(lane) === control && running.delete(lane);

/** Abort what runs in a lane. */
export const stop = (lane) => running.get(lane)?.abort();

/**
 * POST a body: a file as it is, anything else as JSON. Where a lane is named, an older request in it is aborted.
 * @param {string} path @param {object | Blob} body @param {string} [lane]
 */
export async function post(path, body, lane) {
  const control = open(lane);
  try {
    return await request(path, {
      method: "POST",
      headers: headers({ "Content-Type": body instanceof Blob ? "application/octet-stream" : "application/json" }),
      body: body instanceof Blob ? body : JSON.stringify(body),
      signal: control.signal,
    });
  } finally {
    close(lane, control);
  }
}

/**
 * POST a body and read the answer as server-sent events, each of them JSON.
 * @param {string} path @param {object} body @param {string} lane @param {(event: object) => void} receive
 */
export async function stream(path, body, lane, receive) {
  const control = open(lane);
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: headers({ "Content-Type": "application/json" }),
      body: JSON.stringify(body),
      signal: control.signal,
    });
    if (!response.ok) return void (await answer(response));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let left = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (left + part.value).split("\n\n");
      left = events.pop();
      for (const event of events) receive(JSON.parse(event.replace(/^data: /, "")));
    }
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached. Is it still running?");
  } finally {
    close(lane, control);
  }
}

/** POST a form with a file. @param {string} path @param {Record<string, string | Blob>} fields */
export function sendFile(path, fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return request(path, { method: "POST", headers: headers({}), body: form });
}

/** GET a file, with the name that the server gives it. */
export async function download(path) {
  const response = await fetch(path, { headers: headers({}) });
  if (!response.ok) await answer(response);
  const name = /filename="([^"]*)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "";
  return { blob: await response.blob(), name };
}
