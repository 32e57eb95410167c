// The same translation or caption from elsewhere: the request as curl, Python and JavaScript.

import { address } from "./api.js";
import { button, h, renew, segments } from "./dom.js";
import { model } from "./session.js";
import { state } from "./state.js";

let language = "curl";

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const WRITE = {
  curl: (url, body) => [
    `curl ${url} \\`,
    "  -H 'Content-Type: application/json' \\",
    `  -d ${shell(JSON.stringify(body))}`,
  ],
  // Text is written the same in JSON and in Python.
  Python: (url, body) => [
    "import json, urllib.request",
    "",
    `body = json.dumps(${JSON.stringify(body)}).encode()`,
    `request = urllib.request.Request(${JSON.stringify(url)}, body, {"Content-Type": "application/json"})`,
    'print(json.load(urllib.request.urlopen(request))["translatedText"])',
  ],
  JavaScript: (url, body) => [
    `const response = await fetch(${JSON.stringify(url)}, {`,
    '  method: "POST",',
    '  headers: { "Content-Type": "application/json" },',
    `  body: JSON.stringify(${JSON.stringify(body)}),`,
    "});",
    "console.log((await response.json()).translatedText);",
  ],
};

const SEND = {
  curl: (url) => [`curl ${shell(url)} \\`, "  --data-binary @picture.jpg"],
  Python: (url) => [
    "import json, urllib.request",
    "",
    'picture = open("picture.jpg", "rb").read()',
    `request = urllib.request.Request(${JSON.stringify(url)}, picture)`,
    'print(json.load(urllib.request.urlopen(request))["caption"])',
  ],
  JavaScript: (url) => [
    `const response = await fetch(${JSON.stringify(url)}, {`,
    '  method: "POST",',
    '  body: document.querySelector("input[type=file]").files[0],',
    "});",
    "console.log((await response.json()).caption);",
  ],
};

/** The request for the chosen model, in the chosen language. */
function written(chosen) {
  if (chosen.kind === "caption") {
    const query = new URLSearchParams({ model: chosen.id });
    return SEND[language](`${address}/api/v1/caption?${query}`);
  }
  const body = { q: state.get("text") || "Hello", source: chosen.source.code, target: chosen.target.code };
  return WRITE[language](`${address}/translate`, body);
}

/** The box "Show request" for the current contents of the panes. */
export function requests() {
  const chosen = model();
  if (!chosen || address === null) return null;
  const code = h("pre", { tabindex: 0, "aria-label": "Code for this request" });
  const choose = h("div", {});
  const show = () => {
    renew(
      choose,
      segments(
        "Language of the example",
        Object.keys(WRITE).map((name) => ({ value: name, text: name })),
        language,
        (name) => {
          language = name;
          show();
        },
      ),
    );
    code.textContent = written(chosen).join("\n");
  };
  show();
  const take = async () => {
    await navigator.clipboard.writeText(code.textContent).catch(() => {});
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  };
  const copy = button("Copy", take, { class: "quiet" });
  const box = h(
    "details",
    { class: "requests" },
    h("summary", {}, "Show the request"),
    h("div", { class: "row" }, choose, copy),
    code,
  );
  box.open = requests.open ?? false;
  box.addEventListener("toggle", () => (requests.open = box.open));
  return box;
}
