"""What a model keeps of its earlier steps: the keys and values of the words so far, the tapes of an LSTMN."""

from typing import NamedTuple

import torch
from torch import Tensor


class Past(NamedTuple):
    """Tensors that grow by a step: each is [B, ..., t, D] after t steps.

    `append` copies, so that a past may be continued twice. A search that owns its state replaces it by one of
    `kernels.past`, which has the same methods and writes in place.
    """

    tensors: tuple[Tensor, ...] = ()

    def append(self, *new: Tensor) -> "Past":
        """The past with more steps [B, ..., n, D] appended. An empty `Past()` takes whatever comes first."""
        if not self.tensors:
            return Past(new)
        return Past(tuple(torch.cat(pair, dim=-2) for pair in zip(self.tensors, new, strict=True)))

    @property
    def mask(self) -> Tensor | None:
        """Which slots are filled, [1, slots]; None where all are."""
        return None


class Carry(NamedTuple):
    """A past of fixed size: what a recurrence carries to its next step, [B, D] each."""

    tensors: tuple[Tensor, ...]


NOTHING = Past()
