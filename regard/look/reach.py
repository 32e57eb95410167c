"""How far back a language model attends: the weight of each distance, and the words with the largest weights."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    return [each.result(name) for name, each in reach_sums(model, batches, farthest).items()]


def reach_sums(model: nn.Module, batches: Iterable[Tensor], farthest: int = 20) -> "dict[str, ReachSum]":
    """The totals of every attention module: those of the parts of a text add up to those of the text."""
    if not is_whole(farthest) or farthest < 1:
        raise ConfigError(f"farthest must be at least 1; got {farthest!r}.")
    sums: dict[str, ReachSum] = {}
    device = next(model.parameters()).device
    for target in batches:
        target = target.to(device)
        with torch.inference_mode(), record(model) as seen:
            model(target)
        for name in seen:
            weights = seen[name].weights.double()  # [B, (H), T, S]
            weights = weights.mean(1) if weights.dim() == 4 else weights  # [B, T, S]
            sums.setdefault(name, ReachSum([0.0] * (farthest + 1))).add(weights.cpu(), target.cpu())
    return sums


@dataclass
class ReachSum:
    """Totals of one module over a text."""

    shares: list[float]  # weight at distance 0 ... D - 1, and of everything beyond
    distance: float = 0.0
    rows: float = 0.0
    weight: Counter[int] = field(default_factory=Counter)  # of each word, times the places that could be attended to
    times: Counter[int] = field(default_factory=Counter)  # how often each word could be

    def add(self, weights: Tensor, target: Tensor) -> None:
        """weights [B, T, S] of the rows of target [B, T]."""
        T, S = weights.shape[1:]
        weights = weights * (target != PAD)[:, :, None]
        back = torch.arange(T)[:, None] - torch.arange(S)  # [T, S]
        weights = weights * (back >= 0)
        bins = back.clamp(0, len(self.shares) - 1).expand_as(weights)
        shares = torch.tensor(self.shares, dtype=torch.float64)
        self.shares = shares.scatter_add_(0, bins.reshape(-1), weights.reshape(-1)).tolist()
        self.distance += float((weights * back.clamp(min=0)).sum())
        self.rows += float(weights.sum())
        visible = weights > 0  # [B, T, S]
        places = visible.sum(-1, keepdim=True)  # [B, T, 1]
        read = shift_right(target)[:, :S]  # [B, S]: what each slot has read
        scaled, times = (weights * places).sum(1), visible.sum(1)  # [B, S]
        for word, weight, count in zip(*(part.flatten().tolist() for part in (read, scaled, times)), strict=True):
            self.weight[word] += weight
            self.times[word] += count

    def merge(self, other: "ReachSum") -> None:
        """Add the totals of another part of the text."""
        self.shares = [mine + theirs for mine, theirs in zip(self.shares, other.shares, strict=True)]
        self.distance, self.rows = self.distance + other.distance, self.rows + other.rows
        self.weight.update(other.weight)
        self.times.update(other.times)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ReachSum":
        """From `as_data` through JSON, where a word id is text."""
        words = {name: Counter({int(word): one for word, one in data[name].items()}) for name in ("weight", "times")}
        return cls(data["shares"], data["distance"], data["rows"], words["weight"], words["times"])

    def result(self, name: str) -> Reach:
        rows, times = max(self.rows, 1e-12), +self.times  # only what could be seen
        words = {word: self.weight[word] / count for word, count in times.items()}
        return Reach(name, np.array(self.shares) / rows, self.distance / rows, words, dict(times))
