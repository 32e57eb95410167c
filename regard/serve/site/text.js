// Text as the Python package reads it: forms, vocabularies, sentences, and what may be wrong with a translation.
// The lists of words and characters come from there, as constants.js; tests compare every function with its original.
// Positions are code points.

import constants from "./constants.js";

const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // Python's \s
export const LETTER = "\\p{L}\\p{N}_"; // Python's \w
const WORD = new RegExp(`[^${SPACES}]+`, "gu");
const SPACED = new RegExp(`[${SPACES}]`, "u");
const ALNUM = /[\p{L}\p{N}]/u;
const [PAD, START, END, UNKNOWN] = [0, 1, 2, 3];

/** The code points of a text, each as a string; a lone surrogate becomes the replacement character. */
export const points = (text) => [...text.toWellFormed()];

/** Words, as white space separates them. */
export const wordsOf = (text) => text.match(WORD) ?? [];

/** Whether a character is white space, as in Python. */
export const isSpace = (character) => character !== undefined && SPACED.test(character);

/** A text without white space at its end, as in Python. */
export const stripEnd = (text) => text.replace(new RegExp(`(?<![${SPACES}])[${SPACES}]+$`, "u"), "");

/** Whether a character is a digit, as in Python. */
export const isDigit = (character) => inRanges(constants.digits, character.codePointAt(0));

/** Whether there is a letter or a digit. */
export const hasWords = (text) => ALNUM.test(text);

/** Whether a code point is in ranges [first, last, first, last, ...]. */
export function inRanges(ranges, code) {
  let low = 0,
    high = ranges.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[2 * middle + 1] < code) low = middle + 1;
    else high = middle;
  }
  return 2 * low < ranges.length && ranges[2 * low] <= code;
}

// --- forms

/** A text in a form: its code points, and the code points [start, end) of the original that each covers. */
function rewrite(text, form, lowercase) {
  const original = points(form in STRAIGHT ? STRAIGHT[form](text) : text);
  const written = [],
    starts = [],
    ends = [];
  let start = 0;
  for (const chunk of chunks(original, form)) {
    const size = [...chunk].length;
    let part = form === "nfc" || form === "nfkc" ? chunk.normalize(form.toUpperCase()) : chunk;
    if (lowercase) part = [...part].map((one) => one.toLowerCase()).join("");
    for (const one of part) {
      written.push(one);
      starts.push(start);
      ends.push(start + size);
    }
    start += size;
  }
  return { written, starts, ends };
}

/** The code points of the original that the characters [start, end) of a rewritten text cover. */
function originalSpan({ starts, ends }, start, end) {
  const first = start < starts.length ? starts[start] : Math.max(0, ...ends);
  return [first, end > start ? ends[end - 1] : first];
}

function chunks(characters, form) {
  if (form !== "nfc" && form !== "nfkc") return characters;
  const kind = form.toUpperCase(),
    combines = (one) => inRanges(constants.combining, one.codePointAt(0));
  const found = [];
  let chunk = "";
  for (const one of characters) {
    let joins = combines(one);
    if (chunk && !joins && one > "\x7f") {
      const alone = one.normalize(kind);
      joins = combines(alone) || (chunk + one).normalize(kind) !== chunk.normalize(kind) + alone;
    }
    if (chunk && !joins) {
      found.push(chunk);
      chunk = "";
    }
    chunk += one;
  }
  return [...found, chunk];
}

const MARK = new RegExp(`[${Object.keys(constants.marks).join("")}]`, "gu");
const QUOTE = new RegExp(`[${Object.keys(constants.quotes).join("")}]`, "gu");
const DASH = new RegExp(`(?<![${LETTER}])[—―]|[—―](?![${LETTER}])`, "gu");
// Of any case, as Python takes it: ſ is an s, and so are ı and İ an i.
const ELIDED = `(?!\\p{Nd}|(?:[nNsSſtT]|[eE][mM]|[nN][eE]|[tT][iIıİ][lL]|[tT][iIıİ][sSſ]|[tT][wW][aA][sSſ])(?![${LETTER}]))`;
const QUOTED = new RegExp(
  `'(?<![${LETTER}].)(?=[^${SPACES}])${ELIDED}((?:[^']|(?<=[${LETTER}])'(?=[${LETTER}]))+?)(?<=[^${SPACES}])'(?![${LETTER}])`,
  "gu",
);
const CUT_OFF = new RegExp(`'(?:(?<=^.)|(?<=[:,] .))${ELIDED}(?=[A-ZÀ-ÖØ-Þ])|'(?<=[.!?,].)(?![${LETTER}])`, "gu");

/** Punctuation as ASCII, in the same number of characters; quoted text in double quotation marks. */
const straight = (text, pattern, marks) =>
  text.replace(pattern, (mark) => marks[mark]).replace(QUOTED, '"$1"').replace(CUT_OFF, '"');
const STRAIGHT = {
  punctuation: (text) => straight(text.replace(DASH, "-"), MARK, constants.marks),
  quotes: (text) => straight(text, QUOTE, constants.quotes), // « », dashes and no-break spaces stay
};

// --- vocabularies

/** Text to ids and back, with the span of each piece in the text. */
export class Vocabulary {
  /** @param {{kind: string, form: string, lowercase: boolean, pieces: string[], scores?: number[]}} plain */
  constructor({ kind, form, lowercase, pieces, scores }) {
    Object.assign(this, { kind, form, lowercase, pieces, scores });
    this.numbers = new Map(pieces.map((piece, id) => [piece, id]));
    this.bytes = new Map();
    if (scores)
      for (const [id, piece] of pieces.entries()) {
        const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
        if (byte) this.bytes.set(id, parseInt(byte[1], 16));
      }
    this.byteIds = new Map([...this.bytes].map(([id, byte]) => [byte, id]));
  }

  /** The pieces of a sentence, without END: {ids, pieces, spans, words, text}. */
  encode(text) {
    const found = rewrite(text, this.form, this.lowercase);
    const { ids, pieces, spans } = this.scores ? this.split(found.written) : this.find(found.written);
    return tokenised(
      ids,
      pieces,
      spans.map((span) => originalSpan(found, ...span)),
      text,
    );
  }

  /** Words or characters that are listed. */
  find(characters) {
    const ids = [],
      pieces = [],
      spans = [];
    for (let start = 0; start < characters.length; ) {
      let end = start + 1;
      if (this.kind === "word") {
        if (isSpace(characters[start])) {
          start++;
          continue;
        }
        while (end < characters.length && !isSpace(characters[end])) end++;
      }
      const piece = characters.slice(start, end).join(""),
        id = this.numbers.get(piece);
      ids.push(id > UNKNOWN ? id : UNKNOWN);
      pieces.push(piece);
      spans.push([start, end]);
      start = end;
    }
    return { ids, pieces, spans };
  }

  /** The id of a piece that text is split into, or undefined. */
  piece(text) {
    const id = this.numbers.get(text);
    return id > UNKNOWN && !this.bytes.has(id) ? id : undefined;
  }

  /** Byte-pair encoding as SentencePiece does it: the pair with the best score is merged, the first one of equals. */
  bpe(symbols) {
    const score = (at) => (at + 1 < symbols.length ? (this.scores[this.piece(symbols[at] + symbols[at + 1])] ?? -Infinity) : -Infinity);
    const scores = symbols.map((_, at) => score(at));
    for (;;) {
      let best = 0;
      for (let at = 1; at < scores.length; at++) if (scores[at] > scores[best]) best = at;
      if (scores[best] === -Infinity) return symbols;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
      scores.splice(best, 1);
      scores[best] = score(best);
      if (best) scores[best - 1] = score(best - 1);
    }
  }

  /** The split with the largest sum of scores, as SentencePiece finds it in float32; an unknown character costs 10 more
   * than the worst piece. */
  unigram(symbols) {
    const known = (this.known ??= [...this.pieces.keys()].filter((id) => this.piece(this.pieces[id]) === id));
    const longest = known.reduce((most, id) => Math.max(most, [...this.pieces[id]].length), 1),
      unknown = known.reduce((least, id) => Math.min(least, this.scores[id]), Infinity) - 10;
    const best = [{ score: 0, from: 0 }, ...symbols.map(() => ({ score: -Infinity, from: 0 }))];
    for (const from of symbols.keys())
      for (let end = from + 1; end <= Math.min(symbols.length, from + longest); end++) {
        const id = this.piece(symbols.slice(from, end).join(""));
        if (id === undefined && end > from + 1) continue;
        const score = Math.fround(best[from].score + (this.scores[id] ?? unknown));
        if (score > best[end].score) best[end] = { score, from };
      }
    const found = [];
    for (let end = symbols.length; end; end = best[end].from) found.unshift(symbols.slice(best[end].from, end).join(""));
    return found;
  }

  /** Subwords: the pieces of a text, or the bytes of its unknown characters. */
  split(characters) {
    if (!characters.length) return { ids: [], pieces: [], spans: [] };
    const symbols = this[this.kind](["\u2581", ...characters.map((one) => (one === " " ? "\u2581" : one))]);
    const place = (at) => Math.max(0, at - 1); // of a character, behind the space before the text
    const ids = [],
      pieces = [],
      spans = [];
    let at = 0;
    for (const symbol of symbols) {
      const id = this.piece(symbol),
        size = [...symbol].length;
      if (id !== undefined) {
        const letters = [...symbol.replace(/^\u2581+/, "")].length;
        ids.push(id);
        pieces.push(symbol);
        spans.push([letters ? place(at + size - letters) : place(at), place(at + size)]);
      } else if (this.byteIds.size) {
        for (const byte of new TextEncoder().encode(symbol)) {
          ids.push(this.byteIds.get(byte));
          pieces.push(this.pieces[this.byteIds.get(byte)]);
          spans.push([place(at), place(at + 1)]);
        }
      } else if (ids.at(-1) === UNKNOWN) {
        pieces[pieces.length - 1] += symbol; // neighbours that are unknown are one piece
        spans.at(-1)[1] = place(at + size);
      } else {
        const letters = [...symbol.replace(/^\u2581+/, "")].length;
        ids.push(UNKNOWN);
        pieces.push(symbol);
        spans.push([letters ? place(at + size - letters) : place(at), place(at + size)]);
      }
      at += size;
    }
    return { ids, pieces, spans };
  }

  /** The text of ids: one line, without the symbols for padding, start and end. */
  decode(ids) {
    const kept = ids.filter((id) => id >= UNKNOWN);
    if (!this.scores)
      return kept
        .map((id) => this.pieces[id])
        .join(this.kind === "word" ? " " : "")
        .replaceAll("\n", " ");
    let text = "",
      begun = false; // the space before the text is left out once
    let bytes = [];
    const write = () => {
      text += fromBytes(bytes);
      bytes = [];
    };
    for (const id of kept) {
      if (this.bytes.has(id)) {
        bytes.push(this.bytes.get(id));
        continue;
      }
      write();
      let piece = this.pieces[id];
      if (id !== UNKNOWN && !text && !begun && piece.startsWith("\u2581")) {
        piece = piece.slice(1);
        begun = true;
      }
      text += piece.replaceAll("\u2581", " ");
    }
    write();
    return text.replaceAll("\n", " ");
  }

  /** The white-space word of each id, from the ids only: the bytes of a character belong to its word. */
  wordIndices(ids) {
    const utf8 = (text) => new TextEncoder().encode(text);
    const surfaces = ids.map((id) => {
      if (this.bytes.has(id)) return Uint8Array.of(this.bytes.get(id));
      if (this.scores) return utf8(this.pieces[id].replaceAll("\u2581", " "));
      return utf8((this.kind === "word" ? " " : "") + this.pieces[id]);
    });
    const bytes = Uint8Array.from(surfaces.flatMap((surface) => [...surface]));
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    const ends = [...text.matchAll(WORD)].map(({ 0: word, index }) => utf8(text.slice(0, index + word.length)).length);
    let start = 0;
    return surfaces.map(({ length }) => {
      const found = ends.findIndex((end) => end > start);
      start += length;
      return found < 0 ? ends.length - 1 : found;
    });
  }

  /** The pieces of a model's output. It may write a word in other pieces than `encode`. */
  tokenised(ids) {
    const text = this.decode(ids),
      encoded = this.encode(text);
    if (encoded.ids.length === ids.length && encoded.ids.every((id, at) => id === ids[at])) return encoded;
    const size = [...text].length;
    const spans = [];
    let reached = 0;
    for (const count of ids.keys()) {
      const end = Math.max(reached, Math.min([...this.decode(ids.slice(0, count + 1))].length, size));
      spans.push([reached, end]);
      reached = end;
    }
    return tokenised(
      ids,
      ids.map((id) => this.pieces[id]),
      spans,
      text,
    );
  }
}

/** UTF-8 as SentencePiece reads it: a byte that belongs to no character becomes the replacement character. */
function fromBytes(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const size = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    try {
      text += new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        Uint8Array.from(bytes.slice(at, at + size)),
      );
      at += size;
    } catch {
      text += "\ufffd";
      at++;
    }
  }
  return text;
}

/** With the index of the white-space word of each span. */
function tokenised(ids, pieces, spans, text) {
  const ends = [];
  let inside = false,
    at = 0;
  for (const one of points(text)) {
    if (isSpace(one) && inside) ends.push(at);
    inside = !isSpace(one);
    at++;
  }
  if (inside) ends.push(at);
  const words = spans.map(([start]) => {
    const found = ends.findIndex((end) => end > start);
    return found < 0 ? ends.length - 1 : found;
  });
  return { ids, pieces, spans, words, text };
}

/** The parts of a sentence that are not in the vocabulary, as spelled: unknown words, and characters in bytes. */
export function unseen({ ids, pieces, spans, text }) {
  const found = [],
    characters = points(text);
  let last = [-1, -1];
  for (const [at, piece] of pieces.entries()) {
    const byte = /^<0x..>$/su.test(piece),
      span = spans[at];
    if ((ids[at] === UNKNOWN || byte) && !(byte && span[0] === last[0] && span[1] === last[1]))
      found.push(characters.slice(...span).join(""));
    last = span;
  }
  return found;
}

// --- sentences

const M = constants.sentences.marks,
  W = constants.sentences.wide;
const CLOSERS = `(?:["'”’»)\\]」』）】》]|[ \\u00a0\\u202f]»)*`;
const atomic = (pattern, number) => `(?=(${pattern}))\\${number}`; // never backtracks, as ++ and *+ in Python
const SENTENCE_END = new RegExp(
  `(?<![${M}${W}])(?:${atomic(`[${M}]+${CLOSERS}`, 1)}(?=[${SPACES}]|$)|${atomic(`[${M}]*[${W}][${M}${W}]*${CLOSERS}`, 2)})`,
  "gu",
);
const BREAK = new RegExp(`\\n[^\\S\\n]*\\n|<br {0,4}/?>|\\u2029`, "giu");
const MONTHS = new RegExp(`^(?:${constants.sentences.months.join("|")})(?![${LETTER}])`, "u");
const ITEM = new RegExp(
  `^(?:\\p{Nd}{1,3}\\.-?|([A-HQ]\\.|[IVX]{1,4}\\.)|\\(?(?:\\p{Nd}{1,3}|[A-Za-z]|[ivx]{2,4}|[IVX]{2,4})\\)|[-–—*•◦▪‣>])[${SPACES}]{1,8}(?=[^${LETTER}]{0,2}[${LETTER}])`,
  "u",
);
const CLAUSES = [
  new RegExp(`[;:—–；：](?=[${SPACES}]|$)|[；：]`, "gu"),
  new RegExp(`[,،](?=[${SPACES}]|$)|[，、]`, "gu"),
  new RegExp(`[${SPACES}]`, "gu"),
];
const ABBREVIATIONS = new Set(constants.sentences.abbreviations),
  NUMBERED = new Set(constants.sentences.numbered);

/** The span without white space at its ends. */
function trim(characters, [start, end]) {
  while (start < end && isSpace(characters[start])) start++;
  while (end > start && isSpace(characters[end - 1])) end--;
  return [start, end];
}

/** Matches of a pattern in text[start:stop] as spans of code points, what is before `start` being seen. */
function* matches(pattern, characters, start, stop) {
  const text = characters.slice(0, stop).join("");
  const units = characters.slice(0, start).join("").length;
  const expression = new RegExp(pattern);
  expression.lastIndex = units;
  let at = start,
    unit = units;
  for (let found = expression.exec(text); found; found = expression.exec(text)) {
    at += [...text.slice(unit, found.index)].length;
    const size = [...found[0]].length;
    yield [at, at + size, found[0]];
    at += size;
    unit = found.index + found[0].length;
    if (!found[0]) expression.lastIndex++;
  }
}

/** The sentences of a text as spans. */
export function splitSentences(text) {
  const characters = points(text),
    found = [];
  let place = 0;
  const breaks = [...matches(BREAK, characters, 0, characters.length)];
  for (const [stop, following] of [...breaks, [characters.length, characters.length]]) {
    let start = place;
    for (const [at, end, mark] of matches(SENTENCE_END, characters, start, stop))
      if (endsSentence(characters, at, end, mark, start, stop)) {
        found.push(trim(characters, [start, end]));
        start = end;
      }
    found.push(trim(characters, [start, stop]));
    place = following;
  }
  return found.filter(([start, end]) => start < end);
}

function endsSentence(characters, at, end, mark, start, stop) {
  if ([...mark].some((one) => W.includes(one)))
    return !("」』".includes([...mark].at(-1)) && ["と", "っ"].includes(characters[end]));
  let after = end;
  while (after < stop && isSpace(characters[after])) after++;
  if (after === end || after === stop) return true;
  if (/\p{Lowercase}/u.test(characters[after]))
    return "!?".includes([...mark].at(-1)) || ([...mark].length === 1 && isSpace(characters[at - 1]));
  return mark !== "." || !abbreviated(characters, start, at, after);
}

function abbreviated(characters, start, stop, after) {
  let begin = stop;
  while (begin > Math.max(start, stop - 6) && /[\p{L}.]/u.test(characters[begin - 1])) begin--;
  const word = characters.slice(begin, stop).join("");
  if (!word && !/\p{Nd}/u.test(characters[stop - 1] ?? "")) return false;
  const whole = characters.slice(...trim(characters, [start, stop])).join("");
  if (stop - start <= 4 && (/^\p{Nd}+$/u.test(whole) || whole === [...word].slice(0, 1).join(""))) return true;
  if (!word) return MONTHS.test(characters.slice(after, after + 12).join(""));
  const parts = word.split(".");
  const initials =
    [...word].length > 1
      ? parts.every((part) => [...part].length === 1)
      : word.toUpperCase() === word && word.toLowerCase() !== word && word !== "I";
  if (NUMBERED.has(word.toLowerCase())) return /\p{Nd}/u.test(characters[after] ?? "");
  return initials || ABBREVIATIONS.has(word.toLowerCase());
}

/** The sentence without the label of a list item that it begins with. */
function afterLabel(characters, [start, end]) {
  const [label, letter] = ITEM.exec(characters.slice(start, end).join("")) ?? [""];
  const after = start + label.length,
    next = characters.slice(after, after + 12).join("");
  const goesOn = MONTHS.test(next) || (letter && (/^\p{Lowercase}/u.test(next) || /^[A-Z]\./.test(next)));
  return [goesOn ? start : after, end];
}

/** Split a sentence into parts of at most `most` tokens, which begin at the code points `starts`. */
export function splitClauses(characters, [from, last], starts, most) {
  const parts = [];
  let begin = from,
    first = 0;
  while (starts.length - first > most) {
    const left = Math.ceil((starts.length - first) / most);
    let low = starts[first + Math.max(1, Math.floor((starts.length - first) / (2 * left)))];
    const high = starts[first + most],
      even = starts[first + Math.floor((starts.length - first) / left)];
    low = Math.max(low, begin + 1);
    let ends = [];
    for (const kind of CLAUSES) {
      ends = [...matches(kind, characters, low, high)].map(([, end]) => end);
      if (ends.length) break;
    }
    if (!ends.length) ends = [Math.max(high, low)];
    const end = ends.reduce((best, one) => (Math.abs(one - even) < Math.abs(best - even) ? one : best));
    parts.push(trim(characters, [begin, end]));
    while (first < starts.length && starts[first] < end) first++;
    begin = end;
  }
  parts.push(trim(characters, [begin, last]));
  return parts.filter(([start, end]) => start < end);
}

/** The sentences of a text that have words; those of more than `line` characters are split. */
export function takeSentences(text, line) {
  const characters = points(text),
    found = [];
  let start = 0;
  for (const row of text.split("\n")) {
    const own = points(row);
    for (const sentence of splitSentences(row)) {
      const span = afterLabel(own, sentence).map((place) => start + place);
      const each = Array.from({ length: span[1] - span[0] }, (_, at) => span[0] + at);
      found.push(
        ...splitClauses(characters, span, each, line).filter((part) => hasWords(characters.slice(...part).join(""))),
      );
    }
    start += own.length + 1;
  }
  return found;
}

/** Whether a text has capitals and no small letters. */
export const isUpper = (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);

/** A text in capitals as a sentence: only its first letter and the word I stay. */
function lower(text) {
  const characters = points(text);
  const first = Math.max(
    0,
    characters.findIndex((one) => /\p{L}/u.test(one)),
  );
  const lowered = characters.map((one) => ([...one.toLowerCase()].length === 1 ? one.toLowerCase() : one));
  const rest = lowered.slice(first + 1).join("");
  const I = new RegExp(`(?<![${LETTER}])i(?![${LETTER}])`, "gu");
  return characters.slice(0, first + 1).join("") + rest.replace(I, "I");
}

/** The drafts of a text: {span, source, words, encoded, recased}. Sentences with more than `most` tokens, as they are
 * read, are cut at clauses. */
export function drafts(text, encode, most) {
  const characters = points(text),
    found = [];
  let cut = false,
    at = 0;
  for (const line of text.split("\n")) {
    const own = points(line);
    for (const sentence of splitSentences(line)) {
      const whole = afterLabel(own, sentence).map((place) => at + place);
      let parts = [read(characters, whole, encode)];
      if (parts[0].encoded.ids.length > most) {
        const starts = parts[0].encoded.spans.map(([start]) => whole[0] + start);
        parts = splitClauses(characters, whole, starts, most).map((span) => read(characters, span, encode));
        cut = true;
      }
      found.push(...parts.filter((draft) => hasWords(draft.words)));
    }
    at += own.length + 1;
  }
  return { drafts: found, cut };
}

/** The draft of a sentence. One in capitals is read as an ordinary one, if the vocabulary then knows its words better. */
function read(characters, span, encode) {
  const source = characters.slice(...span).join(""),
    draft = { span, source, words: source, encoded: encode(source), recased: false };
  if (!isUpper(source)) return draft;
  const cost = ({ encoded: { ids } }) => [ids.filter((id) => id === UNKNOWN).length, ids.length];
  const forms = [lower(source), lower(source).toLowerCase()].map((words) => ({ ...draft, words, encoded: encode(words), recased: true }));
  const best = [draft, ...forms].reduce((best, one) => {
    const [unknown, count] = cost(one),
      [fewest, least] = cost(best);
    return unknown < fewest || (unknown === fewest && count < least) ? one : best;
  });
  return points(best.words).length === points(source).length ? best : draft;
}

/** The translation without a full stop at its end that its source does not have. */
export function endAlike(source, translation) {
  const last = points(source).at(-1) ?? "";
  const added = ALNUM.test(last) && translation.endsWith(".") && !translation.endsWith("..");
  return added ? stripEnd(translation.slice(0, -1)) : translation;
}

/** The translation `ids`, each unknown word replaced by the source word with its largest weight in `weights` [T][S]. */
export function copyUnknown(encoded, ids, weights, vocabulary) {
  const characters = points(encoded.text),
    text = vocabulary.decode(ids),
    words = [];
  for (const [t, id] of ids.entries()) {
    if (id !== UNKNOWN) continue;
    if (!weights[t].some(Boolean)) return text;
    const span = encoded.spans[weights[t].indexOf(Math.max(...weights[t]))];
    words.push(characters.slice(...trim(characters, span)).join(""));
  }
  const parts = text.split(vocabulary.pieces[UNKNOWN]);
  if (parts.length !== words.length + 1) return text;
  return parts.map((part, at) => part + (words[at] ?? "")).join("");
}

/** A number as the other language writes it: 1,200.50 as 1 200,50. One without marks, or with others, stays. */
export function respell(number, read, write) {
  const [comma, point] = constants.numbers[read] ?? [],
    [ownComma, ownPoint] = constants.numbers[write] ?? [];
  number = number.replaceAll("\u202f", "\u00a0");
  if (!comma || !ownComma || !new RegExp(`^(?:\\p{Nd}+|\\p{Nd}{1,3}(?:${comma}\\p{Nd}{3})+)(?:[${point}]\\p{Nd}+)?$`, "u").test(number))
    return number;
  const [whole, rest] = number.split(point);
  return whole.replaceAll(comma, ownComma) + (rest ? ownPoint + rest : "");
}

/** The translation with the large numbers of the source as its language writes them. */
export function writeNumbers(source, translation, read, write) {
  const languages = constants.numbers;
  if (read === write || !(read in languages) || !(write in languages)) return translation;
  const [comma, point] = languages[read];
  const grouped = new RegExp(
    `(?<![\\p{Nd}.,\u00a0])\\p{Nd}{1,3}(?:${comma}\\p{Nd}{3})+(?:[${point}]\\p{Nd}+)?(?![.,\u00a0]?\\p{Nd})`,
    "gu",
  );
  for (const number of new Set(source.replaceAll("\u202f", "\u00a0").match(grouped) ?? [])) {
    const [whole, rest] = number.split(point);
    const own = respell(number, read, write);
    const found = new RegExp(
      `(?<![\\p{Nd}.,])${whole.split(comma).join("[., \u00a0\u202f]?")}${rest ? `[.,]${rest}` : ""}(?![.,]?\\p{Nd})`,
      "gu",
    );
    const rewritten = (one) => (/^\p{Nd}+$/u.test(one) || one.replace(/[ \u202f]/g, "\u00a0") === own ? one : own);
    translation = translation.replace(found, rewritten);
  }
  return translation;
}

const AMOUNT = new RegExp(
  `(?<![${LETTER}.,:/-])(?:([$€£])[ \u00a0]?(\\p{Nd}+(?:[.,\u00a0\u202f]\\p{Nd}+)*)|(\\p{Nd}+(?:[.,\u00a0\u202f]\\p{Nd}+)*)[ \u00a0\u202f]?([$€£])` +
    `|(\\p{Nd}+(?:[.,\u00a0\u202f]\\p{Nd}+)+|\\p{Nd}{5,}))(?![${LETTER}:/]|[.,]\\p{Nd})`,
  "gu",
);

/** What to read where the translation `own` of a draft has lost a number: its words, with small numbers in the place of
 * amounts and large numbers, and names of currencies instead of signs; and pairs of these and what they stand for. */
export function withSmallNumbers(draft, own, read, write) {
  if (hasPlaceholders(draft.source) || !lostNumbers(draft.source, own)) return null;
  const free = constants.small.filter((number) => !draft.source.includes(number)),
    names = constants.currencies[read] ?? {},
    standIns = new Map();
  const words = draft.words.replace(AMOUNT, (found, before, first, second, after, third) => {
    const number = first ?? second ?? third,
      sign = before ?? after;
    const standIn = points(number).length > 1 ? (free.shift() ?? "") : number;
    standIns.set(standIn, respell(number, read, write));
    if (!(sign in names)) return found.replace(number, standIn);
    return `${standIn} ${number === "1" ? names[sign].replace(/s$/, "") : names[sign]}`;
  });
  return !standIns.size || standIns.has("") ? null : { ...draft, words, standIns: [...standIns] };
}

const standing = (standIn) => new RegExp(`(?<![${LETTER}.,])${standIn}(?![${LETTER}]|[.,]\\p{Nd})`, "gu");

/** Whether a text has every stand-in exactly once. */
export const keeps = (standIns, text) => standIns.every(([one]) => text.match(standing(one))?.length === 1);

/** A text with what its stand-ins stand for. */
export function restore(standIns, text) {
  for (const [standIn, own] of standIns) text = text.replace(standing(standIn), () => own);
  return text;
}

// --- what may be wrong

const OTHER_WORDS = /[^\p{N}_\P{L}]+|[\p{L}]+/gu;

const withoutRegion = (code) => code.replaceAll("_", "-").split("-")[0].toLowerCase();

/** Whether a text is clearly in another language than `own`, by its most common words. */
export function otherLanguage(text, own) {
  const code = withoutRegion(own),
    { words: known, names } = constants.languages;
  if (!(code in known)) return "";
  const words = (text.toLowerCase().match(OTHER_WORDS) ?? []).slice(0, 400);
  const sets = Object.fromEntries(Object.entries(known).map(([name, list]) => [name, new Set(list)]));
  const counts = Object.entries(sets).map(([name, set]) => [name, words.filter((word) => set.has(word)).length]);
  const [best, most] = counts.reduce((best, one) => (one[1] > best[1] ? one : best));
  const mine = counts.find(([name]) => name === code)[1];
  const proofs = [...new Set(words)].filter(
    (word) => sets[best].has(word) && !sets[code].has(word) && !names.includes(word),
  );
  return proofs.length >= 2 && 4 * most >= words.length && most >= 3 * mine ? best : "";
}

/** The note of a text that is clearly in another language than `own`, which names both; or "". */
export function languageNote(text, own) {
  const found = otherLanguage(text, own),
    named = (code) => constants.languages.called[withoutRegion(code)];
  return found && constants.looks.replace("{found}", named(found)).replace("{own}", named(own));
}

/** Flags with their notes. */
export const inWords = (flags) => Object.fromEntries(flags.map((flag) => [flag, constants.notes[flag]]));

const STUTTER = new RegExp(`([${LETTER}][^\\n]{0,7}?)\\1{7,}`, "u");
const ADDRESS = new RegExp(
  `(?<![${LETTER}])(?:[hH][tT][tT][pP][sS]?://|[wW][wW][wW]\\.)[^${SPACES}<>"]{1,2000}|(?<![${LETTER}.+-])[${LETTER}.+-]{1,64}@[${LETTER}-]{1,63}(?:\\.[${LETTER}-]{1,63}){1,8}` +
    `|(?<![${LETTER}/.<~])~?(?:/[${LETTER}.-]{1,255}){2,32}/?|(?<![${LETTER}&@#/])[@#](?=(?!\\p{Nd})[${LETTER}])[${LETTER}]{2,64}(?![${LETTER}@#])`,
  "gu",
);
const SYMBOL = new RegExp(constants.symbol, "gu");
const UNITS = Object.keys(constants.units);
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
const WORDED_UNITS = UNITS.filter((unit) => /^\p{L}+$/u.test(unit) || unit.includes("/")).sort(
  (a, b) => b.length - a.length,
);
const QUANTITY = new RegExp(
  `[$€£¥](?=[${SPACES}]?\\p{Nd})|(?<=\\p{Nd})[${SPACES}]?(?:[%$€£¥°]|(?:${WORDED_UNITS.map(escaped).join("|")})(?![${LETTER}]))`,
  "giu",
);
const SMALL = new RegExp(
  `[$€£¥][${SPACES}]?(\\p{Nd})(?![.,]?\\p{Nd})|(?<![\\p{Nd}.,])(\\p{Nd})[${SPACES}]?(?:[%$€£¥°]|(?:${WORDED_UNITS.map(escaped).join("|")})(?![${LETTER}]))`,
  "giu",
);
const TIME = new RegExp(
  `(?<![\\p{Nd}:.,])(\\p{Nd}{1,2})[${SPACES}]?[:hH.][${SPACES}]?([0-5]\\p{Nd})(?![\\p{Nd}:.,]?\\p{Nd})`,
  "gu",
);
const CLOCK = /(?<![\p{Nd}:.,])(\p{Nd}{1,2}):([0-5]\p{Nd})(?![\p{Nd}:.,]?\p{Nd})/gu;
const GLUED = /[\p{L}\p{Nl}\p{No}]{3}\p{Nd}/gu; // a number without a space after a word

const PLACEHOLDER = new RegExp(`\`[^\`\n]+\`|%[sd@]|%\\([${LETTER}]+\\)|<%|[$#]?\\{[^${SPACES}{}]*\\}|%[A-Z][A-Z_]+%`, "u");

/** Whether a sentence has an address, a placeholder or a symbol, which are translated as words here. */
export const hasPlaceholders = (text) =>
  PLACEHOLDER.test(text) || text.search(ADDRESS) >= 0 || text.search(SYMBOL) >= 0;

/** The flags of one sentence and its translation. */
export function wrongWith(source, translation, finished, same) {
  const read = wordsOf(source),
    wrote = wordsOf(translation);
  const found = lostNumbers(source, translation) ? ["number"] : [];
  if (read.length && !wrote.length) found.push("empty");
  else if (read.length) {
    if (loops(wrote) && !loops(read)) found.push("loop");
    if (!same && copies(read, wrote)) found.push("copy");
  }
  const stutters = (text) => STUTTER.test(points(text).slice(0, 10_000).join(""));
  if (!found.includes("loop") && stutters(translation) && !stutters(source) && !loops(read)) found.push("loop");
  return finished === "length" ? [...found, "length"] : found;
}

/** Whether a translation has lost a number, an amount, a time, a symbol or an address. */
export function lostNumbers(source, translation) {
  const trimmed = (address) => address.replace(/(?<![.,;:!?…)\]}'’»”])[.,;:!?…)\]}'’»”]+$/u, "");
  if ((source.match(ADDRESS) ?? []).some((one) => !translation.includes(trimmed(one)))) return true;
  if (missing(source.match(SYMBOL) ?? [], translation.match(SYMBOL) ?? []).length) return true;
  if (!/\p{Nd}/u.test(source)) return false;
  const lowered = translation.toLowerCase();
  for (const [found] of source.matchAll(QUANTITY)) {
    const unit = wordsOf(found)[0].toLowerCase();
    const same = escaped(unit) + (ALNUM.test([...unit].at(-1)) ? `(?![${LETTER}])` : "");
    if (!new RegExp(`${same}|${constants.units[unit]}`, "u").test(lowered)) return true;
    const twice = new RegExp(`${same}[\\p{Nd}., \u00a0\u202f]{1,20}(?:${constants.units[unit]})`, "u"); // "$5 dollars"
    if (!/^\p{L}/u.test(unit) && twice.test(lowered) && !twice.test(source.toLowerCase())) return true;
    if (/[^\0-\x7f]/.test(unit) && translation.includes("\ufffd") && !source.includes("\ufffd")) return true; // broken bytes
  }
  const time = ([, hour, minute]) => `${Number(hour) % 12}:${minute}`;
  const times = new Set([...translation.matchAll(TIME)].map(time));
  if ([...source.matchAll(CLOCK)].some((one) => !times.has(time(one)))) return true;
  const numbers = (text) =>
    text
      .replace(ADDRESS, " ")
      .replace(/(?<=\p{Nd})[.,](?=(?:\p{Nd}{1,2}|\p{Nd}{4,})(?![.,]?\p{Nd}))/gu, "_")
      .replace(/(?<=\p{Nd})[.,'’ \u00a0\u202f](?=\p{Nd})/gu, "")
      .match(/\p{Nd}+_\p{Nd}+|\p{Nd}{2,}/gu) ?? [];
  const read = numbers(source),
    wrote = numbers(translation);
  const small = source.toLowerCase();
  const left = missing(read, wrote);
  if ([...new Set(left)].some((one) => left.filter((other) => other === one).length > Math.max(0, spelled(one, lowered) - spelled(one, small)))) return true;
  if ((lowered.match(GLUED) ?? []).some((one) => !small.includes(one))) return true;
  const digits = translation.match(/\p{Nd}+/gu) ?? [],
    known = source.match(/\p{Nd}+/gu) ?? [];
  const other = missing(wrote, read).length > 0 || digits.some((one) => !known.includes(one));
  return other && [...source.matchAll(SMALL)].some((found) => !digits.includes(found[1] ?? found[2]));
}

/** What the first list has more often than the second. */
function missing(first, second) {
  const left = [...second];
  return first.filter((one) => {
    const at = left.indexOf(one);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** How often a text in lower case has the word for a number. */
const spelled = (number, text) =>
  number in constants.spelled
    ? (text.match(new RegExp(`(?<![${LETTER}-])(?:${constants.spelled[number]})(?![${LETTER}-])`, "gu")) ?? []).length
    : 0;

/** Whether some stretch of words says the same thing over and over. */
function loops(words) {
  for (let period = 1; period <= Math.min(Math.floor(words.length / 2), 64); period++) {
    const times = period === 1 ? 4 : period < 5 ? 3 : 2;
    let run = 0;
    for (let at = period; at < words.length; at++) {
      run = words[at] === words[at - period] ? run + 1 : 0;
      if (run >= period * (times - 1)) return true;
    }
  }
  return false;
}

/** Whether the second list of words is the first again, wholly or nearly: the ratio of Python's SequenceMatcher. */
function copies(source, output) {
  const [a, b] = [source, output].map((words) => words.map((word) => word.toLowerCase()));
  if (a.filter((word) => /\p{L}/u.test(word)).length < 4) return false;
  const matching = (alo, ahi, blo, bhi) => {
    let best = [alo, blo, 0];
    let lengths = new Map();
    for (let i = alo; i < ahi; i++) {
      const next = new Map();
      for (let j = blo; j < bhi; j++) {
        if (a[i] !== b[j]) continue;
        const size = (lengths.get(j - 1) ?? 0) + 1;
        next.set(j, size);
        if (size > best[2]) best = [i - size + 1, j - size + 1, size];
      }
      lengths = next;
    }
    const [i, j, size] = best;
    return size ? size + matching(alo, i, blo, j) + matching(i + size, ahi, j + size, bhi) : 0;
  };
  return (2 * matching(0, a.length, 0, b.length)) / (a.length + b.length) >= 0.8;
}

export { END, PAD, START, UNKNOWN };
