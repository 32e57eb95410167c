"""Positions of tokens: the paper's sinusoid, a learned table, and rotation of queries and keys."""

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from regard.errors import ShapeError


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(the same): interleaved, as the paper prints it.

    positions [...] -> [..., width], in float64 for long texts. (The released code concatenates all sines and all
    cosines: another function.)

    >>> core.sinusoid(torch.arange(3), width=4).float()  # fast waves first
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8415,  0.5403,  0.0100,  0.9999],
            [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    if width % 2:
        raise ShapeError(f"Positions come in pairs of sine and cosine, so the width must be even; got {width}.")
    # A table made while tracing would be a fake one.
    frequency, phase = (_waves if torch.compiler.is_compiling() else _kept_waves)(width, positions.device)
    return torch.addcmul(phase, positions[..., None].to(frequency.dtype), frequency).sin_()  # cos x = sin(x + pi / 2)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions (Su 2021): rotate the pair (x_2i, x_2i+1) by pos * 10000^(-2i/D).

    x [..., T, D], positions [..., T]. The dot product of a rotated query and key depends on their distance only.

    >>> query, key = torch.ones(1, 8), torch.ones(1, 8)  # [T, D]
    >>> near = core.rotate(query, torch.tensor([3])) @ core.rotate(key, torch.tensor([1])).T
    >>> later = core.rotate(query, torch.tensor([43])) @ core.rotate(key, torch.tensor([41])).T
    >>> torch.allclose(near, later)  # both are two places apart
    True
    """
    return rotate_by(x, sinusoid(positions, x.shape[-1]).to(x.dtype))  # an angle in bfloat16 would be off by radians


def rotate_by(x: Tensor, waves: Tensor) -> Tensor:
    """`rotate` by sines and cosines that are already there: waves [..., T, D] from `sinusoid`."""
    sin, cos = waves[..., 0::2], waves[..., 1::2]  # [..., T, D / 2]
    even, odd = x[..., 0::2], x[..., 1::2]  # [..., T, D / 2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)  # [..., T, D]


class LearnedPositions(nn.Module):
    """A learned vector for each position up to `longest`: positions [...] -> [..., width].

    >>> positions = core.LearnedPositions(longest=50, width=8)
    >>> positions(torch.arange(5)).shape
    torch.Size([5, 8])
    """

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest, width)

    def forward(self, positions: Tensor) -> Tensor:
        try:  # never checked on a GPU: a search there keeps to the limit of the model
            if positions.shape[-1] > self.table.num_embeddings:
                raise IndexError
            return self.table(positions)
        except IndexError as error:
            raise ShapeError(
                f"Learned positions reach {self.table.num_embeddings} tokens; got a longer sequence. "
                f"Use shorter sentences, a larger `longest`, or sinusoidal positions."
            ) from error


def _waves(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """How fast each column rotates and where it begins: [width] each."""
    columns = torch.arange(width, device=device)
    frequency = 10000.0 ** (-(columns - columns % 2).double() / width)
    return frequency, (columns % 2).double() * (math.pi / 2)


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # a table made while decoding must serve in training too
@torch.no_grad()
def _kept_waves(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    return _waves(width, device)
