"""Which words of a sentence and its translation belong together, as code points of both."""

from typing import Any, NamedTuple

import numpy as np

from regard.api.heads import Heads
from regard.data.formats.segment import Span
from regard.data.sentences import split_words
from regard.look.table import Label, arrange
from regard.look.tokens import Side
from regard.look.trace import Trace


class Link(NamedTuple):
    """A word of the translation, and the source word with the largest weight for it."""

    source: Span
    target: Span
    weight: float

    def describe(self) -> dict[str, Any]:
        """As the server reports it: [start, end) of both texts, and the weight."""
        return {"source": list(self.source), "target": list(self.target), "weight": self.weight}


def link_words(trace: Trace, heads: Heads | None = None) -> list[Link]:
    """The source word with the largest weight for each target word; nothing for a model without cross-attention."""
    if not any(seen.kind == "cross" for seen in trace.attention.values()):
        return []
    heads = heads or Heads()
    table = arrange(trace, layer=heads.layer, head=heads.head, shift=heads.shift)
    if not table.columns:
        return []
    best = np.argmax(table.weights, axis=1)  # [rows]
    return [
        Link(_span(trace.source, table.columns[column]), _span(trace.target, row), round(float(weights[column]), 4))
        for row, weights, column in zip(table.rows, table.weights, best, strict=True)
    ]


def diagonal(source: str, target: str) -> tuple[tuple[Span, Span], ...]:
    """Word j of T is linked with word j * S / T."""
    read, wrote = (split_words(text, (0, len(text))) for text in (source, target))
    return tuple((read[at * len(read) // len(wrote)], span) for at, span in enumerate(wrote)) if read else ()


def _span(side: Side, label: Label) -> Span:
    return side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end
