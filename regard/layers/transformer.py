"""The blocks of a Transformer: multi-head attention and feed-forward nets in a residual stream."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.scores import scaled_dot
from regard.errors import ConfigError
from regard.kernels.choose import dropout, or_triton
from regard.layers.attention import Attention
from regard.layers.dropout import Dropout
from regard.layers.past import NOTHING, Carry, Past

Rotation = Callable[[Tensor], Tensor]  # queries or keys [B, H, T, D/H] -> the same shape, rotated by their positions


def no_rotation(x: Tensor) -> Tensor:
    """Queries and keys as they are: the positions are in the embeddings."""
    return x


@or_triton("short")
def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """x [B, T, parts * D] -> a [B, H, T, D/H] for each part."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind()


@or_triton("norm")
def add_norm(x: Tensor, added: Tensor | None, gamma: Tensor, beta: Tensor, eps: float, p: float) -> Tensor:
    """LN(x + dropout(added)) over the last dimension, or LN(x) if nothing is added; x and added [..., D]."""
    if added is not None:
        x = x + (dropout(added, p) if p else added)
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


@or_triton("linear_relu")
def linear_relu(x: Tensor, linear: nn.Module) -> Tensor:
    """max(0, x W^T + b)."""
    return torch.relu(linear(x))


class MultiHead(nn.Module):
    """[head_1; ...; head_H] W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Vaswani 2017, section 3.2.2).

    Attention is scaled dot and softmax unless `attention` is another; it compares the D/H numbers of a head, and heads
    share its parameters. As in the paper, the projections have no biases unless `bias` says so. The H matrices of a
    kind are kept side by side as one.
    """

    def __init__(
        self, width: int, heads: int, attention: Attention | None = None, gain: float = 1.0, bias: bool = False
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"width must be a multiple of heads; got width={width} and heads={heads}.")
        self.heads = heads
        self.output = xavier(nn.Linear(width, width, bias), gain)
        self.attention = attention or Attention(scaled_dot)

    def look(self, query: Tensor, memory: Memory) -> Tensor:
        """query [B, H, T, D/H] -> [B, T, D]."""
        context = self.attention(query, memory).context  # [B, H, T, D/H]
        return self.output(context.transpose(1, 2).flatten(2))


class SelfAttention(MultiHead):
    """Queries, keys and values come from the same states: W^Q, W^K and W^V are one matrix."""

    def __init__(
        self, width: int, heads: int, attention: Attention | None = None, gain: float = 1.0, bias: bool = False
    ) -> None:
        super().__init__(width, heads, attention, gain, bias)
        self.project = xavier(nn.Linear(width, 3 * width, bias), 1.0, 1.0, gain)

    def forward(
        self, x: Tensor, past: Past, mask: Tensor | None = None, rotation: Rotation = no_rotation
    ) -> tuple[Tensor, Past]:
        """x [B, T, D] behind the steps in `past`, mask [B, 1, 1, S] -> [B, T, D], and the past with x in it."""
        query, keys, values = split_heads(self.project(x), 3, self.heads)  # [B, H, T, D/H] each
        past = past.append(rotation(keys), values)
        keys, values = past.tensors
        memory = Memory(keys, values, past.mask if mask is None else mask)
        return self.look(rotation(query), memory), past

    def start(self, memory: Memory) -> Past:
        """An empty past beside a source in `memory` [B, H, S, D/H]."""
        return Past((memory.keys[:, :, :0], memory.values[:, :, :0]))


class SSRU(nn.Module):
    """In place of causal self-attention, one state of all words so far (Kim et al. 2019, section 3.1).

        f_t = sigmoid(W_f x_t + b_f);  c_t = f_t * c_{t-1} + (1 - f_t) * W x_t;  out: max(0, c_t)

    A step costs the same however long the sentence. Positions are in x, so that nothing is rotated.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.forget = xavier(nn.Linear(width, width), 1.0)
        self.project = xavier(nn.Linear(width, width, bias=False), 1.0)

    def forward(
        self, x: Tensor, past: Carry, mask: Tensor | None = None, rotation: Rotation = no_rotation
    ) -> tuple[Tensor, Carry]:
        """x [B, T, D] behind the steps in `past` -> [B, T, D], and the state after x."""
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


class CrossAttention(MultiHead):
    """Queries come from one sequence, keys and values from another: W^K and W^V are one matrix."""

    def __init__(
        self, width: int, heads: int, attention: Attention | None = None, gain: float = 1.0, bias: bool = False
    ) -> None:
        super().__init__(width, heads, attention, gain, bias)
        self.query = xavier(nn.Linear(width, width, bias), 1.0)
        self.project = xavier(nn.Linear(width, 2 * width, bias), 1.0, gain)

    def remember(self, states: Tensor, mask: Tensor | None = None) -> Memory:
        """Keys and values of `states` [B, S, D] for each head, [B, H, S, D/H]; mask [B, 1, 1, S]."""
        keys, values = split_heads(self.project(states), 2, self.heads)
        return Memory(keys, values, mask)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """x [B, T, D] -> [B, T, D]."""
        (query,) = split_heads(self.query(x), 1, self.heads)
        return self.look(query, memory)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "swish": nn.SiLU, "gelu": nn.GELU}


class FeedForward(nn.Sequential):
    """max(0, x W_1 + b_1) W_2 + b_2, or with another activation than max(0, .)."""

    def __init__(self, width: int, inner: int, gain: float = 1.0, activation: str = "relu") -> None:
        activate = ACTIVATIONS[activation]()
        super().__init__(xavier(nn.Linear(width, inner), gain), activate, xavier(nn.Linear(inner, width), gain))

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        inner, activate, outer = self
        return outer(linear_relu(x, inner) if isinstance(activate, nn.ReLU) else activate(inner(x)))


class PostNorm(nn.Module):
    """How a sub-layer f joins the stream, as published: LN(x + drop(f(x)))."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return x

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        """The stream behind the sub-layer."""
        return self.add_norm(x, added)

    def add_norm(self, x: Tensor, added: Tensor | None) -> Tensor:
        norm = self.norm
        return add_norm(x, added, norm.weight, norm.bias, norm.eps, self.dropout.p if self.training else 0.0)


class PreNorm(PostNorm):
    """x + drop(f(LN(x)))."""

    def enter(self, x: Tensor) -> Tensor:
        return self.add_norm(x, None)

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        return x + self.dropout(added)


JOINS: dict[str, Callable[[int, float], PostNorm]] = {"post": PostNorm, "pre": PreNorm}


def last_norm(norm: str, width: int) -> nn.Module:
    """What a stack ends with: a pre-norm stream is not normalised on its way, so it is here."""
    return nn.LayerNorm(width) if norm == "pre" else nn.Identity()


class TransformerLayer(nn.Module):
    """Self-attention, attention to another sequence where there is one, then a feed-forward net at each position.

    It is a layer of the encoder, of the decoder (a `Causal` normaliser, or an `SSRU` instead of self-attention) and of
    a language model (`Causal`); with a past, x are the steps that follow it.
    """

    def __init__(
        self,
        self_attention: SelfAttention | SSRU,
        cross_attention: CrossAttention | None,
        feed_forward: FeedForward,
        join: Callable[[], PostNorm],
    ) -> None:
        super().__init__()
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        self.join_self, self.join_cross, self.join_feed = join(), join() if cross_attention else None, join()

    def forward(
        self,
        x: Tensor,
        past: Past | Carry = NOTHING,
        *,
        mask: Tensor | None = None,
        source: Memory | None = None,
        rotation: Rotation = no_rotation,
    ) -> tuple[Tensor, Past | Carry]:
        """x [B, T, D] -> [B, T, D], and the past with x in it."""
        attended, past = self.self_attention(self.join_self.enter(x), past, mask, rotation)
        x = self.join_self.leave(x, attended)
        if self.cross_attention is not None and self.join_cross is not None:
            x = self.join_cross.leave(x, self.cross_attention(self.join_cross.enter(x), source))
        return self.join_feed.leave(x, self.feed_forward(self.join_feed.enter(x))), past


@torch.no_grad()
def xavier(linear: nn.Linear, *gains: float) -> nn.Linear:
    """Xavier-uniform weights, for each of the stacked matrices with its own gain."""
    for block, gain in zip(linear.weight.chunk(len(gains)), gains, strict=True):
        nn.init.xavier_uniform_(block, gain)
    return linear
