"""The blocks of a Transformer: sub-layers in a residual stream, and a memory of its own words that grows in place."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.normalise import causal_softmax, softmax
from regard.kernels.product import Product
from regard.layers.attention import MultiHead
from regard.layers.dropout import Dropout

Turn = Callable[[Tensor, range], Tensor]  # (queries or keys [B, H, T, D], the places of T) -> the same shape


def unturned(x: Tensor, places: range) -> Tensor:
    """Queries and keys as they are: the positions are in the embeddings."""
    return x


class Residual(nn.Module):
    """How a sub-layer joins the stream. Post-norm, as published: LN(x + drop(f(x))). Pre-norm: x + drop(f(LN(x)))."""

    def __init__(self, width: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Sequential):
    """max(0, x W_1 + b_1) W_2 + b_2."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))


class EncoderLayer(nn.Module):
    """Self-attention over all words, then a feed-forward net at each."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, pre_norm: bool, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.self_attention = MultiHead(width, heads)
        self.feed_forward = FeedForward(width, inner)
        self.joins = nn.ModuleList(Residual(width, dropout, pre_norm) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None, places: range) -> Tensor:
        """x [B, S, D] at `places`, mask [B, 1, S] -> [B, S, D]."""
        attention, (join_look, join_think) = self.self_attention, self.joins

        def look(x: Tensor) -> Tensor:
            keys, values, wide, _ = attention.remember(x, mask)
            memory = Memory(self.turn(keys, places), values, wide)
            return attention(self.turn(attention.ask(x), places), memory)

        return join_think(join_look(x, look), self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over the words so far, attention to the source, then a feed-forward net at each."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, pre_norm: bool, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.self_attention = MultiHead(width, heads, causal_softmax)
        self.cross_attention = MultiHead(width, heads, softmax)
        self.feed_forward = FeedForward(width, inner)
        self.joins = nn.ModuleList(Residual(width, dropout, pre_norm) for _ in range(3))

    def forward(self, x: Tensor, source: Memory, places: range) -> Tensor:
        """x [B, T, D] at `places` -> [B, T, D]."""
        own, other, (join_own, join_other, join_think) = self.self_attention, self.cross_attention, self.joins

        def look(x: Tensor) -> Tensor:
            keys, values, _, _ = own.remember(x)
            return own(self.turn(own.ask(x), places), Memory(self.turn(keys, places), values))

        x = join_own(x, look)
        x = join_other(x, lambda x: other(other.ask(x), source))
        return join_think(x, self.feed_forward)


class DecoderSteps:
    """A decoder layer one word at a time, for one search: what its `forward` computes, in as few calls as can be.

    With few rows a step costs its calls more than its arithmetic, so the weights are at hand here, and the only modules
    called are those that look, where somebody may be watching.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        own, other, (expand, _, contract) = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.heads, self.turn = own.heads, layer.turn
        self.look_back, self.look_across = own.attention, other.attention
        self.project = Product(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
        self.own_output = Product(own.output.weight)
        self.ask, self.other_output = Product(other.query.weight), Product(other.output.weight)
        self.expand, self.contract = (Product(part.weight, part.bias) for part in (expand, contract))  # type: ignore[arg-type]
        self.join_own, self.join_other, self.join_think = (joined(join) for join in layer.joins)  # type: ignore[arg-type]

    def __call__(self, x: Tensor, source: Memory, places: range, past: "Past") -> Tensor:
        """x [B, D], one word of each row -> [B, D]; its keys and values join the past."""
        B, D = x.shape

        def look_back(x: Tensor) -> Tensor:
            parts = self.project(x).view(B, 3, self.heads, 1, D // self.heads)
            query, keys, values = parts.unbind(1)  # [B, H, 1, D/H]
            memory = past.append(Memory(self.turn(keys, places), values))
            return self.own_output(self.look_back(self.turn(query, places), memory).context.reshape(B, D))

        def look_across(x: Tensor) -> Tensor:
            query = self.ask(x).view(B, self.heads, 1, D // self.heads)
            return self.other_output(self.look_across(query, source).context.reshape(B, D))

        def think(x: Tensor) -> Tensor:
            return self.contract(self.expand(x).relu())

        return self.join_think(self.join_other(self.join_own(x, look_back), look_across), think)


def joined(join: Residual) -> Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]:
    """`join` as a plain function."""
    norm, drop = normed(join.norm), join.dropout if join.training else same
    if join.pre_norm:
        return lambda x, sublayer: x + drop(sublayer(norm(x)))
    return lambda x, sublayer: norm(x + drop(sublayer(x)))


def normed(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """`norm` as a plain function."""
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def same(x: Tensor) -> Tensor:
    return x


class Past:
    """One layer's keys and values of the words so far, in buffers with room ahead: a step writes, it does not copy.

    keys and values [B, H, room, D/H], of which the first `filled` are real. A state that has been stepped from is
    spent: its buffers belong to the state that came of it, unless they were copied by `take` before.
    """

    def __init__(self, keys: Tensor, values: Tensor, filled: int) -> None:
        self.keys, self.values, self.filled = keys, values, filled

    def append(self, step: Memory) -> Memory:
        """Write one step's keys and values behind the others, and return all of them as a memory without copying."""
        more = step.keys.shape[2]
        self.keys.narrow(2, self.filled, more).copy_(step.keys)
        self.values.narrow(2, self.filled, more).copy_(step.values)
        end = self.filled + more
        return Memory(self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end))


def grow(buffer: Tensor, needed: int) -> Tensor:
    """The buffer [..., room, D] with room for `needed` steps: as it is, or copied into one of twice the size."""
    room = buffer.shape[-2]
    if needed <= room:
        return buffer
    larger = buffer.new_zeros(*buffer.shape[:-2], max(needed, 2 * room), buffer.shape[-1])
    larger[..., :room, :] = buffer
    return larger
