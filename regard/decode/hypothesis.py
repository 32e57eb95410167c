"""What a search returns: sentences as ids, with their probability, their score, and how they ended."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
Ended = Literal["end", "length", "not finite", "stopped"]
_RANK: dict[Ended, int] = {"end": 0, "length": 1, "stopped": 2, "not finite": 3}


@dataclass(frozen=True)
class Hypothesis:
    """One sentence that the search found.

    `ended` says how: "end" (the model wrote END), "length" (cut at the longest allowed), "not finite" (no token
    had a probability: NaN, infinite or all-excluded logits), "stopped" (the caller asked to stop).
    """

    ids: list[int]  # without END
    logprob: float  # log P(ids), END included where it was written
    score: float  # what hypotheses are ranked by: logprob / length penalty, plus the coverage penalty if one is set
    ended: Ended
    token_logprobs: list[float]  # one for each id, and END's last where it was written

    @property
    def finished(self) -> bool:
        """Whether the model itself ended the sentence."""
        return self.ended == "end"


def length_penalty(length: float, alpha: float) -> float:
    """GNMT's lp(Y) = ((5 + |Y|) / 6)^alpha, by which a log-probability is divided. |Y| counts END."""
    return float(((5 + length) / 6) ** alpha)


class Found:
    """The hypotheses found so far, for each sentence of a batch."""

    def __init__(self, sentences: int, alpha: float) -> None:
        self._lists: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._alpha = alpha

    def add(self, sentences: Array, tokens: Array, logprobs: Array, total: Array, ended: Ended) -> None:
        """Note E hypotheses: their sentences [E], tokens [E, t], log-probabilities [E, t or t + 1] and total [E].

        A hypothesis that is not finite is noted only where nothing else was found.
        """
        penalty = length_penalty(logprobs.shape[1], self._alpha)
        columns = (sentences.tolist(), tokens.tolist(), logprobs.tolist(), total.tolist())
        for sentence, ids, each, logprob in zip(*columns, strict=True):
            if ended != "not finite" or not self._lists[sentence]:
                self._lists[sentence].append(Hypothesis(ids, logprob, logprob / penalty, ended, each))

    def ranked(self, nbest: int) -> list[list[Hypothesis]]:
        """The `nbest` best of each sentence: finished ones first, then by score, then in the order found."""
        return [rank(hypotheses)[:nbest] for hypotheses in self._lists]


def rank(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses of one sentence, finished ones first, the best score first; equal ones keep their order."""
    return sorted(hypotheses, key=lambda hypothesis: (_RANK[hypothesis.ended], -hypothesis.score))
