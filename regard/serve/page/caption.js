// Captions: drop, choose or paste a picture, or use a drawn one; and the caption that the model writes.

import { announce, button, h, put, renew, select, visible, word } from "./dom.js";
import { fileBox } from "./files.js";
import { describeMap } from "./maps.js";
import { percent } from "./maths.js";
import { describe, describes, drawExample, open } from "./pictures.js";
import { requests } from "./requests.js";
import { choose, model } from "./session.js";
import { state } from "./state.js";
import { tableOf } from "./trace.js";

const KINDS = "image/jpeg,image/png,image/webp";

class CaptionFront extends HTMLElement {
  connectedCallback() {
    this.models = h("div", { class: "pair" });
    this.file = fileBox((file) => this.take(file), { accept: KINDS });
    this.given = h("div", { class: "given" });
    this.actions = h("div", { class: "row" });
    this.output = h("div", { class: "translation", "aria-live": "polite", "aria-atomic": "true" });
    this.note = h("p", { class: "note" });
    this.best = h("div", { class: "nbest" });
    put(
      this,
      this.models,
      h(
        "div",
        { class: "panes" },
        h("section", { class: "pane drop", "aria-label": "Picture" }, this.given, this.actions, this.file),
        h("section", { class: "pane target", "aria-label": "Caption" }, this.output, this.note, this.best),
      ),
    );
    state.on(["models", "model"], () => this.showModels());
    state.on(["trace", "picture", "busy", "error", "models", "model"], () => this.show());
    state.on(["t", "preview"], () => this.mark());
    state.on(["model", "models"], () => describes() && put(document.querySelector(".request"), requests()));
    this.receive();
  }

  /** A picture may be dropped anywhere on the page, and pasted. */
  receive() {
    const over = (on) => this.classList.toggle("over", on);
    const listen = (name, act) => document.addEventListener(name, (event) => describes() && act(event));
    listen("dragover", (event) => {
      event.preventDefault();
      over(true);
    });
    listen("dragleave", (event) => event.relatedTarget === null && over(false));
    listen("drop", (event) => {
      event.preventDefault(); // else the browser would leave the page for the file
      over(false);
      this.take(event.dataTransfer.files[0]);
    });
    listen("paste", (event) => this.take(event.clipboardData.files[0]));
  }

  take(file) {
    if (!file) return;
    state.set({ t: null, s: null });
    describe(file, { name: file.name });
  }

  showModels() {
    const captioners = state.get("models").filter((one) => one.kind === "caption");
    const names = captioners.map((one) => ({ value: one.id, text: one.id }));
    const change = (id) => {
      choose(captioners.find((one) => one.id === id));
      state.set({ picture: null });
      open();
    };
    renew(this.models, captioners.length > 1 && select("Model", names, state.get("model"), change));
  }

  show() {
    const { trace, picture, busy, error } = state.values;
    if (!describes()) return;
    this.classList.toggle("busy", busy);
    this.showPicture(picture, trace);
    if (error) put(this.output, h("p", { class: "error", role: "alert" }, error));
    else if (!trace?.plain.image)
      put(this.output, h("p", { class: "sentence empty" }, busy ? "\u2026" : "The caption appears here."));
    else this.showWords(trace);
    const known = !error && trace?.plain.image && picture;
    put(this.note, known && picture.right && this.judge(trace, picture));
    put(this.best, known && this.others(picture));
  }

  showPicture(picture, trace) {
    const alt = `The picture. Its caption: ${trace?.target.text ?? ""}`;
    const name = picture?.name && h("p", { class: "small name" }, word(picture.name));
    put(
      this.given,
      picture?.square
        ? h("img", { src: picture.square, alt, class: picture.side < 128 ? "pixels" : null })
        : h("p", { class: "empty" }, "Drop a picture here, choose one, or paste one."),
      name,
    );
    const again = picture && picture.example !== null;
    const draw = () => {
      state.set({ t: null, s: null });
      drawExample(again ? (picture.example + 1) % 1_000_000 : 0);
    };
    renew(
      this.actions,
      button("Choose a picture", () => this.file.click(), { class: "strong" }),
      model().drawn && button(again ? "Draw another" : "Draw an example", draw),
      h("span", { class: "small" }, "JPEG, PNG or WebP; dropping and pasting work too."),
    );
  }

  showWords(trace) {
    const table = tableOf(trace);
    const words = table.rows.flatMap((_, row) => [this.chip(trace, table, row), " "]);
    const none = "The model wrote nothing.";
    put(this.output, h("p", { class: "sentence spoken", dir: "auto" }, words.length ? words : none));
    this.mark();
  }

  chip(trace, table, row) {
    const label = table.rows[row];
    const t = label.tokens[0];
    const probability = trace.probability(label) ?? 1;
    const look = (on) => () => state.set({ preview: on ? { t } : null });
    return h(
      "button",
      {
        type: "button",
        dir: "auto",
        class: `chip${probability < 0.5 ? " unsure" : ""}`,
        "data-t": t,
        title: `probability ${percent(probability)}: click to see its attention`,
        onpointerenter: look(true),
        onpointerleave: look(false),
        onfocus: look(true),
        onblur: look(false),
        onclick: () => {
          const again = state.get("t") === t;
          state.set({ t: again ? null : t });
          announce(describeMap(trace.maps["words hidden"], again ? -1 : row));
        },
        onkeydown: (event) => this.key(event),
      },
      visible(label.text),
    );
  }

  key(event) {
    const next = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    if (!next) return;
    event.preventDefault();
    event.currentTarget[next]?.focus();
  }

  mark() {
    const { t, preview } = state.values;
    for (const chip of this.output.querySelectorAll(".chip")) {
      const at = Number(chip.dataset.t);
      chip.setAttribute("aria-pressed", String(at === t));
      chip.classList.toggle("active", at === (preview?.t === undefined ? t : preview.t));
    }
  }

  /** A drawn picture has a right caption. */
  judge(trace, picture) {
    if (trace.target.text === picture.right) return "This is right: the picture was drawn from these very words.";
    return ["It was drawn as: ", word(picture.right)];
  }

  others(picture) {
    const rest = picture.nbest.slice(1);
    if (!rest.length) return null;
    const line = (one) => h("li", {}, word(one.text), h("span", { class: "number" }, one.score.toFixed(2)));
    return h("details", {}, h("summary", {}, `Other captions (${rest.length})`), h("ol", {}, rest.map(line)));
  }
}

customElements.define("regard-caption", CaptionFront);
