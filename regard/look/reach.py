"""How far back a language model attends: the weight of each distance, and the words with the largest weights."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.look.record import record
from regard.look.tokens import is_whole
from regard.models.contract import shift_right
from regard.symbols import PAD


@dataclass(frozen=True)
class Reach:
    """The attention of one module to the past, on average over all words of a text that have a past.

    Distance 0 is the word just read (a Transformer sees it), distance 1 the one before. `words` are the word ids read,
    with the mean weight that they get where they can be seen, times the number of places that can be attended to: 1 is
    what looking at all alike would give. `times` says how often each could be seen: a mean of few is no finding.
    """

    name: str
    shares: NDArray[np.float64]  # [D + 1] weight at distance 0 ... D - 1, and of everything beyond
    mean: float  # mean distance
    words: dict[int, float]
    times: dict[int, int]

    def favourites(self, least: int = 20) -> list[int]:
        """The words that were visible at least `least` times, those with the largest weights first."""
        return sorted(
            (word for word, count in self.times.items() if count >= least), key=lambda word: -self.words[word]
        )


def reach(model: nn.Module, batches: Iterable[Tensor], farthest: int = 20) -> list[Reach]:
    """Read batches of rows [B, T] (padded) and measure every attention module; heads are averaged."""
    if not is_whole(farthest) or farthest < 1:
        raise ConfigError(f"farthest must be at least 1; got {farthest!r}.")
    sums: dict[str, _Sum] = {}
    device = next(model.parameters()).device
    for target in batches:
        target = target.to(device)
        with torch.inference_mode(), record(model) as seen:
            model(target)
        for name in seen:
            weights = seen[name].weights.double()  # [B, (H), T, S]
            weights = weights.mean(1) if weights.dim() == 4 else weights  # [B, T, S]
            sums.setdefault(name, _Sum(farthest)).add(weights.cpu(), target.cpu())
    return [each.result(name) for name, each in sums.items()]


class _Sum:
    """Totals over batches."""

    def __init__(self, farthest: int) -> None:
        self.farthest = farthest
        self.shares = torch.zeros(farthest + 1, dtype=torch.float64)
        self.distance = 0.0
        self.rows = 0.0
        self.weight: Counter[int] = Counter()  # of each word, times the places that could be attended to
        self.times: Counter[int] = Counter()  # how often each word could be

    def add(self, weights: Tensor, target: Tensor) -> None:
        """weights [B, T, S] of the rows of target [B, T]."""
        T, S = weights.shape[1:]
        weights = weights * (target != PAD)[:, :, None]
        back = torch.arange(T)[:, None] - torch.arange(S)  # [T, S]
        weights = weights * (back >= 0)
        bins = back.clamp(0, self.farthest).expand_as(weights)
        self.shares.scatter_add_(0, bins.reshape(-1), weights.reshape(-1))
        self.distance += float((weights * back.clamp(min=0)).sum())
        self.rows += float(weights.sum())
        visible = weights > 0  # [B, T, S]
        places = visible.sum(-1, keepdim=True)  # [B, T, 1]
        read = shift_right(target)[:, :S]  # [B, S]: what each slot has read
        scaled, times = (weights * places).sum(1), visible.sum(1)  # [B, S]
        for word, weight, count in zip(*(part.flatten().tolist() for part in (read, scaled, times)), strict=True):
            self.weight[word] += weight
            self.times[word] += count

    def result(self, name: str) -> Reach:
        rows, times = max(self.rows, 1e-12), +self.times  # only what could be seen
        words = {word: self.weight[word] / count for word, count in times.items()}
        return Reach(name, (self.shares / rows).numpy(), self.distance / rows, words, dict(times))
