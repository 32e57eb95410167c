"""The options of a drawing, and the table that they select: one module and head of a trace as weights between words,
with a caption.

Every picture takes its numbers and captions from here: stills, the terminal, and through `regard.look.html` the page.
Pieces are merged into words: weights are summed over the pieces of a source word and averaged over the pieces of a
target word, so a row keeps its sum. Special tokens are hidden by default, and the caption states their weight.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.images import Pixels
from regard.errors import ConfigError, check_known, numbered
from regard.look.tokens import Token
from regard.look.trace_data import KINDS, Attended, TraceData
from regard.symbols import START, SYMBOLS
from regard.text.visible import BLANKS, label, visible

HeadChoice = int | str | Sequence[int] | None
LayerChoice = int | str | None
NARROWEST = 40  # columns
EQUAL = 1e-4  # weights closer than this are rounding apart
APOSTROPHES = "'\u2019"
ENDINGS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))  # of English words, after an apostrophe


@dataclass(frozen=True)
class Show:
    """The options of every drawing. A view refuses options that it does not use: see `VIEWS`.

    What is drawn: `layer` is a number among the modules that connect target and source, or a module's name; `head` is a
    number, several numbers (their mean), "mean" or "max". The default is the head that aligns words, if the run names
    one (`Attended.aligning`), else the mean of the heads of the last layer but one. `words` merges the pieces of a
    word, and `punctuation` keeps words and punctuation in separate cells ("1992" and "."); with punctuation=False a
    cell is the text between two spaces. `special` shows tokens such as </s>, which are also shown where there is no
    other row. `renormalise` divides each row by its sum. `shift` overrides the trace's own (see `Attended`).

    >>> from regard.look import Show
    >>> trace = regard.Trace.from_arrays(["the", "cat"], ["le", "chat"], [[0.9, 0.1], [0.2, 0.8]])
    >>> show = Show(numbers=False, colour=False)
    >>> trace.to_terminal(show) == trace.to_terminal(numbers=False, colour=False)  # an option can also be named
    True
    """

    layer: LayerChoice = None
    head: HeadChoice = None
    words: bool = True
    punctuation: bool = True
    special: bool = False
    renormalise: bool = False
    shift: int | None = None

    palette: str | None = None  # blue for tables, viridis for pictures
    numbers: bool = True  # weights written into the cells
    links: bool = False  # the strongest source word of each target word outlined
    mass: float = 0.75  # ribbons: the share of each row that the drawn links hold
    pruned: bool = True  # beam: candidates that were not kept
    step: int | None = None  # the target token of the view steps, the word of the view picture
    picture: str | Path | Pixels | None = None  # behind the maps of a caption
    smooth: bool = False  # the cells of a map blended for display
    cells: tuple[int, ...] = (0, 0)  # region: (row, column) or (top, left, bottom, right), the last ones included
    title: str | None = None
    dpi: int | None = None
    width: int | None = None  # columns of text for a terminal; None: those of the terminal, or 100
    colour: bool | None = None  # in a terminal; None: if standard output is one, and NO_COLOR is not set

    @property
    def coloured(self) -> bool:
        """Whether text for a terminal has colours."""
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") if self.colour is None else self.colour

    @property
    def across(self) -> int:
        """How many columns text for a terminal may take."""
        if self.width is None:
            return max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
        if self.width < NARROWEST:
            raise ConfigError(f"width must be at least {NARROWEST} columns; got {self.width}.")
        return self.width


_TABLE = ("layer", "head", "words", "punctuation", "special")
_WEIGHTS = (*_TABLE, "renormalise", "shift")
_MAP = (*_TABLE, "picture", "title")
VIEWS: Mapping[str, tuple[str, ...]] = {  # view -> the options that it takes
    "matrix": (*_WEIGHTS, "palette", "numbers", "links", "title"),
    "ribbons": (*_WEIGHTS, "mass", "title"),
    "heads": ("words", "punctuation", "special", "renormalise", "shift", "palette", "title"),
    "beam": ("pruned", "title"),
    "steps": ("step", "layer", "head", "title"),
    "film": (*_MAP, "smooth", "palette"),
    "picture": (*_MAP, "smooth", "palette", "step"),
    "region": (*_MAP, "cells"),
}
STILL = (".png", ".svg", ".pdf")  # endings of still pictures
CAPTION_VIEWS = ("film", "picture", "region")
PAGE = (*_WEIGHTS, "palette", "title", "step", "mass", "numbers", "pruned")  # where the page of a text may open
TERMINAL = {
    "matrix": (*_WEIGHTS, "palette", "numbers", "width", "colour"),
    "film": (*_TABLE, "palette", "width", "colour"),
}


def chosen(show: Show | None, options: Mapping[str, Any], known: Iterable[str], what: str) -> Show:
    """`show` with `options` replaced; options that are not among `known` are refused."""
    for name in options:
        check_known("option", name, sorted(known), f" of {what}")
    return replace(show or Show(), **options)


Array = NDArray[np.float32]

KIND_WORDS = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "image": "attention over the picture",
    "fixed": "no attention: one fixed vector",
    "pool": "pooling attention",
    "attribution": "attribution",
}
SUMMARIES = {  # sentences about a table for screen readers; the page fills them in itself
    "nothing": "There is nothing to show.",
    "fixed": "All {rows} words were written from one fixed vector of the whole sentence.",
    "links": "{sure} of {rows} words give at least half of their weight to one of {columns} words. "
    "The largest weight, {weight}, is from {row} to {column}.",
}
SHIFTED = (  # beside a step of a head with shift 1; the page fills it in itself
    "This head aligns the word just read, {read}, and not the word being written: its rows are one step late. "
    "Other heads show what the next word is written from."
)
PAPERS = {"bahdanau": "Bahdanau's attention", "luong": "Luong's attention"}


@dataclass(frozen=True)
class Label:
    """One row or column: its text and the positions of its tokens."""

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
    kind: str = "cross"


def arrange(trace: TraceData, show: Show | None = None, **options: Any) -> Table:
    """The table of the module and head that `show` selects; `options` are those of `Show` by name."""
    wanted = Show(**options) if show is None else show
    seen = choose(trace, wanted.layer)
    picked = seen.aligning if wanted.head is None else wanted.head
    weights, head = _one_head(seen, picked)  # [T, S]
    shift = seen.shift_of(picked) if wanted.shift is None else wanted.shift
    shift = 0 if shift == 1 and len(weights) < 2 else shift  # the only row has none after it
    rows, columns = frame(trace, seen, wanted, shift)
    if all(word.special for word in rows):  # an empty translation has nothing else
        wanted = replace(wanted, special=True)
    whole = merge(weights[shift:], rows, columns)  # [rows, columns]
    lost = hidden_mass(whole, rows, columns) if not wanted.special else np.zeros(())
    down, across = (
        [at for at, word in enumerate(side) if wanted.special or not word.special] for side in (rows, columns)
    )
    shown = whole[np.ix_(down, across)]
    if wanted.renormalise:
        total = shown.sum(-1, keepdims=True)
        shown = np.divide(shown, total, out=np.zeros_like(shown), where=total > 0)
    kept = tuple(rows[at] for at in down), tuple(columns[at] for at in across)
    text = caption(trace, seen, wanted, (rows, columns), head=head, lost=f"{float(lost):.2f}", shift=shift)
    backwards = right_to_left([word.text for word in kept[1]])
    return Table(*kept, shown, text, seen.name, float(lost), shift, backwards, seen.kind)


def summary(table: Table) -> str:
    """One sentence about a table, for screen readers."""
    if not table.weights.size:
        return SUMMARIES["nothing"]
    t, s = (int(at) for at in np.unravel_index(int(table.weights.argmax()), table.weights.shape))
    return SUMMARIES["fixed" if table.kind == "fixed" else "links"].format(
        sure=int((table.weights.max(-1) >= 0.5).sum()),
        rows=len(table.rows),
        columns=len(table.columns),
        weight=f"{table.weights[t, s]:.2f}",
        row=quoted(table.rows[t]),
        column=quoted(table.columns[s]),
    )


def quoted(word: Label) -> str:
    """A word inside a sentence, isolated so that it keeps its own direction."""
    return f"\u2018\u2068{label(word.text)}\u2069\u2019"


def choose(trace: TraceData, layer: LayerChoice = None) -> Attended:
    """The module that `layer` names: a dotted name or a number among the leading kind; None is the default module."""
    if not trace.attention:
        raise ConfigError("This trace holds no attention, so there is nothing to draw.")
    if isinstance(layer, str):
        check_known("attention module", layer, trace.attention)
        return trace.attention[layer]
    leading = leading_modules(trace)
    if layer is None:
        return next((seen for seen in leading if seen.aligning is not None), leading[-2:][0])
    for seen in leading:
        if seen.layer == layer:
            return seen
    have = [str(seen.layer) for seen in leading]
    has = f"layers {', '.join(have)}" if len(have) > 1 else f"one layer, {have[0]}"
    raise ConfigError(f"There is no layer {layer} of {KIND_WORDS[leading[0].kind]}; it has {has}.")


def step_head(trace: TraceData, seen: Attended) -> int:
    """The head of a module to go through step by step: its rows belong to the word that is written.

    This is the aligning head of the trace if it has no shift. Otherwise every head is measured by the mean weight that
    its row t gives to the source word of target word t, as the aligning head links them (its rows moved by its shift),
    or the mean of the module's heads where no head is named. A head with a shift is taken only if all have one.
    """
    return _step_head(trace, seen)[0]


def step_module(trace: TraceData, layer: LayerChoice = None, head: HeadChoice = None) -> Attended:
    """The module to go through step by step: that of the chosen `layer` and `head`; else the default module
    or, where that aligns with a shift, the one with the best head as `step_head` measures it."""
    default = choose(trace, layer)
    if layer is not None or head is not None or default.aligning is None or not default.shift_of(default.aligning):
        return default

    leading = leading_modules(trace)
    return leading[first_best([_step_head(trace, seen)[1] for seen in leading])]


def first_best(rated: Sequence[tuple[int, float]]) -> int:
    """Which (shift, weight) has no shift and the largest weight; of weights that are equal up to rounding, the first,
    so that every machine and the browser choose the same."""
    least = min(shift for shift, _ in rated)
    most = max(weight for shift, weight in rated if shift == least)
    return next(at for at, (shift, weight) in enumerate(rated) if shift == least and weight >= most - EQUAL)


def _step_head(trace: TraceData, seen: Attended) -> tuple[int, tuple[int, float]]:
    """`step_head`, and its shift and mean weight."""
    rated = [(seen.shift_of(head), float(link)) for head, link in enumerate(_on_links(trace, seen))]
    known = isinstance(seen.aligning, int) and not seen.shift_of(seen.aligning)
    head: Any = seen.aligning if known else first_best(rated)
    return head, rated[head]


def _on_links(trace: TraceData, seen: Attended) -> Array:
    """For each head of a module: the mean weight of its rows on the column that each belongs to, [H]."""
    guide = choose(trace) if seen.kind == leading_modules(trace)[0].kind else seen
    aligned = guide.weights.mean(0) if guide.aligning in (None, "mean") else guide.weights[guide.aligning]  # type: ignore[index]
    shift = guide.shift_of(guide.aligning)
    rows, columns = (
        [at for at, token in enumerate(tokens_of(trace, side)) if not token.special] for side in KINDS[seen.kind]
    )
    rows = rows[: max(0, len(aligned) - shift)]
    if not rows or not columns:
        return np.zeros(seen.heads, dtype=np.float32)
    across = aligned[np.add(rows, shift)][:, columns]  # [rows, columns]
    linked = np.asarray(columns)[(across >= across.max(-1, keepdims=True) - EQUAL).argmax(-1)]  # [rows]
    return np.asarray(seen.weights[:, rows, linked].mean(-1), dtype=np.float32)


def shift_note(trace: TraceData, seen: Attended, head: int, t: int) -> str:
    """One sentence beside step t of a head whose rows belong to the word just read; empty for all others."""
    if not seen.shift_of(head):
        return ""
    read = tokens_of(trace, "read")[t]
    word = "the start of the sentence" if read.special else f"\u2018{label(read.text)}\u2019"
    return SHIFTED.replace("{read}", word)


def leading_modules(trace: TraceData) -> list[Attended]:
    """The modules that connect target and source, or of the next kind that the trace has, by layer."""
    for kind in ("cross", "image", "fixed", "decoder", "encoder", "pool", "attribution"):
        if modules := [seen for seen in trace.attention.values() if seen.kind == kind]:
            return sorted(modules, key=lambda seen: seen.layer)
    return []


def _one_head(seen: Attended, head: HeadChoice) -> tuple[Array, str]:
    """The weights [T, S] of a choice of heads, and its description."""
    if seen.heads == 1 and head in (None, "mean", "max", 0):
        return seen.weights[0], ""
    if head is None or head == "mean":
        return seen.weights.mean(0), head_words(seen)[-2]
    if head == "max":
        return seen.weights.max(0), head_words(seen)[-1]
    if isinstance(head, str):
        raise ConfigError(f"head must be a number, several numbers, 'mean' or 'max'; got '{head}'.")
    picked = [head] if isinstance(head, int | np.integer) else list(head)
    for number in picked:
        if not 0 <= number < seen.heads:
            raise ConfigError(f"There is no head {number}: '{seen.name}' has {numbered('head', seen.heads)}.")
    if not picked:
        raise ConfigError("head must name at least one head; got an empty list.")
    text = f"head {picked[0]}" if len(picked) == 1 else f"mean of heads {', '.join(map(str, picked))}"
    return seen.weights[picked].mean(0), text


def head_words(seen: Attended) -> list[str]:
    """Descriptions of every head, of their mean and of their maximum; a single head needs none."""
    if seen.heads == 1:
        return [""]
    return [
        *(f"head {at}" for at in range(seen.heads)),
        f"mean of {seen.heads} heads",
        f"largest of {seen.heads} heads",
    ]


def tokens_of(trace: TraceData, side: str) -> tuple[Token, ...]:
    """The tokens along one side of a module: see `regard.look.trace.KINDS`."""
    if side == "source":
        return trace.source.tokens
    if side == "target":
        return trace.target.tokens
    if side == "read":  # what the decoder has read before it writes each token
        read = Token(SYMBOLS[START], SYMBOLS[START], special=True), *trace.target.tokens[:-1]
        return read[: len(trace.target.tokens)]
    if side == "cells" and trace.image is not None:
        across = trace.image.grid[1]
        return tuple(Token(f"{at // across},{at % across}", "") for at in range(trace.size("cells")))
    return (Token("(the whole sentence)", ""),)


def frame(trace: TraceData, seen: Attended, show: Show, shift: int) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
    """All rows and columns of a module, special tokens included; with `shift`, row t is the word before."""
    if shift not in (0, 1):
        raise ConfigError(f"shift must be 0 or 1; got {shift}.")
    down, across = KINDS[seen.kind]
    texts = {"source": trace.source.text, "target": trace.target.text, "read": trace.target.text}
    rows = tokens_of(trace, down)
    return (
        labels(texts.get(down, ""), rows[: len(rows) - shift], show),
        labels(texts.get(across, ""), tokens_of(trace, across), show),
    )


def labels(text: str, tokens: Sequence[Token], show: Show) -> tuple[Label, ...]:
    """The cells of a text: a label for each word and punctuation mark, or for each token, depending on `show`."""
    groups: list[list[int]] = []
    for at, token in enumerate(tokens):
        if show.words and groups and share_cell(text, tokens[at - 1], token, show.punctuation):
            groups[-1].append(at)
        else:
            groups.append([at])
    return tuple(Label(_text(tokens, group, text), tuple(group), tokens[group[0]].special) for group in groups)


def share_cell(text: str, before: Token, after: Token, punctuation: bool) -> bool:
    """Whether two neighbouring tokens of `text` belong into one cell of a picture: pieces of one word.

    With `punctuation`, words and punctuation are separate cells, "L'accord" is "L'" and "accord", and the letters of
    scripts that are written without spaces form a cell for each token.
    """
    if before.special or after.special or before.word is None or before.word != after.word:
        return False
    at = after.start
    if not punctuation or before.start == before.end or not before.end <= at < after.end or text[at - 1].isspace():
        return True  # a byte or a bare space belongs to what follows
    left, right = _is_letter(text, at - 1), _is_letter(text, at)
    if left and right:
        return not (_is_wide(text[at - 1]) and _is_wide(text[at]))
    if not left and not right:
        return text[at - 1] == text[at]
    mark = at if left else at - 1  # the sign between the letters, if there are letters on both sides
    if not (_is_letter(text, mark - 1) and _is_letter(text, mark + 1)):
        return False
    if text[mark] in APOSTROPHES:
        end = next((end for end in range(at, len(text)) if not _is_letter(text, end)), len(text))
        return left or text[at:end].lower() in ENDINGS
    return text[mark] in "-\u2010\u2011" or (
        text[mark] in ".,:" and text[mark - 1].isdigit() == text[mark + 1].isdigit()
    )


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and unicodedata.category(text[at])[0] in "LNM"


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in "WF" and unicodedata.category(letter) == "Lo"


def _text(tokens: Sequence[Token], group: list[int], text: str) -> str:
    first, last = tokens[group[0]], tokens[group[-1]]
    if len(group) == 1:
        return first.text
    if first.start < last.end:  # the text itself: pieces of bytes become characters again
        return text[first.start : last.end].strip(BLANKS)
    return "".join(tokens[at].text for at in group)


def merge(weights: Array, rows: Sequence[Label], columns: Sequence[Label]) -> Array:
    """Sum over the pieces of each column, then mean over those of each row: [..., T, S] -> [..., rows, columns]."""
    if not rows or not columns:
        return np.zeros((*weights.shape[:-2], len(rows), len(columns)), dtype=np.float32)
    summed = np.add.reduceat(weights, [column.tokens[0] for column in columns], axis=-1)  # [..., T, columns]
    counts = np.array([len(row.tokens) for row in rows], dtype=np.float32)
    joined = np.add.reduceat(summed, [row.tokens[0] for row in rows], axis=-2) / counts[:, None]
    return np.asarray(joined, dtype=np.float32)


def hidden_mass(whole: Array, rows: Sequence[Label], columns: Sequence[Label]) -> Array:
    """The mean weight that the shown target tokens give to special columns: [..., rows, columns] -> [...]"""
    counts = np.array([0 if row.special else len(row.tokens) for row in rows], dtype=np.float64)
    special = np.array([column.special for column in columns], dtype=bool)
    given = whole[..., special].sum(-1) if len(columns) else np.zeros(whole.shape[:-1])  # [..., rows]
    return np.asarray((given * counts).sum(-1) / max(1.0, counts.sum()), dtype=np.float32)


def right_to_left(texts: Sequence[str]) -> bool:
    """Whether most letters of these texts belong to scripts that run from right to left."""
    kinds = [unicodedata.bidirectional(letter) for text in texts for letter in text[:40]]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def caption(
    trace: TraceData,
    seen: Attended,
    show: Show,
    sides: tuple[Sequence[Label], Sequence[Label]],
    *,
    head: str,
    lost: str,
    shift: int,
) -> str:
    """One sentence about what is drawn; `head` describes the head, `lost` is the hidden mass."""
    alike = [other for other in trace.attention.values() if other.kind == seen.kind]
    parts = [f"layer {seen.layer}"] if len(alike) > 1 and seen.kind != "attribution" else []
    parts += [head] if head else []
    paper = PAPERS.get(str(trace.model.get("name", ""))) if seen.kind == "cross" else None
    score = f" ({visible(seen.score)})" if seen.score and seen.kind != "fixed" else ""
    by = f" by {visible(seen.method)}" if seen.method else ""
    parts.append((paper or KIND_WORDS[seen.kind]) + by + score)
    if KINDS[seen.kind][0] == "target" and seen.query == "previous" and seen.kind != "fixed":
        parts.append("computed from the state before each word")
    merged = show.words and any(len(word.tokens) > 1 for side in sides for word in side)
    parts.append("words (source pieces summed, target pieces averaged)" if merged else "tokens")
    names = sorted({word.text for word in sides[1] if word.special and not show.special})
    if names:
        listed = ", ".join(label(name) for name in names[:3])
        parts.append(f"{listed} hidden ({lost} of the mass{', the rest renormalised' if show.renormalise else ''})")
    if shift:
        parts.append("shift 1: each row is the attention just after its word was read")
    # The pieces of a masked word are changes of the same text.
    parts += dict.fromkeys(f"changed: {visible(str(change['text']))}" for change in trace.changes)
    if right_to_left([word.text for word in sides[1]]):
        parts.append("source runs right to left")
    return ", ".join(parts)
