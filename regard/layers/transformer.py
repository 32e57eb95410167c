"""The blocks of a Transformer: sub-layers in a residual stream, and a memory of its own words that grows in place."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.normalise import causal_softmax, softmax
from regard.layers.attention import MultiHead

Turn = Callable[[Tensor, Tensor], Tensor]  # (queries or keys [B, H, T, D], positions [T]) -> the same shape


def unturned(x: Tensor, positions: Tensor) -> Tensor:
    """Queries and keys as they are: the positions are in the embeddings."""
    return x


class Residual(nn.Module):
    """How a sub-layer joins the stream. Post-norm, as published: LN(x + drop(f(x))). Pre-norm: x + drop(f(LN(x)))."""

    def __init__(self, width: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
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

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """x [B, S, D], mask [B, 1, S], positions [S] -> [B, S, D]."""

        def look(x: Tensor) -> Tensor:
            memory = self.self_attention.remember(x, mask)
            memory = memory._replace(keys=self.turn(memory.keys, positions))
            return self.self_attention(self.turn(self.self_attention.ask(x), positions), memory)

        x = self.joins[0](x, look)
        return self.joins[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over the words so far, attention to the source, then a feed-forward net at each."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, pre_norm: bool, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.self_attention = MultiHead(width, heads, causal_softmax)
        self.cross_attention = MultiHead(width, heads, softmax)
        self.feed_forward = FeedForward(width, inner)
        self.joins = nn.ModuleList(Residual(width, dropout, pre_norm) for _ in range(3))

    def forward(self, x: Tensor, source: Memory, positions: Tensor, past: "Past | None" = None) -> Tensor:
        """x [B, T, D] at `positions` [T] -> [B, T, D]. With a `past`, x is one step and its keys and values join it."""

        def look(x: Tensor) -> Tensor:
            memory = self.self_attention.remember(x)
            memory = memory._replace(keys=self.turn(memory.keys, positions))
            seen = memory if past is None else past.append(memory)
            return self.self_attention(self.turn(self.self_attention.ask(x), positions), seen)

        x = self.joins[0](x, look)
        x = self.joins[1](x, lambda x: self.cross_attention(self.cross_attention.ask(x), source))
        return self.joins[2](x, self.feed_forward)


class Past:
    """One layer's keys and values of the words so far, in buffers with room ahead: a step writes, it does not copy.

    keys and values [B, H, room, D/H], of which the first `filled` are real. A state that has been stepped from is
    spent: its buffers belong to the state that came of it, unless they were copied by `take` before.
    """

    def __init__(self, keys: Tensor, values: Tensor, filled: int) -> None:
        self.keys, self.values, self.filled = keys, values, filled

    def append(self, step: Memory) -> Memory:
        """Write one step's keys and values behind the others, and return all of them as a memory without copying."""
        end = self.filled + step.keys.shape[2]
        self.keys[:, :, self.filled : end] = step.keys
        self.values[:, :, self.filled : end] = step.values
        return Memory(self.keys[:, :, :end], self.values[:, :, :end])


def grow(buffer: Tensor, needed: int) -> Tensor:
    """The buffer [..., room, D] with room for `needed` steps: as it is, or copied into one of twice the size."""
    room = buffer.shape[-2]
    if needed <= room:
        return buffer
    larger = buffer.new_zeros(*buffer.shape[:-2], max(needed, 2 * room), buffer.shape[-1])
    larger[..., :room, :] = buffer
    return larger
