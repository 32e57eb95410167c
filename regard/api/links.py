"""Which words of a sentence and its translation belong together, as code points of both."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.api.heads import Heads
from regard.api.tracing import LONGEST_LOOK
from regard.api.translator import Translator
from regard.data.formats import Sentence
from regard.data.sentences import split_words
from regard.data.vocabulary import Vocabulary
from regard.look.change import find
from regard.look.table import Label, arrange
from regard.look.tokens import Side
from regard.look.trace import Trace

Span = tuple[int, int]
_AT_ONCE = 64  # pairs whose traces are held together


class Link(NamedTuple):
    """A word of the translation, and the source word with the largest weight for it."""

    source: Span
    target: Span
    weight: float


def strongest(trace: Trace, heads: Heads | None = None) -> list[Link]:
    """The source word with the largest weight for each target word; nothing for a model without cross-attention."""
    if not any(seen.kind == "cross" for seen in trace.attention.values()):
        return []
    heads = heads or Heads()
    table = arrange(trace, layer=heads.layer, head=heads.head, shift=heads.shift)
    if not table.columns:
        return []
    best = np.argmax(table.weights, axis=1)  # [rows]
    return [
        Link(
            _span(trace.source, table.columns[column]),
            _span(trace.target, row),
            round(float(table.weights[number, column]), 4),
        )
        for number, (row, column) in enumerate(zip(table.rows, best, strict=True))
    ]


def describe(links: Sequence[Link]) -> list[dict[str, Any]]:
    """Links as the server reports them: [start, end) of both texts, and the weight."""
    return [{"source": list(one.source), "target": list(one.target), "weight": one.weight} for one in links]


def link_words(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[Sentence]:
    """Each translation with the links of its words, for placing tags.

    The weights are those of the head that `regard align --choose` chose or that was guided in training, where one was,
    else of the last layer but one. A sentence that is too long to look into, and a model without attention, has the
    links of the diagonal.
    """
    found: dict[int, Sentence] = {}
    attends = bool(getattr(getattr(translator.model, "looking", None), "cross", ()))  # an ensemble has no such thing
    fit = [
        number
        for number, pair in enumerate(zip(sources, targets, strict=True))
        if attends and _short(pair[0], translator.source_vocabulary) and _short(pair[1], translator.target_vocabulary)
    ]
    for start in range(0, len(fit), _AT_ONCE):
        some = fit[start : start + _AT_ONCE]
        names = find(translator.model, None)
        traces = translator.trace_pairs([sources[one] for one in some], [targets[one] for one in some], names)
        for number, trace in zip(some, traces, strict=True):
            links = tuple((one.source, one.target) for one in strongest(trace, translator.heads))
            if links:
                found[number] = Sentence(targets[number], links)
    return [
        found.get(number) or Sentence(target, diagonal(source, target))
        for number, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def _short(text: str, vocabulary: Vocabulary) -> bool:
    """Whether a sentence has words, and not too many to look into."""
    return bool(text.split()) and (
        len(text.encode("utf-8", "replace")) <= LONGEST_LOOK  # a token has at least one byte
        or len(vocabulary.encode_many([text])[0]) <= LONGEST_LOOK
    )


def diagonal(source: str, target: str) -> tuple[tuple[Span, Span], ...]:
    """Word j of T is linked with word j * S / T."""
    read, wrote = (split_words(text, (0, len(text))) for text in (source, target))
    return tuple((read[at * len(read) // len(wrote)], span) for at, span in enumerate(wrote)) if read else ()


def _span(side: Side, label: Label) -> Span:
    return side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end
