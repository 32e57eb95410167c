"""Sentences end to end in one row, so that nothing is computed for padding: what only a word needs is computed for the
row, and attention stays inside each sentence."""

from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Query t of sentence b may look at the slots of sentence b. Each place of a row belongs to one sentence."""

    queries: Tensor  # [B, T] the place in the row of each query; -1 where a sentence has ended
    slots: Tensor  # [B, S] the same for each slot


def apart(x: Tensor, places: Tensor) -> Tensor:
    """One sentence a row: x [1, H, N, D], places [B, T] -> [B, H, T, D]; where there is no word, any number."""
    words = x[0].transpose(0, 1).index_select(0, places.clamp(min=0).flatten())  # [B T, H, D]
    return words.unflatten(0, places.shape).transpose(1, 2)


def end_to_end(x: Tensor, places: Tensor, size: int) -> Tensor:
    """The inverse: x [B, H, T, D], places [B, T] -> [1, H, N, D] with N = size."""
    words = x.transpose(1, 2).flatten(0, 1)  # [B T, H, D]
    row = x.new_zeros(size + 1, *words.shape[1:]).index_copy(0, _or_last(places, size), words)
    return row[:size].transpose(0, 1)[None]


def word_numbers(places: Tensor, size: int) -> Tensor:
    """Where each word of the row is in its sentence, from zero: places [B, T] -> [N]."""
    numbers = torch.arange(places.shape[1], device=places.device).repeat(len(places))  # [B T]
    return numbers.new_zeros(size + 1).index_copy(0, _or_last(places, size), numbers)[:size]


def _or_last(places: Tensor, size: int) -> Tensor:
    """[B T], with `size`, a place that is dropped later, instead of -1: nothing is read from the device."""
    return torch.where(places < 0, size, places).flatten().long()
