// One HTML file with a trace and the very elements of this page in it: it opens from disk, with the network off.

import { state } from "./state.js";
import { arithmetic } from "./session.js";

const ENTRY = "exported.js";
const STYLES = ["theme", "controls", "translate", "pictures", "steps", "search", "captions"].map(
  (name) => `${name}.css`,
);
const IMPORT = /(from\s+|import\s+)"\.\/([\w-]+\.js)"/g;

/** The modules that the exported page needs, by name, with their imports rewritten to names without a path. */
async function modules() {
  const sources = new Map(),
    waiting = [ENTRY];
  while (waiting.length) {
    const name = waiting.pop();
    if (sources.has(name)) continue;
    const text = await own(name);
    sources.set(
      name,
      text.replace(IMPORT, (_, keyword, file) => {
        waiting.push(file);
        return `${keyword}"regard/${file}"`;
      }),
    );
  }
  return sources;
}

const files = new Map();

async function own(name) {
  if (!files.has(name)) files.set(name, await read(name));
  return files.get(name);
}

async function read(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name} cannot be read`);
  return response.text();
}

const base64 = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
const json = (value) =>
  JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

/** The steps of a trace in full, so that the exported page can do the sums again. */
async function allSteps(trace) {
  if (trace.arithmetic) return trace.arithmetic;
  if (trace.plain.image) return [];
  const seen = trace.module(state.get("layer"));
  const head = Number.parseInt(state.get("head"), 10) || 0;
  const steps = [];
  for (let t = 0; seen && t < Math.min(trace.target.tokens.length, 60); t++)
    steps.push(await arithmetic(t, seen.name, head, null));
  return steps;
}

/** The file. @param {import("./trace.js").Trace} trace @param {string} view */
export async function bundle(trace, view) {
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  const sources = await modules();
  const imports = Object.fromEntries(
    [...sources].map(([name, text]) => [`regard/${name}`, `data:text/javascript;base64,${base64(text)}`]),
  );
  const style = (await Promise.all(STYLES.map(own))).join("\n");
  const chosen = Object.fromEntries(
    [
      "t",
      "s",
      "layer",
      "head",
      "form",
      "words",
      "special",
      "renormalise",
      "shift",
      "rowScale",
      "numbers",
      "mass",
      "palette",
      "sub",
      "tree",
      "pruned",
      "tint",
      "opacity",
      "smooth",
      "listed",
    ].map((name) => [name, state.get(name)]),
  );
  const held = {
    trace: trace.plain,
    picture: trace.plain.image ? state.get("picture") : null,
    steps: await allSteps(trace),
    selection: { ...chosen, view: view === "compare" ? "alignment" : view },
  };
  const policy =
    `default-src 'none'; script-src 'nonce-${nonce}' data:; style-src 'nonce-${nonce}'; img-src data: blob:; ` +
    "base-uri 'none'; form-action 'none'";
  // The style sheet and the modules are this server's own files; sentences are in the JSON alone, where "<" is escaped.
  return [
    "<!doctype html>",
    '<html lang="en"><head><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>regard: what the model saw</title>",
    `<style nonce="${nonce}">${style.replaceAll("</", "<\\/")}</style>`,
    `<script type="importmap" nonce="${nonce}">${json({ imports })}</script>`,
    `<script type="application/json" id="regard-held">${json(held)}</script>`,
    '</head><body class="exported"><main></main>',
    '<div id="announcements" class="hidden" role="status" aria-live="polite"></div>',
    `<script type="module" nonce="${nonce}">import "regard/${ENTRY}";</script>`,
    "</body></html>",
  ].join("\n");
}
