// A trace in one page: no library, no network. Every word of a sentence enters the page as a text node.

/** Numbers of {shape, dtype, base64}. */
export function numbers(stored) {
  const bytes = Uint8Array.from(atob(stored.base64), (letter) => letter.charCodeAt(0));
  if (stored.dtype === "float32") return new Float32Array(bytes.buffer);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, at) => half(view.getUint16(2 * at, true)));
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, part = bits & 1023;
  if (exponent === 31) return part ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + part / 1024) : sign * 2 ** -14 * (part / 1024);
}

/** One module and head as rows, columns and weights: the same steps as arrange() in words.py. */
export function arrange(data, state) {
  const module = data.modules[state.module], [heads, T, S] = module.shape;
  let rows = data.sides[module.rows].tokens.map((_, at) => at);
  let columns = data.sides[module.columns].tokens.map((_, at) => at);
  const get = (t, s) => {
    if (state.head !== "mean" && state.head !== "max") return module.numbers[(state.head * T + t) * S + s];
    let total = 0, most = 0;
    for (let h = 0; h < heads; h++) {
      const weight = module.numbers[(h * T + t) * S + s];
      total += weight;
      most = Math.max(most, weight);
    }
    return state.head === "mean" ? total / heads : most;
  };
  if (state.shift) rows = rows.slice(0, -1);
  const plain = (side) => (at) => state.special || !data.sides[side].tokens[at].special;
  const hidden = columns.filter((at) => !plain(module.columns)(at));
  rows = rows.filter(plain(module.rows));
  columns = columns.filter(plain(module.columns));
  let lost = 0;
  const table = rows.map((t) => {
    const row = columns.map((s) => get(t + state.shift, s));
    for (const s of hidden) lost += get(t + state.shift, s);
    const total = row.reduce((a, b) => a + b, 0);
    return state.renormalise && total > 0 ? row.map((weight) => weight / total) : row;
  });
  const down = group(data.sides[module.rows], rows, state.words);
  const across = group(data.sides[module.columns], columns, state.words);
  const place = new Map(columns.map((at, number) => [at, number])), line = new Map(rows.map((at, number) => [at, number]));
  const weights = down.map((label) => across.map((word) => {
    let total = 0;
    for (const t of label.tokens) for (const s of word.tokens) total += table[line.get(t)][place.get(s)];
    return total / label.tokens.length;
  }));
  return { rows: down, columns: across, weights, hidden: rows.length ? lost / rows.length : 0, names: hidden };
}

function group(side, kept, words) {
  const shown = new Set(kept);
  if (!words) return kept.map((at) => ({ text: side.tokens[at].text, tokens: [at], special: side.tokens[at].special }));
  return side.words.filter((word) => shown.has(word.tokens[0]));
}

export function mix(colours, value) {
  const place = Math.min(1, Math.max(0, value)) * (colours.length - 1), at = Math.min(Math.floor(place), colours.length - 2);
  const part = place - at, hex = (colour, from) => parseInt(colour.slice(from, from + 2), 16);
  return [1, 3, 5].map((from) => Math.round(hex(colours[at], from) * (1 - part) + hex(colours[at + 1], from) * part));
}

function inkOn(colour) {
  const [red, green, blue] = colour.map((c) => (c /= 255, c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/** The strongest positions that together hold `mass` of a row. */
export function strongest(row, mass) {
  const total = row.reduce((a, b) => a + b, 0), kept = [];
  let held = 0;
  for (const at of row.map((_, s) => s).sort((a, b) => row[b] - row[a] || a - b)) {
    if (!(row[at] > 0) || held >= mass * total * (1 - 1e-6)) break;
    kept.push(at);
    held += row[at];
  }
  return kept;
}

/** The largest difference between softmax(scores) and weights of one row. */
export function check(scores, weights, hides = false) {
  scores = scores.map((e, s) => (hides && weights[s] === 0 ? -Infinity : e)); // the future has a score too, but is not seen
  const top = Math.max(...scores), raised = scores.map((e) => (Number.isFinite(top) ? Math.exp(e - top) : 0));
  const total = raised.reduce((a, b) => a + b, 0);
  return Math.max(0, ...weights.map((w, s) => Math.abs(w - (total > 0 ? raised[s] / total : 0))));
}


function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

let pictures = null; // the namespace of SVG, asked of the browser: this page holds no address of anything

function shape(name, attributes, ...children) {
  if (pictures === null) {
    const sample = document.createElement("template");
    sample.innerHTML = "<svg></svg>";
    pictures = sample.content.firstChild.namespaceURI;
  }
  const made = document.createElementNS(pictures, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const word = (label) => element("bdi", { dir: "auto", class: label.special ? "special" : null }, label.text);
const quoted = (label) => `“${label.text}”`;

export function start(root, data) {
  for (const module of data.modules) {
    module.numbers = numbers(module.weights);
    module.raw = module.scores ? numbers(module.scores) : null;
  }
  const state = { t: 0, s: 0, pinned: false, ...data.state };
  const stage = element("div", { id: "stage" }), bar = element("div", { id: "bar" });
  const caption = element("p", { id: "caption" }), readout = element("p", { id: "readout", "aria-live": "polite" });
  root.append(bar, readout, stage, caption);
  let table = null;

  const views = { matrix, ribbons, table: list, step, heads, beam: tree };
  function show() {
    const module = data.modules[state.module];
    state.head = typeof state.head === "number" && state.head >= module.shape[0] ? 0 : state.head;
    table = arrange(data, state);
    state.t = Math.max(0, Math.min(state.t, table.rows.length - 1));
    state.s = Math.max(0, Math.min(state.s, table.columns.length - 1));
    controls();
    stage.replaceChildren(views[state.view]());
    caption.textContent = says(module);
    tell();
  }

  function says(module) {
    const head = module.shape[0] === 1 ? "" : typeof state.head === "number" ? `head ${state.head}, ` : `${state.head} of ${module.shape[0]} heads, `;
    const names = table.names.map((at) => data.sides[module.columns].tokens[at].text);
    const parts = [`${module.label}, ${head}${module.about}`, state.words && [...table.rows, ...table.columns].some((label) => label.tokens.length > 1) ? "words (source pieces summed, target pieces averaged)" : "tokens"];
    if (names.length) parts.push(`${[...new Set(names)].slice(0, 3).join(", ")} hidden (${table.hidden.toFixed(2)} of the mass${state.renormalise ? ", the rest renormalised" : ""})`);
    if (state.shift) parts.push("shift 1: each row is what was looked at just after its word was read");
    return [...parts, ...data.changes].join(", ");
  }

  function tell() {
    if (!table.rows.length || !table.columns.length) { readout.textContent = "Nothing to show."; return; }
    const row = table.weights[state.t], weight = row[state.s];
    const rank = 1 + row.filter((other) => other > weight).length;
    readout.textContent = `target ${quoted(table.rows[state.t])}, source ${quoted(table.columns[state.s])}, weight ${weight.toFixed(3)}, rank ${rank} of ${row.length}`;
  }

  function choose(label, value, options, act) {
    const select = element("select", { onchange: (event) => { act(options[event.target.selectedIndex][0]); show(); select.focus(); } });
    for (const [key, text] of options) select.append(element("option", { selected: key === value }, text));
    return element("label", {}, label + " ", select);
  }

  function controls() {
    const module = data.modules[state.module], focus = bar.querySelector(":focus")?.dataset.key;
    const toggle = (key, text) => element("label", {}, element("input", { type: "checkbox", "data-key": key, checked: Boolean(state[key]), onchange: (event) => { state[key] = key === "shift" ? Number(event.target.checked) : event.target.checked; show(); } }), " " + text);
    const names = Object.keys(views).filter((view) => (view !== "beam" || data.beam) && (view !== "heads" || data.modules.some((one) => one.shape[0] > 1) || data.modules.length > 1));
    const heads = [["mean", "mean"], ["max", "largest"], ...Array.from({ length: module.shape[0] }, (_, h) => [h, `${h}`])];
    bar.replaceChildren(
      element("span", { role: "group", "aria-label": "view" }, ...names.map((view) => element("button", { type: "button", "data-key": "view-" + view, "aria-pressed": String(view === state.view), onclick: () => { state.view = view; show(); } }, view))),
      data.modules.length > 1 ? choose("attention", state.module, data.modules.map((one, at) => [at, one.label]), (at) => { state.module = at; state.shift = data.modules[at].shift; }) : "",
      module.shape[0] > 1 ? choose("head", state.head, heads, (head) => { state.head = head; }) : "",
      toggle("words", "words"), toggle("special", "special tokens"), toggle("renormalise", "renormalise"), toggle("shift", "shift"),
    );
    if (focus) bar.querySelector(`[data-key="${focus}"]`)?.focus();
  }

  const order = () => { const all = table.columns.map((_, s) => s); return data.right_to_left && data.modules[state.module].columns === "source" ? all.reverse() : all; };

  function matrix() {
    if (!table.rows.length || !table.columns.length) return element("p", {}, "No words to show; switch on special tokens.");
    return Math.max(table.rows.length, table.columns.length) > 60 ? canvas() : grid();
  }

  function grid() {
    const cells = new Map();
    const go = (t, s, focus) => {
      const old = cells.get(`${state.t},${state.s}`);
      old.tabIndex = -1;
      old.classList.remove("active");
      [state.t, state.s] = [t, s];
      const now = cells.get(`${t},${s}`);
      now.tabIndex = 0;
      now.classList.add("active");
      if (focus) now.focus();
      tell();
    };
    const made = element("table", { role: "grid", class: "matrix", "aria-label": "attention weights, target down, source across", onkeydown: (event) => move(event, (t, s) => go(t, s, true)) });
    const top = element("tr", { role: "row" }, element("td", {}));
    for (const s of order()) top.append(element("th", { scope: "col", role: "columnheader" }, element("span", {}, word(table.columns[s]))));
    made.append(element("thead", { role: "rowgroup" }, top));
    const body = element("tbody", { role: "rowgroup" });
    table.rows.forEach((label, t) => {
      const row = element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader" }, word(label)));
      for (const s of order()) {
        const weight = table.weights[t][s], back = mix(data.palette, weight);
        const cell = element("td", { role: "gridcell", tabindex: t === state.t && s === state.s ? "0" : "-1", title: `${label.text} → ${table.columns[s].text}: ${weight.toFixed(3)}`,
          onmouseenter: () => { if (!state.pinned) go(t, s, false); }, onclick: () => { state.pinned = !state.pinned; go(t, s, true); } },
          weight >= 0.005 && table.columns.length <= 40 ? weight.toFixed(2).replace(/^0/, "") : "");
        cell.style.backgroundColor = `rgb(${back})`;
        cell.style.color = inkOn(back);
        if (t === state.t && s === state.s) cell.classList.add("active");
        cells.set(`${t},${s}`, cell);
        row.append(cell);
      }
      body.append(row);
    });
    made.append(body);
    return element("div", { class: "scroll" }, made, legend());
  }

  function move(event, go) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
    if (event.key === "Escape") state.pinned = false;
    if (event.key === "Enter") { state.pinned = true; state.view = "step"; show(); bar.querySelector("[data-key=view-step]")?.focus(); return; }
    if (!step) return;
    event.preventDefault();
    const turned = data.right_to_left && data.modules[state.module].columns === "source" ? -1 : 1;
    const clip = (value, size) => Math.max(0, Math.min(size - 1, value));
    go(clip(state.t + step[0], table.rows.length), clip(state.s + turned * step[1], table.columns.length));
  }

  function canvas() {
    const columns = order(), T = table.rows.length, S = columns.length;
    const size = Math.max(1, Math.min(12, Math.floor(1800 / Math.max(T, S))));
    const made = element("canvas", { width: S * size, height: T * size, tabindex: "0", role: "application", "aria-label": `matrix of ${T} by ${S} weights; arrow keys move` });
    const brush = made.getContext("2d"), dot = brush.createImageData(S * size, T * size);
    for (let t = 0; t < T; t++) for (let at = 0; at < S; at++) {
      const colour = mix(data.palette, table.weights[t][columns[at]]);
      for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) dot.data.set([...colour, 255], 4 * ((t * size + y) * S * size + at * size + x));
    }
    const paint = () => {
      brush.putImageData(dot, 0, 0);
      brush.strokeStyle = "#d55e00";
      brush.lineWidth = 2;
      const at = columns.indexOf(state.s);
      brush.strokeRect(at * size - 1, state.t * size - 1, size + 2, size + 2);
      tell();
    };
    const go = (t, s) => { [state.t, state.s] = [t, s]; paint(); };
    const under = (event) => {
      const box = made.getBoundingClientRect();
      go(Math.min(T - 1, Math.floor(((event.clientY - box.top) / box.height) * T)), columns[Math.min(S - 1, Math.floor(((event.clientX - box.left) / box.width) * S))]);
    };
    made.addEventListener("mousemove", (event) => { if (!state.pinned) under(event); });
    made.addEventListener("click", (event) => { state.pinned = !state.pinned; under(event); });
    made.addEventListener("keydown", (event) => move(event, go));
    paint();
    return element("div", { class: "scroll" }, made, legend());
  }

  function legend() {
    const made = element("canvas", { width: 128, height: 10, class: "key", role: "img", "aria-label": "colours from weight 0 to weight 1" }), brush = made.getContext("2d");
    for (let x = 0; x < 128; x++) { brush.fillStyle = `rgb(${mix(data.palette, x / 127)})`; brush.fillRect(x, 0, 1, 10); }
    return element("p", { class: "legend" }, "weight 0 ", made, " 1");
  }

  function ribbons() {
    const line = 26, T = table.rows.length, S = table.columns.length, tall = Math.max(T, S, 1) * line;
    const right = (t) => ((t + 0.5) * tall) / Math.max(1, T), left = (s) => ((s + 0.5) * tall) / Math.max(1, S);
    const kept = table.weights.map((row) => new Set(strongest(row, 0.75)));
    const sum = table.columns.map((_, s) => table.weights.reduce((total, row, t) => total + (kept[t].has(s) ? row[s] : 0), 0));
    const used = new Array(S).fill(0), made = shape("svg", { viewBox: `0 0 700 ${tall}`, class: "ribbons", role: "img", "aria-label": "links that hold three quarters of each row; the table view has the numbers" });
    table.weights.forEach((row, t) => {
      const held = [...kept[t]].reduce((total, s) => total + row[s], 0);
      let from = -held / 2;
      for (const s of [...kept[t]].sort((a, b) => a - b)) {
        const scale = 1 / Math.max(1, sum[s]), room = line * 0.86, wide = Math.max(0.6, row[s] * room), thin = Math.max(0.6, row[s] * scale * room);
        const y0 = left(s) + (used[s] - Math.min(1, sum[s]) / 2) * room, y1 = right(t) + from * room;
        used[s] += row[s] * scale;
        from += row[s];
        const path = `M220 ${y0}C340 ${y0} 360 ${y1} 480 ${y1}L480 ${y1 + wide}C360 ${y1 + wide} 340 ${y0 + thin} 220 ${y0 + thin}Z`;
        const band = shape("path", { d: path, class: "band", "fill-opacity": 0.22 + 0.58 * row[s] }, shape("title", {}, `${table.columns[s].text} → ${table.rows[t].text}: ${row[s].toFixed(3)}`));
        band.addEventListener("mouseenter", () => { [state.t, state.s] = [t, s]; tell(); });
        made.append(band);
      }
    });
    table.columns.forEach((label, s) => made.append(shape("text", { x: 212, y: left(s) + 5, "text-anchor": "end" }, label.text)));
    table.rows.forEach((label, t) => made.append(shape("text", { x: 488, y: right(t) + 5, "text-anchor": "start" }, label.text)));
    return made;
  }

  function list() {
    const made = element("table", { class: "list" }, element("caption", {}, "Where each target word looks most"), element("tr", {}, ...["target", "logarithm of probability", "strongest source words"].map((text) => element("th", { scope: "col" }, text))));
    table.rows.forEach((label, t) => {
      const tokens = data.sides[data.modules[state.module].rows].tokens, sums = label.tokens.map((at) => tokens[at].logprob).filter((value) => typeof value === "number");
      const best = element("td", {});
      table.weights[t].map((weight, s) => [weight, s]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 5).forEach(([weight, s], at) => { if (weight >= 0.001) best.append(at ? ", " : "", word(table.columns[s]), ` ${weight.toFixed(3)}`); });
      made.append(element("tr", {}, element("th", { scope: "row" }, word(label)), element("td", {}, sums.length ? sums.reduce((a, b) => a + b, 0).toFixed(3) : ""), best));
    });
    return element("div", { class: "scroll" }, made);
  }

  function step() {
    const module = data.modules[state.module], [, T, S] = module.shape, label = table.rows[state.t];
    if (!label) return element("p", {}, "No words to show.");
    const t = Math.min(T - 1, label.tokens[0] + state.shift), head = typeof state.head === "number" ? state.head : 0;
    const at = (head * T + t) * S, weights = [...module.numbers.slice(at, at + S)], scores = module.raw ? [...module.raw.slice(at, at + S)] : null;
    const names = data.sides[module.columns].tokens, chosen = data.sides[module.rows].tokens[label.tokens[0]];
    const go = (by) => () => { state.t = Math.max(0, Math.min(table.rows.length - 1, state.t + by)); show(); stage.querySelector(by < 0 ? "[data-key=back]" : "[data-key=next]")?.focus(); };
    const made = element("div", { class: "step" }, element("p", {}, element("button", { type: "button", "data-key": "back", onclick: go(-1) }, "back"), " ", element("button", { type: "button", "data-key": "next", onclick: go(1) }, "next"), ` step ${t}: writes `, element("strong", {}, word(chosen)), `, head ${head}`));
    made.append(element("p", { class: "note" }, module.query === "previous" ? "1 query: the state before the step; it has not read the last word" : "1 query: the state after the last word was read"));
    const most = scores ? Math.max(1e-9, ...scores.filter(Number.isFinite).map(Math.abs)) : 1;
    const rows = weights.map((weight, s) => [weight, s]).sort((a, b) => (S > 80 ? b[0] - a[0] : a[1] - b[1])).slice(0, 80);
    const bars = element("table", { class: "bars" }, element("tr", {}, ...["source", `2 scores${module.score ? ` (${module.score})` : ""}`, `3 weights (${module.normalise}), sum ${weights.reduce((a, b) => a + b, 0).toFixed(3)}`].map((text) => element("th", { scope: "col" }, text))));
    for (const [weight, s] of rows) bars.append(element("tr", {}, element("th", { scope: "row" }, word(names[s])), element("td", {}, scores ? meter(Number.isFinite(scores[s]) ? Math.abs(scores[s]) / most : 0, "score", Number.isFinite(scores[s]) ? scores[s].toFixed(3) : "hidden") : "not recorded"), element("td", {}, meter(weight, "weight", weight.toFixed(3)))));
    made.append(bars);
    if (scores && module.normalise.includes("softmax")) made.append(element("p", { class: "note" }, `softmax of the scores gives the weights again: largest difference ${check(scores, weights, module.normalise.startsWith("causal")).toExponential(0)}`));
    if (module.norms) made.append(element("p", { class: "note" }, `4 context: the weighted sum of what is looked at, norm ${module.norms[head][t].toFixed(3)}`));
    if (chosen.topk.length) {
      const words = element("table", { class: "bars" }, element("tr", {}, element("th", { scope: "col" }, "5 next word"), element("th", { scope: "col" }, "probability")));
      for (const each of chosen.topk) words.append(element("tr", {}, element("th", { scope: "row" }, word(each)), element("td", {}, meter(Math.exp(each.logprob), "output", Math.exp(each.logprob).toFixed(3)))));
      made.append(words);
    }
    return made;
  }

  function meter(share, role, text) {
    const fill = element("span", { class: "fill " + role });
    fill.style.width = `${(100 * Math.max(0, Math.min(1, share))).toFixed(2)}%`;
    return element("span", { class: "meter" }, element("span", { class: "track" }, fill), element("span", { class: "value" }, text));
  }

  function heads() {
    const made = element("div", { class: "heads" });
    data.modules.forEach((module, at) => {
      for (let head = 0; head < module.shape[0]; head++) {
        const one = arrange(data, { ...state, module: at, head, shift: module.shift }), T = one.rows.length, S = one.columns.length;
        const small = element("canvas", { width: Math.max(1, S), height: Math.max(1, T) }), brush = small.getContext("2d");
        for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) { brush.fillStyle = `rgb(${mix(data.palette, one.weights[t][s])})`; brush.fillRect(s, t, 1, 1); }
        const open = () => { Object.assign(state, { module: at, head, view: "matrix", shift: module.shift }); show(); bar.querySelector("[data-key=view-matrix]")?.focus(); };
        made.append(element("button", { type: "button", onclick: open }, small, element("span", {}, `${module.label}, head ${head}`)));
      }
    });
    return made;
  }

  function tree() {
    const children = new Map();
    for (const node of data.beam.nodes) { const key = node.parent ?? "root"; children.set(key, [...(children.get(key) ?? []), node]); }
    const text = (node) => {
      const rank = data.beam.ranked.indexOf(node.id);
      return element("span", { class: node.pruned ? "cut" : rank === 0 ? "best" : null }, element("bdi", { dir: "auto" }, node.token), ` ${node.total.toFixed(3)}${rank >= 0 ? `, rank ${rank + 1}, score ${node.score.toFixed(3)}` : ""}${node.pruned ? ", cut" : ""}`);
    };
    const branch = (nodes, depth) => element("ul", {}, ...nodes.map((node) => {
      const chain = [node];
      while ((children.get(chain[chain.length - 1].id) ?? []).length === 1) chain.push(children.get(chain[chain.length - 1].id)[0]);
      const below = children.get(chain[chain.length - 1].id) ?? [], line = chain.flatMap((each, at) => (at ? [" · ", text(each)] : [text(each)]));
      return below.length && depth < 200 ? element("li", {}, element("details", { open: depth < 12 }, element("summary", {}, ...line), branch(below, depth + 1))) : element("li", {}, ...line);
    }));
    return element("div", { class: "beam" }, element("p", { class: "note" }, `beam of ${data.beam.size}: each token with the log-probability up to it`), branch(children.get("root") ?? [], 0));
  }

  show();
}

if (typeof document !== "undefined") {
  start(document.getElementById("look"), JSON.parse(document.getElementById("trace").textContent));
}
