// The page in an exported file: the same views over the one trace that the file holds.

import "./views.js";
import { h, put, word } from "./dom.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const held = JSON.parse(document.getElementById("regard-held").textContent);
const trace = new Trace(held.trace);
trace.arithmetic = held.steps;

put(
  document.querySelector("main"),
  h(
    "header",
    { class: "sentences" },
    !trace.plain.image && h("p", { class: "sentence", dir: "auto" }, word(trace.source.text)),
    h("p", { class: "sentence target", dir: "auto" }, word(trace.target.text)),
  ),
  h("regard-views", { class: "views" }),
);
state.set({ ...held.selection, picture: held.picture, trace });
