"""Where a token stands: the paper's sinusoid, a learned table, and rotation of queries and keys.

Each takes any positions as a tensor; the forms that end in `_at` take neighbouring ones as a `range`, as sentences have
them, and look them up in a table that is computed once.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from regard.errors import ShapeError


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(the same): interleaved, as the paper prints it.

    positions [...] -> [..., width]. (The released code concatenates all sines and all cosines: another function.)
    """
    angles = _angles(positions, width)  # [..., width / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # [..., width]


def sinusoid_at(places: range, x: Tensor) -> Tensor:
    """The sinusoid of neighbouring places, as wide as x and in its dtype: [T, D]."""
    return _table(_round(places.stop), x.shape[-1], x.dtype, x.device)[places.start : places.stop]


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions (Su 2021): turn the pair (x_2i, x_2i+1) by pos * 10000^(-2i/D).

    x [..., T, D], positions [..., T]. Turned queries and keys meet in a dot product that knows only their distance.
    """
    return _turn(x, sinusoid(positions, x.shape[-1]).to(x.dtype))  # an angle in bfloat16 would be off by radians


def rotate_at(x: Tensor, places: range) -> Tensor:
    """`rotate` for neighbouring places: x [..., T, D] -> the same shape."""
    return _turn(x, sinusoid_at(places, x))


def _turn(x: Tensor, sines: Tensor) -> Tensor:
    sin, cos = sines[..., 0::2], sines[..., 1::2]  # [..., T, D / 2]
    even, odd = x[..., 0::2], x[..., 1::2]  # [..., T, D / 2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)  # [..., T, D]


class LearnedPositions(nn.Module):
    """A learned vector for each position up to `longest`: positions [...] -> [..., width]."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest, width)

    def forward(self, positions: Tensor) -> Tensor:
        self._check(int(positions.max()) + 1 if positions.numel() else 0)
        return self.table(positions)

    def at(self, places: range) -> Tensor:
        """The vectors of neighbouring places: [T, width]. Nothing waits for a GPU."""
        self._check(places.stop)
        return self.table.weight[places.start : places.stop]

    def _check(self, size: int) -> None:
        if size > self.table.num_embeddings:
            raise ShapeError(
                f"Learned positions reach {self.table.num_embeddings} tokens; got a sequence of at least {size}. "
                f"Use shorter sentences, a larger `longest`, or sinusoidal positions."
            )


def _round(size: int) -> int:
    """Some power of two that is at least `size`, so that few tables serve all sentences."""
    return max(64, 1 << (size - 1).bit_length())


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # a table made while decoding must serve in training too
@torch.no_grad()
def _table(size: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return sinusoid(torch.arange(size, device=device), width).to(dtype)  # [size, width]


def _angles(positions: Tensor, width: int) -> Tensor:
    """pos * 10000^(-2i / width) for i = 0 ... width / 2 - 1: [..., width / 2], in float64 for long texts."""
    if width % 2:
        raise ShapeError(f"Positions come in pairs of sine and cosine, so the width must be even; got {width}.")
    halves = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    return positions.to(torch.float64)[..., None] * 10000.0 ** (-halves / width)
