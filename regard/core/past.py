"""The past of a model: keys and values of the words so far, or the tapes of an LSTMN."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
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

    def last(self, slots: int) -> "Past":
        """The last `slots` steps; where there are fewer, zeros before them."""
        free = [max(0, slots - tensor.shape[-2]) for tensor in self.tensors]
        padded = (F.pad(tensor, (0, 0, few, 0)) for tensor, few in zip(self.tensors, free, strict=True))
        return Past(tuple(tensor[..., tensor.shape[-2] - slots :, :] for tensor in padded))

    @property
    def mask(self) -> Tensor | None:
        """Which slots are filled, [1, slots]; None where all are."""
        return None

    @property
    def ages(self) -> Tensor:
        """How many steps ago each slot was written, [1, slots]: 1 for the last; 0 or less for a free one."""
        slots = self.tensors[0]
        return torch.arange(slots.shape[-2], 0, -1, device=slots.device)[None]


class Carry(NamedTuple):
    """A past of fixed size: what a recurrence carries to its next step, [B, D] each."""

    tensors: tuple[Tensor, ...]


EMPTY_PAST = Past()
