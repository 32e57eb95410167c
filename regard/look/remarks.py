"""What a model adds to attention, as lines of text under its matrix: the coverage of the source words, how likely each
target word was copied, and where monotonic attention stopped.

A trace of any other model has no such lines. The numbers are those of the trace, so that they can be computed again
from its JSON.
"""

import numpy as np

from regard.look.trace_data import Attended, Contents

COVERED = "covered"  # the score that reads the coverage
MONOTONIC = "monotonic"  # the normaliser that goes forward only
NOWHERE = 0.5  # a row with less weight in all has most likely reached the end without stopping


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
    if seen.normalise == MONOTONIC:
        rows = zip(trace.target.tokens, seen.weights.mean(0), strict=True)
        places = ((word, row.argmax() if row.sum() > NOWHERE else None) for word, row in rows)
        stops = (f"{word.text} at {'nowhere' if s is None else trace.source.tokens[s].text}" for word, s in places)
        lines.append("stopped: " + ", ".join(stops))
    copied = {step.t: step.norms["copy"] for step in trace.steps if step.name == seen.name and "copy" in step.norms}
    if copied:
        tokens = ((trace.target.tokens[t], share) for t, share in copied.items())
        lines.append("copied: " + ", ".join(f"{token.text} {share:.2f}" for token, share in tokens))
    return lines
