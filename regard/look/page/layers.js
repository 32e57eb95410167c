// Between attention and the next word of a Transformer: what each part adds to the stream, and what each layer would write.

import { h, word } from "./dom.js";
import { norm, percent, show } from "./maths.js";
import { largest, strip } from "./strips.js";
import { unpack } from "./trace.js";

const line = (name, vector) => [
  h("p", { class: "small" }, name, h("span", { class: "number" }, show(norm(vector)))),
  strip(vector, largest(vector), { label: name, height: 12 }),
];

/** The path of a step through one layer: heads, concatenation, residual stream, feed-forward net, logits. */
export function pathOf(layer, head) {
  const part = (name) => unpack(layer[name]).data;
  return h(
    "div",
    { class: "path" },
    h("b", { class: "small" }, `The path through layer ${layer.layer}`),
    h("p", { class: "small" }, "contexts of all heads, side by side"),
    h(
      "span",
      { class: "heads" },
      layer.heads.map((one, at) => {
        const { data } = unpack(one);
        return h(
          "span",
          { class: at === head ? "on" : null },
          strip(data, largest(data), { label: `context of head ${at}`, height: 12 }),
        );
      }),
    ),
    line("+ attention to itself", part("self")),
    line("+ heads × W: to the source", part("cross")),
    line("+ feed-forward net", part("feed")),
    line("= the residual stream", part("stream")),
  );
}

/** What the model would write if each layer were its last. */
export const lens = (layers) =>
  h(
    "div",
    { class: "lens" },
    h("b", { class: "small" }, "If it ended after layer …"),
    h(
      "ol",
      { start: 0 },
      layers.map(({ lens: [best] }) =>
        h(
          "li",
          {},
          word(best.special ? "end of sentence" : best.text),
          h("span", { class: "number" }, percent(best.probability)),
        ),
      ),
    ),
  );
