// One HTML file with a trace and the views of this page: it opens from disk, without a network.

import { host } from "./host.js";
import { DEFAULTS, state } from "./state.js";
import { stepHead } from "./trace.js";

const MOST_STEPS = 60;
const EMPTY = 'id="held"><' + "/script>"; // in two parts: this module is itself inside a script of the file

const escape = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
const json = (value) => JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, escape);

/** The steps of one module and head in full, so that the file can check the numbers too. */
async function allSteps(trace) {
  const seen = trace.plain.image ? null : trace.stepModule(state.get("layer"), state.get("head"));
  const head = seen && stepHead(seen, state.get("head"));
  const steps = [];
  for (let t = 0; seen && t < Math.min(seen.pieces[0].rows.length, MOST_STEPS); t++)
    steps.push(await host.step(t, seen, head, null));
  return steps;
}

/** The file. @param {object} trace @param {string} view */
export async function bundle(trace, view) {
  const unused = new Set(["text", "model", "changes", "prefix", "other", "beam", "example", "view"]);
  const chosen = Object.keys(DEFAULTS).filter((name) => !unused.has(name));
  const held = {
    trace: trace.tree,
    titled: false,
    picture: trace.plain.image ? state.get("picture") : null,
    steps: await allSteps(trace),
    selection: { ...Object.fromEntries(chosen.map((name) => [name, state.get(name)])), view },
  };
  return (await host.file()).replace(EMPTY, () => EMPTY.replace("><", () => `>${json(held)}<`));
}
