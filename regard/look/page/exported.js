// The page of a file: the views of the one trace that the file holds.

import "./alignment.js";
import "./beam.js";
import "./compare.js";
import "./picture.js";
import "./steps.js";
import "./views.js";
import "./whatif.js";
import { h, put, word } from "./dom.js";
import { host } from "./host.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const held = JSON.parse(document.getElementById("held").textContent);
const trace = new Trace(held.trace);
const title = document.querySelector("h1");
const known = (t, seen, head) =>
  held.steps?.find((one) => one.t === t && one.name === seen.name && one.head === head) ?? trace.step(t, seen, head);

host.step = async (t, seen, head) => known(t, seen, head);
document.body.classList.add("exported");
title.classList.toggle("hidden", !held.titled);
put(
  document.querySelector("main"),
  title,
  h(
    "header",
    { class: "sentences" },
    !trace.plain.image && h("p", { class: "sentence", dir: "auto" }, word(trace.source.text)),
    h("p", { class: "sentence target", dir: "auto" }, word(trace.target.text)),
  ),
  h("regard-views", { class: "views" }),
);
const given = Object.entries(held.selection).filter(([, value]) => value !== null && value !== undefined);
state.set({ ...Object.fromEntries(given), picture: held.picture, trace });
