// Large files: loaded with a bar that counts bytes, checked, and kept for the next visit.

import { Refused } from "./engine.js";

const KEPT = "regard files"; // in the browser's Cache Storage
const ROOT = new URL("../files/", import.meta.url);
const running = new Map(); // name -> bytes {done, all}, and whether it is over; until all of them are
let listed = null;

/** The models and files of this folder. */
export async function index() {
  listed ??= await fetch(new URL("index.json", ROOT))
    .then((response) => (response.ok ? response.json() : Promise.reject(new Error())))
    .catch(() => {
      throw new Refused(0, "The list of models (files/index.json) cannot be loaded; is the folder complete?");
    });
  return listed;
}

/** A file of the folder, unpacked. @param {string} name @returns {Promise<ArrayBuffer>} */
export async function file(name) {
  const { files } = await index(),
    known = files[name];
  if (!known) throw new Refused(0, `The file files/${name} is not part of this folder; build it again.`);
  const address = `${new URL(name, ROOT)}?${known.sha256.slice(0, 16)}`;
  const cache = await globalThis.caches?.open(KEPT).catch(() => null);
  const kept = await cache?.match(address);
  running.set(name, { done: 0, all: known.bytes, over: false });
  show();
  try {
    const packed = await receive(name, kept ?? (await request(name, address)), known.bytes);
    await check(name, packed, known);
    if (!kept) await cache?.put(address, new Response(packed)).catch(() => {}); // no room: it is loaded again next time
    return await unpack(name, packed);
  } catch (error) {
    if (kept) await cache.delete(address);
    throw error;
  } finally {
    running.get(name).over = true;
    if ([...running.values()].every(({ over }) => over)) running.clear();
    show();
  }
}

async function request(name, address) {
  const response = await fetch(address).catch(() => null);
  if (!response) throw new Refused(0, `The file files/${name} cannot be loaded; is there a network?`);
  if (!response.ok) throw new Refused(response.status, `The file files/${name} is missing on the server (${response.status}).`);
  return response;
}

async function receive(name, response, size) {
  const packed = new Uint8Array(size),
    reader = response.body.getReader();
  let done = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (done + part.value.length > size) throw new Error();
      packed.set(part.value, done);
      done += part.value.length;
      running.get(name).done = done;
      show();
    }
    if (done !== size) throw new Error();
  } catch {
    throw damaged(name);
  }
  return packed;
}

const damaged = (name) => new Refused(0, `The file files/${name} is damaged or from another build; reload the page, or build the folder again.`);

/** Compare the checksum, where the browser computes one: only over https and on this machine. gzip has another. */
async function check(name, packed, { sha256 }) {
  if (!globalThis.crypto?.subtle) return;
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", packed));
  if (Array.from(found, (byte) => byte.toString(16).padStart(2, "0")).join("") !== sha256) throw damaged(name);
}

async function unpack(name, packed) {
  try {
    return await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  } catch {
    throw damaged(name);
  }
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** Say something above the page; nothing clears it. */
export const say = (text) => document.querySelector(".waiting")?.replaceChildren(text);

/** The bar. */
function show() {
  const place = document.querySelector(".waiting"),
    all = [...running.values()];
  if (!place) return;
  let bar = place.querySelector("progress");
  if (!all.length) {
    if (bar) place.replaceChildren();
    return;
  }
  const done = all.reduce((sum, one) => sum + one.done, 0),
    size = all.reduce((sum, one) => sum + one.all, 0);
  if (!bar) {
    bar = document.createElement("progress");
    bar.setAttribute("aria-label", "Loading the model");
    place.replaceChildren(document.createElement("span"), " ", bar);
  }
  bar.max = size;
  bar.value = done;
  place.firstChild.textContent = `Loading the model, once for this browser: ${megabytes(done)} of ${megabytes(size)} MB`;
}
