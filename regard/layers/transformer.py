"""The blocks of a Transformer: multi-head attention and feed-forward nets in a residual stream (Vaswani et al. 2017).

What later papers put in their place is in `layers.transformer_parts`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attend import Look, Memory
from regard.core.blocks import Blocks
from regard.core.past import EMPTY_PAST, Carry, Past
from regard.core.products import Linear
from regard.errors import ConfigError
from regard.kernels.choose import Dropout, dropout, or_triton
from regard.layers.attention import Attention

Rotation = Callable[[Tensor], Tensor]  # queries or keys [B, H, T, D/H] -> the same shape, rotated by their positions


def no_rotation(x: Tensor) -> Tensor:
    """Queries and keys as they are: the positions are in the embeddings."""
    return x


class Places(NamedTuple):
    """What attention is given of the places of words, besides what their vectors hold."""

    rotate: Rotation = no_rotation
    positions: Tensor | None = None  # [T], of the queries, where the score reads distances
    blocks: Blocks | None = None  # where sentences are end to end in one row: self-attention stays inside each
    source_blocks: Blocks | None = None  # the same for attention to the source

    def distances(self, keys: Tensor) -> Tensor | None:
        """How far each of keys [B, H, S, D/H], which begin at place 0, is from each query: [T, S]."""
        if self.positions is None:
            return None
        return torch.arange(keys.shape[-2], device=keys.device) - self.positions[:, None]


NO_PLACES = Places()


class TransformerLayer(nn.Module):
    """Self-attention, attention to another sequence where there is one, then a feed-forward net at each position.

    It is a layer of the encoder, of the decoder (a `Causal` normaliser, or an SSRU instead of self-attention) and of
    a language model (`Causal`); with a past, x are the steps that follow it.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: "CrossAttention | None",
        feed_forward: nn.Module,
        join: "Callable[[], PostNorm]",
    ) -> None:
        super().__init__()
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        self.join_self, self.join_cross, self.join_feed = join(), join() if cross_attention else None, join()

    def forward(
        self,
        x: Tensor,
        past: Past | Carry = EMPTY_PAST,
        *,
        mask: Tensor | None = None,
        source: Memory | None = None,
        places: Places = NO_PLACES,
    ) -> tuple[Tensor, Past | Carry]:
        """x [B, T, D] -> [B, T, D], and the past with x in it."""
        attended, past = self.self_attention(self.join_self.enter(x), past, mask, places)
        x = self.join_self.leave(x, attended)
        if self.cross_attention is not None and self.join_cross is not None:
            attended = self.cross_attention(self.join_cross.enter(x), source, places.source_blocks)
            x = self.join_cross.leave(x, attended)
        return self.join_feed.leave(x, self.feed_forward(self.join_feed.enter(x))), past


# --- how a sub-layer joins the stream

NORMS: dict[str, Callable[[int], nn.LayerNorm | nn.RMSNorm]] = {
    "layer": nn.LayerNorm,
    "rms": partial(nn.RMSNorm, eps=1e-6),  # g x / sqrt(mean(x^2)) (Zhang and Sennrich 2019): no mean, no bias
}


class PostNorm(nn.Module):
    """How a sub-layer f joins the stream, as published: LN(x + drop(f(x)))."""

    def __init__(self, width: int, dropout: float, norm: str = "layer") -> None:
        super().__init__()
        self.norm = NORMS[norm](width)
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return x

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        """The stream x with what the sub-layer adds to it."""
        return self.normalise(x, added)

    def normalise(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """LN(x + drop(added)), or LN(x)."""
        norm = self.norm
        if isinstance(norm, nn.RMSNorm):
            return norm(x if added is None else x + self.dropout(added))
        return add_norm(x, added, norm.weight, norm.bias, norm.eps, self.dropout.p if self.training else 0.0)


class PreNorm(PostNorm):
    """x + drop(f(LN(x)))."""

    def enter(self, x: Tensor) -> Tensor:
        return self.normalise(x)

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        return x + self.dropout(added)


JOINS: dict[str, Callable[..., PostNorm]] = {"post": PostNorm, "pre": PreNorm}


def last_norm(norm: str, width: int, kind: str = "layer") -> nn.Module:
    """What a stack ends with: the stream of a pre-norm stack has not been normalised yet."""
    return NORMS[kind](width) if norm == "pre" else nn.Identity()


# --- attention


class Heads(NamedTuple):
    """The sizes of multi-head attention.

    With fewer `key_heads` than heads, H / key_heads heads share keys and values (Ainslie 2023; one for all is Shazeer's
    multi-query attention, 2019): a past or a source is that much smaller; 0 is one for each.
    """

    width: int  # D
    heads: int  # H
    key_heads: int = 0
    gain: float = 1.0  # scale of the initial values and output
    bias: bool = False  # of the projections; the paper has none


class MultiHead(nn.Module):
    """[head_1; ...; head_H] W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Vaswani 2017, section 3.2.2).

    `attention` compares the D/H numbers of a head, and heads share its parameters. The H matrices of a kind are kept
    side by side as one.
    """

    def __init__(self, sizes: Heads, attention: Attention) -> None:
        super().__init__()
        width, heads, key_heads, gain, bias = sizes
        if width % heads:
            raise ConfigError(f"model.width must be a multiple of model.heads; got {width} and {heads}.")
        if key_heads and heads % key_heads:
            raise ConfigError(f"model.heads must be a multiple of model.key_heads; got {heads} and {key_heads}.")
        self.heads, self.key_heads = heads, key_heads or heads
        self.output = xavier(Linear(width, width, bias), gain)
        self.attention = attention

    def attend(
        self, query: Tensor, memory: Memory, distances: Tensor | None = None, blocks: Blocks | None = None
    ) -> Tensor:
        """query [B, H, T, D/H], keys and values [B, key_heads, S, D/H] -> [B, T, D]."""
        if self.key_heads < self.heads:
            keys, values = (x.repeat_interleave(self.heads // self.key_heads, dim=1) for x in memory[:2])
            memory = memory._replace(keys=keys, values=values)
        look = self.attention(query, memory, extra=distances, blocks=blocks)
        context = self.collect(look, distances)  # [B, H, T, D/H]
        return self.output(context.transpose(1, 2).flatten(2))

    def collect(self, look: Look, distances: Tensor | None) -> Tensor:
        """The context [B, H, T, D/H] of an attention call; relative positions add to it."""
        return look.context


class SelfAttention(MultiHead):
    """Queries, keys and values come from the same states: W^Q, W^K and W^V are one matrix."""

    def __init__(self, sizes: Heads, attention: Attention) -> None:
        super().__init__(sizes, attention)
        width, few = sizes.width, sizes.width // sizes.heads * self.key_heads
        project = Linear(width, width + 2 * few, sizes.bias)
        self.project = xavier(project, 1.0, 1.0, sizes.gain, rows=(width, few, few))

    def forward(
        self, x: Tensor, past: Past, mask: Tensor | None = None, places: Places = NO_PLACES
    ) -> tuple[Tensor, Past]:
        """x [B, T, D] after the steps in `past`, mask [B, 1, 1, S] -> [B, T, D], and the past with x in it."""
        query, keys, values = self.split(self.project(x))
        past = past.append(places.rotate(keys), values)
        keys, values = past.tensors
        memory = Memory(keys, values, past.mask if mask is None else mask)
        return self.attend(places.rotate(query), memory, places.distances(keys), places.blocks), past

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries [B, H, T, D/H], and keys and values [B, key_heads, T, D/H], which lie side by side in x [B, T, .]."""
        if self.key_heads == self.heads:
            return split_heads(x, 3, self.heads)
        width = self.output.in_features
        return *split_heads(x[..., :width], 1, self.heads), *split_heads(x[..., width:], 2, self.key_heads)

    def start(self, memory: Memory) -> Past:
        """An empty past beside a source in `memory` [B, key_heads, S, D/H]."""
        return Past((memory.keys[:, :, :0], memory.values[:, :, :0]))


class CrossAttention(MultiHead):
    """Queries come from one sequence, keys and values from another: W^K and W^V are one matrix."""

    def __init__(self, sizes: Heads, attention: Attention) -> None:
        super().__init__(sizes, attention)
        width, few = sizes.width, sizes.width // sizes.heads * self.key_heads
        self.query = xavier(Linear(width, width, sizes.bias), 1.0)
        self.project = xavier(Linear(width, 2 * few, sizes.bias), 1.0, sizes.gain)

    def remember(self, states: Tensor, mask: Tensor | None = None) -> Memory:
        """Keys and values of `states` [B, S, D], [B, key_heads, S, D/H]; mask [B, 1, 1, S]."""
        keys, values = split_heads(self.project(states), 2, self.key_heads)
        return Memory(keys, values, mask)

    def forward(self, x: Tensor, memory: Memory, blocks: Blocks | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]."""
        (query,) = split_heads(self.query(x), 1, self.heads)
        return self.attend(query, memory, blocks=blocks)


# --- the feed-forward net


class FeedForward(nn.Sequential):
    """max(0, x W_1 + b_1) W_2 + b_2, or with another activation than max(0, .)."""

    def __init__(
        self, width: int, inner: int, gain: float = 1.0, activation: Callable[[], nn.Module] = nn.ReLU
    ) -> None:
        super().__init__(xavier(Linear(width, inner), gain), activation(), xavier(Linear(inner, width), gain))

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        inner, activate, outer = self
        return outer(linear_relu(x, inner) if isinstance(activate, nn.ReLU) else activate(inner(x)))


# --- details: some of these have a faster form, see `kernels.choose`


@or_triton("short_attention")
def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """x [B, T, parts * D] -> a [B, H, T, D/H] for each part."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind()


@or_triton("add_norm")
def add_norm(x: Tensor, added: Tensor | None, gamma: Tensor, beta: Tensor, eps: float, p: float) -> Tensor:
    """LN(x + dropout(added)) over the last dimension, or LN(x) if nothing is added; x and added [..., D]."""
    if added is not None:
        x = x + (dropout(added, p) if p else added)
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


@or_triton("linear_relu")
def linear_relu(x: Tensor, linear: nn.Module) -> Tensor:
    """max(0, x W^T + b)."""
    return torch.relu(linear(x))


@torch.no_grad()
def xavier(linear: nn.Linear, *gains: float, rows: tuple[int, ...] = ()) -> nn.Linear:
    """Xavier-uniform weights, for each of the stacked matrices with its own gain; they are equal, or have `rows`."""
    weight = linear.weight
    for block, gain in zip(weight.split(rows) if rows else weight.chunk(len(gains)), gains, strict=True):
        nn.init.xavier_uniform_(block, gain)
    return linear
