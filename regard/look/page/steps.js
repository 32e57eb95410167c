// Step by step: how one word after another is written. Nothing is shown before it is computed, and all of a step fits
// on the screen.

import { announce, h, put, renew, segments, select, still, toggle, word } from "./dom.js";
import { exporter } from "./export.js";
import { host } from "./host.js";
import { icon } from "./icons.js";
import { percent } from "./maths.js";
import { arrive } from "./motion.js";
import { Stage, SUBS } from "./stage.js";
import { state } from "./state.js";
import { stepPicture, stepTable } from "./steppicture.js";
import { plainTable } from "./tables.js";
import { closestHead, Numbers, unpack } from "./trace.js";

const LAST = SUBS.length - 1;
const PACE = 1300; // milliseconds of a sub-step at normal speed
const SAID = [
  "First the source is read: each word becomes a vector that knows its neighbours.",
  "The decoder forms a query: what does it need for the next word?",
  "The query is compared with every source word: one score each.",
  "Softmax turns scores into weights: exp of each, divided by the sum. They add up to 1.",
  "The weighted sum of the words’ vectors is the context.",
  "State and context give every word of the vocabulary a probability.",
  "The word is written, and read back for the next step.",
];
const FIXED = "Without attention there is nothing to compare: the same vector of the whole sentence serves every step.";

/** A step as the server sends it, its arrays unpacked. */
function unpackStep(plain) {
  if (!plain || plain.weights instanceof Numbers) return plain;
  const arrays = (from, names) => Object.fromEntries(names.map((name) => [name, unpack(from[name])]));
  const formula = { ...plain.formula, ...arrays(plain.formula, ["left", "right", "v"]) };
  return { ...plain, ...arrays(plain, ["query", "scores", "weights", "values", "context"]), formula };
}

class Steps extends HTMLElement {
  connectedCallback() {
    this.controls = h("div", { class: "player", role: "group", "aria-label": "Go through the steps" });
    this.sentences = h("div", { class: "sofar" });
    this.said = h("p", { class: "said" });
    this.place = h("div", {});
    this.speed = 1;
    this.asTable = false;
    put(this, this.controls, this.sentences, this.said, this.place);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    this.ends = [
      state.on(["trace", "t", "layer", "head", "theme"], () => this.load()),
      state.on(["sub"], (changed) => changed.has("t") || this.reveal(true)),
      state.on(["s", "preview"], () => this.mark()),
    ];
    this.load();
  }

  disconnectedCallback() {
    this.pause();
    document.removeEventListener("keydown", this.keys);
    for (const end of this.ends) end();
  }

  get last() {
    return (this.seen?.pieces[0].rows.length ?? 1) - 1;
  }

  get t() {
    return Math.max(0, Math.min(state.get("t") ?? 0, this.last));
  }

  get sub() {
    return Math.max(0, Math.min(LAST, state.get("sub")));
  }

  async load() {
    const trace = state.get("trace");
    if (!trace || !trace.leading.length) {
      put(this.controls);
      put(this.sentences, h("p", { class: "empty" }, "Translate a sentence to go through it step by step."));
      put(this.said);
      put(this.place);
      return;
    }
    const chosen = trace.module(state.get("layer"));
    this.seen = chosen.leading ? chosen : trace.module(null); // a step writes a word, so it looks from the target
    this.head = closestHead(this.seen, state.get("head"));
    const [t, seen, head] = [this.t, this.seen, this.head];
    this.showControls(trace);
    try {
      const changed = state.get("changes").length > 0;
      const [step, before, previous, path] = await Promise.all([
        host.step(t, seen, head),
        changed ? host.before(t, seen, head) : null,
        t ? host.step(t - 1, seen, head, null) : null,
        host.path(t),
      ]);
      if (trace !== state.get("trace") || !this.isConnected || t !== this.t || head !== this.head) return;
      this.step = unpackStep(step);
      this.show(trace, unpackStep(before), unpackStep(previous)?.query ?? null, path?.layers ?? null);
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  show(trace, before, previous, layers) {
    const { rows, columns: tokens } = this.seen.pieces[0];
    this.about = {
      kind: trace.model.name ?? trace.model.kind,
      seen: this.seen,
      tokens,
      token: trace.written(this.seen)[this.t] ?? rows[this.t],
      previous,
      layers,
    };
    const focused = this.place.contains(document.activeElement) && document.activeElement.dataset.s;
    this.stage = new Stage(this.step, before, this.about);
    put(this.place, this.asTable ? this.numbers(tokens) : this.stage.element);
    this.reveal(this.moving);
    this.moving = false;
    if (focused) this.place.querySelector(`[data-s="${focused}"]`)?.focus({ preventScroll: true });
  }

  /** Show what is known at the current sub-step. */
  reveal(moving) {
    const trace = state.get("trace");
    if (!this.stage || !trace) return;
    this.stage.reveal(this.sub, moving);
    this.showSentences(trace);
    const slot = this.sentences.querySelector(".slot bdi"),
      from = this.stage.element.querySelector(".words .chosen bdi");
    if (moving && this.sub === LAST && slot && from) arrive(slot, from);
    const text = this.seen.kind === "fixed" && this.sub >= 2 && this.sub <= 4 ? FIXED : SAID[this.sub];
    put(this.said, text);
    this.controls
      .querySelectorAll(".segments button")
      .forEach((one, at) => one.setAttribute("aria-pressed", String(at === this.sub)));
    this.controls.querySelector(".next")?.toggleAttribute("disabled", this.t === this.last && this.sub === LAST);
    if (!this.timer) announce(this.sub === LAST ? this.words() : text);
  }

  words() {
    const token = this.seen.pieces[0].rows[this.t],
      { tokens } = this.about,
      weights = Array.from(this.step.weights.data),
      best = weights.indexOf(Math.max(...weights));
    const looked =
      this.seen.kind === "fixed"
        ? "one fixed vector"
        : `${percent(weights[best])} of the weight on ‘${tokens[best]?.text}’`;
    return `Step ${this.t + 1} of ${this.last + 1}: ${looked}, writes ‘${token.text}’`;
  }

  numbers(tokens) {
    const { scores, weights } = this.step;
    return plainTable(
      "Scores and weights of this step",
      ["source", "score", "weight"],
      tokens.map((token, s) => [
        word(token.text),
        !scores ? "–" : Number.isFinite(scores.data[s]) ? scores.data[s].toFixed(4) : "hidden",
        weights.data[s].toFixed(4),
      ]),
    );
  }

  showControls(trace) {
    const at = this.t,
      heads = this.seen.weights.shape[0];
    const button = (label, sign, act, off, more = "round") =>
      h(
        "button",
        { type: "button", class: more, "aria-label": label, title: label, disabled: off, onclick: act },
        sign,
      );
    const slider = h("input", {
      type: "range",
      min: 0,
      max: this.last,
      value: at,
      "aria-label": "Word",
      "aria-valuetext": `word ${at + 1} of ${this.last + 1}`,
      oninput: () => this.go(Number(slider.value)),
    });
    const speed = h(
      "select",
      { class: "speed", "aria-label": "Speed", onchange: () => (this.speed = Number(speed.value)) },
      [0.5, 1, 2, 4].map((value) => h("option", { value, selected: value === this.speed }, `${value}×`)),
    );
    const numbers = (count) => Array.from({ length: count }, (_, one) => ({ value: String(one), text: String(one) }));
    renew(
      this.controls,
      button("First word", icon("first"), () => this.go(0), at === 0),
      button("Back (←)", icon("back"), () => this.advance(-1), at === 0 && this.sub === 0),
      button(this.timer ? "Pause" : "Play", icon(this.timer ? "pause" : "play"), () =>
        this.timer ? this.pause() : this.play(),
      ),
      button(
        "Next (→)",
        ["Next ", icon("next")],
        () => this.advance(1),
        at === this.last && this.sub === LAST,
        "next strong",
      ),
      slider,
      h("span", { class: "number" }, `${at + 1} / ${this.last + 1}`),
      speed,
      segments(
        "Part of the step",
        SUBS.map((name, number) => ({ value: String(number), text: name })),
        String(this.sub),
        (value) => state.set({ sub: Number(value) }),
      ),
      trace.leading.length > 1 &&
        select(
          "Layer",
          trace.leading.map((seen) => ({ value: String(seen.layer), text: String(seen.layer) })),
          String(this.seen.layer),
          (layer) => state.set({ layer }),
        ),
      heads > 1 && select("Head", numbers(heads), String(this.head), (head) => state.set({ head })),
      toggle("Table", this.asTable, (on) => {
        this.asTable = on;
        this.load();
      }),
      exporter(
        "steps",
        () => stepPicture(this.step, this.about),
        () => ({ trace, csv: stepTable(this.step, this.about) }),
      ),
    );
  }

  /** The source, and what is written so far: the rest of the translation is not there yet. */
  showSentences(trace) {
    const fixed = this.seen.kind === "fixed";
    const source = fixed ? trace.source.tokens : this.seen.pieces[0].columns;
    const spaced = (tokens, at) =>
      at > 0 && (tokens[at].start === undefined || tokens[at - 1].end < tokens[at].start) && " ";
    const written = trace.written(this.seen),
      rows = this.seen.pieces[0].rows,
      done = this.sub === LAST;
    const share = (s) => (fixed || this.sub < 3 ? 0 : this.step.weights.data[s]);
    renew(
      this.sentences,
      h(
        "p",
        { class: "sentence source", dir: "auto" },
        source.map((token, s) => [
          spaced(trace.source.tokens, s),
          word(token.special ? "■" : token.text, {
            class: `linked${token.special ? " special" : ""}`,
            "data-s": s,
            style: { "--share": share(s) >= 0.02 ? share(s).toFixed(3) : "0" },
          }),
        ]),
        fixed && h("span", { class: "squeeze" }, "→ one vector"),
      ),
      h(
        "p",
        { class: "sentence target", dir: "auto" },
        rows.slice(0, this.t).map((token, t) => [
          spaced(written, t),
          h(
            "button",
            {
              type: "button",
              class: "word done",
              tabindex: -1, // the slider and Shift with an arrow go there too
              "aria-label": `Step ${t + 1}: ${token.text}`,
              onclick: () => this.go(t, LAST),
            },
            word(token.text),
          ),
        ]),
        spaced(written, this.t),
        h(
          "span",
          { class: `slot${done ? " filled" : ""}`, "aria-current": "step" },
          done ? word(rows[this.t].special ? "■" : rows[this.t].text) : h("span", { class: "hidden" }, "the next word"),
        ),
      ),
    );
    this.mark();
  }

  go(t, sub = 1) {
    this.moving = false;
    state.set({ t: Math.max(0, Math.min(this.last, t)), sub });
  }

  mark() {
    const s = state.get("preview")?.s ?? state.get("s");
    this.stage?.mark();
    this.sentences
      .querySelectorAll("[data-s]")
      .forEach((one) => one.classList.toggle("pinned", Number(one.dataset.s) === s));
  }

  play() {
    if (this.t === this.last && this.sub === LAST) state.set({ t: 0, sub: 0 });
    const tick = () => {
      this.advance(1);
      if (this.t === this.last && this.sub === LAST) this.pause();
      else this.timer = setTimeout(tick, ((still() ? 2 : 1) * PACE) / this.speed);
    };
    this.timer = setTimeout(tick, PACE / this.speed);
    this.showControls(state.get("trace"));
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.isConnected && state.get("trace")) this.showControls(state.get("trace"));
  }

  /** Go one sub-step on or back; the source is read once, before the first word. */
  advance(by) {
    const sub = this.sub + by,
      least = this.t ? 1 : 0;
    this.moving = by > 0;
    if (sub > LAST && this.t < this.last) state.set({ t: this.t + 1, sub: 1 });
    else if (sub < least && this.t > 0) state.set({ t: this.t - 1, sub: LAST });
    else state.set({ sub: Math.max(least, Math.min(LAST, sub)) });
  }

  /** The keys work wherever the focus is, unless what has it needs them. */
  key(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], .popover")) return;
    if (target.matches?.("input, select, textarea, [role=tab]") || event.defaultPrevented) return;
    const act = {
      ArrowRight: () => (event.shiftKey ? this.go(this.t + 1) : this.advance(1)),
      ArrowLeft: () => (event.shiftKey ? this.go(this.t - 1) : this.advance(-1)),
      Home: () => this.go(0, 0),
      End: () => this.go(this.last, LAST),
      " ": () => (target.matches?.("button, summary") ? false : this.timer ? this.pause() : this.play()),
    }[event.key];
    if (act && state.get("trace") && act() !== false) event.preventDefault();
  }
}

customElements.define("regard-steps", Steps);
