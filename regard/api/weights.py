"""The attention of given pairs of ids, read by a forward pass: in batches of like length, or for a search."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.api.heads import Heads
from regard.data.batching import pad, plan_epoch
from regard.decode.hypothesis import Weigh
from regard.look.record import record
from regard.symbols import END
from regard.training.translation import guided_head, guided_module

Pair = tuple[list[int], list[int]]  # source and target ids, END last in both
_READ_TOKENS = 4096  # of one side read together, padding counted


def read_together(pairs: Sequence[Pair], device: torch.device) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Batches of pairs of like length: their places, sources [B, S] with lengths [B], and targets [B, T]."""
    if not pairs:
        return
    read, wrote = (np.array([len(pair[side]) for pair in pairs], dtype=np.int64) for side in (0, 1))
    for places in (batch.tolist() for batch in plan_epoch(read, wrote, _READ_TOKENS, seed=0, epoch=0)):
        source, lengths = pad([pairs[place][0] for place in places])
        target, _ = pad([pairs[place][1] for place in places])
        yield places, source.to(device), lengths.to(device), target.to(device)


def weigh_pairs(
    model: Any, heads: Heads, sources: Sequence[list[int]], targets: Sequence[list[int]], device: torch.device
) -> list[NDArray[np.float32]]:
    """The weights [T, S] with which each word of a translation attended to its source, by `heads`, END included in
    both; zeros where the model has one vector for the whole source."""
    name = guided_module(model, -2 if heads.layer is None else heads.layer)
    shift = model.looking.shift if heads.shift is None else heads.shift
    found: dict[int, NDArray[np.float32]] = {}
    pairs = [([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]
    for places, read, lengths, written in read_together(pairs, device):
        with torch.inference_mode(), record(model, [name]) as seen:
            model(read, lengths, written)
        weights = guided_head(seen[name].weights, -1 if heads.head is None else heads.head)  # [B, T, S]
        for row, place in zip(weights.float().cpu().numpy(), places, strict=True):
            T, S = len(pairs[place][1]), len(pairs[place][0])
            shifted = np.concatenate([row[shift:T, :S], row[T - shift : T, :S]])
            found[place] = shifted if shifted.shape == (T, S) else np.zeros((T, S), np.float32)
    return [found[place] for place in range(len(pairs))]


def weigher(model: Any, source: Tensor, lengths: Tensor) -> Weigh:
    """For the coverage penalty: the mean weights [N, T, S] with which rows of a batch attended to their source, and
    which of its positions the model can attend to [N, S]."""

    def weigh(rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        with record(model) as seen:
            model(source[rows], lengths[rows], target)
        calls = [seen[name] for name in model.looking.cross]
        weights = [call.weights.mean(1) if call.weights.dim() == 4 else call.weights for call in calls]
        visible = [(call.scores > -torch.inf).flatten(1, -2).any(1) for call in calls]  # [N, S]
        return torch.stack(weights).mean(0), torch.stack(visible).any(0)

    return weigh
