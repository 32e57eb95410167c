"""GNMT's coverage penalty: a translation that left source words unlooked at ranks lower.

Search knows only `step`, so the weights come afterwards: the caller passes a behaviour that looks at finished
hypotheses (one `forward` under `record`, say), and they are ranked again.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from regard.decode.hypothesis import Hypothesis, rank
from regard.symbols import END, PAD

# Rows of the source batch [N] and what each wrote [N, T] (END last, then PAD) -> where it looked [N, T, S].
Weigh = Callable[[Tensor, Tensor], Tensor]

FLOOR = 1e-6  # a word never looked at costs log(1e-6), not infinity: local attention gives exact zeros


def coverage_penalty(weights: Tensor, target_lengths: Tensor, source_lengths: Tensor) -> Tensor:
    """cp = sum_i log(min(sum_j p_ij, 1)) over source words i, for weights p [N, T, S]. Returns [N], at most 0."""
    written = torch.arange(weights.shape[1], device=weights.device) < target_lengths[:, None]  # [N, T]
    read = torch.arange(weights.shape[2], device=weights.device) < source_lengths[:, None]  # [N, S]
    looked = (weights * written[..., None]).sum(1)  # [N, S]
    return (looked.clamp(FLOOR, 1).log() * read).sum(1)


def rank_by_coverage(
    found: list[list[Hypothesis]], weigh: Weigh, lengths: Tensor, rows: Tensor, beta: float
) -> list[list[Hypothesis]]:
    """Add beta * cp to every score and rank again. `rows` [B] are the sentences' rows in the source, of `lengths`."""
    flat = [(sentence, hypothesis) for sentence, group in enumerate(found) for hypothesis in group]
    if not flat:
        return found
    texts = [[*hypothesis.ids, END] if hypothesis.finished else hypothesis.ids for _, hypothesis in flat]
    longest = max(1, max(map(len, texts)))
    target = torch.tensor([[*ids, *[PAD] * (longest - len(ids))] for ids in texts], device=lengths.device)  # [N, T]
    source_rows = rows[torch.tensor([sentence for sentence, _ in flat], device=rows.device)]  # [N]
    written = torch.tensor([len(ids) for ids in texts], device=lengths.device)  # [N]
    penalties = coverage_penalty(weigh(source_rows, target), written, lengths[source_rows]).tolist()
    ranked: list[list[Hypothesis]] = [[] for _ in found]
    for (sentence, hypothesis), penalty in zip(flat, penalties, strict=True):
        ranked[sentence].append(replace(hypothesis, score=hypothesis.score + beta * penalty))
    return [rank(group) for group in ranked]
