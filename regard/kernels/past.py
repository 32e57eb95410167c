"""`core.past.Past` for a search that owns its state: the same methods, but written in place into larger buffers.

`Past.append` copies all earlier steps; these write the new step only. A step invalidates the state before it: `take` it
first to keep a copy.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.nested import map_nested
from regard.core.past import Past
from regard.kernels.choose import or_triton


class RoomyPast(NamedTuple):
    """Buffers that double when they are full: a step writes its own slot and copies nothing."""

    buffers: tuple[Tensor, ...]  # [B, ..., room, D] each
    filled: int

    def append(self, *new: Tensor) -> "RoomyPast":
        end = self.filled + new[0].shape[-2]
        buffers = tuple(grow(buffer, end) for buffer in self.buffers)
        for buffer, step in zip(buffers, new, strict=True):
            buffer.narrow(-2, self.filled, step.shape[-2]).copy_(step)
        return RoomyPast(buffers, end)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(buffer.narrow(-2, 0, self.filled) for buffer in self.buffers)

    @property
    def mask(self) -> Tensor | None:
        return None

    @property
    def ages(self) -> Tensor:
        return torch.arange(self.filled, 0, -1, device=self.buffers[0].device)[None]


class FixedPast(NamedTuple):
    """Buffers of a fixed size and the number of filled slots as a tensor: the same calls at every step.

    That is what a CUDA graph can replay. It takes one step at a time, the same one in every row.
    """

    tensors: tuple[Tensor, ...]  # [B, ..., room, D] each
    filled: Tensor  # [B]

    def append(self, *new: Tensor) -> "FixedPast":
        if len(new) == 2 and new[0].dim() == 4:
            (keys_to, values_to), (keys, values) = self.tensors, new
            write_slot(keys_to, values_to, keys, values, self.filled[:1])
        else:
            for buffer, step in zip(self.tensors, new, strict=True):
                buffer.index_copy_(buffer.dim() - 2, self.filled[:1], step.to(buffer.dtype))
        return FixedPast(self.tensors, self.filled + 1)

    def change_places(self, rows: Tensor, beams: int) -> "FixedPast":
        """Row i continues what row rows[i] wrote, in place; rows [B] stay inside the `beams` rows of a sentence."""
        if len(self.tensors) == 2 and self.tensors[0].dim() == 4:
            move_slots(*self.tensors, rows, self.filled[:1], beams)
        else:
            for buffer in self.tensors:
                buffer.copy_(buffer.index_select(0, rows))
        return self

    @property
    def mask(self) -> Tensor | None:
        return self.ages > 0  # [1, room]

    @property
    def ages(self) -> Tensor:
        slots = torch.arange(self.tensors[0].shape[-2], device=self.filled.device)  # [room]
        return self.filled[:1, None] - slots  # [1, room]


@or_triton("past_slots")
def write_slot(keys_to: Tensor, values_to: Tensor, keys: Tensor, values: Tensor, slot: Tensor) -> None:
    """Write keys, values [B, H, 1, D] into slot [1] of buffers [B, H, room, D]."""
    for buffer, step in ((keys_to, keys), (values_to, values)):
        buffer.index_copy_(2, slot, step.to(buffer.dtype))


@or_triton("past_slots")
def move_slots(keys: Tensor, values: Tensor, rows: Tensor, filled: Tensor, beams: int) -> None:
    """Buffers [B, H, room, D] with row rows[i] of each in row i; only the first filled [1] slots count."""
    for buffer in (keys, values):
        buffer.copy_(buffer.index_select(0, rows))


def change_places(state: Any, rows: Tensor, beams: int) -> Any:
    """`models.contract.take_beams` for a state with fixed pasts, which are written in place."""

    def move(part: Any) -> Any:
        return part.change_places(rows, beams) if isinstance(part, FixedPast) else part.index_select(0, rows)

    rest = {name: part for name, part in state._asdict().items() if name != "memory"}
    return state._replace(**{name: map_nested(part, move, (Tensor, FixedPast)) for name, part in rest.items()})


def with_room(state: Any, steps: int, fixed: bool = False) -> Any:
    """The same state with room for `steps` steps, counted from the first, in every past that it holds."""

    def widen(past: Past | RoomyPast | FixedPast) -> RoomyPast | FixedPast:
        filled = getattr(past, "filled", past.tensors[0].shape[-2])
        buffers = tuple(_room(tensor, steps) for tensor in past.tensors)
        if not fixed:
            return RoomyPast(buffers, filled)
        if not isinstance(filled, Tensor):
            filled = torch.full((len(buffers[0]),), filled, device=buffers[0].device)
        return FixedPast(buffers, filled)

    return map_nested(state, widen, (Past, RoomyPast, FixedPast))


def grow(buffer: Tensor, needed: int) -> Tensor:
    """The buffer [..., room, D] with room for `needed` steps: as it is, or copied into one of twice the size."""
    room = buffer.shape[-2]
    return buffer if needed <= room else _room(buffer, max(needed, 2 * room))


def _room(tensor: Tensor, steps: int) -> Tensor:
    """tensor [..., t, D] in a new buffer with `steps` slots, zeros in the free ones."""
    buffer = tensor.new_zeros(*tensor.shape[:-2], max(steps, tensor.shape[-2]), tensor.shape[-1])
    buffer.narrow(-2, 0, tensor.shape[-2]).copy_(tensor)
    return buffer
