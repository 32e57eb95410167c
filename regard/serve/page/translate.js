// Translation: two panes, linked words, alternatives on a click, and the request as code.

import { openAlternatives } from "./alternatives.js";
import { button, h, notify, put, renew, select, taps, visible, word } from "./dom.js";
import { offerFile } from "./files.js";
import { icon } from "./icons.js";
import { percent } from "./maths.js";
import { picker } from "./picker.js";
import { requests } from "./requests.js";
import {
  choose,
  directions,
  goOn,
  halt,
  look,
  model,
  NOTHING,
  sentence,
  settings,
  translate,
  translators,
} from "./session.js";
import { state } from "./state.js";
import { tableOf } from "./trace.js";
import { path } from "./treelayout.js";
import { ALIGNING } from "./wording.js";

const PAUSE = 400; // milliseconds after the last key

class Translate extends HTMLElement {
  connectedCallback() {
    this.box = h("textarea", {
      id: "source",
      rows: 3,
      dir: "auto",
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "Text to translate",
      "aria-describedby": "counter",
      placeholder: "Type or paste a text…",
      oninput: () => this.typed(),
      onkeydown: (event) => this.key(event),
      onkeyup: () => this.moved(),
      onclick: () => this.moved(),
      onscroll: () => (this.behind.scrollTop = this.box.scrollTop),
    });
    this.pair = h("div", { class: "pair" });
    this.behind = h("div", { class: "behind", dir: "auto", "aria-hidden": "true" });
    this.output = h("div", { class: "translation", onkeydown: (event) => this.roam(event) });
    this.sure = h("p", { class: "note sure" });
    this.best = h("div", { class: "nbest" });
    this.counter = h("span", { class: "number", id: "counter" });
    const action = (text, act) => button(text, act, { class: "quiet" });
    this.stop = action("Stop (Esc)", halt);
    put(
      this,
      this.pair,
      h(
        "div",
        { class: "panes" },
        h(
          "section",
          { class: "pane", "aria-label": "Source" },
          h("div", { class: "typing" }, this.behind, this.box),
          h(
            "div",
            { class: "row actions" },
            action("Clear", () => this.clear()),
            offerFile(),
            this.counter,
          ),
        ),
        h(
          "section",
          { class: "pane target", "aria-label": "Translation" },
          this.output,
          this.sure,
          this.best,
          h(
            "div",
            { class: "row actions" },
            action("Copy", () => copy(this.whole(), "The translation")),
            action("Share", () => copy(location.href, "The address")),
            this.stop,
          ),
        ),
      ),
    );
    state.on(["models", "model"], () => this.showPair());
    state.on(["text", "models"], () => this.showText());
    state.on(["trace", "busy", "error", "sentences", "line", "layer", "head", "shift", "prefix", "between"], () => this.show());
    state.on(["t", "s", "preview", "view"], () => this.mark());
    const code = document.querySelector(".request");
    state.on(["text", "model", "models"], () => model()?.kind !== "caption" && put(code, requests()));
    this.showText(); // at once: what is typed meanwhile must not be put before the example
    this.show();
  }

  typed() {
    clearTimeout(this.timer);
    state.set({ ...NOTHING, text: this.box.value });
    this.timer = setTimeout(translate, PAUSE);
  }

  clear() {
    state.set({ ...NOTHING, text: "" });
    translate();
    this.box.focus();
  }

  /** The caret moved: another sentence may be the one to look into. */
  moved() {
    const before = [...this.box.value.slice(0, this.box.selectionStart)].length,
      sentences = state.get("sentences");
    if (sentences.length < 2 || state.get("busy")) return;
    const line = Math.max(
      0,
      sentences.findLastIndex((one) => one.source[0] <= before),
    );
    this.choose(line);
  }

  /** Look into another sentence. */
  choose(line) {
    if (line === state.get("line")) return;
    state.set({ ...NOTHING, line, trace: null, busy: true });
    look();
  }

  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      clearTimeout(this.timer);
      translate();
    } else if (event.key === "Escape") halt();
  }

  /** The words of the translation are one stop of the Tab key; the arrows go from word to word. */
  roam(event) {
    const words = [...this.output.querySelectorAll(".word")],
      at = words.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: words.length - 1 }[event.key];
    if (at < 0 || next === undefined || !words[next]) return;
    event.preventDefault();
    words[next].focus();
  }

  showText() {
    const text = state.get("text");
    if (this.box.value !== text) this.box.value = text;
    this.box.maxLength = settings.charLimit;
    this.box.style.setProperty("height", "auto");
    this.box.style.setProperty("height", `${Math.min(this.box.scrollHeight + 2, 0.4 * innerHeight)}px`);
    const { charLimit } = settings,
      full = text.length >= charLimit;
    put(this.counter, `${[...text].length.toLocaleString("en")} / ${charLimit.toLocaleString("en")}`);
    if (full) this.counter.append(" · longer text is cut off");
    this.counter.classList.toggle("full", full);
    if (text !== this.marked) put(this.behind);
  }

  showPair() {
    const models = directions(),
      chosen = model();
    if (!models.includes(chosen)) return;
    const codes = (side, among) =>
      [...new Map(among.map((one) => [one[side].code, `${one[side].name}${marked(side, one)}`])).entries()].map(
        ([value, text]) => ({ value, text }),
      );
    const marked = (side, one) => (side === "target" && one.through ? " (through English)" : "");
    const { back } = this;
    const take = (one) => one && this.take(one);
    renew(
      this.pair,
      select("From", codes("source", models), chosen.source.code, (code) =>
        take(models.find((one) => one.source.code === code)),
      ),
      button(icon("swap"), () => this.swap(back), {
        class: "round",
        "aria-label": "Swap the languages",
        title: back ? "Swap the languages" : "No model translates back",
        disabled: !back,
      }),
      select(
        "Into",
        codes(
          "target",
          models.filter((one) => one.source.code === chosen.source.code),
        ),
        chosen.target.code,
        (code) => take(models.find((one) => one.source.code === chosen.source.code && one.target.code === code)),
      ),
      picker(take),
    );
  }

  /** The model that translates back, if there is one. */
  get back() {
    const chosen = model();
    return directions().find(
      (one) => one.source.code === chosen.target.code && one.target.code === chosen.source.code && one !== chosen,
    );
  }

  /** A text in the other language of the pair: a button translates it from that one. */
  offer() {
    const { back } = this;
    return back && [" ", button(`Translate from ${back.source.name}`, () => this.take(back), { class: "quiet" })];
  }

  take(one) {
    choose(one);
    translate();
  }

  /** Translate back: the translation becomes the text. */
  swap(back) {
    const text = this.whole();
    choose(back);
    state.set({ text: text || state.get("text") });
    translate();
  }

  /** The whole translation, with what is between the sentences of the source. */
  whole() {
    const sentences = state.get("sentences"),
      points = [...(sentences.at(-1)?.of ?? "")];
    let at = 0;
    const parts = sentences.flatMap((one, number) => {
      const gap = points.slice(at, one.source[0]).join("");
      at = one.source[1];
      return [gap, this.textOf(one, number)];
    });
    return [...parts, points.slice(at).join("")].join("");
  }

  textOf(one, number) {
    const trace = state.get("trace");
    return number === state.get("line") && trace && !this.mended(one, number) ? trace.target.text : one.translatedText;
  }

  /** Whether the model's own words, which are looked into, lack what is kept in the translation of the text. */
  mended(one, number) {
    const { text, trace, line, prefix, changes, beam } = state.values;
    if (!trace || number !== line || !one.done || prefix || changes.length || beam !== model().beam) return false;
    if ([...text].slice(...one.source).join("") !== trace.source.text) return false; // not yet, or not of this text
    const bare = (text) => text.trim().replace(/\s+/gu, " ").replace(/\.$/u, "");
    return bare(one.translatedText) !== bare(trace.target.text);
  }

  show() {
    if (this.hidden) return; // a picture is shown elsewhere
    const { trace, sentences, error, busy } = state.values;
    this.classList.toggle("busy", busy);
    this.stop.hidden = !busy;
    if (error || !sentences.length) {
      put(
        this.output,
        error
          ? h("p", { class: "error", role: "alert" }, error)
          : h("p", { class: "sentence empty" }, busy ? "…" : "The translation appears here."),
      );
      for (const place of [this.behind, this.sure, this.best]) put(place);
      return;
    }
    this.table =
      trace && tableOf(trace, { layer: sourceLayer(trace), head: state.get("head"), shift: state.get("shift") });
    this.showWords(trace, sentences);
    this.showBest(trace);
    if (model().through && !busy) put(this.sure, this.halves());
    this.mark();
  }

  /** A text that two models have translated: what is between them, and the way into each. */
  halves() {
    const [first, second] = model().through.map((id) => translators().find((one) => one.id === id));
    const into = (one, text) =>
      button(
        `${one.source.name} to ${one.target.name}`,
        () => {
          choose(one);
          state.set({ text, line: 0 });
          translate();
        },
        { class: "quiet" },
      );
    const { text, between } = state.values;
    return [
      `Translated through ${first.target.name}: `,
      h("b", { dir: "auto", lang: first.target.code }, word(between)),
      ". Look into a half: ",
      into(first, text),
      into(second, between),
    ];
  }

  showWords(trace, sentences) {
    const focused = this.output.contains(document.activeElement) ? document.activeElement.dataset.t : null;
    const line = state.get("line"),
      points = [...sentences.at(-1).of];
    // What is between sentences is not translated: line breaks, labels of list items, rules.
    const between = (start, end) => {
      const [first, ...lines] = points.slice(start, end).join("").split("\n").map((line) => line.trim());
      const shown = lines.filter((line, number) => line || number === lines.length - 1); // empty lines are one break
      return [` ${first} `, ...shown.map((line) => [h("br"), `${line} `])];
    };
    const said = (one, number) => [
      this.mended(one, number) &&
        h(
          "span",
          { class: "flag", title: "Note" },
          " (the model’s own words; with numbers, addresses and capitals kept, the translation is: ",
          h("b", {}, word(one.translatedText)),
          ")",
        ),
      one.notes?.length > 0 && h("span", { class: "flag", title: "Note" }, ` (${one.notes.join("; ")})`),
      one.flags?.includes("language") && this.offer(),
      one.error && h("span", { class: "error", role: "alert" }, ` ${one.error}`),
    ];
    put(
      this.output,
      h(
        "p",
        { class: "sentence", dir: "auto", lang: model().target?.code },
        sentences.map((one, number) => [
          between(number ? sentences[number - 1].source[1] : 0, one.source[0]),
          number === line && trace
            ? h("span", { class: sentences.length > 1 ? "chosen" : null }, this.words(trace))
            : h(
                "span",
                {
                  class: one.done ? "other" : "other writing",
                  onclick: () => one.done && this.choose(number),
                },
                word(one.translatedText),
              ),
          said(one, number),
        ]),
        between(sentences.at(-1).source[1], points.length),
      ),
    );
    if (focused) this.output.querySelector(`[data-t="${focused}"]`)?.focus();
  }

  words(trace) {
    const words = targetWords(trace);
    return words.flatMap((label, number) => {
      const button = this.button(trace, label, number);
      return number ? [gap(trace, words, number), button] : [button];
    });
  }

  /** Show what is pointed at or pinned; nothing is built again, so that focus and pointer stay where they are. */
  mark() {
    const trace = state.get("trace"),
      { table } = this;
    if (this.hidden || state.get("error") || (trace && state.get("view") === "steps")) return; // they are folded away
    if (!trace || !table) {
      this.showLinks(null, null, -1);
      return;
    }
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

  /**
   * The source words behind the text box, the same text in the same place: marked by their attention weight in the
   * sentence that is looked into, and in every sentence where the model never saw them.
   */
  showLinks(trace, table, row) {
    const points = [...state.get("text")],
      chosen = sentence(),
      looked = trace && chosen && points.slice(...chosen.source).join("") === trace.source.text,
      pieces = [];
    let done = 0;
    const piece = (start, end, attributes) => {
      pieces.push(points.slice(done, start).join(""), h("span", attributes, points.slice(start, end).join("")));
      done = end;
    };
    for (const one of state.get("sentences")) {
      if (!one) continue; // not begun yet
      const unseen = (start, end) => one.unknown?.some((text) => points.slice(start, end).join("").includes(text));
      const words = looked && one === chosen ? table.columns : [];
      for (const [s, label] of words.entries()) {
        const start = one.source[0] + trace.source.tokens[label.tokens[0]].start,
          end = one.source[0] + trace.source.tokens[label.tokens.at(-1)].end;
        if (label.special || start >= end) continue;
        const weight = row < 0 ? 0 : (table.weights[row]?.[s] ?? 0);
        piece(start, end, {
          class: `linked${label.tokens.includes(state.get("s")) ? " pinned" : ""}${unseen(start, end) ? " unseen" : ""}`,
          style: { "--share": weight < 0.02 ? "0" : weight.toFixed(3) },
        });
      }
      if (words.length || !one.unknown?.length) continue;
      let start = one.source[0];
      for (const part of points.slice(...one.source).join("").split(/(\s+)/u)) {
        const end = start + [...part].length;
        if (/\S/u.test(part) && unseen(start, end)) piece(start, end, { class: "linked unseen" });
        start = end;
      }
    }
    this.marked = state.get("text");
    put(this.behind, pieces, points.slice(done).join(""));
    this.behind.scrollTop = this.box.scrollTop;
  }

  button(trace, label, number) {
    const probability = trace.probability(label) ?? 1;
    const confidence = trace.confidence(label);
    const unsure = (confidence ?? probability) < 0.5;
    const rated = confidence === null ? "" : `confidence ${percent(confidence)}, `;
    const t = label.tokens[0];
    const forced = label.tokens.some((at) => trace.changed.rows.includes(at));
    return h(
      "button",
      {
        type: "button",
        dir: "auto",
        class: `word${unsure ? " unsure" : ""}${forced ? " changed" : ""}`,
        title: `${forced ? "forced, " : ""}${unsure ? "unsure, " : ""}${rated}probability ${percent(probability)}: click for alternatives`,
        tabindex: number ? -1 : 0,
        "data-t": t,
        "data-tokens": label.tokens.join(","),
        "aria-haspopup": "dialog",
        onpointerenter: () => state.set({ preview: { t } }),
        onpointerleave: () => state.set({ preview: null }),
        onfocus: (event) => {
          for (const one of this.output.querySelectorAll(".word")) one.tabIndex = one === event.currentTarget ? 0 : -1;
          state.set({ preview: { t } });
        },
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
    if (!trace.looks) return "This model has no attention: it keeps the whole sentence in one fixed vector.";
    if (row < 0)
      return [
        `${taps() ? "Tap" : "Point at"} a word of the translation to see its attention to the source.`,
        this.output.querySelector(".unsure") && " Dotted: the model was unsure, below 50\u00a0%.",
      ];
    const best = table.weights[row].indexOf(Math.max(...table.weights[row]));
    if (best < 0) return "";
    const which = table.aligning && `layer ${table.seen.layer}, ${table.head}, ${ALIGNING}`;
    return [
      table.shift ? "Just after writing " : "While writing ",
      h("b", {}, mentioned(table.rows[row].text)),
      ", the model looked ",
      h("b", {}, percent(table.weights[row][best])),
      " at ",
      h("b", {}, mentioned(table.columns[best].text)),
      which ? ` (${which}).` : ".",
    ];
  }

  /** The other translations that the search found; each can become the translation. */
  showBest(trace) {
    const ranked = trace?.beam ? trace.translations.slice(1, 5) : [];
    const take = ({ node }) =>
      goOn(
        path(trace.beam, node)
          .filter((one) => !one.finished)
          .map((one) => one.token),
      );
    put(
      this.best,
      ranked.length > 0 &&
        h(
          "details",
          {},
          h("summary", {}, `Other translations (${ranked.length})`),
          h(
            "ol",
            {},
            ranked.map((one) =>
              h(
                "li",
                {},
                button(word(one.text), () => take(one), { title: "Take this translation" }),
                h("span", { class: "number" }, one.score.toFixed(2)),
              ),
            ),
          ),
        ),
    );
  }
}

/** The chosen layer, where it connects target and source; else the default. */
const sourceLayer = (trace) => (trace.module(state.get("layer"))?.leading ? state.get("layer") : null);

/** A word inside a sentence; punctuation in quotes, since it would be taken for that of the sentence. */
const mentioned = (text) => (/[\p{L}\p{N}]/u.test(text) ? word(text) : ["\u201c", word(text), "\u201d"]);

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    notify(`${what} is copied`);
  } catch {
    notify("This browser does not allow copying here");
  }
}

/** The target in words, without special tokens: the rows of a table without shift. */
function targetWords(trace) {
  const tokens = trace.target.tokens;
  const { rows } = tableOf(trace, { shift: 0 });
  const label = ({ tokens: own }) => ({ start: tokens[own[0]].start, end: tokens[own.at(-1)].end });
  return rows.map((row) => ({ ...row, ...label(row) }));
}

/** The text between two words: a space, or nothing in scripts without spaces; or a no-break space of one of them. */
function gap(trace, words, number) {
  const { end } = words[number - 1],
    { start } = words[number],
    text = [...trace.target.text];
  if (start > end) return " ";
  return /\s/.test(text[end - 1]) || /\s/.test(text[start]) ? "\u00a0" : "";
}

customElements.define("regard-translate", Translate);
