"""What exactly is drawn: one module and head of a trace as a table of words, with a sentence that says so.

Pieces merge to words: weights are summed over the pieces of a source word (looking at any of them is looking at the
word) and averaged over the pieces of a target word. A row's mass stays what it was. Special tokens are hidden unless
asked for, and the mass they took is stated.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, unknown
from regard.look.contents import KINDS, Attended, Contents
from regard.look.pieces import Sentence, Token
from regard.look.text import label, visible
from regard.symbols import START, SYMBOLS

Array = NDArray[np.float32]
Head = int | str | Sequence[int] | None
Layer = int | str | None

_KIND_WORDS = {
    "cross": "cross-attention",
    "encoder": "self-attention of the reader",
    "decoder": "self-attention of the writer",
    "image": "attention over the picture",
    "fixed": "no attention: one fixed vector",
    "pool": "pooling attention",
}


@dataclass(frozen=True)
class Label:
    """One row or column: its text and the positions of the tokens that it stands for."""

    text: str
    tokens: tuple[int, ...]
    special: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """Rows (target, down), columns (source, across) and the weights between them."""

    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    weights: Array  # [T, S]
    caption: str
    name: str
    hidden: float = 0.0  # mean mass of a shown row on hidden columns
    shift: int = 0
    right_to_left: bool = False  # the columns' language runs from right to left


def arrange(
    trace: Contents,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    renormalise: bool = False,
    shift: int | None = None,
) -> Table:
    """The table of one module: `layer` is a number among the cross-attentions or a module's name, `head` a number,
    several of them (their mean), "mean" or "max". By default: the mean over heads of the last layer but one (or the
    only one), words, special tokens hidden. `shift` overrides the trace's own (see `Attended`)."""
    seen = choose(trace, layer)
    weights, head_words = _one_head(seen, head)  # [T, S]
    rows, columns = (tokens_of(trace, side) for side in KINDS[seen.kind])
    moved = seen.shift if shift is None else shift
    if moved not in (0, 1):
        raise ConfigError(f"shift must be 0 or 1; got {moved}.")
    if moved:  # row t + 1 was computed after word t was read
        weights, rows = weights[1:], rows[:-1]
    keep_rows = [t for t, token in enumerate(rows) if special or not token.special]
    keep_columns = [s for s, token in enumerate(columns) if special or not token.special]
    hidden = [s for s, token in enumerate(columns) if not special and token.special]
    weights = weights[keep_rows]
    shown = weights[:, keep_columns]  # [T', S']
    lost = float(weights[:, hidden].sum() / max(1, len(keep_rows)))
    if renormalise:
        total = shown.sum(-1, keepdims=True)
        shown = np.divide(shown, total, out=np.zeros_like(shown), where=total > 0)
    row_side, column_side = (sentence_of(trace, side) for side in KINDS[seen.kind])
    row_labels = merge(rows, keep_rows, row_side, words)
    column_labels = merge(columns, keep_columns, column_side, words)
    shown = _join(shown, row_labels, keep_rows, column_labels, keep_columns)
    names = sorted({columns[s].text for s in hidden})
    merged = words and any(len(label.tokens) > 1 for label in (*row_labels, *column_labels))
    caption = _caption(trace, seen, head_words, merged, (names, lost, renormalise), moved)
    backwards = right_to_left([label.text for label in column_labels])
    if backwards:
        caption += ", source runs right to left"
    return Table(row_labels, column_labels, shown, caption, seen.name, lost, moved, backwards)


def choose(trace: Contents, layer: Layer = None) -> Attended:
    """The module that `layer` names: a dotted name, a number among the leading kind, or None."""
    if not trace.attention:
        raise ConfigError("This trace holds no attention, so there is nothing to draw.")
    if isinstance(layer, str):
        if layer not in trace.attention:
            raise ConfigError(unknown("attention module", layer, trace.attention))
        return trace.attention[layer]
    leading = leading_modules(trace)
    if layer is None:
        return leading[-2] if len(leading) > 1 else leading[0]
    for seen in leading:
        if seen.layer == layer:
            return seen
    have = ", ".join(str(seen.layer) for seen in leading)
    raise ConfigError(f"There is no layer {layer} of {_KIND_WORDS[leading[0].kind]}; this trace has {have} (from 0).")


def leading_modules(trace: Contents) -> list[Attended]:
    """The modules that connect target and source, or what comes nearest, by layer."""
    for kind in ("cross", "image", "fixed", "decoder", "encoder", "pool"):
        found = [seen for seen in trace.attention.values() if seen.kind == kind]
        if found:
            return sorted(found, key=lambda seen: seen.layer)
    return []


def _one_head(seen: Attended, head: Head) -> tuple[Array, str]:
    """Weights [T, S] and the words for what they are."""
    if seen.heads == 1 and head in (None, "mean", "max", 0):
        return seen.weights[0], ""
    if head is None or head == "mean":
        return seen.weights.mean(0), f"mean of {seen.heads} heads"
    if head == "max":
        return seen.weights.max(0), f"largest of {seen.heads} heads"
    if isinstance(head, str):
        raise ConfigError(f"head must be a number, several numbers, 'mean' or 'max'; got '{head}'.")
    chosen = [head] if isinstance(head, int | np.integer) else list(head)
    for each in chosen:
        if not 0 <= each < seen.heads:
            raise ConfigError(f"There is no head {each}: '{seen.name}' has heads 0 to {seen.heads - 1}.")
    if not chosen:
        raise ConfigError("head must name at least one head; got an empty list.")
    text = f"head {chosen[0]}" if len(chosen) == 1 else f"mean of heads {', '.join(map(str, chosen))}"
    return seen.weights[chosen].mean(0), text


def tokens_of(trace: Contents, side: str) -> tuple[Token, ...]:
    """The tokens along one side of a module: see `regard.look.trace.KINDS`."""
    if side == "source":
        return trace.source.tokens
    if side == "target":
        return trace.target.tokens
    if side == "read":  # what the writer has read before it writes each token
        return (Token(SYMBOLS[START], SYMBOLS[START], special=True), *trace.target.tokens[:-1])[
            : len(trace.target.tokens)
        ]
    if side == "cells" and trace.image is not None:
        across = trace.image.grid[1]
        return tuple(Token(f"{at // across},{at % across}", "") for at in range(trace.size("cells")))
    return (Token("(the whole sentence)", ""),)


def sentence_of(trace: Contents, side: str) -> Sentence | None:
    return {"source": trace.source, "target": trace.target, "read": trace.target}.get(side)


def merge(tokens: Sequence[Token], keep: Sequence[int], side: Sentence | None, words: bool) -> tuple[Label, ...]:
    """The labels of the kept positions; neighbouring pieces of one word become one label when `words` is set."""
    groups: list[list[int]] = []
    for at in keep:
        word = tokens[at].word
        before = tokens[groups[-1][-1]] if groups else None
        together = before is not None and word is not None and before.word == word and not before.special
        if words and together and groups[-1][-1] == at - 1:
            groups[-1].append(at)
        else:
            groups.append([at])
    return tuple(Label(_text(tokens, group, side), tuple(group), tokens[group[0]].special) for group in groups)


def _text(tokens: Sequence[Token], group: list[int], side: Sentence | None) -> str:
    first, last = tokens[group[0]], tokens[group[-1]]
    if len(group) == 1:
        return first.text
    if side is not None and first.start < last.end:  # the text itself: pieces of bytes become characters again
        return side.text[first.start : last.end]
    return "".join(tokens[at].text for at in group)


def _join(
    weights: Array, rows: tuple[Label, ...], kept: list[int], columns: tuple[Label, ...], across: list[int]
) -> Array:
    """Sum over the pieces of each column, then mean over the pieces of each row: [T', S'] -> [rows, columns]."""
    if not rows or not columns:
        return np.zeros((len(rows), len(columns)), dtype=np.float32)
    row_at, column_at = {at: i for i, at in enumerate(kept)}, {at: i for i, at in enumerate(across)}
    starts = [column_at[label.tokens[0]] for label in columns]
    summed = np.add.reduceat(weights, starts, axis=1)  # [T', columns]
    counts = np.array([len(label.tokens) for label in rows], dtype=np.float32)
    joined = np.add.reduceat(summed, [row_at[label.tokens[0]] for label in rows], axis=0) / counts[:, None]
    return np.asarray(joined, dtype=np.float32)


def right_to_left(texts: Sequence[str]) -> bool:
    """Whether most letters of these texts belong to scripts that run from right to left."""
    kinds = [unicodedata.bidirectional(letter) for text in texts for letter in text[:40]]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def _caption(
    trace: Contents, seen: Attended, head: str, merged: bool, hidden: tuple[list[str], float, bool], shift: int
) -> str:
    parts = [f"layer {seen.layer}"] if sum(each.kind == seen.kind for each in trace.attention.values()) > 1 else []
    parts += [head] if head else []
    parts.append(_KIND_WORDS[seen.kind] + (f" ({visible(seen.score)})" if seen.score else ""))
    if KINDS[seen.kind][0] == "target" and seen.query == "previous":
        parts.append("asked by the state before the last word was read")
    parts.append("words (source pieces summed, target pieces averaged)" if merged else "tokens")
    names, lost, renormalise = hidden
    if names:
        shown = ", ".join(label(name) for name in names[:3])
        parts.append(f"{shown} hidden ({lost:.2f} of the mass{', the rest renormalised' if renormalise else ''})")
    if shift:
        parts.append("shift 1: each row is what was looked at just after its word was read")
    parts += [f"changed: {visible(str(change['text']))}" for change in trace.changes]
    return ", ".join(parts)
