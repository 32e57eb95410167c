// What the page draws of a trace, as regard/look/html.py computes it for the server's page: pieces merged into words,
// captions, measures of heads. The wordings come from there, as constants.js; tests compare the two on the same traces.

import constants from "./constants.js";
import { inRanges, isDigit, isSpace, points } from "./text.js";

const { kinds: KINDS, texts, precise: PRECISE, equal: EQUAL } = constants.drawn;

/** An array as a trace stores it. @param {number[]} shape @param {ArrayLike<number>} values */
export function store(shape, values) {
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return { shape, dtype: "float32", base64: btoa(text) };
}

const round = (value, digits) => Math.round(value * 10 ** digits) / 10 ** digits;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (count) => [...Array(count).keys()];

/** The tree of a trace with everything that the page draws of it under "views". Weights are [H][T][S] until then. */
export function pageTree(trace) {
  const modules = Object.values(trace.attention);
  const views = viewsOf(trace, modules);
  const attention = Object.fromEntries(
    modules.map(({ method, query_vectors, context_vectors, step_values, ...seen }) => {
      const [H, T] = [seen.weights.length, seen.weights[0].length],
        shape = [H, T, seen.weights[0][0]?.length ?? 0];
      const flat = (rows) => rows.flat(2);
      return [
        seen.name,
        {
          ...seen,
          weights: store(shape, flat(seen.weights)),
          scores: seen.scores && store(shape, flat(seen.scores)),
          context_norms: seen.context_norms && store([H, T], seen.context_norms.flat()),
          centre: seen.centre ? store([T], seen.centre) : null,
          shape,
        },
      ];
    }),
  );
  const steps = modules.flatMap((seen) =>
    range(seen.weights[0].length).flatMap((t) => {
      const query = seen.query_vectors?.[t] ?? [],
        context = seen.context_vectors?.[t] ?? [];
      const norms = Object.fromEntries(Object.entries(seen.step_values ?? {}).map(([name, values]) => [name, values[t]]));
      return query.length || context.length || Object.keys(norms).length
        ? [{ t, name: seen.name, query, context, norms }]
        : [];
    }),
  );
  const tree = { trace: 1, ...trace, attention, steps, views };
  for (const name of ["steps", "beam", "changes", "notes"]) if (!tree[name]?.length && !tree[name]?.nodes) delete tree[name];
  return tree;
}

function viewsOf(trace, modules) {
  const leading = leadingModules(modules);
  const large = sum(modules.map((seen) => seen.weights.flat(2).length)) > PRECISE;
  const shown = large ? leading : [...leading, ...modules.filter((seen) => !leading.includes(seen))];
  const rows = new Set(),
    columns = new Set();
  for (const one of trace.changes) {
    if (Number.isInteger(one.row)) rows.add(one.row);
    for (const row of one.rows ?? []) rows.add(row);
    if (Number.isInteger(one.column)) columns.add(one.column);
  }
  const ordered = (set) => [...set].sort((a, b) => a - b);
  return {
    modules: shown.map((seen) => ({
      name: seen.name,
      method: seen.method,
      leading: leading.includes(seen),
      heads: headWords(seen),
      step_head: stepHead(trace, modules, seen),
      combined: combined(seen) && store([2, seen.weights[0].length, seen.weights[0][0].length], combined(seen).flat(2)),
      measures: seen.weights.map((weights) => measure(trace, seen, weights)),
      words: tables(trace, modules, seen, true),
      pieces: tables(trace, modules, seen, false),
    })),
    summaries: texts.summaries,
    default: leading.length ? choose(modules).name : null,
    step: leading.length ? stepModule(trace, modules).name : null,
    shifted: texts.shifted,
    aligning: leading.filter((seen) => seen.aligning !== null).map((seen) => ({ head: seen.aligning }))[0] ?? null,
    changed: { rows: ordered(rows), columns: ordered(columns) },
    right_to_left: rightToLeft(trace.target.tokens.map((token) => token.text)),
    maps: null,
    ramps: constants.drawn.ramps,
  };
}

// --- modules and heads

function leadingModules(modules) {
  for (const kind of ["cross", "image", "fixed", "decoder", "encoder", "pool", "attribution"]) {
    const found = modules.filter((seen) => seen.kind === kind);
    if (found.length) return found.sort((a, b) => a.layer - b.layer);
  }
  return [];
}

/** The module that is drawn by default. */
function choose(modules) {
  const leading = leadingModules(modules);
  return leading.find((seen) => seen.aligning !== null) ?? leading.at(-2) ?? leading[0];
}

const shiftOf = (seen, head) => (seen.shifted_heads.includes(head) ? 1 : seen.shift);

const headWords = ({ weights: { length } }) =>
  length === 1
    ? [""]
    : [...range(length).map((head) => `head ${head}`), `mean of ${length} heads`, `largest of ${length} heads`];

/** The mean of the heads and the largest of them; a single head needs neither. */
function combined({ weights }) {
  if (weights.length === 1) return null;
  const each = (act) => weights[0].map((row, t) => row.map((_, s) => act(weights.map((head) => head[t][s]))));
  return [each((values) => sum(values) / values.length), each((values) => Math.max(...values))];
}

/** For each head of a module: the mean weight of its rows on the column that each belongs to. */
function onLinks(trace, modules, seen) {
  const guide = seen.kind === leadingModules(modules)[0].kind ? choose(modules) : seen;
  const mean = guide.aligning === null || guide.aligning === "mean";
  const aligned = mean ? (combined(guide)?.[0] ?? guide.weights[0]) : guide.weights[guide.aligning];
  const shift = shiftOf(guide, guide.aligning);
  const plain = (side) => [...tokensOf(trace, side).entries()].filter(([, token]) => !token.special).map(([at]) => at);
  const [down, across] = KINDS[seen.kind].map(plain);
  const rows = down.slice(0, Math.max(0, aligned.length - shift));
  if (!rows.length || !across.length) return seen.weights.map(() => 0);
  const linked = rows.map((t) => {
    const most = Math.max(...across.map((s) => aligned[t + shift][s]));
    return across.find((s) => aligned[t + shift][s] >= most - EQUAL);
  });
  return seen.weights.map((weights) => sum(rows.map((t, at) => weights[t][linked[at]])) / rows.length);
}

/** Which of some {shift, weight} has no shift and the largest weight; of weights equal up to rounding, the first. */
export function firstBest(rated) {
  const least = Math.min(...rated.map(({ shift }) => shift)),
    most = Math.max(...rated.filter(({ shift }) => shift === least).map(({ weight }) => weight));
  return rated.findIndex(({ shift, weight }) => shift === least && weight >= most - EQUAL);
}

/** The head of a module to go through step by step. */
function stepHead(trace, modules, seen) {
  if (Number.isInteger(seen.aligning) && !shiftOf(seen, seen.aligning)) return seen.aligning;
  return firstBest(onLinks(trace, modules, seen).map((weight, head) => ({ shift: shiftOf(seen, head), weight })));
}

/** The module to go through step by step. */
function stepModule(trace, modules) {
  const first = choose(modules);
  if (first.aligning === null || !shiftOf(first, first.aligning)) return first;
  const leading = leadingModules(modules);
  const rated = leading.map((seen) => {
    const head = stepHead(trace, modules, seen);
    return { shift: shiftOf(seen, head), weight: onLinks(trace, modules, seen)[head] };
  });
  return leading[firstBest(rated)];
}

function measure(trace, seen, weights) {
  const special = tokensOf(trace, KINDS[seen.kind][1]).map((token) => token.special);
  const T = weights.length,
    S = special.length;
  let entropy = 0,
    away = 0,
    total = 0,
    mass = 0;
  for (const [t, row] of weights.entries())
    for (const [s, weight] of row.entries()) {
      if (weight > 0) entropy -= weight * Math.log(weight);
      away += weight * Math.abs(s / Math.max(1, S - 1) - t / Math.max(1, T - 1));
      total += weight;
      if (special[s]) mass += weight;
    }
  return {
    entropy: round(T ? entropy / T : 0, 6),
    diagonality: round(total > 0 ? 1 - away / total : 0, 6),
    special: round(T ? mass / T : 0, 6),
  };
}

// --- tables

const SUMMARY = { text: "(the whole sentence)", piece: "", start: 0, end: 0, special: false, word: null };

/** The tokens along one side of a module. */
function tokensOf({ source, target }, side) {
  if (side === "source") return source.tokens;
  if (side === "target") return target.tokens;
  if (side !== "read") return [SUMMARY];
  const start = { text: "<s>", piece: "<s>", start: 0, end: 0, special: true };
  return [start, ...target.tokens.slice(0, -1)].slice(0, target.tokens.length);
}

function tables(trace, modules, seen, words) {
  const found = [];
  for (const shift of seen.kind === "cross" ? [0, 1] : [0]) {
    const [down, across] = KINDS[seen.kind];
    const text = (side) => ({ source: trace.source, target: trace.target, read: trace.target })[side]?.text ?? "";
    const kept = tokensOf(trace, down),
      rows = labels(text(down), kept.slice(0, kept.length - shift), words),
      columns = labels(text(across), tokensOf(trace, across), words);
    if (words && ![...rows, ...columns].some(({ tokens }) => tokens.length > 1)) return null;
    const stacked = [...seen.weights, ...(combined(seen) ?? [])].map((weights) => weights.slice(shift));
    const merged = words ? stacked.map((weights) => merge(weights, rows, columns)) : stacked;
    const about = { rows, columns, words, shift };
    found.push({
      rows: rows.map(plain),
      columns: columns.map(plain),
      weights: words ? store([merged.length, rows.length, columns.length], merged.flat(2)) : null,
      hidden: merged.map((weights) => round(hiddenMass(weights, rows, columns), 4)),
      captions: {
        hidden: caption(trace, modules, seen, { ...about, special: false, renormalise: false }),
        renormalised: caption(trace, modules, seen, { ...about, special: false, renormalise: true }),
        shown: caption(trace, modules, seen, { ...about, special: true, renormalise: false }),
      },
      right_to_left: rightToLeft(columns.map((column) => column.text)),
    });
  }
  return found;
}

const plain = ({ text, tokens, special }) => ({
  text: label(text, 60),
  tokens,
  ...(special ? { special: true } : {}),
});

/** The cells of a text: one for each word and punctuation mark, or for each token. */
export function labels(text, tokens, words) {
  const characters = points(text),
    groups = [];
  for (const [at, token] of tokens.entries())
    if (words && groups.length && shareCell(characters, tokens[at - 1], token)) groups.at(-1).push(at);
    else groups.push([at]);
  return groups.map((group) => ({
    text: cellText(tokens, group, characters),
    tokens: group,
    special: tokens[group[0]].special,
  }));
}

const isLetter = (character) => character !== undefined && /[\p{L}\p{N}\p{M}]/u.test(character);
const isWide = (character) => inRanges(constants.drawn.wide, character.codePointAt(0));

/** Whether two neighbouring tokens belong into one cell: pieces of one word, without punctuation. */
function shareCell(text, before, after) {
  if (before.special || after.special || before.word == null || before.word !== after.word) return false;
  const at = after.start;
  if (before.start === before.end || !(before.end <= at && at < after.end) || isSpace(text.at(at - 1))) return true;
  const left = isLetter(text[at - 1]),
    right = isLetter(text[at]);
  if (left && right) return !(isWide(text[at - 1]) && isWide(text[at]));
  if (!left && !right) return text[at - 1] === text[at];
  const mark = left ? at : at - 1;
  if (!isLetter(text[mark - 1]) || !isLetter(text[mark + 1])) return false;
  if (texts.apostrophes.includes(text[mark])) {
    let end = at;
    while (end < text.length && isLetter(text[end])) end++;
    return left || texts.endings.includes(text.slice(at, end).join("").toLowerCase());
  }
  return "-\u2010\u2011".includes(text[mark]) || (".,:".includes(text[mark]) && isDigit(text[mark - 1]) === isDigit(text[mark + 1]));
}

/** A word without the spaces at its ends, as regard/text/visible.py. */
export const bare = (text) => text.replace(/^[ \u00a0\u202f]+|(?<![ \u00a0\u202f])[ \u00a0\u202f]+$/g, "");

function cellText(tokens, group, characters) {
  const first = tokens[group[0]],
    last = tokens[group.at(-1)];
  if (group.length === 1) return first.text;
  if (first.start < last.end)
    return bare(characters.slice(first.start, last.end).join(""));
  return group.map((at) => tokens[at].text).join("");
}

/** Sum over the pieces of each column, then mean over those of each row. */
const merge = (weights, rows, columns) =>
  rows.map((row) =>
    columns.map((column) => sum(row.tokens.map((t) => sum(column.tokens.map((s) => weights[t][s])))) / row.tokens.length),
  );

/** The mean weight that the shown target tokens give to special columns. */
function hiddenMass(whole, rows, columns) {
  const counts = rows.map((row) => (row.special ? 0 : row.tokens.length));
  const given = whole.map((row) => sum(row.filter((_, s) => columns[s].special)));
  return sum(given.map((value, at) => value * counts[at])) / Math.max(1, sum(counts));
}

/** Whether most letters of these texts belong to scripts that run from right to left. */
function rightToLeft(all) {
  let balance = 0;
  for (const text of all)
    for (const letter of points(text).slice(0, 40)) {
      const code = letter.codePointAt(0);
      if (inRanges(constants.drawn.right, code)) balance++;
      else if (inRanges(constants.drawn.left, code)) balance--;
    }
  return balance > 0;
}

/** One sentence about what is drawn; the page fills in the head and the hidden mass. */
function caption(trace, modules, seen, { rows, columns, words, shift, special, renormalise }) {
  const many = modules.filter((other) => other.kind === seen.kind).length > 1;
  const parts = many && !seen.method ? [`layer ${seen.layer}`] : [];
  if (seen.weights.length > 1) parts.push("{head}");
  const paper = seen.kind === "cross" ? texts.papers[trace.model.name] : undefined;
  const score = seen.score && seen.kind !== "fixed" ? ` (${seen.score})` : "";
  const by = seen.method ? ` by ${visible(seen.method)}` : "";
  parts.push((paper ?? texts.kinds[seen.kind]) + by + score);
  if (KINDS[seen.kind][0] === "target" && seen.query === "previous" && seen.kind !== "fixed")
    parts.push("computed from the state before each word");
  const merged = words && [...rows, ...columns].some(({ tokens }) => tokens.length > 1);
  parts.push(merged ? "words (source pieces summed, target pieces averaged)" : "tokens");
  const names = special ? [] : [...new Set(columns.filter((word) => word.special).map((word) => word.text))].sort();
  if (names.length) {
    const listed = names.slice(0, 3).map((name) => label(name, 24));
    parts.push(`${listed.join(", ")} hidden ({lost} of the mass${renormalise ? ", the rest renormalised" : ""})`);
  }
  if (shift) parts.push("shift 1: each row is the attention just after its word was read");
  parts.push(...new Set(trace.changes.map((change) => `changed: ${visible(change.text)}`)));
  if (rightToLeft(columns.map((column) => column.text))) parts.push("source runs right to left");
  return parts.join(", ");
}

// --- any text made visible

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]/gu;

/** Text on one line, with what is invisible replaced by a mark. */
function visible(text) {
  if (!text) return "∅";
  const marked = text.replace(HIDDEN, (sign, at) => {
    const code = sign.codePointAt(0);
    if (sign === " " || inRanges(texts.printed, code)) return sign;
    if (code < 0x20 || code === 0x7f) return code < 0x20 ? String.fromCharCode(0x2400 + code) : "␡";
    if (sign in texts.names) return `‹${texts.names[sign]}›`;
    const before = [...text.slice(0, at)].at(-1);
    if (texts.joiners.includes(sign) && before !== undefined && !`${texts.joiners} `.includes(before)) return sign;
    if (code >= 0xe0020 && code <= 0xe007f && [...text.slice(0, at)].slice(-8).includes("\u{1f3f4}")) return sign;
    return /\p{Zs}/u.test(sign) ? "⍽" : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
  if (/^ +$/.test(marked)) return "␣".repeat(marked.length);
  return marked.replace(/^ +|(?<! ) +$/g, (spaces) => "␣".repeat(spaces.length));
}

/** `visible` text of at most `longest` columns, the rest an ellipsis. */
export function label(text, longest) {
  const shown = visible(text);
  if ([...shown].length * 2 <= longest) return shown;
  const width = (part) => (/\p{M}/u.test(part) && [...part].length === 1 ? 0 : /[\p{Emoji_Presentation}]/u.test(part) || isWide(part) ? 2 : 1);
  const parts = [...new Intl.Segmenter().segment(shown)].map(({ segment }) => segment);
  if (sum(parts.map(width)) <= longest) return shown;
  let kept = "",
    used = 0;
  for (const part of parts) {
    used += width(part);
    if (used > longest - 1) break;
    kept += part;
  }
  return `${kept}…`;
}
