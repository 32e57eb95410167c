"""Where a token stands: the paper's sinusoid, a learned table, and rotation of queries and keys."""

import torch
from torch import Tensor, nn

from regard.errors import ShapeError


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(the same): interleaved, as the paper prints it.

    positions [...] -> [..., width]. (The released code concatenates all sines and all cosines: another function.)
    """
    angles = _angles(positions, width)  # [..., width / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # [..., width]


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions (Su 2021): turn the pair (x_2i, x_2i+1) by pos * 10000^(-2i/D).

    x [..., T, D], positions [..., T]. Turned queries and keys meet in a dot product that knows only their distance.
    """
    angles = _angles(positions, x.shape[-1])  # [..., T, D / 2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # an angle in bfloat16 would be off by radians
    even, odd = x[..., 0::2], x[..., 1::2]  # [..., T, D / 2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)  # [..., T, D]


class LearnedPositions(nn.Module):
    """A learned vector for each position up to `longest`: positions [...] -> [..., width]."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest, width)

    def forward(self, positions: Tensor) -> Tensor:
        last, longest = int(positions.max()) if positions.numel() else 0, self.table.num_embeddings
        if last >= longest:
            raise ShapeError(
                f"Learned positions reach {longest} tokens; got a sequence of at least {last + 1}. "
                f"Use shorter sentences, a larger `longest`, or sinusoidal positions."
            )
        return self.table(positions)


def _angles(positions: Tensor, width: int) -> Tensor:
    """pos * 10000^(-2i / width) for i = 0 ... width / 2 - 1: [..., width / 2], in float64 for long texts."""
    if width % 2:
        raise ShapeError(f"Positions come in pairs of sine and cosine, so the width must be even; got {width}.")
    halves = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    return positions.to(torch.float64)[..., None] * 10000.0 ** (-halves / width)
