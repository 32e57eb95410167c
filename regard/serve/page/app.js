// The page: header, what is translated or described, views; started once the models are known.

import "./views.js";
import { openAlternatives } from "./alternatives.js";
import { emptyFile, keepToken, Refused } from "./api.js";
import { announce, button, h, put, renew, segments } from "./dom.js";
import { host } from "./host.js";
import { showKeys } from "./keys.js";
import { describes, open } from "./pictures.js";
import {
  alignmentErrors,
  before,
  begin,
  choose,
  elsewhere,
  goOn,
  halt,
  model,
  NOTHING,
  path,
  step,
  translate,
  translators,
  attribute,
  worth,
} from "./session.js";
import { state } from "./state.js";
import { askForToken } from "./token.js";

Object.assign(host, {
  live: true,
  model,
  translators,
  step,
  before,
  path,
  attribute,
  worth,
  translate,
  goOn,
  alternatives: openAlternatives,
  elsewhere,
  alignmentErrors,
  file: emptyFile,
});

const THEMES = { auto: "System", light: "Light", dark: "Dark" };
const VIEWS = ["alignment", "steps", "compare", "beam"];

function theme() {
  const kept = localStorage.getItem("regard-theme") ?? "auto";
  const apply = (name) => {
    document.documentElement.dataset.theme = name;
    localStorage.setItem("regard-theme", name);
    state.set({ theme: name });
  };
  apply(kept in THEMES ? kept : "auto");
  const box = h(
    "select",
    { "aria-label": "Theme", onchange: () => apply(box.value) },
    Object.entries(THEMES).map(([value, text]) => h("option", { value, selected: value === kept }, text)),
  );
  return box;
}

const KINDS = { translate: "Translate a sentence", caption: "Describe a picture" };

/** The panes of the chosen model's kind, and a switch to the other kind where both are loaded. */
function kinds() {
  const chosen = describes() ? "caption" : "translate";
  document.querySelector("regard-translate").hidden = chosen !== "translate";
  document.querySelector("regard-caption").hidden = chosen !== "caption";
  const first = (kind) => state.get("models").find((one) => one.kind === kind);
  const offered = Object.keys(KINDS).filter(first);
  const take = (kind) => {
    if (kind === chosen) return;
    choose(first(kind));
    state.set({ picture: null });
    begun();
  };
  const options = offered.map((kind) => ({ value: kind, text: KINDS[kind] }));
  renew(document.querySelector(".kinds"), offered.length > 1 && segments("Kind of model", options, chosen, take));
}

// What a kind of model needs, loaded when one of it is shown.
const MODULES = {
  translate: ["translate", "guide", "whatif", "alignment", "steps"],
  caption: ["caption", "picture"],
};
const LATER = ["compare", "beam"]; // views that are loaded when they are opened
const loaded = new Set();

/** Begin with an example, so that there is something to see. */
function begun() {
  if (!describes() && !state.get("text")) state.set({ text: model()?.examples?.[0] ?? "" });
  return work();
}

/** Do what the chosen model is for. */
async function work() {
  const kind = describes() ? "caption" : "translate";
  if (!loaded.has(kind)) {
    await Promise.all(MODULES[kind].map((name) => import(`./${name}.js`)));
    loaded.add(kind);
    state.set({ models: [...state.get("models")] }); // so that views which were just added are notified
  }
  return kind === "caption" ? open() : translate();
}

/** Examples that the model can translate, offered while the box is empty. */
function examples(place) {
  const known = model()?.examples ?? [],
    text = state.get("text");
  const offered = text === "" || known.includes(text) ? known.filter((one) => one !== text) : [];
  const take = (text) => {
    state.set({ ...NOTHING, text, line: 0 });
    translate();
  };
  put(
    place,
    offered.length > 0 && [
      h("span", { class: "note" }, "Try: "),
      offered.map((text) => button(text, () => take(text), { class: "chip" })),
    ],
  );
}

/** The tour, loaded when it is wanted. */
const tour = async () => (await import("./tour.js")).startTour();

async function start() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  if (fragment.has("token")) {
    keepToken(fragment.get("token"));
    fragment.delete("token");
    history.replaceState(null, "", `#${fragment}`);
  }
  put(
    document.querySelector("header .tools"),
    button("Tour", tour, { class: "quiet", title: "Attention in five minutes, on this page" }),
    button("?", showKeys, { class: "round", "aria-label": "Keys", title: "Keys (?)" }),
    theme(),
  );
  const tries = document.querySelector(".examples");
  state.on(["models", "model", "text"], () => examples(tries));
  state.on(["models", "model"], kinds);
  state.on(["view"], () => LATER.includes(state.get("view")) && import(`./${state.get("view")}.js`));
  state.read();
  try {
    const waiting = document.querySelector(".waiting");
    await begin(() => waiting.textContent || put(waiting, "The models are being loaded. This takes a few seconds…"));
    put(waiting);
  } catch (error) {
    if (error instanceof Refused && (error.status === 400 || error.status === 403)) askForToken(error.message);
    else put(document.querySelector("main"), h("p", { class: "error card", role: "alert" }, error.message));
    return;
  }
  begun();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the selection
  document.getElementById("view").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) =>
  state.set({ theme: `auto ${event.matches}` }),
);
addEventListener("hashchange", () => {
  state.read();
  work();
});
document.addEventListener("keydown", (event) => {
  if (
    event.target.matches("input, textarea, select, [contenteditable]") ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey
  )
    return;
  if (event.key === "?") showKeys();
  else if (event.key === "Escape" && !halt()) state.set({ t: null, s: null, preview: null, node: null });
  else if (/^[1-4]$/.test(event.key)) {
    document.querySelector("regard-views").open(VIEWS[Number(event.key) - 1]);
    announce(document.querySelector('[aria-selected="true"]').textContent);
  }
});
start();
