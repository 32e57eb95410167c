"""Packed sentences: a batch as one row of words, sentences end to end, so that nothing is computed for padding.

Layers that read one word at a time run on the row; attention stays inside each sentence.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Query t of sentence b may look at the slots of sentence b. Each position of the row belongs to one sentence."""

    queries: Tensor  # [B, T] the position of each query in the row; -1 where a sentence has ended
    slots: Tensor  # [B, S] the same for each slot


def apart(x: Tensor, places: Tensor) -> Tensor:
    """Unpack: x [1, H, N, D], places [B, T] -> [B, H, T, D], one sentence per row; any number without a word."""
    words = x[0].transpose(0, 1).index_select(0, places.clamp(min=0).flatten())  # [B T, H, D]
    return words.unflatten(0, places.shape).transpose(1, 2)


def end_to_end(x: Tensor, places: Tensor, size: int) -> Tensor:
    """Pack, the inverse of `apart`: x [B, H, T, D], places [B, T] -> [1, H, N, D] with N = size."""
    words = x.transpose(1, 2).flatten(0, 1)  # [B T, H, D]
    row = x.new_zeros(size + 1, *words.shape[1:]).index_copy(0, _or_last(places, size), words)
    return row[:size].transpose(0, 1)[None]


def word_numbers(places: Tensor, size: int) -> Tensor:
    """The position of each word of the row in its sentence, from 0: places [B, T] -> [N]."""
    numbers = torch.arange(places.shape[1], device=places.device).repeat(len(places))  # [B T]
    return numbers.new_zeros(size + 1).index_copy(0, _or_last(places, size), numbers)[:size]


def _or_last(places: Tensor, size: int) -> Tensor:
    """places as [B T], with `size`, a position that is dropped later, instead of -1; does not wait for the device."""
    return torch.where(places < 0, size, places).flatten().long()
