// The stage of one decoding step. Everything has its place from the start and becomes visible when it is computed:
// 0 the source is read, 1 query, 2 scores, 3 weights, 4 context, 5 next word, 6 the word is written.

import { arithmetic, check } from "./arithmetic.js";
import { announce, button, field, h, put, word } from "./dom.js";
import {
  contextFormula,
  outputFormula,
  queryWords,
  readWords,
  scoreFormula,
  valueSymbol,
  weightFormula,
} from "./formulas.js";
import { host } from "./host.js";
import { difference, norm, normalise, percent, score, show, weigh } from "./maths.js";
import { appear, become, pour } from "./motion.js";
import { state } from "./state.js";
import { grown, lens } from "./path.js";
import { largest, strip } from "./strips.js";
import { canSwap, hide, isHidden, lookOnly, setTemperature, setWeights, sourceWord, swap, temperature, UNIFORM } from "./whatif.js";

/** The sub-steps: what becomes visible at each; and those of a word of the source, which is not written. */
export const SUBS = ["read", "query", "scores", "weights", "context", "next word", "written"];
export const READING = [...SUBS.slice(0, 5), "new vector"];

const WIDTHS = [0.25, 0.5, 0.71, 1, 1.41, 2, 4];

/** The probability of a likely word: from its logit, or as the trace has it. */
export const probability = (one, step) =>
  one.logit === undefined ? Math.exp(one.logprob) : Math.exp(one.logit - step.output.log_total);

const heading = (number, role, text, formula) =>
  h(
    "h2",
    { class: `part ${role}` },
    number && h("span", { class: "badge", "aria-hidden": "true" }, number),
    h("span", {}, text),
    formula && h("span", { class: formula.textContent.length > 12 ? "formula long" : "formula" }, formula),
  );

/** A bar that fills a share of its track; see `draw`. */
const track = (role) => h("span", { class: `track ${role}` }, h("span", { class: "fill" }));

/** Fill a share of a track from `zero` on, with the share before a what-if as an outline. @returns the track */
function draw(track, share, before, zero = 0) {
  const bar = (one, value) => {
    one.classList.toggle("below", value < 0);
    one.style.setProperty("--share", Math.abs(value).toFixed(4));
    one.style.setProperty("--from", (zero + Math.min(0, value)).toFixed(4));
  };
  const [fill, ghost] = track.children;
  track.style.setProperty("--zero", zero.toFixed(4));
  bar(fill, share);
  if (before === undefined) ghost?.remove();
  else bar(ghost ?? track.appendChild(h("span", { class: "ghost" })), before);
  return track;
}

/** Where zero is on a track that holds all of some numbers, and how long the track is. */
function scaleOf(...lists) {
  const known = lists.flatMap((data) => Array.from(data ?? []).filter(Number.isFinite)),
    [low, high] = [Math.min(0, ...known), Math.max(0, ...known)],
    long = Math.max(1e-9, high - low);
  return { zero: -low / long, long };
}

/** The last box of a decoding step: the likeliest words. The box of another step is filled again. */
export function outputBox(step, before, about, box = emptyBox(about.kind)) {
  const shares = step.output.words.map((one) => probability(one, step));
  const chosen = step.output.words.findIndex((one) => one.chosen);
  const { token } = about;
  const far = token.logprob === undefined || chosen < 0 ? null : Math.abs(shares[chosen] - Math.exp(token.logprob));
  const was = (one) => {
    const found = before?.output.words.find((other) => other.piece === one.piece);
    return before ? (found ? probability(found, before) : 0) : undefined;
  };
  const line = (one, at) => [
    word(one.special ? "end of sentence" : (one.text ?? one.piece)),
    draw(track("output"), shares[at], was(one)),
    h("span", { class: "number" }, percent(shares[at])),
  ];
  put(
    box.querySelector(".words"),
    step.output.words.map((one, at) =>
      h(
        "li",
        { class: one.chosen ? "chosen" : null },
        host.live && !one.chosen && !one.special && one.piece
          ? button(line(one, at), () => host.goOn([...state.get("trace").pieces(step.t), one.piece]), {
              title: "Write this word instead",
            })
          : h("span", { class: "line" }, line(one, at)),
      ),
    ),
  );
  const unit = state.get("trace").pieced ? "pieces of words" : "words";
  put(
    box.lastChild,
    h(
      "p",
      { class: "small" },
      step.output.vocabulary && `The best of ${step.output.vocabulary.toLocaleString("en")} ${unit}. `,
      host.live && "Click one to write it instead.",
    ),
    far === null || !step.output.log_total ? null : check("softmax of the logits", far),
    about.layers && lens(about.layers),
  );
  return box;
}

const emptyBox = (kind) =>
  h(
    "section",
    { class: "box output from-5", "aria-label": "5: the next word" },
    heading(5, "output", "The next word"),
    h("div", { class: "formula" }, outputFormula(kind)),
    h("ol", { class: "words" }),
    h("div", { class: "more" }),
  );

/**
 * The stage of a step.
 * @param {object} step its numbers @param {object | null} before the same step without the what-ifs
 * @param {object} about names and tokens
 */
export class Stage {
  constructor(step, before, about) {
    Object.assign(this, { step, before, about });
    this.fixed = step.formula.kind === "fixed";
    this.details = h("section", { class: "details from-2", "aria-label": "Arithmetic", tabindex: 0 });
    this.query = h("section", { class: "box query from-1", "aria-label": "1: the query" });
    this.output = about.reading ? this.grownBox() : emptyBox(about.kind);
    this.element = h(
      "div",
      { class: `stagegrid${this.fixed ? " fixed" : ""}` },
      h("div", { class: "left" }, this.readBox(), this.query, !this.fixed && this.details),
      this.fixed ? this.vectorBox() : this.sourceBox(),
      this.output,
    );
    this.take(step, about);
    this.fillUntil(5); // so that everything has its place
  }

  /** Take the numbers of a step: this one, or another that attends to the same words, which stay. */
  take(step, about) {
    Object.assign(this, { step, about, opened: null, filled: 0 });
    this.weights = Array.from(step.weights.data);
    const shown = (scores) => scores && Array.from(scores, (_, s) => this.score(scores, s));
    this.scale = scaleOf(shown(step.scores?.data), shown(this.before?.scores?.data));
    this.tried = false;
    this.element.classList.remove("trying");
  }

  /** Show what is computed up to `sub`; a part is filled in when it is first shown. */
  reveal(sub) {
    this.sub = sub;
    this.fillUntil(Math.min(sub, 5));
    this.element.dataset.sub = sub;
    for (let part = 0; part <= 6; part++) this.element.classList.toggle(`at-${part}`, part <= sub);
    this.rows?.forEach((row, s) => row.setAttribute("aria-label", this.label(s)));
  }

  fillUntil(part) {
    while (this.filled < part) this.fill(++this.filled);
  }

  /** Fill in the numbers of a part. */
  fill(part) {
    if (part === 1) put(this.query, this.queryParts());
    if (part === 2 && !this.fixed) this.fillScores();
    if (part === 3 && !this.fixed) this.fillWeights(this.before);
    if (part === 4 && !this.fixed) this.fillContext();
    if (part === 5 && !this.about.reading) outputBox(this.step, this.before, this.about, this.output);
    if (part === 5 && this.about.reading) this.fillGrown();
  }

  /** What is new at a sub-step moves. */
  move(sub) {
    const each = (selector, act) => this.element.querySelectorAll(selector).forEach(act);
    if (sub === 0) {
      const rows = this.rows?.length ?? 0;
      each(".states .forward", (one, s) => appear(one, s * 60));
      each(".states .backward", (one, s) => appear(one, (rows - 1 - s) * 60));
    }
    if (sub === 1) each(".query .strip", (one) => appear(one));
    if (sub === 2) each(".track.score .fill", (one) => appear(one));
    if (sub === 3) this.soften();
    if (sub === 4) {
      const sum = this.element.querySelector(".sum .strip");
      each(".states .faded", (one, s) => this.weights[s] > 0.02 && pour(one, sum));
      appear(sum, 400);
    }
    if (sub === 5) each(".track.output .fill", (one) => appear(one));
  }

  /** The softmax, seen to happen. */
  soften() {
    const scores = this.step.scores?.data;
    if (!scores) return;
    const top = Math.max(...scores),
      { long } = this.scale,
      from = getComputedStyle(this.element).getPropertyValue("--score");
    this.element.querySelectorAll(".track.weight .fill").forEach((bar, s) => {
      const score = this.score(scores, s),
        share = Number.isFinite(score) ? Math.abs(score) / long : 0;
      become(bar, { score: share, power: Math.exp(score - top), weight: this.weight(this.weights, s), from });
    });
  }

  // --- the parts

  readBox() {
    const { about } = this;
    const [words, ...formulas] = about.reading
      ? [
          about.seen.layer
            ? "Every word comes as the layer below has left it."
            : "Every word is a vector: what it is, and where it stands.",
        ]
      : readWords(about.kind);
    return h(
      "section",
      { class: "box how-read", "aria-label": "The source is read" },
      heading(null, "context", "The source is read"),
      h("p", {}, words),
      formulas.length > 0 && h("div", { class: "formula" }, formulas),
      about.encoder && button("Go through the encoder, word by word", about.encoder),
    );
  }

  queryParts() {
    const { step, about } = this;
    const { query } = step;
    return [
      heading(1, "query", this.fixed ? "The state" : "The query"),
      h(
        "p",
        {},
        this.fixed
          ? "The decoder’s state. It is compared with nothing: there is one vector of the source."
          : queryWords(about.kind, about.seen.query, about.reading),
      ),
      about.previous && [
        h("p", { class: "small" }, "one word before"),
        strip(about.previous.data, largest(about.previous.data), { label: "query one step before", height: 12 }),
        h("p", { class: "small" }, "now"),
      ],
      query
        ? [
            strip(query.data, largest(query.data), { label: `query of ${query.data.length} numbers`, height: 22 }),
            h("p", { class: "small" }, `${query.data.length} numbers, length ${show(norm(query.data))}`),
          ]
        : h("p", { class: "small" }, "not recorded"),
    ];
  }

  sourceBox() {
    const { step, about } = this;
    const { seen, tokens } = about;
    this.both = about.kind === "bahdanau" && step.values?.shape[1] % 2 === 0; // a bidirectional encoder
    this.list = h(
      "ol",
      {
        class: "rows",
        role: "listbox",
        "aria-label": about.own ? "Words so far" : "Source words",
        onkeydown: (event) => this.key(event),
      },
      tokens.map((token, s) => this.row(token, s)),
    );
    this.rows = [...this.list.children];
    this.sums = [2, 3, 4].map((sub) => h("div", { class: `from-${sub}` }));
    return h(
      "section",
      { class: "box source", "aria-label": "2 to 4: scores, weights and context" },
      h(
        "div",
        { class: "columns" },
        h("span", {}),
        h("div", { class: "named from-2" }, heading(2, "score", "The scores", scoreFormula(seen.score))),
        h("div", { class: "named from-3" }, heading(3, "weight", "The weights", weightFormula(seen.normalise))),
        h("div", { class: "named from-4" }, heading(4, "context", "The context", contextFormula(valueSymbol(about.kind)))),
        this.both &&
          h("div", { class: "directions small" }, h("span", {}, "→ read forwards"), h("span", {}, "← read backwards")),
      ),
      this.list,
      h(
        "div",
        { class: "columns sum" },
        h("span", {}),
        this.sums,
      ),
      h(
        "div",
        { class: "tools-row" },
        host.live && step.scores && seen.kind === "cross" && h("span", { class: "from-3" }, this.slider()),
      ),
    );
  }

  /** The tokens whose numbers row s shows: one, or all pieces of a word. */
  pieces(s) {
    return this.about.whole.get(s)?.tokens ?? [s];
  }

  /** The score of row s. That of a word of several pieces is the log of the sum of their exp: softmax gives their sum. */
  score(scores, s) {
    const some = this.pieces(s).map((at) => scores[at]),
      top = Math.max(...some);
    return Number.isFinite(top) ? top + Math.log(some.reduce((sum, one) => sum + Math.exp(one - top), 0)) : top;
  }

  /** The weight of row s: the sum over the pieces of a word. */
  weight(weights, s) {
    return this.pieces(s).reduce((sum, at) => sum + weights[at], 0);
  }

  row(token, s) {
    const label = this.about.whole.get(s);
    return h(
      "li",
      {
        class: this.about.whole.size && this.about.inner.has(s) ? "folded" : null,
        role: "option",
        "aria-selected": "false",
        tabindex: -1,
        "data-s": s,
        onpointerenter: () => state.set({ preview: { t: this.step.t, s } }),
        onpointerleave: () => state.set({ preview: null }),
        onclick: () => state.set({ s }),
        onfocus: () => state.set({ s }),
      },
      word(label?.text ?? token.text, { class: token.special ? "special" : this.about.inner.has(s) ? "inner" : "" }),
      h("span", { class: "from-2 cell" }, track("score"), h("span", { class: "number" })),
      h("span", { class: "from-3 cell" }, this.handle(track("weight"), s), h("span", { class: "number" })),
      h("span", { class: "states from-read" }, this.step.values && this.strips(s)),
    );
  }

  /** Whether the weights of this step can be set by hand. */
  get movable() {
    return host.live && this.about.seen.kind === "cross" && this.sub >= 3;
  }

  /** A weight that can be dragged: the others give way, so that the sum stays 1, and the next word follows. */
  handle(bar, s) {
    if (!host.live || this.about.seen.kind !== "cross") return bar;
    const at = (event) => {
      const { left, width } = bar.getBoundingClientRect();
      this.setWeight(s, (event.clientX - left) / width);
    };
    bar.classList.add("movable");
    bar.title = "Drag to set this weight";
    let moved = false; // a click opens the arithmetic and sets nothing
    bar.addEventListener("pointerdown", (event) => {
      if (!this.movable) return;
      bar.setPointerCapture(event.pointerId);
      moved = false;
      bar.onpointermove = (next) => {
        moved ||= Math.abs(next.clientX - event.clientX) > 3;
        if (moved) at(next);
      };
    });
    const end = () => {
      if (bar.onpointermove && moved) setWeights(this.step.t, this.weights);
      bar.onpointermove = null;
    };
    bar.addEventListener("pointerup", end);
    bar.addEventListener("pointercancel", end);
    return bar;
  }

  /** Set one weight here; the rest of the row keeps its proportions. The model's own weights stay as outlines. */
  setWeight(s, wanted) {
    const value = Math.max(0, Math.min(1, wanted)),
      set = new Set(this.pieces(s)),
      now = this.weight(this.weights, s),
      others = this.weights.length - set.size;
    const share = (weight, all, size) => (all > 1e-6 ? weight / all : 1 / size); // of a group: as before, or equal
    this.weights = Array.from(this.weights, (weight, at) =>
      set.has(at)
        ? share(weight, now, set.size) * (others ? value : 1)
        : share(weight, 1 - now, others) * (1 - value),
    );
    this.tried = true;
    this.fillWeights(this.before ?? this.step);
    this.fillContext();
    this.element.classList.add("trying");
  }

  /** The score of every word; that before a what-if as an outline. */
  fillScores() {
    const { zero, long } = this.scale,
      scores = this.step.scores?.data,
      old = this.before?.scores?.data;
    this.rows.forEach((row, s) => {
      const [bar, number] = row.children[1].children,
        value = scores ? this.score(scores, s) : NaN,
        was = old ? this.score(old, s) : NaN,
        seen = Number.isFinite(value);
      row.classList.toggle("masked", Boolean(scores) && !seen);
      draw(bar, seen ? value / long : 0, Number.isFinite(was) ? was / long : undefined, zero);
      number.textContent = !scores ? "–" : seen ? show(value) : "hidden";
    });
    put(this.sums[0], this.scoreCheck());
  }

  /** The weight of every word. */
  fillWeights(before) {
    const { weights } = this;
    this.rows.forEach((row, s) => {
      const [bar, number] = row.children[2].children;
      draw(bar, this.weight(weights, s), before ? this.weight(before.weights.data, s) : undefined);
      number.textContent = show(this.weight(weights, s), 3);
    });
    const sum = weights.reduce((all, weight) => all + weight, 0);
    put(this.sums[1], h("span", { class: "small" }, `sum = ${show(sum, 3)}`), !this.tried && this.weightCheck());
  }

  /** The context that the weights give; a strip is as visible as its weight beside the largest one. */
  fillContext() {
    const { weights } = this,
      most = Math.max(1e-9, ...weights);
    this.rows.forEach((row, s) =>
      row.lastChild.firstChild?.style.setProperty(
        "--share",
        (0.08 + (0.92 * Math.min(most, this.weight(weights, s))) / most).toFixed(3),
      ),
    );
    put(this.sums[2], this.contextOf());
  }

  /** The vector that a word offers; of a bidirectional encoder both halves. */
  strips(s) {
    const values = this.step.values.row(s),
      most =
        this.most ??
        (this.most = largest(
          ...Array.from({ length: this.step.values.shape[0] }, (_, at) => this.step.values.row(at)),
        ));
    const name = this.about.tokens[s]?.text ?? "";
    if (!this.both) return h("span", { class: "faded forward" }, strip(values, most, { label: `vector of ${name}` }));
    const half = values.length / 2;
    return h(
      "span",
      { class: "faded halves" },
      h("span", { class: "forward" }, strip(values.subarray(0, half), most, { label: `${name}, read forwards` })),
      h("span", { class: "backward" }, strip(values.subarray(half), most, { label: `${name}, read backwards` })),
    );
  }

  /** The context that the weights give. */
  contextOf() {
    const { values, context } = this.step;
    const sum = values ? weigh(this.weights, values) : context?.data;
    if (!sum) return "not recorded";
    return [
      strip(sum, largest(sum), { label: "context vector", height: 22 }),
      values && !this.tried && check("weighted sum of all", difference(sum, context.data)),
    ];
  }

  scoreCheck() {
    const known = this.step.scores?.data;
    if (!known) return h("p", { class: "small" }, "not recorded");
    if (this.step.changed) return h("p", { class: "check changed" }, "changed by a what-if");
    const again = score(this.step.formula, known.length);
    const masked = again?.map((value, s) => (Number.isFinite(known[s]) ? value : -Infinity));
    return masked && check("recomputed", difference(masked, known));
  }

  weightCheck() {
    const { step, about } = this;
    const again = step.scores && normalise(about.seen.normalise, step.scores.data, step.centre, step.half_width);
    if (!again) return null;
    const far = difference(again, step.weights.data);
    return step.changed && far > 1e-3
      ? h("p", { class: "check changed" }, "set by a what-if")
      : check(`${about.seen.normalise} of the scores`, far);
  }

  /** Temperature beside the weights: live while it is dragged, from the next word on when it is let go. */
  slider() {
    const now = temperature();
    const at = WIDTHS.reduce((best, one, n) => (Math.abs(one - now) < Math.abs(WIDTHS[best] - now) ? n : best), 0);
    const output = h("output", {}, now >= UNIFORM ? "∞" : String(now));
    const input = h("input", {
      type: "range",
      min: 0,
      max: WIDTHS.length - 1,
      step: 1,
      value: at,
      "aria-valuetext": `temperature ${now}`,
      oninput: () => {
        output.textContent = String(WIDTHS[input.value]);
        this.attempt(WIDTHS[input.value]);
      },
      onchange: () => setTemperature(WIDTHS[input.value], this.step.t),
    });
    return [
      field("Temperature", input, output),
      button("uniform weights", () => setTemperature(now >= UNIFORM ? 1 : UNIFORM, this.step.t), {
        class: "quiet",
        "aria-pressed": String(now >= UNIFORM),
      }),
    ];
  }

  /** Weights and context at another temperature, computed here; the model's own stay as outlines. */
  attempt(value) {
    const plain = this.before ?? this.step,
      { seen } = this.about;
    const scores = Array.from(plain.scores.data, (one) => one / value);
    const found = normalise(seen.normalise, scores, plain.centre, plain.half_width);
    if (!found) return;
    Object.assign(this, { tried: true, weights: found });
    this.fillWeights(plain);
    this.fillContext();
    this.element.classList.add("trying");
  }

  vectorBox() {
    const { step } = this;
    return h(
      "section",
      { class: "box context from-2", "aria-label": "2 to 4: one fixed vector" },
      heading("2–4", "context", "One fixed vector"),
      h(
        "p",
        {},
        "This model has no attention. The whole sentence, short or long, was squeezed into this one vector before" +
          " the first word was written. Its weight is 1 at every step:",
      ),
      step.context
        ? strip(step.context.data, largest(step.context.data), { label: "the one fixed vector", height: 40 })
        : h("p", { class: "small" }, "not recorded"),
      h(
        "p",
        {},
        "The longer the sentence, the more must fit into it. Attention lets the decoder see every word instead.",
      ),
      step.values &&
        check("weight 1 times the one vector", difference(weigh([1], step.values), step.context.data)),
    );
  }

  grownBox() {
    return h(
      "section",
      { class: "box output from-5", "aria-label": "5: the new vector" },
      heading(5, "output", "The new vector"),
      h("div", { class: "more" }),
    );
  }

  fillGrown() {
    const { about } = this;
    put(this.output.lastChild, grown(about.layers?.[about.seen.layer], about.last));
  }

  // --- one source word

  label(s) {
    const { tokens } = this.about,
      scores = this.step.scores?.data;
    const parts = [this.about.whole.get(s)?.text ?? tokens[s].text],
      score = scores ? this.score(scores, s) : NaN;
    if (this.sub >= 2 && scores) parts.push(Number.isFinite(score) ? `score ${show(score)}` : "hidden");
    if (this.sub >= 3) parts.push(`weight ${show(this.weight(this.weights, s), 3)}`);
    return parts.join(", ");
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key],
      more = { "+": 0.1, "=": 0.1, "-": -0.1, "\u2212": -0.1 }[event.key],
      at = this.rows.indexOf(document.activeElement);
    if (more && at >= 0 && this.movable) {
      event.preventDefault();
      this.setWeight(at, this.weight(this.weights, at) + more);
      announce(this.label(at));
      clearTimeout(this.pressed); // a key that is pressed several times is one change
      this.pressed = setTimeout(() => setWeights(this.step.t, this.weights), 600);
    }
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const seen = this.rows.filter((row) => !row.classList.contains("folded")),
      next = seen[Math.max(0, Math.min(seen.length - 1, seen.indexOf(document.activeElement) + by))];
    next.focus();
    announce(this.label(this.rows.indexOf(next)));
  }

  /** Mark the word that is pointed at or chosen, and open the arithmetic of the chosen one. */
  mark() {
    if (this.fixed) return;
    const chosen = state.get("s"),
      at = state.get("preview")?.s ?? chosen;
    const known = chosen !== null && chosen < this.rows.length,
      marked = `${at} ${chosen}`,
      key = `${known ? chosen : ""} ${this.sub}`;
    if (marked !== this.marked)
      this.rows.forEach((row, s) => {
        row.classList.toggle("on", s === at);
        row.setAttribute("aria-selected", String(s === chosen));
        row.tabIndex = s === (chosen ?? 0) ? 0 : -1;
      });
    this.marked = marked;
    if (key === this.opened) return; // pointing builds nothing again
    this.opened = key;
    this.details.classList.toggle("open", known);
    put(
      this.details,
      known
        ? [
            button("×", () => state.set({ s: null }), { class: "quiet close", "aria-label": "Close" }),
            host.live && this.sub >= 2 && this.about.seen.kind === "cross" && this.changesOf(chosen),
            this.pieces(chosen).map((at) => arithmetic(this.step, this.about, at, this.sub)),
          ]
        : [
            h(
              "p",
              { class: "small" },
              "Click a word, or press ↓ in the list, to open its arithmetic",
              host.live && this.about.seen.kind === "cross"
                ? " and to change it. Drag a weight, or press + and − on a word, to set it."
                : ".",
            ),
          ],
    );
  }

  changesOf(s) {
    const trace = state.get("trace"),
      label = sourceWord(trace, s),
      { t } = this.step;
    if (!label) return null;
    return h(
      "div",
      { class: "row" },
      h("span", { class: "small" }, "What if "),
      button(isHidden(label) ? "it is shown again" : "it is hidden", () => hide(label, t)),
      button("the model looks only here", () => lookOnly(t, s)),
      button("it is swapped with the next word", () => swap(trace, s), { disabled: !canSwap(trace, s) }),
    );
  }
}
