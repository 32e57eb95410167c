// The search: every candidate, which ones were kept, and which translation has the best score.

import { announce, h, put, renew, segments, svg, toggle, word } from "./dom.js";
import { exporter } from "./export.js";
import { wide } from "./grid.js";
import { show } from "./maths.js";
import { host } from "./host.js";
import { state } from "./state.js";
import { plainTable } from "./tables.js";
import { clean, described, fate, plainText, ranking, spelled } from "./ranking.js";
import { grow, path, walk } from "./treelayout.js";

const LINE = 30,
  FONT = 13;
class BeamView extends HTMLElement {
  connectedCallback() {
    this.lead = h("div", { class: "headline" });
    this.controls = h("div", { class: "controls" });
    this.place = h("div", {});
    this.ranks = h("div", {});
    put(this, this.lead, this.controls, this.place, this.ranks);
    this.ends = [state.on(["trace", "tree", "pruned", "replay", "node"], () => this.show())];
    this.show();
  }

  disconnectedCallback() {
    for (const end of this.ends) end();
  }

  show() {
    const trace = state.get("trace"),
      beam = trace?.beam;
    if (!beam) {
      put(this.lead);
      put(this.controls);
      put(this.ranks);
      put(
        this.place,
        h(
          "p",
          { class: "empty" },
          trace
            ? host.live
              ? "A changed translation has no search tree. Undo the change to see the search."
              : "This trace holds no search tree."
            : "Translate a sentence to see its search.",
        ),
      );
      return;
    }
    const last = beam.nodes.reduce((most, node) => Math.max(most, node.step), 0);
    const tree = grow(beam, { pruned: state.get("pruned"), until: state.get("replay") });
    this.buttons(trace, beam, last);
    const form = state.get("tree");
    renew(
      this.place,
      form === "list" ? this.list(tree, beam) : form === "table" ? this.table(beam) : this.drawing(tree, beam, trace),
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
    const width = h(
      "select",
      {
        onchange: () => {
          state.set({ beam: Number(width.value), replay: null, node: null });
          host.translate();
        },
      },
      [1, 2, 3, 5, 8, 12].map((size) => h("option", { value: size, selected: size === state.get("beam") }, size)),
    );
    const lines = () => [
      "id,parent,step,token,logprob,total,score,finished,pruned",
      ...beam.nodes.map((node) =>
        [
          node.id,
          node.parent ?? "",
          node.step,
          JSON.stringify(node.token),
          node.logprob,
          node.total,
          node.score,
          node.finished,
          node.pruned,
        ].join(","),
      ),
    ];
    renew(
      this.controls,
      segments(
        "Form",
        [
          { value: "drawing", text: "Tree" },
          { value: "list", text: "List" },
          { value: "table", text: "Table" },
        ],
        state.get("tree"),
        (tree) => state.set({ tree }),
      ),
      host.live && h("label", { class: "field" }, h("span", {}, "Beam"), width),
      h("label", { class: "field" }, h("span", {}, "Replay to step"), slider, h("output", {}, `${at} / ${last}`)),
      toggle("Pruned candidates", state.get("pruned"), (pruned) => state.set({ pruned })),
    );
    put(
      this.lead,
      h(
        "p",
        { class: "lead" },
        "Beam search keeps the best few prefixes and extends each by one word, until none can beat the best finished " +
          "sentence. A thick line is a likely word.",
      ),
      exporter(
        "beam",
        () =>
          this.place.querySelector("svg") ??
          this.drawing(grow(beam, { pruned: state.get("pruned"), until: null }), beam, trace).firstChild,
        () => ({ trace, csv: lines().join("\r\n") }),
      ),
    );
  }

  drawing(tree, beam, trace) {
    const all = walk(tree.roots);
    const widths = Array.from({ length: tree.steps + 1 }, () => 40);
    for (const { one } of all)
      one.chain.forEach(
        (node) => (widths[node.step] = Math.max(widths[node.step], wide(clean(node.token), FONT) + 46)),
      );
    const x = widths.reduce((ends, width) => [...ends, ends.at(-1) + width], [0]); // x[step] is where the step begins
    const left = 44,
      width = left + x.at(-1) + 90,
      height = tree.lines * LINE + 44;
    const chosen = state.get("node");
    const on = new Set(chosen === null ? [] : path(beam, chosen).map((node) => node.id));
    const drawing = svg(
      "svg",
      {
        class: `tree${on.size ? " chosen" : ""}`,
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        tabindex: 0,
        role: "application",
        "aria-label": "Search tree: arrow keys move, Enter shows alternatives, typing forces a word, Backspace goes up",
        onkeydown: (event) => this.key(event, tree, beam, trace),
      },
      svg("title", {}, "Search tree"),
      Array.from({ length: tree.steps }, (_, step) =>
        svg("text", { class: "axis", x: left + x[step + 1] + 4, y: 14, "font-size": 11 }, step + 1),
      ),
      svg("circle", { class: "root", cx: left - 10, cy: 40, r: 4 }),
    );
    for (const { one, parent } of all) {
      let from = parent
        ? { x: left + x[parent.last.step] + wide(clean(parent.last.token), FONT) + 14, y: 40 + parent.y * LINE }
        : { x: left - 10, y: 40 };
      one.chain.forEach((node, number) => {
        const at = { x: left + x[node.step], y: 40 + one.y * LINE };
        const share = Math.exp(node.logprob);
        drawing.append(this.node(node, one, from, at, { share, on: on.has(node.id), bend: number === 0 }));
        from = { x: at.x + wide(clean(node.token), FONT) + 14, y: at.y };
      });
      if (one.last.finished)
        drawing.append(
          svg(
            "text",
            { class: `score${one.rank === 0 ? " winner" : ""}`, x: from.x + 14, y: from.y + 4, "font-size": 12 },
            `${one.rank + 1}.  ${show(one.last.score)}`,
          ),
        );
    }
    return h("div", { class: "scroller" }, drawing);
  }

  node(node, one, from, at, { share, on, bend }) {
    const middle = (from.x + at.x) / 2;
    const line =
      bend && from.y !== at.y
        ? `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${at.y} ${at.x} ${at.y}`
        : `M${from.x} ${from.y}L${at.x} ${at.y}`;
    return svg(
      "g",
      {
        class: `node${one.main ? " main" : one.alive ? " alive" : ""}${node.pruned ? " pruned" : ""}${on ? " on" : ""}`,
        onclick: () => this.choose(node),
      },
      svg("title", {}, described(node, share)),
      svg("path", { d: line, "stroke-width": (0.8 + 4 * share).toFixed(2), fill: "none" }),
      svg("rect", {
        class: "hit",
        x: at.x,
        y: at.y - 11,
        width: wide(clean(node.token), FONT) + 12,
        height: 22,
        rx: 6,
      }),
      svg("text", { x: at.x + 6, y: at.y + 4.5, "font-size": FONT }, `\u2068${clean(node.token)}\u2069`),
    );
  }

  choose(node) {
    const trace = state.get("trace");
    const prefix = path(trace.beam, node.id);
    const same = prefix.every((one, t) => trace.target.tokens[t]?.piece === one.token);
    state.set({ node: node.id, ...(same ? { t: prefix.length - 1 } : {}) });
    announce(`${spelled(prefix)}: log-probability ${show(node.total)}, score ${show(node.score)}`);
  }

  key(event, tree, beam, trace) {
    const order = walk(tree.roots).flatMap(({ one }) => one.chain);
    const node = beam.nodes.find((one) => one.id === state.get("node"));
    const children = (id) => order.filter((one) => one.parent === id);
    const line = (one) => walk(tree.roots).find((each) => each.one.chain.includes(one))?.one.y ?? 0;
    const level = (one) => order.filter((each) => each.step === one.step).sort((a, b) => line(a) - line(b));
    const beside = (by) => {
      const row = level(node);
      return row[row.indexOf(node) + by];
    };
    const parent = () => order.find((one) => one.id === node.parent);
    const next = !node
      ? order[0]
      : {
          ArrowRight: () => children(node.id)[0],
          ArrowLeft: parent,
          Backspace: parent,
          ArrowUp: () => beside(-1),
          ArrowDown: () => beside(1),
        }[event.key]?.();
    if (event.key === "Escape") state.set({ node: null });
    else if (event.key === "Enter" && node && host.live) {
      event.preventDefault();
      const anchor = this.place.querySelector("svg .on:last-of-type") ?? this.place;
      host.alternatives(anchor, this.prefix(node), null, () => this.place.querySelector("svg")?.focus());
    } else if (
      /^\p{L}$/u.test(event.key) &&
      node &&
      host.live &&
      !event.ctrlKey &&
      !event.metaKey &&
      !event.altKey
    ) {
      event.preventDefault();
      event.stopPropagation();
      this.force(node, event.key);
    } else if (next && ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Backspace"].includes(event.key)) {
      event.preventDefault();
      this.choose(next);
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

  list(tree, beam) {
    const item = (one) =>
      h(
        "li",
        {
          role: "treeitem",
          "aria-expanded": one.branches.length ? "true" : null,
          "aria-selected": String(one.last.id === state.get("node")),
        },
        h(
          "button",
          {
            type: "button",
            class: `quiet${one.main ? " main" : ""}`,
            tabindex: 0,
            onclick: () => this.choose(one.last),
          },
          word(one.chain.map((node) => clean(node.token)).join(" ")),
        ),
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
        word(
          path(beam, node.parent)
            .map((one) => clean(one.token))
            .join(" ") || "\u2013",
        ),
        show(node.logprob),
        show(node.total),
        show(node.score),
        node.finished ? `finished, rank ${beam.ranked.indexOf(node.id) + 1}` : node.pruned ? "not kept" : "went on",
      ]),
    );
  }
}

customElements.define("regard-beam", BeamView);
