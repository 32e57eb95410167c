"""What a model adds to attention, as lines of text under its matrix: the coverage of the source words.

A trace of any other model has no such lines. The numbers are those of the trace, so that they can be computed again
from its JSON.
"""

import numpy as np

from regard.look.trace_data import Attended, Contents

COVERED = "covered"  # the score that reads the coverage


def remarks(trace: Contents) -> list[str]:
    """The lines of all attentions to the source, in their order."""
    return [line for seen in trace.attention.values() if seen.kind == "cross" for line in _lines(trace, seen)]


def coverage(seen: Attended) -> np.ndarray:
    """How much each source token was attended to by all target tokens together, the mean of the heads: [S]."""
    return np.asarray(seen.weights.mean(0).sum(0))


def _lines(trace: Contents, seen: Attended) -> list[str]:
    lines = []
    if seen.score == COVERED:
        pairs = zip(trace.source.tokens, coverage(seen), strict=True)
        lines.append("coverage: " + ", ".join(f"{token.text} {total:.2f}" for token, total in pairs))
    return lines
