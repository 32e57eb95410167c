// Step by step: each decoding step from the query to the word, with the numbers checked in the browser.

import { announce, h, put, renew, still, word } from "./dom.js";
import { exporter } from "./export.js";
import { host } from "./host.js";
import { icon } from "./icons.js";
import { percent } from "./maths.js";
import { panels } from "./panels.js";
import { state } from "./state.js";
import { stepPicture, stepTable } from "./steppicture.js";
import { plainTable } from "./tables.js";
import { Numbers, unpack } from "./trace.js";
import { whatIf } from "./whatif.js";

const SUBS = ["query", "scores", "weights", "context", "output", "word"];
const LEAD =
  "One word at a time: a query is compared with every source word, the scores become weights, and the weighted sum " +
  "of the source decides the next word.";
const FIXED =
  "One word at a time, without attention: the decoder has one vector of the whole sentence, the same at every step.";
const PACE = 1100; // milliseconds of a sub-step at normal speed

/** A step as the server sends it, its arrays unpacked. */
function unpackStep(plain) {
  if (plain.weights instanceof Numbers) return plain;
  const arrays = (from, names) => Object.fromEntries(names.map((name) => [name, unpack(from[name])]));
  const formula = { ...plain.formula, ...arrays(plain.formula, ["left", "right", "v"]) };
  return { ...plain, ...arrays(plain, ["query", "scores", "weights", "values", "context"]), formula };
}

class Steps extends HTMLElement {
  connectedCallback() {
    this.controls = h("div", { class: "controls" });
    this.sentences = h("div", { class: "stage" });
    this.panels = h("div", { class: "panels" });
    this.changes = h("div", { class: "whatif" });
    this.table = h("div", {});
    this.speed = 1;
    this.asTable = false;
    this.lead = h("div", { class: "headline" });
    put(this, this.lead, this.controls, this.sentences, this.panels, this.table, this.changes);
    this.addEventListener("keydown", (event) => this.key(event));
    this.ends = [
      state.on(["trace", "t", "layer", "head", "theme"], () => this.load()),
      state.on(["sub"], () => this.dim()),
      state.on(["s", "preview"], () => this.mark()),
    ];
    this.load();
  }

  disconnectedCallback() {
    this.pause();
    for (const end of this.ends) end();
  }

  get last() {
    const trace = state.get("trace");
    return (trace?.module(state.get("layer"))?.pieces[0].rows.length ?? 1) - 1;
  }

  get t() {
    return Math.min(state.get("t") ?? 0, this.last);
  }

  async load() {
    const trace = state.get("trace");
    if (!trace || !trace.leading.length) {
      put(this.lead);
      put(this.controls);
      put(this.sentences, h("p", { class: "empty" }, "Translate a sentence to go through it step by step."));
      put(this.panels);
      put(this.changes);
      put(this.table);
      return;
    }
    const seen = trace.module(state.get("layer"));
    const head = Number.parseInt(state.get("head"), 10);
    this.seen = seen;
    this.head = Number.isInteger(head) && head < seen.weights.shape[0] ? head : 0;
    this.showControls(trace);
    this.showStage(trace);
    try {
      const step = await host.step(this.t, seen, this.head);
      if (trace !== state.get("trace") || !this.isConnected || step.t !== this.t) return;
      this.step = unpackStep(step);
      this.show(trace);
    } catch (error) {
      if (error.name !== "AbortError") put(this.panels, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  show(trace) {
    const { rows, columns: tokens } = this.seen.pieces[0];
    this.about = {
      kind: trace.model.name ?? trace.model.kind,
      seen: this.seen,
      tokens,
      token: trace.written(this.seen)[this.t] ?? rows[this.t],
      written: rows.slice(0, this.t),
    };
    put(this.panels, panels(this.step, this.about));
    put(this.table, this.asTable && this.numbers(tokens));
    if (host.live) renew(this.changes, whatIf(trace, this.t, this.step));
    this.dim();
    this.mark();
    if (!this.timer) announce(this.words(trace, tokens));
  }

  words(trace, tokens) {
    const token = this.seen.pieces[0].rows[this.t],
      weights = Array.from(this.step.weights.data),
      best = weights.indexOf(Math.max(...weights));
    const looked =
      this.seen.kind === "fixed"
        ? "one fixed vector"
        : `${percent(weights[best])} of the weight on \u2018${tokens[best]?.text}\u2019`;
    return `Step ${this.t + 1} of ${this.last + 1}: ${looked}, writes \u2018${token.text}\u2019`;
  }

  numbers(tokens) {
    const { scores, weights } = this.step;
    return plainTable(
      "Scores and weights of this step",
      ["source", "score", "weight"],
      tokens.map((token, s) => [
        word(token.text),
        !scores ? "\u2013" : Number.isFinite(scores.data[s]) ? scores.data[s].toFixed(4) : "masked",
        weights.data[s].toFixed(4),
      ]),
    );
  }

  showControls(trace) {
    const go = (t) => () => this.go(t);
    const at = this.t,
      heads = this.seen.weights.shape[0];
    const button = (label, sign, act, off) =>
      h(
        "button",
        { type: "button", class: "round", "aria-label": label, title: label, disabled: off, onclick: act },
        sign,
      );
    const slider = h("input", {
      type: "range",
      min: 0,
      max: this.last,
      value: at,
      "aria-label": "Step",
      "aria-valuetext": `step ${at + 1} of ${this.last + 1}`,
      oninput: () => this.go(Number(slider.value)),
    });
    const speed = h(
      "select",
      { "aria-label": "Speed", onchange: () => (this.speed = Number(speed.value)) },
      [0.5, 1, 2, 4].map((value) => h("option", { value, selected: value === this.speed }, `${value}\u00d7`)),
    );
    renew(
      this.controls,
      h(
        "div",
        { class: "player", role: "group", "aria-label": "Go through the steps" },
        button("First step", icon("first"), go(0), at === 0),
        button("Step back", icon("back"), go(at - 1), at === 0),
        button(this.timer ? "Pause" : "Play", icon(this.timer ? "pause" : "play"), () =>
          this.timer ? this.pause() : this.play(),
        ),
        button("Next step", icon("next"), go(at + 1), at === this.last),
        button("Last step", icon("last"), go(this.last), at === this.last),
        slider,
        h("span", { class: "number" }, `${at + 1} / ${this.last + 1}`),
        speed,
      ),
      h(
        "div",
        { class: "dots", role: "group", "aria-label": "Part of the step" },
        SUBS.map((name, number) =>
          h("button", {
            type: "button",
            class: "dot",
            "data-sub": number + 1,
            "aria-label": `Show up to: ${name}`,
            title: name,
            onclick: () => state.set({ sub: number + 1 }),
          }),
        ),
      ),
      heads > 1 &&
        h(
          "p",
          { class: "note" },
          `Layer ${this.seen.layer}, head ${this.head} of ${heads}; choose another in Compare.`,
        ),
      h(
        "button",
        {
          type: "button",
          class: "switch",
          "aria-pressed": String(this.asTable),
          onclick: () => {
            this.asTable = !this.asTable;
            this.load();
          },
        },
        "Table",
      ),
    );
    put(
      this.lead,
      h("p", { class: "lead" }, this.seen.kind === "fixed" ? FIXED : LEAD),
      exporter(
        "steps",
        () => stepPicture(this.step, this.about),
        () => ({ trace, csv: stepTable(this.step, this.about) }),
      ),
    );
  }

  showStage(trace) {
    const fixed = this.seen.kind === "fixed";
    const source = fixed ? trace.source.tokens : this.seen.pieces[0].columns;
    renew(
      this.sentences,
      h(
        "p",
        { class: "sentence source", dir: "auto" },
        source.map((token, s) => [
          s ? " " : "",
          word(token.text, { class: `linked${token.special ? " special" : ""}`, "data-s": s }),
        ]),
        fixed && h("span", { class: "squeeze" }, "\u2192 one vector"),
      ),
      h(
        "p",
        { class: "sentence target", dir: "auto" },
        this.seen.pieces[0].rows.map((token, t) => [
          t ? " " : "",
          h(
            "button",
            {
              type: "button",
              class: `word${t < this.t ? " done" : t === this.t ? " active" : " later"}`,
              "aria-current": t === this.t ? "step" : null,
              onclick: () => this.go(t),
            },
            word(token.special ? "\u25a0" : token.text),
          ),
        ]),
      ),
    );
  }

  go(t) {
    state.set({ t: Math.max(0, Math.min(this.last, t)), sub: 6 });
  }

  dim() {
    const sub = state.get("sub");
    this.panels.querySelectorAll(".panel").forEach((panel) => {
      const number = Number.parseInt(panel.dataset.sub, 10);
      panel.classList.toggle("later", number > sub);
      panel.classList.toggle(
        "now",
        sub < 6 && (number === sub || (panel.classList.contains("fixed") && sub >= 2 && sub <= 4)),
      );
    });
    this.querySelectorAll(".dot").forEach((dot) =>
      dot.setAttribute("aria-pressed", String(Number(dot.dataset.sub) <= sub)),
    );
  }

  mark() {
    const s = state.get("preview")?.s ?? state.get("s");
    this.changes.querySelectorAll(".row").forEach((row) => row.dispatchEvent(new Event("regardselect")));
    this.panels
      .querySelectorAll("[data-s]")
      .forEach((line) => line.classList.toggle("on", Number(line.dataset.s) === s));
    this.sentences.querySelectorAll("[data-s]").forEach((one) => {
      const weight = this.step && this.seen.kind !== "fixed" ? this.step.weights.data[one.dataset.s] : 0;
      one.style.setProperty("--share", weight >= 0.02 ? weight.toFixed(3) : "0");
      one.classList.toggle("pinned", Number(one.dataset.s) === s);
    });
  }

  play() {
    if (this.t === this.last && state.get("sub") === 6) state.set({ t: 0, sub: 1 });
    else if (state.get("sub") === 6) state.set({ sub: 1 });
    const tick = () => {
      this.advance(1);
      if (this.t === this.last && state.get("sub") === 6) this.pause();
      else this.timer = setTimeout(tick, ((still() ? 2 : 1) * PACE) / this.speed);
    };
    this.timer = setTimeout(tick, PACE / this.speed);
    this.showControls(state.get("trace"));
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.isConnected && state.get("trace")) this.showControls(state.get("trace"));
    this.dim();
  }

  /** Go one sub-step on or back. */
  advance(by) {
    const sub = state.get("sub") + by;
    if (sub > 6 && this.t < this.last) state.set({ t: this.t + 1, sub: 1 });
    else if (sub < 1 && this.t > 0) state.set({ t: this.t - 1, sub: 6 });
    else state.set({ sub: Math.max(1, Math.min(6, sub)) });
  }

  key(event) {
    if (event.target.matches("input, select, textarea")) return;
    const act = {
      ArrowRight: () => (event.shiftKey ? this.advance(1) : this.go(this.t + 1)),
      ArrowLeft: () => (event.shiftKey ? this.advance(-1) : this.go(this.t - 1)),
      Home: () => this.go(0),
      End: () => this.go(this.last),
      " ": () => !event.target.matches("button") && (this.timer ? this.pause() : this.play()),
    }[event.key];
    if (act && act() !== false) event.preventDefault();
  }
}

customElements.define("regard-steps", Steps);
