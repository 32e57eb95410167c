// Export of every view: SVG, PNG, CSV, JSON, and one HTML file that needs no network.

import { bundle } from "./bundle.js";
import { announce, button, closes, h } from "./dom.js";
import { host } from "./host.js";
import { csv } from "./tables.js";

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-style",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
];

// Characters that no XML may hold, however they are written.
const ILLEGAL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Cs}/gu;

/** A self-contained drawing: the page's styles become attributes. @param {SVGElement} drawing */
export function alone(drawing) {
  if (drawing.isConnected) return styled(drawing);
  const place = h("div", { class: "offstage" }, drawing); // only what is in the page has a style
  (document.querySelector(".view") ?? document.body).append(place);
  try {
    return styled(drawing);
  } finally {
    place.remove();
  }
}

function styled(drawing) {
  const copy = drawing.cloneNode(true);
  const from = [drawing, ...drawing.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value) to[at].setAttribute(name, value);
    }
    for (const name of ["class", "tabindex", "style", "id", "aria-activedescendant"]) to[at].removeAttribute(name);
  });
  copy.setAttribute("xmlns", drawing.namespaceURI);
  const ground = document.createElementNS(drawing.namespaceURI, "rect");
  const paper = getComputedStyle(document.body).getPropertyValue("--card").trim() || "#ffffff";
  for (const [name, value] of [
    ["width", "100%"],
    ["height", "100%"],
    ["fill", paper],
  ])
    ground.setAttribute(name, value);
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy).replace(ILLEGAL, "\ufffd");
}

/** A drawing as a picture of twice its size. @returns {Promise<Blob>} */
async function png(drawing) {
  const address = URL.createObjectURL(new Blob([alone(drawing)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h("canvas", { width: 2 * drawing.width.baseVal.value, height: 2 * drawing.height.baseVal.value });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** Save a file on the reader's computer. @param {string} name @param {string | Blob} contents @param {string} [type] */
export function save(name, contents, type) {
  const address = URL.createObjectURL(contents instanceof Blob ? contents : new Blob([contents], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`${name} saved`);
}

/**
 * The export menu of a view.
 * @param {string} name @param {() => SVGElement} picture
 * @param {() => {shown?: object, trace: object, csv?: string}} data
 */
export function exporter(name, picture, data) {
  const acts = {
    SVG: () => save(`regard-${name}.svg`, alone(picture()), "image/svg+xml"),
    PNG: async () => save(`regard-${name}.png`, await png(picture())),
    CSV: () => {
      const { shown, csv: text } = data();
      save(`regard-${name}.csv`, text ?? csv(shown), "text/csv;charset=utf-8");
    },
    JSON: () => save(`regard-${name}.json`, JSON.stringify(data().trace.plain), "application/json"),
    HTML: async () => save(`regard-${name}.html`, await bundle(data().trace, name), "text/html;charset=utf-8"),
  };
  if (!host.live) delete acts.HTML; // this file is it
  const status = h("span", { class: "note", role: "status" });
  const attempt = async (act) => {
    try {
      status.textContent = "";
      await act();
      menu.open = false;
    } catch (error) {
      status.textContent = `This could not be exported: ${error.message}`;
    }
  };
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", {}, "Export"),
    h(
      "div",
      { class: "sheet" },
      Object.entries(acts).map(([kind, act]) => button(kind, () => attempt(act), { "data-kind": kind })),
      status,
    ),
  );
  closes(menu);
  return menu;
}
