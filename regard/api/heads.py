"""The aligning head of a translator: which attention weights link words (aligning.py)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.scores import uniform
from regard.data.batching import ShardedPlan, pad
from regard.errors import RunError
from regard.models.contract import attentions_to_source, guided_module
from regard.runs.settings import TrainConfig
from regard.sealed import read_small, write_atomically
from regard.symbols import END

FILE = "alignment.json"  # in the run folder: the head that was chosen

_READ_TOKENS = 4096  # tokens of one side of a batch, with padding


@dataclass(frozen=True)
class Heads:
    """Which weights give the alignment: a layer of cross-attention, and one of its heads, or their mean (None).

    Without a layer, this is the last layer but one. `shift` 1 takes row t + 1 for word t; None is the model's own.
    """

    layer: int | None = None
    head: int | None = None
    shift: int | None = None

    def override(self, named: "Heads") -> "Heads":
        """The choice of a run, replaced by what a user `named`. A shift belongs to its head: any other head has the
        model's own shift unless one is named."""
        if named.layer is None and named.head is None:
            return self if named.shift is None else replace(self, shift=named.shift)
        other = replace(named, layer=self.layer if named.layer is None else named.layer)
        same = (other.layer, other.head) == (self.layer, self.head)
        return replace(other, shift=self.shift) if same and other.shift is None else other

    def describe(self, model: nn.Module) -> str:
        """The choice in words, for a model."""
        alone = self.layer is None and len(attentions_to_source(model)) == 1
        layer = "the last layer but one" if self.layer is None else f"layer {self.layer}"
        head = "mean of its heads" if self.head is None else f"head {self.head}"
        weights = "the one attention over the source" if alone and self.head is None else f"{layer}, {head}"
        return weights + ("" if self.shift is None else f", shift {self.shift}")


CHOICE = Heads()  # nothing named: the choice of the run


def is_fixed(model: Any) -> bool:
    """Whether a model has no attention over the source, but one vector for all steps."""
    return all(model.get_submodule(name).score is uniform for name in attentions_to_source(model))


def keep_choice(run: Path, heads: Heads) -> None:
    """Store a choice in the run folder, where `find_choice` finds it."""
    write_atomically(run / FILE, (json.dumps(asdict(heads)) + "\n").encode())


def find_choice(run: Path, model: nn.Module, train: TrainConfig) -> Heads:
    """The choice stored in a run, the head that was guided in training, or the default."""
    path = run / FILE
    if not path.exists():
        return guided_heads(model, train)
    try:
        heads = Heads(**json.loads(read_small(path)))
        # Models of other packages need not name their number of heads.
        per_layer = getattr(getattr(model, "config", None), "heads", 1 << 16)
        sizes = (heads.layer, len(attentions_to_source(model))), (heads.head, per_layer), (heads.shift, 2)
        if any(number is not None and not (type(number) is int and 0 <= number < size) for number, size in sizes):
            raise ValueError
    except (OSError, ValueError, TypeError, RecursionError):
        raise RunError(
            f"{path} is damaged, or from another model; delete it, or choose again with `regard align --gold`."
        ) from None
    return heads


def guided_heads(model: nn.Module, train: TrainConfig) -> Heads:
    """The head that was guided in training."""
    if not train.guided:
        return Heads()
    layer = attentions_to_source(model).index(guided_module(model, train.guided_layer))
    return Heads(layer, None if train.guided_head < 0 else train.guided_head, train.guided_shift)


# --- weights of given pairs


def read_together(
    sources: Sequence[list[int]], targets: Sequence[list[int]], device: torch.device
) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Batches of pairs of similar length, with END: their indices, sources [B, S] with lengths [B], targets [B, T]."""
    if not sources:
        return
    read, wrote = (np.fromiter(map(len, side), np.int64, len(side)) + 1 for side in (sources, targets))
    for places in (batch.tolist() for batch in ShardedPlan(read, wrote, _READ_TOKENS, seed=0, epoch=0)):
        source, lengths = pad([[*sources[place], END] for place in places])
        target, _ = pad([[*targets[place], END] for place in places])
        yield places, source.to(device), lengths.to(device), target.to(device)
