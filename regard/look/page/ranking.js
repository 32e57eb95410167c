// What the search found, in words: the fate of a branch, the finished translations, and where greedy search parts.

import { button, h, visible, word } from "./dom.js";
import { host } from "./host.js";
import { percent, show } from "./maths.js";
import { state } from "./state.js";
import { plainTable } from "./tables.js";
import { path } from "./treelayout.js";

/** A piece as a reader sees it. */
export const clean = (piece) => visible(piece.replaceAll("\u2581", " ").trim() || piece).replace("</s>", "\u25a0");

/** Pieces as text: the marks of subword vocabularies become spaces. */
export const plainText = (pieces) =>
  (pieces.some((piece) => piece.includes("\u2581"))
    ? pieces.join("").replaceAll("\u2581", " ")
    : pieces.join(" ")
  ).trim();
/** A path as a reader sees it. */
export const spelled = (nodes) => nodes.map((one) => clean(one.token)).join(" ");
/** Everything about a node. */
export const described = (node, share) =>
  `${clean(node.token)}: probability ${percent(share)}, log-probability ${show(node.logprob)}, ` +
  `so far ${show(node.total)}, score ${show(node.score)}${node.pruned ? ", not kept" : ""}`;

/** What became of a branch. */
export function fate(one) {
  if (one.last.finished) return `, rank ${one.rank + 1}, score ${show(one.last.score)}`;
  return one.last.pruned ? ", not kept" : "";
}

/**
 * The finished translations, what is chosen in the tree, and how greedy search would have done.
 * @param {object} trace @param {object} beam @param {(node: object) => void} goOn
 */
export function ranking(trace, beam, goOn) {
  const node = beam.nodes.find((one) => one.id === state.get("node"));
  return [
    node &&
      host.live &&
      h(
        "p",
        { class: "row" },
        h("span", {}, "Chosen: ", word(spelled(path(beam, node.id)))),
        button("Continue from here", () => goOn(node)),
      ),
    trace.translations.length > 0 && finished(trace, beam),
    greedy(beam),
  ];
}

function finished(trace, beam) {
  const head = ["rank", "translation", "tokens", "log-probability", "length penalty", "score"];
  const rows = trace.translations.map((one, rank) => {
    const length = path(beam, one.node).length;
    return [rank + 1, word(one.text), length, show(one.logprob), show(one.logprob / one.score, 3), show(one.score)];
  });
  const why = "score = log-probability / length penalty. Without the penalty, short translations would always win.";
  return h(
    "section",
    { class: "card ranking" },
    h("h2", {}, "Finished translations"),
    plainTable("Finished translations, best first", head, rows),
    h("p", { class: "caption" }, why),
  );
}

/** Where the likeliest next word, taken each time, would have led elsewhere. */
function greedy(beam) {
  const best = path(beam, beam.ranked[0]);
  if (!best.length) return null;
  const rival = (node) => (one) => one.parent === node.parent && one.step === node.step && one.logprob > node.logprob;
  const parts = best.findIndex((node) => beam.nodes.some(rival(node)));
  const same = "Greedy search, which always takes the likeliest next word, would have found the same translation.";
  return h(
    "p",
    { class: "note" },
    parts < 0
      ? same
      : [
          `Greedy search would have parted at step ${parts + 1}: there the likeliest word was not `,
          h("b", {}, word(clean(best[parts].token))),
          ", but the sentence that begins with it is better.",
        ],
  );
}
