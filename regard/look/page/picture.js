// A picture and its caption: the cells that each word attends to, and the words that attend to a cell.

import { announce, field, h, put, renew, select, svg, toggle, word } from "./dom.js";
import { exporter } from "./export.js";
import { cell } from "./grid.js";
import * as maps from "./maps.js";
import { percent, show } from "./maths.js";
import { state } from "./state.js";
import { plainTable, table as weightTable } from "./tables.js";
import { tableOf } from "./trace.js";
import { View } from "./views.js";

const LEAD =
  "For each word that it writes, the model weighs the cells of the picture. Choose a word to see its weights; point at " +
  "a cell to see the weight that each word gives to it.";
const HINT =
  "Point at a cell to see the weight of each word there; or press Enter in the picture and use the arrows.";
const GATE = "the share of the context that the model uses for this word";
const SIZE = 448;
const FRAME = 104;

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

class PictureView extends View {
  connectedCallback() {
    this.place = h("div", {});
    this.inside = false; // whether the arrows move in the grid
    const names = ["trace", "picture", "theme", "words", "special", "tint", "smooth", "rowScale", "listed", "region"];
    this.begin(
      [this.place],
      [names, () => this.show()],
      [["t", "s", "preview"], () => this.mark()],
      [["opacity"], () => this.cover(state.get("opacity"))],
    );
  }

  show() {
    const trace = state.get("trace");
    this.table = null;
    if (!trace?.plain.image) return this.showEmpty("Give the model a picture to see its attention.");
    const { words, special } = state.values;
    this.table = tableOf(trace, { words, special });
    this.texts = trace.maps[`${words ? "words" : "pieces"} ${special ? "shown" : "hidden"}`];
    const { square = "", side = 0 } = state.get("picture") ?? {};
    const { tint, smooth, opacity } = state.values;
    this.paint = { grid: trace.plain.image.grid, square, side, tint, smooth, opacity };
    this.words = maps.measured(this.table, trace, this.paint.grid);
    this.largest = Math.max(1e-9, ...this.table.weights.flat());
    const most = (row) => this.most(row);
    const drawing = () => maps.sheet(this.paint, this.table, this.words, this.pinned().row, most, trace.target.text, this.texts);
    this.showLead(
      LEAD,
      exporter("picture", drawing, () => ({ trace, csv: maps.wordLines(this.table, this.words) })),
    );
    renew(this.controls, this.buttons(trace));
    if (state.get("listed")) put(this.place, this.lists());
    else renew(this.place, this.parts());
    this.mark();
  }

  /** The weight of each cell for a word; row -1 is all words together. */
  values(row) {
    return row < 0 ? maps.coverage(this.table) : this.table.weights[row];
  }

  /** The end of the scale of a word's map: the largest weight of the caption, or its own. */
  most(row) {
    return row < 0 || state.get("rowScale") ? Math.max(1e-9, ...this.values(row)) : this.largest;
  }

  /** The row and the column that are chosen; -1 for none. */
  pinned() {
    return cell(this.table, state.values);
  }

  /** Those that are pointed at, else those that are chosen. */
  marked() {
    const { preview, t, s } = state.values;
    return cell(this.table, { t, s, ...preview });
  }

  buttons(trace) {
    const on = (name, text, title) => toggle(text, state.get(name), (value) => state.set({ [name]: value }), { title });
    const slider = h("input", {
      type: "range",
      min: 0,
      max: 100,
      step: 5,
      value: Math.round(100 * state.get("opacity")),
      oninput: () => this.cover(slider.value / 100),
      onchange: () => state.set({ opacity: slider.value / 100 }),
    });
    return [
      select(
        "Colours",
        maps.tints().map((name) => ({ value: name, text: name })),
        state.get("tint"),
        (tint) => state.set({ tint }),
      ),
      field("Opacity", slider),
      on("smooth", "Smooth for display", "Blend the regions into each other; the model knows the grid alone"),
      on("rowScale", "Scale each word", "Let the colours of each word end at its own largest weight"),
      trace.target.tokens.some((token) => token.special) && on("special", "End of the caption"),
      this.table.rows.some((label) => label.tokens.length > 1) || !state.get("words")
        ? on("words", "Whole words")
        : null,
      on("listed", "Table"),
    ];
  }

  /** The map, what it says, and the film strip. */
  parts() {
    this.drawing = svg("svg", {
      class: "looked-at",
      viewBox: `0 0 ${SIZE} ${SIZE}`,
      width: SIZE,
      height: SIZE,
      tabindex: 0,
      role: "grid",
      "aria-label": "The picture in regions: left and right change the word, Enter goes into the regions",
      "aria-rowcount": this.paint.grid[0],
      "aria-colcount": this.paint.grid[1],
      onkeydown: (event) => this.key(event),
      onpointermove: (event) => state.set({ preview: { s: this.at(event) } }),
      onpointerleave: () => state.set({ preview: null }),
      onclick: (event) => this.pinRegion(this.at(event)),
      onblur: () => (this.inside = false),
    });
    this.layer = svg("g");
    this.frame = svg("rect", { class: "region", "aria-hidden": "true" });
    const over = [maps.lines(this.paint, SIZE), this.spots(), this.frame].filter(Boolean);
    this.drawing.append(maps.background(this.paint, SIZE), this.layer, ...over);
    this.scale = h("div", { class: "scale" });
    this.said = h("p", { class: "said" });
    this.note = h("p", { class: "note" });
    this.asked = h("p", { class: "asked" });
    this.bars = h("ul", { class: `shares${this.words.length > 10 ? " many" : ""}` });
    this.film = h(
      "div",
      {
        class: "film",
        role: "toolbar",
        "aria-label": "Words of the caption",
        onkeydown: (event) => this.filmKey(event),
      },
      [-1, ...this.words.keys()].map((row) => this.shot(row)),
    );
    return [
      h(
        "div",
        { class: "looking" },
        h("figure", {}, this.drawing, this.scale),
        h(
          "section",
          { class: "telling", "aria-label": "What the map says" },
          this.said,
          this.note,
          this.asked,
          this.bars,
        ),
      ),
      this.film,
      h("p", { class: "caption" }, this.caption()),
    ];
  }

  caption() {
    const [rows, columns] = this.paint.grid;
    const drawn = this.paint.smooth ? ", smoothed for display" : ", the true grid";
    return `${sentence(this.table.caption)}; ${rows} \u00d7 ${columns} cells${drawn}.`;
  }

  /** The cells as a reader of the screen meets them. */
  spots() {
    const [rows, columns] = this.paint.grid;
    return svg(
      "g",
      { role: "rowgroup" },
      Array.from({ length: rows }, (_, y) =>
        svg(
          "g",
          { role: "row" },
          Array.from({ length: columns }, (_, x) =>
            svg("rect", {
              ...this.box(y * columns + x),
              class: "spot",
              role: "gridcell",
              id: `region-${y * columns + x}`,
              "aria-label": this.texts.cells[y * columns + x],
            }),
          ),
        ),
      ),
    );
  }

  /** The place of a region in the drawing, smaller by an edge on each side. */
  box(at, edge = 0) {
    const [rows, columns] = this.paint.grid;
    const [width, height] = [SIZE / columns, SIZE / rows];
    return {
      x: (at % columns) * width + edge,
      y: Math.floor(at / columns) * height + edge,
      width: width - 2 * edge,
      height: height - 2 * edge,
    };
  }

  /** The place of a rectangle of cells, the last ones included. */
  span([top, left, bottom, right]) {
    const [rows, columns] = this.paint.grid;
    const [width, height] = [SIZE / columns, SIZE / rows];
    const size = { width: (right - left + 1) * width - 4, height: (bottom - top + 1) * height - 4 };
    return { x: left * width + 2, y: top * height + 2, ...size };
  }

  at(event) {
    const [rows, columns] = this.paint.grid,
      place = this.drawing.getBoundingClientRect();
    const part = (offset, whole, count) => Math.max(0, Math.min(count - 1, Math.floor((offset / whole) * count)));
    const row = part(event.clientY - place.top, place.height, rows);
    return row * columns + part(event.clientX - place.left, place.width, columns);
  }

  /** A frame of the film strip: a word, or with row -1 all of them together. */
  shot(row) {
    const one = this.words[row];
    const t = one ? one.label.tokens[0] : null;
    const sure = one && one.probability !== null && h("span", { class: "small" }, percent(one.probability));
    return h(
      "button",
      {
        type: "button",
        class: "shot",
        tabindex: -1,
        "data-row": row,
        "aria-label": `${maps.describeMap(this.texts, row)}${gateText(one)}`,
        onclick: () => this.choose(row),
        onpointerenter: () => state.set({ preview: { t } }),
        onpointerleave: () => state.set({ preview: null }),
      },
      svg(
        "svg",
        { viewBox: `0 0 ${FRAME} ${FRAME}`, width: FRAME, height: FRAME, "aria-hidden": "true" },
        maps.background(this.paint, FRAME),
        maps.map(this.paint, this.values(row), this.most(row), FRAME),
      ),
      one ? word(one.label.text, { class: style("name", one) }) : h("span", { class: "name" }, "All words"),
      one ? h("span", { class: "row" }, sure, gateBar(one)) : h("span", { class: "small" }, "coverage"),
    );
  }

  /** Show what is chosen or pointed at; only the map, its words and the bars are built again. */
  mark() {
    if (!this.table || state.get("listed") || !this.drawing) return;
    const { row, column } = this.marked(),
      pinned = this.pinned();
    put(this.layer, maps.map(this.paint, this.values(row), this.most(row), SIZE));
    put(this.scale, maps.legend(this.paint, this.most(row), row < 0 ? "sum of weights" : "weight"));
    put(this.said, maps.describeMap(this.texts, row));
    const gate = this.words[row]?.gate ?? null;
    put(this.note, gate !== null && `Gate \u03b2 ${show(gate)}: ${GATE}.`);
    this.film.querySelectorAll(".shot").forEach((button) => {
      const at = Number(button.dataset.row);
      button.setAttribute("aria-pressed", String(at === pinned.row));
      button.tabIndex = at === pinned.row ? 0 : -1;
      button.classList.toggle("active", at === row);
    });
    this.drawing.classList.toggle("inside", this.inside);
    this.drawing[column < 0 ? "removeAttribute" : "setAttribute"]("aria-activedescendant", `region-${column}`);
    const region = column < 0 ? state.get("region") : null;
    this.frame.classList.toggle("shown", column >= 0 || region !== null);
    const box = region ? this.span(region.corners) : column >= 0 ? this.box(column, 2) : {};
    for (const [name, value] of Object.entries(box)) this.frame.setAttribute(name, value);
    this.showBars(column, region);
  }

  /** The reverse: the weight that each word gives to a cell or to the opened region. */
  showBars(column, region) {
    const sentence = region ? region.sentence : this.texts.cells[column];
    put(this.asked, sentence ? h("b", {}, sentence) : HINT);
    const share = (one, at) => (region ? (region.shares[at] ?? 0) : one.values[column]);
    put(
      this.bars,
      (column >= 0 || region !== null) &&
        this.words.map((one, at) =>
          h(
            "li",
            {},
            word(one.label.text, { class: style("", one) }),
            h("span", { class: "bar", style: { "--share": Math.min(1, share(one, at) / (region ? 1 : this.largest)).toFixed(4) } }),
            h("span", { class: "number" }, show(share(one, at))),
          ),
        ),
    );
  }

  cover(opacity) {
    if (!this.paint) return;
    this.paint.opacity = opacity;
    for (const layer of this.querySelectorAll(".map")) layer.setAttribute("opacity", opacity);
  }

  choose(row) {
    state.set({ t: row < 0 ? null : this.table.rows[row].tokens[0], preview: null });
    announce(maps.describeMap(this.texts, row) + gateText(this.words[row]));
  }

  pinRegion(s) {
    state.set({ s, preview: null });
    announce(this.texts.cells[s]);
  }

  /** The word `by` further on; before the first are all words together. */
  step(by) {
    const row = Math.max(-1, Math.min(this.words.length - 1, this.pinned().row + by));
    this.choose(row);
    return row;
  }

  key(event) {
    const { row, column } = this.pinned();
    if (!this.inside) {
      const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (by !== undefined) this.step(by);
      else if (event.key === "Enter") {
        const values = this.values(row);
        this.inside = true;
        this.pinRegion(column < 0 ? values.indexOf(Math.max(...values)) : column);
        this.mark();
      } else return;
      event.preventDefault();
      return;
    }
    const [rows, columns] = this.paint.grid,
      [y, x] = [Math.floor(column / columns), column % columns];
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      const next = [Math.max(0, Math.min(rows - 1, y + down)), Math.max(0, Math.min(columns - 1, x + right))];
      this.pinRegion(next[0] * columns + next[1]);
    } else if (event.key === "Escape" || event.key === "Enter") {
      this.inside = false;
      state.set({ s: null });
      announce("out of the regions: left and right change the word");
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  filmKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const row = this.step(by);
    this.film.querySelector(`[data-row="${row}"]`).focus();
  }

  /** The same as tables: a line for each word, and every weight. */
  lists() {
    const gates = this.words.some((one) => one.gate !== null);
    const gate = gates ? ["gate \u03b2"] : [];
    const head = ["word", "probability", ...gate, "strongest region", "its weight", "top five"];
    const body = this.words.map((one) => [
      word(one.label.text),
      one.probability === null ? "\u2013" : percent(one.probability),
      ...(gates ? [one.gate === null ? "\u2013" : show(one.gate)] : []),
      one.where,
      show(one.values[one.best], 3),
      show(one.top, 3),
    ]);
    return [
      h("p", { class: "said" }, maps.describeMap(this.texts, -1)),
      plainTable("Words of the caption", head, body),
      h("h3", { class: "apart" }, "Every weight"),
      weightTable(this.table).element,
      h("p", { class: "caption" }, this.caption()),
    ];
  }
}

const style = (name, one) => `${name}${one.label.special ? " special" : ""}`;

const gateText = (one) => (one && one.gate !== null ? ` Gate ${show(one.gate)}.` : "");

const gateBar = (one) =>
  one.gate !== null &&
  h(
    "span",
    { class: "gate", title: `gate \u03b2 ${show(one.gate)}: ${GATE}` },
    h("span", { class: "small" }, `\u03b2 ${show(one.gate)}`),
    h("span", { class: "bar", style: { "--share": one.gate.toFixed(4) } }),
  );

customElements.define("regard-picture", PictureView);
