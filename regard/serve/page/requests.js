// The same translation from elsewhere: the request as curl, Python and JavaScript.

import { h, segments, put } from "./dom.js";
import { model } from "./session.js";
import { state } from "./state.js";

let language = "curl";

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const WRITE = {
  curl: (url, body) => `curl ${url} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(JSON.stringify(body))}`,
  Python: (url, body) =>
    `import json, urllib.request\n\nrequest = urllib.request.Request(\n    ${JSON.stringify(url)},\n    json.dumps(${python(body)}).encode(),\n` +
    `    {"Content-Type": "application/json"},\n)\nprint(json.load(urllib.request.urlopen(request))["translatedText"])`,
  JavaScript: (url, body) =>
    `const response = await fetch(${JSON.stringify(url)}, {\n  method: "POST",\n  headers: { "Content-Type": "application/json" },\n` +
    `  body: JSON.stringify(${JSON.stringify(body)}),\n});\nconsole.log((await response.json()).translatedText);`,
};

const python = (body) => JSON.stringify(body); // text and lists of text are written alike in both

/** The box "Show request" for what stands in the panes. */
export function requests() {
  const chosen = model();
  if (!chosen) return null;
  const body = { q: state.get("text") || "Hello", source: chosen.source.code, target: chosen.target.code };
  const code = h("pre", { tabindex: 0, "aria-label": "Code for this request" });
  const choose = h("div", {});
  const show = () => {
    put(choose, segments("Language of the example", Object.keys(WRITE).map((name) => ({ value: name, text: name })), language, (name) => { language = name; show(); }));
    code.textContent = WRITE[language](`${location.origin}/translate`, body);
  };
  show();
  const copy = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard.writeText(code.textContent).catch(() => {});
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  } }, "Copy");
  const box = h("details", { class: "requests" }, h("summary", {}, "Show the request"), h("div", { class: "row" }, choose, copy), code);
  box.open = requests.open ?? false;
  box.addEventListener("toggle", () => (requests.open = box.open));
  return box;
}
