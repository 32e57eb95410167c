"""What a search returns: sentences as ids with their probability, and their ranking."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regard.symbols import END, PAD

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
