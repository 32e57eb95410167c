"""What a search returns: sentences as ids with their probability, their ranking, and signs that one went wrong."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from operator import eq
from typing import Literal, TypeVar

import torch
from torch import Tensor

from regard.symbols import END, PAD

AnyLength = TypeVar("AnyLength", float, Tensor)
Ended = Literal["end", "length", "not finite", "stopped"]
_RANK: dict[Ended, int] = {"end": 0, "length": 1, "stopped": 2, "not finite": 3}


@dataclass(frozen=True)
class Hypothesis:
    """One sentence that the search found.

    `ended` says how: "end" (the model wrote END), "length" (cut at the longest allowed), "not finite" (no token
    had a probability: NaN, infinite or all-excluded logits), "stopped" (the caller ended the search).
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


def length_penalty(length: AnyLength, alpha: float, offset: float = 5.0) -> AnyLength:
    """GNMT's lp(Y) = ((k + |Y|) / (k + 1))^alpha, k = 5, by which a log-probability is divided. |Y| counts END."""
    return ((offset + length) / (offset + 1)) ** alpha


def rank(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses of one sentence, finished ones first, the best score first; equal ones keep their order."""
    return sorted(hypotheses, key=lambda hypothesis: (_RANK[hypothesis.ended], -hypothesis.score))


# --- the coverage penalty: search uses only `step`, so weights are computed afterwards --------------------------------

# Rows of the source batch [N] and what each wrote [N, T] (END last, then PAD) -> attention weights [N, T, S], and which
# positions of the source the model can attend to at all [N, S].
Weigh = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

FLOOR = 1e-6  # a word without any weight costs log(1e-6), not infinity: local attention gives exact zeros


def coverage_penalty(weights: Tensor, target_lengths: Tensor, visible: Tensor) -> Tensor:
    """GNMT's cp = sum_i log(min(sum_j p_ij, 1)) over `visible` [N, S] source positions i, for weights p [N, T, S].

    Returns [N], at most 0. Positions that a model never attends to (Luong's do not see END) do not count.
    """
    written = torch.arange(weights.shape[1], device=weights.device) < target_lengths[:, None]  # [N, T]
    covered = (weights * written[..., None]).sum(1)  # [N, S]
    return (covered.clamp(FLOOR, 1).log() * visible).sum(1)


def rank_by_coverage(found: list[list[Hypothesis]], weigh: Weigh, rows: Tensor, beta: float) -> list[list[Hypothesis]]:
    """Add beta * cp to every score and rank again. `rows` [B] are the sentences' rows in the source."""
    flat = [(sentence, hypothesis) for sentence, group in enumerate(found) for hypothesis in group]
    if not flat:
        return found
    texts = [[*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids for _, hypothesis in flat]
    longest = max(1, max(map(len, texts)))
    target = torch.tensor([[*ids, *[PAD] * (longest - len(ids))] for ids in texts], device=rows.device)  # [N, T]
    source_rows = rows[torch.tensor([sentence for sentence, _ in flat], device=rows.device)]  # [N]
    written = torch.tensor([len(ids) for ids in texts], device=rows.device)  # [N]
    weights, visible = weigh(source_rows, target)
    penalties = coverage_penalty(weights, written, visible).tolist()
    ranked: list[list[Hypothesis]] = [[] for _ in found]
    for (sentence, hypothesis), penalty in zip(flat, penalties, strict=True):
        ranked[sentence].append(replace(hypothesis, score=hypothesis.score + beta * penalty))
    return [rank(group) for group in ranked]


# --- translations that went wrong in a way that shows without a reference ---------------------------------------------

Flag = Literal["empty", "loop", "copy"]

COPIED = 0.8  # at least this share of the words are the source's, in its order
LONGEST = 64  # most words of a phrase whose repetition counts
WORDS = 4  # a source with fewer words (a name, a number, "OK") may well stay as it is


def flags(source: Sequence[str], output: Sequence[str]) -> list[Flag]:
    """What is wrong with `output` as a translation of `source`, both as words; an empty list where nothing is.

    * "empty": the source holds words and the output none.
    * "loop": a word four times in a row, two to four words three times, five or more twice; unless the source loops.
    * "copy": the output is the source again, wholly or nearly, ignoring case.
    """
    if not source:
        return []
    if not output:
        return ["empty"]
    found: list[Flag] = []
    if loops(output) and not loops(source):
        found.append("loop")
    before, after = list(map(str.casefold, source)), list(map(str.casefold, output))
    common = (Counter(before) & Counter(after)).total()  # in any order: at least as many, and quickly counted
    if 2 * common / (len(before) + len(after)) >= COPIED:
        words = sum(any(map(str.isalpha, word)) for word in before)
        # The share of words in common, in order: 2 * common / words of both.
        if words >= WORDS and SequenceMatcher(None, before, after, autojunk=False).ratio() >= COPIED:
            found.append("copy")
    return found


def loops(words: Sequence[str]) -> bool:
    """Whether some stretch of `words` says the same thing over and over."""
    for period in range(1, min(len(words) // 2, LONGEST) + 1):
        times = 4 if period == 1 else 3 if period < 5 else 2
        if sum(map(eq, words, words[period:])) < period * (times - 1):
            continue  # too few words equal the word one period earlier, in a row or not
        run = 0  # how many of them in a row
        for earlier, word in zip(words, words[period:], strict=False):
            run = run + 1 if word == earlier else 0
            if run >= period * (times - 1):
                return True
    return False
