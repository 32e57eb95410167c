// Elements without HTML text: strings become text nodes, so that no sentence can ever become markup.

// The namespaces come from the browser, so that a file holds no address.
const sample = document.createElement("template");
sample.innerHTML = "<svg></svg><math></math>";
const [SVG, MATH] = [...sample.content.children].map((one) => one.namespaceURI);

/**
 * Make an element. Attributes beginning with "on" are listeners; null, undefined and false are left out.
 * @param {string} name @param {Record<string, any>} [attributes] @param {...any} children
 */
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** The same for SVG. @param {string} name @param {Record<string, any>} [attributes] @param {...any} children */
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** The same for MathML. @param {string} name @param {Record<string, any>} [attributes] @param {...any} children */
export const math = (name, attributes, ...children) => fill(document.createElementNS(MATH, name), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Replace everything inside an element. @param {Element} element @param {...any} children */
export function put(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** The same as `put`, but the focus stays inside: on the control of the same name, or in the same place. */
export function renew(element, ...children) {
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const name = (one) =>
    one.getAttribute("aria-label") ?? one.closest("label")?.firstChild.textContent ?? one.textContent;
  const similar = () => [...element.querySelectorAll(active.localName)];
  const known = active && { name: name(active), place: similar().indexOf(active) };
  put(element, ...children);
  if (!active) return element;
  const free = similar().filter((one) => !one.disabled);
  (free.find((one) => name(one) === known.name) ?? free[Math.min(known.place, free.length - 1)])?.focus({
    preventScroll: true,
  });
  return element;
}

/** A word of some language: isolated from the text around it, in its own direction, with what cannot be seen shown. */
export const word = (text, attributes = {}) => h("bdi", { dir: "auto", ...attributes }, visible(text));

// Joiners stay: words of some scripts and emoji need them.
const CONTROLS = /[\p{Cc}\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\p{Cs}|\p{Cn}/gu;

/** Text with control and direction characters made visible, so that nothing in it can rearrange the page. */
export function visible(text) {
  const shown = String(text).replace(CONTROLS, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
  });
  return shown === "" ? "\u2423" : shown.replace(/^ +|(?<! ) +$/g, (spaces) => "\u2423".repeat(spaces.length));
}

/** A text inside a drawing, which has no `bdi`: isolated from what is around it, so that it keeps its direction. */
export const isolate = (text) => `\u2068${text}\u2069`;

/** A select box. @param {string} label @param {{value: string, text: string, disabled?: boolean}[]} options */
export function select(label, options, value, onchange, attributes = {}) {
  const box = h(
    "select",
    { ...attributes, onchange: () => onchange(box.value) },
    options.map((option) =>
      h("option", { value: option.value, selected: option.value === value, disabled: option.disabled }, option.text),
    ),
  );
  return field(label, box);
}

/** A control with its name before it. @param {string} label @param {...any} control */
export const field = (label, ...control) => h("label", { class: "field" }, h("span", {}, label), control);

/** A button. @param {any} contents @param {(event: Event) => void} onclick @param {Record<string, any>} [attributes] */
export const button = (contents, onclick, attributes = {}) =>
  h("button", { type: "button", ...attributes, onclick }, contents);

/** A switch that says whether it is on. */
export const toggle = (label, on, onchange, attributes = {}) =>
  button(label, () => onchange(!on), { class: "switch", "aria-pressed": String(on), ...attributes });

/** Buttons of which one is pressed. @param {string} label @param {{value: string, text: string}[]} options */
export const segments = (label, options, value, onchange) =>
  h(
    "div",
    { class: "segments", role: "group", "aria-label": label },
    options.map((option) =>
      button(option.text, () => onchange(option.value), { "aria-pressed": String(option.value === value) }),
    ),
  );

const opened = new Set(); // menus that stay open while what is around them is drawn again

/** A button that opens a sheet of further controls. */
export function menu(name, ...contents) {
  const box = h(
    "details",
    { class: "menu", open: opened.has(name) },
    h("summary", {}, name),
    h("div", { class: "sheet" }, ...contents),
  );
  box.addEventListener("toggle", () => opened[box.open ? "add" : "delete"](name));
  closes(box);
  return box;
}

/** Escape, or a click elsewhere, closes a menu. @param {HTMLDetailsElement} box */
export function closes(box) {
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    box.querySelector("summary").focus();
  });
  const outside = (event) => {
    if (!box.isConnected) document.removeEventListener("pointerdown", outside);
    else if (!box.contains(event.target)) box.open = false;
  };
  document.addEventListener("pointerdown", outside);
}

let timer = 0;
/** Announce to a screen reader; of several quick messages only the last. */
export function announce(text) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const place = document.getElementById("announcements");
    if (place) place.textContent = text;
  }, 60);
}

let shown = 0;
/**
 * Show a short message above the page, and announce it. It goes after some seconds, or when the next one comes;
 * `going` ones stay until the next, since what they speak of is not over.
 */
export function notify(text, { going = false, error = false } = {}) {
  clearTimeout(shown);
  const place = document.querySelector(".message");
  put(place, text);
  place.hidden = false;
  place.classList.toggle("error", error);
  if (!going) shown = setTimeout(() => (place.hidden = true), 8000);
  announce(text);
}

/** Whether the reader has a finger and nothing to point with. */
export const taps = () => matchMedia("(hover: none)").matches;

/** Whether the reader wants no movement. */
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
