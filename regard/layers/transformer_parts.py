"""Parts of a Transformer from later papers: other positions, feed-forward nets, and an SSRU instead of self-attention.

Each replaces a part of `layers.transformer`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attend import Look, Memory, Score
from regard.core.past import Carry
from regard.core.positions import LearnedPositions, rotate_by, sinusoid
from regard.core.products import Linear
from regard.core.scores import COMPARISONS, Relative, alibi, clip_distances
from regard.errors import ConfigError
from regard.layers.attention import Attention
from regard.layers.transformer import NO_PLACES, FeedForward, Heads, Places, SelfAttention, xavier

# --- positions: embedded tokens [B, T, D] at positions [T] -> what the layers read, and what their attention needs


def add_sinusoid(x: Tensor, positions: Tensor) -> tuple[Tensor, Places]:
    """The paper's sinusoid."""
    return x + sinusoid(positions, x.shape[-1]).to(x.dtype), NO_PLACES


class Learned(nn.Module):
    """Adds a learned vector for each position."""

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        self.embed = LearnedPositions(longest, width)
        nn.init.normal_(self.embed.table.weight, std=width**-0.5)

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Places]:
        return x + self.embed(positions), NO_PLACES


def rotary(x: Tensor, positions: Tensor, head_width: int) -> tuple[Tensor, Places]:
    """Adds nothing: queries and keys are turned inside the layers."""
    return x, Places(partial(rotate_by, waves=sinusoid(positions, head_width).to(x.dtype)))


def distances(x: Tensor, positions: Tensor) -> tuple[Tensor, Places]:
    """Adds nothing: the scores read how far two words are apart."""
    return x, Places(positions=positions)


# The settings of a Transformer -> what it does with positions.
PLACES: dict[str, Callable[[Any], Callable[[Tensor, Tensor], tuple[Tensor, Places]]]] = {
    "sinusoid": lambda config: add_sinusoid,
    "learned": lambda config: Learned(config.longest, config.width),
    "rotary": lambda config: partial(rotary, head_width=config.width // config.heads),
    "relative": lambda config: distances,
    "alibi": lambda config: distances,
}


def self_score(config: Any) -> Score:
    """The score of self-attention: the one of the settings, or the one that reads distances, where positions do."""
    width = config.width // config.heads
    if config.positions not in ("relative", "alibi"):
        if config.positions == "rotary" and config.score == "additive":
            raise ConfigError(
                "model.positions = 'rotary' turns queries and keys that meet in a dot product; got model.score = "
                "'additive'. Use other positions or another score."
            )
        return COMPARISONS[config.score](width)
    if config.score != "scaled-dot":
        raise ConfigError(
            f"model.positions = {config.positions!r} adds to scaled-dot scores; got model.score = "
            f"{config.score!r}. Use other positions, or leave the score out."
        )
    return Relative(width, config.clip) if config.positions == "relative" else alibi


class RelativeSelfAttention(SelfAttention):
    """Self-attention with a learned vector for each distance, in the keys and in the values (Shaw et al. 2018).

        e_ij = q_i (k_j + a^K_(j-i)) / sqrt(d_k)  (`Relative`);   z_i = sum_j alpha_ij (v_j + a^V_(j-i))     (eq. 3-4)

    The weights of all words at one distance are added first, then multiplied by its vector.
    """

    def __init__(self, sizes: Heads, attention: Attention) -> None:
        super().__init__(sizes, attention)
        assert isinstance(attention.score, Relative)
        self.values = nn.Embedding(*attention.score.distances.weight.shape)  # a^V
        nn.init.xavier_uniform_(self.values.weight)

    def collect(self, look: Look, distances: Tensor | None) -> Tensor:
        assert look.weights is not None
        assert distances is not None
        table = self.values.weight  # [2 clip + 1, D/H]
        which = clip_distances(distances, len(table)).expand_as(look.weights)  # [B, H, T, S]
        by_distance = look.weights.new_zeros(*look.weights.shape[:-1], len(table)).scatter_add(-1, which, look.weights)
        return look.context + by_distance @ table.to(by_distance.dtype)


# --- instead of self-attention and of the feed-forward net


class SSRU(nn.Module):
    """In place of causal self-attention, one state of all words so far (Kim et al. 2019, section 3.1).

        f_t = sigmoid(W_f x_t + b_f);  c_t = f_t * c_{t-1} + (1 - f_t) * W x_t;  out: max(0, c_t)

    A step costs the same however long the sentence. Positions are in x, so that nothing is rotated.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.forget = xavier(Linear(width, width), 1.0)
        self.project = xavier(Linear(width, width, bias=False), 1.0)

    def forward(
        self, x: Tensor, past: Carry, mask: Tensor | None = None, places: Places = NO_PLACES
    ) -> tuple[Tensor, Carry]:
        """x [B, T, D] after the steps in `past` -> [B, T, D], and the state after x; x is never end to end."""
        forget = torch.sigmoid(self.forget(x))  # [B, T, D]
        new = (1 - forget) * self.project(x)  # [B, T, D]
        cell = past.tensors[0] if past.tensors else torch.zeros_like(new[:, 0])  # [B, D]
        cells = []
        for kept, added in zip(forget.unbind(1), new.unbind(1), strict=True):
            cell = kept * cell + added
            cells.append(cell)
        return torch.relu(torch.stack(cells, dim=1)), Carry((cell,))

    def start(self, memory: Memory) -> Carry:
        """The state before the first word, beside a source in `memory` [B, H, S, D/H]."""
        return Carry((memory.keys.new_zeros(len(memory.keys), self.project.out_features),))


class SwiGLU(nn.Module):
    """(swish(x W) * x V) W_2, without biases (Shazeer 2020, eq. 6). It has the weights of `FeedForward` at 2/3 of its
    `inner`."""

    def __init__(self, width: int, inner: int, gain: float = 1.0) -> None:
        super().__init__()
        self.project = xavier(Linear(width, 2 * inner, bias=False), gain, gain)  # W and V
        self.output = xavier(Linear(inner, width, bias=False), gain)  # W_2

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        opened, inner = self.project(x).chunk(2, dim=-1)
        return self.output(F.silu(opened) * inner)


FEED_FORWARDS: dict[str, Callable[[int, int, float], nn.Module]] = {
    "relu": FeedForward,
    "swish": partial(FeedForward, activation=nn.SiLU),
    "gelu": partial(FeedForward, activation=nn.GELU),
    "swiglu": SwiGLU,
}
