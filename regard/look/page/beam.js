// The search: every candidate, which ones were kept, and which translation has the best score.

import { announce, button, field, h, isolate, put, renew, segments, select, svg, toggle, visible, word } from "./dom.js";
import { exporter } from "./export.js";
import { room, wide } from "./grid.js";
import { show } from "./maths.js";
import { host } from "./host.js";
import { state } from "./state.js";
import { csvLines, plainTable } from "./tables.js";
import { clean, described, fate, plainText, ranking, spelled } from "./ranking.js";
import { grow, path, walk } from "./treelayout.js";
import { View } from "./views.js";

const LINE = 30,
  FONT = 13,
  GAPS = [34, 14]; // between a branch and the next: the second where there is less room
const WIDE = 600; // what a drawing needs

const yOf = (one) => 20 + one.y * LINE;
const kind = (one) => `${one.main ? "main" : one.alive ? "alive" : ""}${one.last.pruned ? " pruned" : ""}`;

class BeamView extends View {
  connectedCallback() {
    this.place = h("div", {});
    this.ranks = h("div", {});
    this.begin([this.place, this.ranks], [["trace", "tree", "pruned", "replay", "node"], () => this.show()]);
  }

  get form() {
    return state.get("tree") || (room() < WIDE ? "list" : "drawing");
  }

  show() {
    const trace = state.get("trace"),
      beam = trace?.beam;
    if (!trace) return this.showEmpty("Translate a sentence to see its search.");
    if (!beam)
      return this.showEmpty(
        host.live
          ? "A changed translation has no search tree. Undo the change to see the search."
          : "This trace holds no search tree.",
      );
    const last = beam.nodes.reduce((most, node) => Math.max(most, node.step), 0);
    const tree = grow(beam, { pruned: state.get("pruned"), until: state.get("replay") });
    this.buttons(trace, beam, last);
    const { form } = this;
    renew(
      this.place,
      form === "list" ? this.list(tree) : form === "table" ? this.table(beam) : this.drawing(tree, beam),
    );
    put(
      this.ranks,
      ranking(trace, beam, (node) => host.goOn(this.prefix(node))),
    );
  }

  buttons(trace, beam, last) {
    const at = state.get("replay") ?? last;
    const slider = h("input", {
      type: "range",
      min: 1,
      max: last,
      value: at,
      "aria-valuetext": `after step ${at} of ${last}`,
      oninput: () => state.set({ replay: Number(slider.value) === last ? null : Number(slider.value) }),
    });
    const widths = [1, 2, 3, 5, 8, 12].map((size) => ({ value: size, text: size }));
    const widen = (size) => {
      state.set({ beam: Number(size), replay: null, node: null });
      host.translate();
    };
    const columns = ["id", "parent", "step", "token", "logprob", "total", "score", "finished", "pruned"];
    const csv = () => csvLines([columns, ...beam.nodes.map((node) => columns.map((name) => node[name]))]);
    renew(
      this.controls,
      segments(
        "Form",
        [
          { value: "drawing", text: "Tree" },
          { value: "list", text: "List" },
          { value: "table", text: "Table" },
        ],
        this.form,
        (tree) => state.set({ tree }),
      ),
      host.live && select("Beam", widths, state.get("beam"), widen),
      field("Replay to step", slider, h("output", {}, `${at} / ${last}`)),
      toggle("Pruned candidates", state.get("pruned"), (pruned) => state.set({ pruned })),
    );
    const whole = () => this.drawing(grow(beam, { pruned: state.get("pruned"), until: null }), beam).firstChild;
    this.showLead(
      "Beam search keeps the best few prefixes and extends each by one word, until none can beat the best finished " +
        "sentence. A thick line is a likely word.",
      exporter(
        "beam",
        () => this.place.querySelector("svg") ?? whole(),
        () => ({ trace, csv: csv() }),
      ),
    );
  }

  /** The tree from left to right; words that follow each other without a choice are one label. */
  drawing(tree, beam) {
    const left = 30,
      all = walk(tree.roots),
      on = new Set(state.get("node") === null ? [] : path(beam, state.get("node")).map((node) => node.id));
    for (const { one } of all) {
      one.text = visible(plainText(one.chain.map((node) => node.token)))
        .replace("</s>", " ■")
        .trim();
      one.wide = wide(one.text, FONT, undefined, one.main ? 600 : 400) + 14;
    }
    let width = 0;
    for (const gap of GAPS) {
      for (const { one, parent } of all) one.x = parent ? parent.x + parent.wide + gap : left;
      width = Math.max(...all.map(({ one }) => one.x + one.wide + (one.last.finished ? 70 : 10)));
      if (width <= room()) break;
    }
    const height = tree.lines * LINE + 30;
    return h(
      "div",
      { class: "scroller" },
      svg(
        "svg",
        {
          class: `tree${on.size ? " chosen" : ""}`,
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          tabindex: 0,
          role: "application",
          "aria-label":
            "Search tree: arrow keys move, Enter shows alternatives, typing forces a word, Backspace goes up",
          onkeydown: (event) => this.key(event, tree, beam),
        },
        svg("title", {}, "Search tree"),
        all.map(({ one, parent }) => this.edge(one, parent, tree)),
        svg("circle", { class: "root", cx: 10, cy: yOf(tree.roots[0] ?? { y: 0 }), r: 5 }),
        all.map(({ one }) => this.branch(one, on)),
      ),
    );
  }

  edge(one, parent, tree) {
    const from = parent ? { x: parent.x + parent.wide, y: yOf(parent) } : { x: 10, y: yOf(tree.roots[0]) };
    const to = { x: one.x, y: yOf(one) },
      middle = (from.x + to.x) / 2;
    return svg("path", {
      class: kind(one),
      d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`,
      "stroke-width": (0.8 + 4 * Math.exp(one.first.logprob)).toFixed(2),
      fill: "none",
    });
  }

  branch(one, on) {
    const y = yOf(one);
    return svg(
      "g",
      {
        class: `node ${kind(one)}${on.has(one.last.id) ? " on" : ""}`,
        "data-id": one.last.id,
        onclick: () => this.choose(one.last),
      },
      svg("title", {}, described(one.last, Math.exp(one.last.logprob))),
      svg("rect", { class: "hit", x: one.x, y: y - 12, width: one.wide, height: 24, rx: 6 }),
      svg("text", { x: one.x + 7, y: y + 4.5, "font-size": FONT }, isolate(one.text)),
      one.last.finished &&
        svg(
          "text",
          { class: `score${one.rank === 0 ? " winner" : ""}`, x: one.x + one.wide + 8, y: y + 4, "font-size": 12 },
          `${one.rank + 1}.  ${show(one.last.score)}`,
        ),
    );
  }

  choose(node) {
    const trace = state.get("trace");
    const prefix = path(trace.beam, node.id);
    const same = prefix.every((one, t) => trace.target.tokens[t]?.piece === one.token);
    state.set({ node: node.id, ...(same ? { t: prefix.length - 1 } : {}) });
    announce(`${spelled(prefix)}: log-probability ${show(node.total)}, score ${show(node.score)}`);
  }

  key(event, tree, beam) {
    const all = walk(tree.roots),
      order = all.map(({ one }) => one).sort((a, b) => a.y - b.y || a.x - b.x);
    const node = beam.nodes.find((one) => one.id === state.get("node"));
    const here = node && order.find((one) => one.chain.includes(node));
    const parent = () => all.find(({ one }) => one === here)?.parent;
    // Up and down go through every branch, so that each of them can be reached.
    const next = !here
      ? tree.roots[0]
      : {
          ArrowRight: () => here.branches[0],
          ArrowLeft: parent,
          Backspace: parent,
          ArrowUp: () => order[order.indexOf(here) - 1],
          ArrowDown: () => order[order.indexOf(here) + 1],
        }[event.key]?.();
    if (event.key === "Escape") state.set({ node: null });
    else if (event.key === "Enter" && node && host.live) {
      event.preventDefault();
      const anchor = this.place.querySelector(`[data-id="${node.id}"]`) ?? this.place;
      host.alternatives(anchor, this.prefix(node), null, () => this.place.querySelector("svg")?.focus());
    } else if (/^\p{L}$/u.test(event.key) && node && host.live && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      event.stopPropagation();
      this.force(node, event.key);
    } else if (next && ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Backspace"].includes(event.key)) {
      event.preventDefault();
      this.choose(next.last);
      this.place.querySelector("svg")?.focus();
    }
  }

  /** The pieces up to a node. */
  prefix(node) {
    return path(state.get("trace").beam, node.id)
      .filter((one) => !one.finished)
      .map((one) => one.token);
  }

  /** Show an input for the word after a node, filled with what was typed. */
  force(node, letter) {
    const input = h("input", { value: letter, "aria-label": "Word to write here", size: 16 });
    const form = h(
      "form",
      {
        class: "row force",
        onsubmit: (event) => {
          event.preventDefault();
          if (input.value.trim()) host.goOn(`${plainText(this.prefix(node))} ${input.value.trim()}`.trim());
        },
        onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), this.show()),
      },
      h("span", {}, "After ", word(spelled(path(state.get("trace").beam, node.id))), " write "),
      input,
      h("button", { class: "strong" }, "and continue"),
    );
    put(this.ranks, form);
    input.focus();
  }

  list(tree) {
    const item = (one) =>
      h(
        "li",
        {
          role: "treeitem",
          "aria-expanded": one.branches.length ? "true" : null,
          "aria-selected": String(one.last.id === state.get("node")),
        },
        button(word(spelled(one.chain)), () => this.choose(one.last), {
          class: `quiet${one.main ? " main" : ""}`,
          tabindex: 0,
        }),
        h("span", { class: "small" }, ` ${show(one.last.total)}${fate(one)}`),
        one.branches.length > 0 && h("ul", { role: "group" }, one.branches.map(item)),
      );
    return h("ul", { class: "branches", role: "tree", "aria-label": "Search tree" }, tree.roots.map(item));
  }

  table(beam) {
    return plainTable(
      "Every candidate",
      ["step", "token", "after", "log-probability", "so far", "score", "fate"],
      beam.nodes.map((node) => [
        node.step,
        word(clean(node.token)),
        word(spelled(path(beam, node.parent)) || "\u2013"),
        show(node.logprob),
        show(node.total),
        show(node.score),
        node.finished ? `finished, rank ${beam.ranked.indexOf(node.id) + 1}` : node.pruned ? "not kept" : "went on",
      ]),
    );
  }
}

customElements.define("regard-beam", BeamView);
