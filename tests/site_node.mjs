// Answers requests to the engine of a built page, without a browser: node site_node.mjs SITE < requests > answers.
// A request is a line of JSON: {model, method, body}, {module, name, each} or {vocabulary, name, each}
// for a function and the arguments of each of its calls.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const site = process.argv[2];
const load = (name) => import(pathToFileURL(`${site}/page/${name}.js`));
const file = (name) => {
  const data = gunzipSync(readFileSync(`${site}/files/${name}.bin`));
  return data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
};
const { Model, start } = await load("engine");
const models = new Map();

async function model(id) {
  if (!models.size) start(file("runtime"));
  if (!models.has(id)) {
    const plain = JSON.parse(new TextDecoder().decode(file(`${id}/model`)));
    models.set(id, await Model.open(plain, ...["encoder", "step", "weights"].map((name) => file(`${id}/${name}`))));
  }
  return models.get(id);
}

async function answer({ model: id, method, body, module, name, each, vocabulary }) {
  if (vocabulary) {
    const { Vocabulary, copyUnknown, drafts } = await load("text"),
      known = new Vocabulary(vocabulary);
    if (name === "drafts") return each.map(([text, most]) => drafts(text, (one) => known.encode(one), most));
    if (name === "copyUnknown") return each.map((args) => copyUnknown(...args, known));
    return each.map((args) => known[name](...args));
  }
  if (module) {
    const act = (await load(module))[name];
    return each.map((args) => act(...args));
  }
  const chosen = await model(id);
  return method === "translate" ? chosen.translate(body.text, body) : chosen[method](body);
}

for await (const line of createInterface({ input: process.stdin })) {
  let found;
  try {
    found = { answer: await answer(JSON.parse(line)) };
  } catch (error) {
    found = { error: String(error.message ?? error).slice(0, 500), stack: String(error.stack).slice(0, 300).replaceAll("\n", " ") };
  }
  process.stdout.write(`${JSON.stringify(found)}\n`);
}
