"""Which words belong together, as code points of a sentence and its translation."""

from typing import Any

import numpy as np

from regard.look.table import Label, arrange
from regard.look.tokens import Sentence
from regard.look.trace import Trace


def strongest(trace: Trace) -> list[dict[str, Any]]:
    """The source word with the largest weight for each target word; nothing for a model without cross-attention.

    Each is {"source": [start, end], "target": [start, end], "weight": w}, ends exclusive.
    """
    if not any(seen.kind == "cross" for seen in trace.attention.values()):
        return []
    table = arrange(trace)
    if not table.columns:
        return []
    best = np.argmax(table.weights, axis=1)  # [rows]
    return [
        {
            "source": _span(trace.source, table.columns[column]),
            "target": _span(trace.target, row),
            "weight": round(float(table.weights[number, column]), 4),
        }
        for number, (row, column) in enumerate(zip(table.rows, best, strict=True))
    ]


def _span(side: Sentence, label: Label) -> list[int]:
    return [side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end]
