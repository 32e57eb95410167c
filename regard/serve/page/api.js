// Talking to the server: one place for the address, the token, errors and requests that were overtaken.

const KEY = "regard-token";

/** A refusal of the server, in its own sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Where requests are sent to; null without a server. */
export const address = location.origin;

/** The page of an exported file, without data. */
export const emptyFile = async () => (await fetch("/page/file.html")).text();

/** Keep a token for this tab; it is sent as a header and never becomes part of an address. */
export const keepToken = (token) => sessionStorage.setItem(KEY, token);

/** Whether a token is kept for this tab. */
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

const headers = (extra) => {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
};

/** What `read` makes of the answer, by default its JSON. */
async function request(path, options, read = (response) => response.json()) {
  try {
    const response = await fetch(path, options);
    if (response.ok) return await read(response); // a request that is aborted while its answer is read has no answer
    const body = await response.json().catch(() => ({}));
    throw new Refused(response.status, body.error ?? body.message ?? `The server answered ${response.status}.`);
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached. Is it still running?");
  }
}

/** GET a path. */
export const get = (path) => request(path, { headers: headers({}) });

/** Wait until a model can answer: here all that are listed can. */
export const ready = () => {};

const running = new Map(); // by lane

/** Abort what runs in a lane. */
export const stop = (lane) => running.get(lane)?.abort();

/**
 * POST a body: a file as it is, anything else as JSON. Where a lane is named, an older request in it is aborted.
 * @param {string} path @param {object | Blob} body @param {string} [lane] @param {(response: Response) => any} [read]
 */
export async function post(path, body, lane, read) {
  const control = new AbortController();
  if (lane) {
    running.get(lane)?.abort();
    running.set(lane, control);
  }
  const options = {
    method: "POST",
    headers: headers({ "Content-Type": body instanceof Blob ? "application/octet-stream" : "application/json" }),
    body: body instanceof Blob ? body : JSON.stringify(body),
    signal: control.signal,
  };
  try {
    return await request(path, options, read);
  } finally {
    if (running.get(lane) === control) running.delete(lane);
  }
}

/**
 * POST a body and read the answer as server-sent events, each of them JSON.
 * @param {string} path @param {object} body @param {string} lane @param {(event: object) => void} receive
 */
export const stream = (path, body, lane, receive) =>
  post(path, body, lane, async (response) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let left = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (left + part.value).split("\n\n");
      left = events.pop();
      for (const event of events) receive(JSON.parse(event.replace(/^data: /, "")));
    }
  });

/** POST a form with a file. @param {string} path @param {Record<string, string | Blob>} fields */
export function sendFile(path, fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return request(path, { method: "POST", headers: headers({}), body: form });
}

/** GET a file, with the name that the server gives it. */
export const download = (path) =>
  request(path, { headers: headers({}) }, async (response) => {
    const name = /filename="([^"]*)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "";
    return { blob: await response.blob(), name };
  });
