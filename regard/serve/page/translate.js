// Translation: two panes, linked words, alternatives on a click, and the request as code.

import { openAlternatives } from "./alternatives.js";
import { h, put, renew, select, visible, word } from "./dom.js";
import { icon } from "./icons.js";
import { percent } from "./maths.js";
import { requests } from "./requests.js";
import { choose, lines, model, translate, translators } from "./session.js";
import { state } from "./state.js";
import { tableOf } from "./trace.js";

const PAUSE = 400; // milliseconds after the last key

class Translate extends HTMLElement {
  connectedCallback() {
    this.box = h("textarea", {
      id: "source",
      rows: 3,
      dir: "auto",
      spellcheck: "false",
      autocomplete: "off",
      maxlength: 20000,
      "aria-label": "Text to translate",
      placeholder: "Type a sentence\u2026",
      oninput: () => this.typed(),
      onkeydown: (event) => this.key(event),
      onkeyup: () => this.moved(),
      onclick: () => this.moved(),
    });
    this.pair = h("div", { class: "pair" });
    this.behind = h("div", { class: "behind", dir: "auto", "aria-hidden": "true" });
    this.output = h("div", { class: "translation", "aria-live": "polite", "aria-atomic": "true" });
    this.sure = h("p", { class: "note" });
    this.best = h("div", { class: "nbest" });
    this.code = h("div", { class: "code" });
    put(
      this,
      this.pair,
      h(
        "div",
        { class: "panes" },
        h("section", { class: "pane", "aria-label": "Source" }, h("div", { class: "typing" }, this.behind, this.box)),
        h("section", { class: "pane target", "aria-label": "Translation" }, this.output, this.sure, this.best),
      ),
      this.code,
    );
    state.on(["models", "model"], () => this.showPair());
    state.on(["text"], () => this.showText());
    state.on(["trace", "busy", "error", "lines", "layer", "head", "shift", "prefix"], () => this.show());
    state.on(["t", "s", "preview"], () => this.mark());
    state.on(["text", "model", "models"], () => put(this.code, model()?.kind !== "caption" && requests()));
    this.show();
  }

  typed() {
    clearTimeout(this.timer);
    state.set({ text: this.box.value, prefix: null, changes: [], t: null, s: null, node: null, line: this.lineOf() });
    this.timer = setTimeout(translate, PAUSE);
  }

  /** The caret moved: another line may be the one to inspect. */
  moved() {
    const line = this.lineOf();
    if (line === state.get("line") || lines().length < 2) return;
    state.set({ line, trace: null, prefix: null, changes: [], t: null, s: null, node: null });
    translate();
  }

  lineOf() {
    const before = this.box.value.slice(0, this.box.selectionStart).split("\n").length - 1;
    return Math.max(0, lines().filter((line) => line.at <= before).length - 1);
  }

  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      clearTimeout(this.timer);
      translate();
    }
  }

  showText() {
    if (this.box.value !== state.get("text")) this.box.value = state.get("text");
    this.box.style.setProperty("height", "auto");
    this.box.style.setProperty("height", `${this.box.scrollHeight + 2}px`);
    if (state.get("trace")?.source.text !== state.get("text").trim()) put(this.behind);
  }

  showPair() {
    const models = translators(),
      chosen = model();
    if (!models.includes(chosen)) return;
    const codes = (side, among) =>
      [...new Map(among.map((one) => [one[side].code, one[side].name])).entries()].map(([value, text]) => ({
        value,
        text,
      }));
    const same = (one, other) => one.source.code === other.source.code && one.target.code === other.target.code;
    const back = models.find(
      (one) => one.source.code === chosen.target.code && one.target.code === chosen.source.code && one !== chosen,
    );
    const take = (one) => one && this.take(one);
    renew(
      this.pair,
      select("From", codes("source", models), chosen.source.code, (code) =>
        take(models.find((one) => one.source.code === code)),
      ),
      h(
        "button",
        {
          type: "button",
          class: "round",
          "aria-label": "Swap the languages",
          title: back ? "Swap the languages" : "No model translates back",
          disabled: !back,
          onclick: () => take(back),
        },
        icon("swap"),
      ),
      select(
        "Into",
        codes(
          "target",
          models.filter((one) => one.source.code === chosen.source.code),
        ),
        chosen.target.code,
        (code) => take(models.find((one) => one.source.code === chosen.source.code && one.target.code === code)),
      ),
      select(
        "Model",
        models.filter((one) => same(one, chosen)).map((one) => ({ value: one.id, text: one.id })),
        chosen.id,
        (id) => take(models.find((one) => one.id === id)),
      ),
    );
  }

  take(one) {
    choose(one);
    translate();
  }

  show() {
    const trace = this.hidden ? null : state.get("trace"); // that of a picture is shown elsewhere
    this.classList.toggle("busy", state.get("busy"));
    if (state.get("error")) {
      put(this.output, h("p", { class: "error", role: "alert" }, state.get("error")));
      put(this.behind);
      put(this.sure);
      put(this.best);
      return;
    }
    if (!trace) {
      put(
        this.output,
        h("p", { class: "sentence empty" }, state.get("busy") ? "\u2026" : "The translation appears here."),
      );
      put(this.behind);
      put(this.sure);
      put(this.best);
      return;
    }
    this.table = tableOf(trace, { layer: state.get("layer"), head: state.get("head"), shift: state.get("shift") });
    this.showWords(trace);
    this.showBest(trace);
    this.mark();
  }

  showWords(trace) {
    const focused = this.output.contains(document.activeElement) ? document.activeElement.dataset.t : null;
    const words = targetWords(trace);
    const buttons = words.map((label) => this.button(trace, label));
    const spaced = buttons.flatMap((button, number) => (number ? [gap(trace, words, number), button] : [button]));
    const all = state.get("lines"),
      line = state.get("line");
    const other = (text) => h("p", { class: "sentence other", dir: "auto" }, text);
    put(
      this.output,
      all.slice(0, line).map(other),
      h("p", { class: "sentence", dir: "auto" }, spaced),
      all.slice(line + 1).map(other),
      state.get("prefix") &&
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: () => {
              state.set({ prefix: null });
              translate();
            },
          },
          "Undo the choice",
        ),
    );
    if (focused) this.output.querySelector(`[data-t="${focused}"]`)?.focus();
  }

  /** Show what is pointed at or pinned; nothing is built again, so that focus and pointer stay where they are. */
  mark() {
    const trace = state.get("trace"),
      { table } = this;
    if (this.hidden || !trace || !table || state.get("error")) return;
    const at = state.get("preview")?.t ?? state.get("t");
    const row = at === null || !trace.looks ? -1 : table.rows.findIndex((label) => label.tokens.includes(at));
    this.output.querySelectorAll(".word").forEach((button) => {
      const tokens = button.dataset.tokens.split(",").map(Number);
      button.classList.toggle("active", tokens.includes(at));
      button.setAttribute("aria-pressed", String(tokens.includes(state.get("t"))));
    });
    this.showLinks(trace, table, row);
    put(this.sure, this.sentence(trace, table, row));
  }

  /** The source words behind the text box, marked by their attention weight: the same text in the same place. */
  showLinks(trace, table, row) {
    const all = state.get("text").split("\n"),
      at = lines()[state.get("line")]?.at ?? 0;
    const line = all[at] ?? "",
      core = line.trim();
    if (!trace.looks || core !== trace.source.text) {
      put(this.behind);
      return;
    }
    const points = [...core],
      pieces = [];
    let done = 0;
    table.columns.forEach((label, s) => {
      const first = trace.source.tokens[label.tokens[0]],
        last = trace.source.tokens[label.tokens.at(-1)];
      if (label.special || first.start >= last.end) return;
      const weight = row < 0 ? 0 : (table.weights[row]?.[s] ?? 0);
      pieces.push(
        points.slice(done, first.start).join(""),
        h(
          "span",
          {
            class: label.tokens.includes(state.get("s")) ? "linked pinned" : "linked",
            style: { "--share": weight < 0.02 ? "0" : weight.toFixed(3) },
          },
          points.slice(first.start, last.end).join(""),
        ),
      );
      done = last.end;
    });
    const before =
      all
        .slice(0, at)
        .map((text) => `${text}\n`)
        .join("") + line.slice(0, line.indexOf(core));
    put(this.behind, before, pieces, points.slice(done).join(""));
  }

  button(trace, label) {
    const probability = Math.exp(label.tokens.reduce((sum, t) => sum + (trace.target.tokens[t].logprob ?? 0), 0));
    const t = label.tokens[0];
    const forced = label.tokens.some((at) => trace.changed.rows.includes(at));
    const unsure = trace.target.tokens[t].logprob !== undefined && probability < 0.5;
    return h(
      "button",
      {
        type: "button",
        dir: "auto",
        class: `word${unsure ? " unsure" : ""}${forced ? " changed" : ""}`,
        title: `${forced ? "forced, " : ""}probability ${percent(probability)}: click for alternatives`,
        "data-t": t,
        "data-tokens": label.tokens.join(","),
        "aria-haspopup": "dialog",
        onpointerenter: () => state.set({ preview: { t } }),
        onpointerleave: () => state.set({ preview: null }),
        onfocus: () => state.set({ preview: { t } }),
        onblur: () => state.set({ preview: null }),
        onclick: (event) => {
          state.set({ t, s: null });
          this.alternatives(trace, t, event.currentTarget);
        },
      },
      visible(label.text),
    );
  }

  alternatives(trace, t, button) {
    const back = () => this.output.querySelector(`[data-t="${t}"]`)?.focus();
    openAlternatives(button, trace.pieces(t), trace.target.tokens[t].piece, back);
  }

  sentence(trace, table, row) {
    if (!trace.looks)
      return "This model has no attention: it keeps the whole sentence in one fixed vector.";
    if (row < 0) return "Point at a word of the translation to see its attention to the source.";
    const best = table.weights[row].indexOf(Math.max(...table.weights[row]));
    if (best < 0) return "";
    return [
      "While writing ",
      h("b", {}, word(table.rows[row].text)),
      ", the model looked ",
      h("b", {}, percent(table.weights[row][best])),
      " at ",
      h("b", {}, word(table.columns[best].text)),
      ".",
    ];
  }

  showBest(trace) {
    const ranked = trace.translations.slice(0, 5);
    put(
      this.best,
      ranked.length > 1 &&
        h(
          "details",
          {},
          h("summary", {}, `Other translations (${ranked.length - 1})`),
          h(
            "ol",
            {},
            ranked
              .slice(1)
              .map((one) => h("li", {}, word(one.text), h("span", { class: "number" }, one.score.toFixed(2)))),
          ),
        ),
    );
  }
}

/** The target in words, without special tokens: the rows of a table without shift. */
function targetWords(trace) {
  const tokens = trace.target.tokens;
  const { rows } = tableOf(trace, { shift: 0 });
  const label = ({ tokens: own }) => ({ start: tokens[own[0]].start, end: tokens[own.at(-1)].end });
  return rows.map((row) => ({ ...row, ...label(row) }));
}

/** The text between two words: a space, or nothing in scripts without spaces. */
const gap = (trace, words, number) =>
  [...trace.target.text].slice(words[number - 1].end, words[number].start).join("") ? " " : "";

customElements.define("regard-translate", Translate);
