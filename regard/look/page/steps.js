// Step by step: how one word after another is written. Nothing is shown before it is computed, and all of a step fits
// on the screen.

import { announce, button, h, menu, put, renew, segments, select, still, toggle, word } from "./dom.js";
import { exporter } from "./export.js";
import { host } from "./host.js";
import { icon } from "./icons.js";
import { percent } from "./maths.js";
import { arrive } from "./motion.js";
import { pathSaid, PathStage, pathSubs } from "./path.js";
import { outputBox, READING, Stage, SUBS } from "./stage.js";
import { state } from "./state.js";
import { stepPicture, stepTable } from "./steppicture.js";
import { plainTable } from "./tables.js";
import { Numbers, stepHead, unpack } from "./trace.js";
import { kindBox } from "./wording.js";

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
const OTHER = {
  decoder: {
    2: "The query is compared with every word written so far: one score each.",
    4: "The weighted sum of those words’ vectors is the context.",
  },
  encoder: {
    0: "Each word of the source is about to look at all others.",
    1: "The marked word forms a query: what does it need to know of the others?",
    2: "The query is compared with every word of the source, itself included: one score each.",
    5: "What the heads saw is added to the word’s vector; the next word does the same.",
  },
};
const INTO_ONE = "First the source is read, word by word, into one vector.";
const FIXED = "Without attention there is nothing to compare: the same vector of the whole sentence serves every step.";

/** A step with its arrays unpacked; of what can be looked at, only the first `count` words. */
function unpackStep(plain, count = Infinity) {
  if (!plain) return plain;
  const first = (array) => {
    if (!array || array.shape[0] <= count) return array;
    const size = array.data.length / array.shape[0];
    return new Numbers([count, ...array.shape.slice(1)], array.data.subarray(0, count * size));
  };
  const arrays = (from, names, cut = (array) => array) =>
    Object.fromEntries(names.map((name) => [name, cut(unpack(from[name]))]));
  const { formula } = plain;
  return {
    ...plain,
    ...arrays(plain, ["query", "context"]),
    ...arrays(plain, ["scores", "weights", "values"], first),
    formula: { ...formula, ...arrays(formula, ["left", "v"]), ...arrays(formula, ["right"], first) },
  };
}

/** Whether two lists hold the same. */
const same = (one, other) => one.length === other?.length && one.every((part, at) => part === other[at]);


/** The words of several pieces among what is looked at, whose numbers are shown together: first piece -> word. */
const wholeWords = (seen) =>
  new Map(
    (seen.words?.[0].columns ?? []).filter((label) => label.tokens.length > 1).map((label) => [label.tokens[0], label]),
  );

/** The places that continue the word before them. */
const innerPieces = (seen) => new Set([...wholeWords(seen).values()].flatMap((label) => label.tokens.slice(1)));

class Steps extends HTMLElement {
  connectedCallback() {
    this.controls = h("div", { class: "player", role: "group", "aria-label": "Go through the steps" });
    this.sentences = h("div", { class: "sofar" });
    this.said = h("p", { class: "said" });
    this.late = h("p", { class: "late", hidden: true });
    this.place = h("div", { class: "stage" });
    this.speed = 1;
    this.asTable = false;
    this.choices = h("div", { class: "choices" });
    put(this, this.controls, this.sentences, h("div", { class: "saying" }, this.said, this.choices), this.late, this.place);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    this.ends = [
      state.on(["trace", "t", "layer", "head", "whole", "words", "theme"], () => this.load()),
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
    return Math.max(0, Math.min(this.end, state.get("sub")));
  }

  /** Whether the path through all layers is shown, instead of one attention. */
  get whole() {
    return state.get("whole") && this.deep;
  }

  get subs() {
    if (this.whole) return pathSubs(this.layers(this.seen.kind === "encoder" ? "encoder" : "cross").length, this.reading);
    return this.reading ? READING : SUBS;
  }

  /** Whether a word of the source is gone through, inside the encoder. */
  get reading() {
    return this.seen?.kind === "encoder";
  }

  /** The modules of a kind. */
  layers(kind) {
    return state.get("trace").modules.filter((seen) => seen.kind === kind);
  }

  /** The last sub-step: the word is written. */
  get end() {
    return this.subs.length - 1;
  }

  async load() {
    const trace = state.get("trace");
    if (!trace || !trace.leading.length) {
      put(this.controls);
      put(this.sentences, h("p", { class: "empty" }, "Translate a sentence to go through it step by step."));
      put(this.said);
      put(this.choices);
      put(this.place);
      this.controlsKey = this.sentencesKey = null;
      return;
    }
    this.seen = trace.stepModule(state.get("layer"), state.get("head"));
    this.deep = host.live && trace.model.name === "transformer";
    this.head = stepHead(this.seen, state.get("head"));
    const [t, seen, head] = [this.t, this.seen, this.head];
    this.showControls(trace);
    if (!this.place.hasChildNodes()) put(this.place, h("p", {}, "Waiting for the model\u2026"));
    try {
      const changed = state.get("changes").length > 0;
      const [step, before, previous, path] = await Promise.all([
        host.step(t, seen, head),
        changed ? host.before(t, seen, head) : null,
        t && !this.reading ? host.step(t - 1, seen, head, null) : null,
        host.path(t, seen),
      ]);
      if (trace !== state.get("trace") || !this.isConnected || t !== this.t || head !== this.head || seen !== this.seen)
        return;
      const count = seen.kind === "decoder" ? t + 1 : Infinity; // what is not written yet is not there to look at
      this.step = unpackStep(step, count);
      this.show(trace, unpackStep(before, count), previous && unpack(previous.query), path?.layers ?? null);
      if (t < this.last) this.ahead(t + 1, seen, head);
    } catch (error) {
      if (error.name !== "AbortError") put(this.place, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  /** The next step, so that it is there, unpacked, when it is wanted. */
  ahead(t, seen, head) {
    const nothing = () => {}; // if this fails, the step itself will say so
    host.step(t, seen, head, "ahead").then(unpackStep, nothing);
    host.path(t, seen, "path ahead").catch(nothing);
  }

  show(trace, before, previous, layers) {
    const { rows, columns } = this.seen.pieces[0],
      tokens = columns.slice(0, this.step.weights.data.length);
    this.about = {
      kind: trace.model.name ?? trace.model.kind,
      seen: this.seen,
      tokens,
      token: trace.written(this.seen)[this.t] ?? rows[this.t],
      previous,
      layers,
      own: this.seen.kind === "decoder",
      reading: this.reading,
      last: this.seen.layer === this.layers(this.seen.kind).length - 1,
      encoder: this.seen.kind === "cross" && this.layers("encoder").length > 0 && (() => this.goInside("encoder")),
      inner: innerPieces(this.seen),
      whole: state.get("words") && this.seen.kind === "cross" ? wholeWords(this.seen) : new Map(),
    };
    const focused = this.place.contains(document.activeElement) && document.activeElement.dataset.s;
    const key = [trace, this.seen, this.head, state.get("theme"), before !== null, this.whole, this.about.own && this.t, state.get("words")];
    if (this.whole && layers) {
      const output = this.reading ? null : outputBox(this.step, before, this.about);
      this.stage = new PathStage(layers, trace, this.t, output);
    } else if (!before && this.stage?.take && same(key, this.stageKey))
      this.stage.take(this.step, this.about); // the same words with other numbers
    else this.stage = new Stage(this.step, before, this.about);
    this.stageKey = key;
    const shown = this.asTable ? this.numbers(tokens) : this.stage.element;
    if (this.place.firstChild !== shown) put(this.place, shown); // what stays in its place is not laid out again
    this.showSentences(trace);
    this.reveal(this.moving);
    this.moving = false;
    if (focused) this.place.querySelector(`[data-s="${focused}"]`)?.focus({ preventScroll: true });
  }

  /** Show what is known at the current sub-step. */
  reveal(moving) {
    const trace = state.get("trace");
    if (!this.stage || !trace) return;
    this.stage.reveal(this.sub);
    const slot = this.fillSentences();
    const text = this.happening();
    if (this.said.textContent !== text) put(this.said, text);
    const late = this.whole ? "" : trace.shiftNote(this.seen, this.head, this.t);
    if (this.late.textContent !== late) put(this.late, late);
    this.late.hidden = !late;
    this.showPlace();
    if (this.isConnected) this.scroll();
    if (moving) this.stage.move(this.sub);
    const from = this.stage.element.querySelector(".words .chosen bdi");
    if (moving && this.sub === this.end && slot && from) arrive(slot, from);
    if (!this.timer) announce(this.sub === this.end ? this.words() : text);
  }

  /** What is looked at is in view, in the sentences and in the list. All places are read before any is scrolled. */
  scroll() {
    const looked = this.sub >= 3 ? this.step.weights.data.indexOf(Math.max(...this.step.weights.data)) : 0;
    const [source, target] = this.sentences.children;
    const parts = [
      [source, source.querySelector(`[data-s="${looked}"]`)],
      [target, target?.querySelector(".slot")],
      [this.stage.list, this.sub >= 3 && this.stage.rows?.[looked]],
    ].filter(([box, part]) => box && part && box.scrollHeight > box.clientHeight);
    const seen = ([box, part]) =>
      part.offsetTop >= box.scrollTop &&
      part.offsetTop + part.offsetHeight <= box.scrollTop + box.clientHeight;
    const places = parts
      .filter((one) => !seen(one))
      .map(([box, part]) => [box, part.offsetTop - (box.clientHeight - part.offsetHeight) / 2]);
    for (const [box, top] of places) box.scrollTop = top;
  }

  happening() {
    if (this.whole) return pathSaid(this.sub, this.end - (this.reading ? 0 : 2), this.reading);
    if (this.seen.kind === "fixed" && this.sub < 5 && this.sub !== 1) return this.sub ? FIXED : INTO_ONE;
    return OTHER[this.seen.kind]?.[this.sub] ?? SAID[this.sub];
  }

  /** The word whose numbers are shown together, of the piece at place s. */
  wordAt(s) {
    return [...this.about.whole.values()].find((label) => label.tokens.includes(s));
  }

  /** The weight of place s; where whole words are shown, that of its word. */
  weightAt(s) {
    return (this.wordAt(s)?.tokens ?? [s]).reduce((sum, at) => sum + this.step.weights.data[at], 0);
  }

  words() {
    const token = this.seen.pieces[0].rows[this.t],
      { tokens } = this.about,
      weights = tokens.map((_, s) => this.weightAt(s)),
      best = weights.indexOf(Math.max(...weights));
    const looked =
      this.seen.kind === "fixed"
        ? "one fixed vector"
        : `${percent(weights[best])} of the weight on ‘${(this.wordAt(best) ?? tokens[best])?.text}’`;
    return this.reading
      ? `Word ${this.t + 1} of ${this.last + 1}, ‘${token.text}’: ${looked}`
      : `Step ${this.t + 1} of ${this.last + 1}: ${looked}, writes ‘${token.text}’`;
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

  /** The controls. As long as the same sentence is gone through they stay, and only what they say changes. */
  showControls(trace) {
    const key = [trace, this.seen, this.head, this.whole, this.asTable, Boolean(this.timer), state.get("words")];
    if (same(key, this.controlsKey)) return;
    this.controlsKey = key;
    const control = (label, sign, act, more = "round") =>
      button(sign, act, { class: more, "aria-label": label, title: label });
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: this.last,
      "aria-label": "Word",
      oninput: () => this.go(Number(this.slider.value)),
    });
    this.number = h("span", { class: "number" });
    this.first = control("First word", icon("first"), () => this.go(0));
    this.back = control("Back (←)", icon("back"), () => this.advance(-1));
    this.next = control("Next (→)", ["Next ", icon("next")], () => this.advance(1), "next strong");
    this.parts = segments(
      "Part of the step",
      this.subs.map((name, number) => ({ value: String(number), text: name })),
      "",
      (value) => state.set({ sub: Number(value) }),
    );
    renew(
      this.controls,
      this.first,
      this.back,
      control(this.timer ? "Pause" : "Play", icon(this.timer ? "pause" : "play"), () =>
        this.timer ? this.pause() : this.play(),
      ),
      this.next,
      this.slider,
      this.number,
      this.parts,
      menu(
        "More",
        this.speedBox(),
        wholeWords(this.seen).size > 0 &&
          toggle("Word pieces", !state.get("words"), (on) => state.set({ words: !on })),
        toggle("Table", this.asTable, (on) => ((this.asTable = on), this.load())),
      ),
      exporter(
        "steps",
        () => stepPicture(this.step, this.about),
        () => ({ trace, csv: stepTable(this.step, this.about) }),
      ),
    );
    this.showPlace();
    this.showChoices(trace);
  }

  /** Which word and which part of its step it is. */
  showPlace() {
    const { t, sub, last, end } = this;
    this.slider.value = t;
    this.slider.setAttribute("aria-valuetext", `word ${t + 1} of ${last + 1}`);
    this.number.textContent = `${state.get("trace").pieced ? "piece " : ""}${t + 1} / ${last + 1}`;
    [...this.parts.children].forEach((one, at) => one.setAttribute("aria-pressed", String(at === sub)));
    const focused = document.activeElement;
    this.first.disabled = t === 0;
    this.back.disabled = t === 0 && sub === 0;
    this.next.disabled = t === last && sub === end;
    if (focused?.disabled && this.controls.contains(focused)) this.slider.focus({ preventScroll: true });
  }

  speedBox() {
    const options = [0.5, 1, 2, 4].map((value) => ({ value: String(value), text: `${value}×` }));
    return select("Speed", options, String(this.speed), (value) => (this.speed = Number(value)));
  }

  /** What is gone through: all layers, or the attention of one head. */
  showChoices(trace) {
    const heads = this.seen.weights.shape[0],
      layers = this.layers(this.seen.kind);
    const numbers = Array.from({ length: heads }, (_, one) => ({ value: String(one), text: `head ${one}` }));
    renew(
      this.choices,
      this.deep &&
        segments(
          "What is shown",
          [
            { value: "head", text: "One head" },
            { value: "whole", text: "All layers" },
          ],
          this.whole ? "whole" : "head",
          (value) => state.set({ whole: value === "whole", sub: 0 }),
        ),
      kindBox(trace, this.seen.kind, (kind) => this.goInside(kind)),
      !this.whole && [
        layers.length > 1 &&
          select(
            "Layer",
            layers.map((seen) => ({ value: seen.key, text: `layer ${seen.layer}` })),
            this.seen.key,
            (layer) => state.set({ layer }),
          ),
        heads > 1 && select("Head", numbers, String(this.head), (head) => state.set({ head, layer: this.seen.key })),
      ],
    );
  }

  /** Go to the same layer of another kind of attention. Words of the source are not those of the translation. */
  goInside(kind) {
    const seen = this.layers(kind).find((one) => one.layer === this.seen.layer) ?? this.layers(kind).at(-1),
      other = (kind === "encoder") !== this.reading;
    state.set({ layer: seen.key, head: null, s: null, ...(other ? { t: 0, sub: 0 } : {}) });
  }

  /**
   * The source, and what is written so far: the rest of the translation is not there yet. From one step to the next
   * only the words between them come or go.
   */
  showSentences(trace) {
    const { seen, reading, whole } = this,
      key = [trace, seen, whole];
    const spaced = (tokens, at) =>
      at > 0 && at < tokens.length && (tokens[at].start === undefined || tokens[at - 1].end < tokens[at].start)
        ? [new Text(" ")]
        : [];
    const own = seen.kind === "decoder" && !whole;
    if (!same(key, this.sentencesKey)) {
      this.sentencesKey = key;
      this.gap = reading ? null : h("span", { class: "slot", "aria-current": "step" });
      this.done = []; // the nodes of every written word
      const source = ["cross", "encoder"].includes(seen.kind) ? seen.pieces[0].columns : trace.source.tokens;
      const linked = (token) => `linked${token.special ? " special" : ""}`;
      this.source = source.map((token, s) =>
        word(token.special ? "■" : token.text, { class: linked(token), "data-s": own ? null : s }),
      );
      put(
        this.sentences,
        h(
          "p",
          { class: "sentence source", dir: "auto" },
          this.source.map((one, s) => [spaced(trace.source.tokens, s), one]),
          seen.kind === "fixed" && h("span", { class: "squeeze" }, "→ one vector"),
        ),
        this.gap && h("p", { class: "sentence target", dir: "auto" }, this.gap),
      );
    }
    if (reading) this.source.forEach((one, s) => one.classList.toggle("asking", s === this.t));
    else {
      const written = trace.written(seen);
      for (let t = this.done.length; t < this.t; t++) {
        this.done.push([this.written(t, own), ...spaced(written, t + 1)]);
        this.gap.before(...this.done[t]);
      }
      const gone = this.done.splice(this.t).flat(),
        focused = gone.includes(document.activeElement);
      for (const one of gone) one.remove();
      if (focused) this.done.at(-1)?.[0].focus({ preventScroll: true });
    }
  }

  /** A word that is written already. */
  written(t, own) {
    const token = this.seen.pieces[0].rows[t];
    return button(word(token.text), () => this.go(t, this.end), {
      class: `word done${own ? " linked" : ""}`,
      "data-s": own ? t + 1 : null, // the mark of the start comes first
      tabindex: -1, // the slider and Shift with an arrow go there too
      "aria-label": `Step ${t + 1}: ${token.text}`,
    });
  }

  /** The weights under the words, and the word that is written, where they are computed. @returns the written word */
  fillSentences() {
    const known = this.seen.kind !== "fixed" && !this.whole && this.sub >= 3,
      token = this.seen.pieces[0].rows[this.t],
      { gap } = this,
      done = this.sub === this.end;
    for (const one of this.sentences.querySelectorAll("[data-s]")) {
      const weight = known ? this.weightAt(Number(one.dataset.s)) : 0,
        share = weight >= 0.02 ? weight.toFixed(3) : "0";
      if (one.style.getPropertyValue("--share") !== share) one.style.setProperty("--share", share);
    }
    gap?.classList.toggle("filled", done);
    if (gap) put(gap, done ? word(token.special ? "■" : token.text) : h("span", { class: "hidden" }, "the next word"));
    this.mark();
    return done && gap?.firstChild;
  }

  go(t, sub = this.least(t)) {
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
    if (this.t === this.last && this.sub === this.end) state.set({ t: 0, sub: 0 });
    const tick = () => {
      this.advance(1);
      if (this.t === this.last && this.sub === this.end) this.pause();
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

  /** The first sub-step of a word: the source is read once, before the first word. */
  least(t) {
    return t > 0 && !this.whole ? 1 : 0;
  }

  /** Go one sub-step on or back. */
  advance(by) {
    const sub = this.sub + by,
      least = this.least(this.t);
    this.moving = by > 0;
    if (sub > this.end && this.t < this.last) state.set({ t: this.t + 1, sub: this.least(this.t + 1) });
    else if (sub < least && this.t > 0) state.set({ t: this.t - 1, sub: this.end });
    else state.set({ sub: Math.max(least, Math.min(this.end, sub)) });
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
      End: () => this.go(this.last, this.end),
      " ": () => (target.matches?.("button, summary") ? false : this.timer ? this.pause() : this.play()),
    }[event.key];
    if (act && state.get("trace") && act() !== false) event.preventDefault();
  }
}

customElements.define("regard-steps", Steps);
