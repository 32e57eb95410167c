"""Attention as a module: one for each place in a model that looks at something.

Every look that somebody watches passes through `Attention.forward`, so that recording or changing what a model looks at
is a matter of hooks; the models know nothing of it. In training, where nobody does, `Looks` is the quicker way.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.attend import Look, Memory, Score, attend, check_memory
from regard.core.normalise import causal_softmax, softmax, softmax_but
from regard.core.scores import Additive, is_dot, project_keys, scaled_dot
from regard.errors import ConfigError
from regard.kernels.fused import fused_attend, refusal
from regard.kernels.repeated import Repeated, nothing


class Attention(nn.Module):
    """A score and a normaliser, called with a query and a memory: `forward` returns (context, weights, scores)."""

    def __init__(self, score: Score, normalise: Any = softmax) -> None:
        super().__init__()
        self.score = score
        self.normalise = normalise

    def remember(self, states: Tensor, mask: Tensor | None = None, summary: Tensor | None = None) -> Memory:
        """A memory of `states` [B, S, D], with the keys that this score compares projected once."""
        return Memory(project_keys(self.score, states), states, mask, summary)

    def forward(self, query: Tensor, memory: Memory, centre: Tensor | None = None) -> Look:
        """Look at `memory` with `query` [B, ..., T, D]. Local attention looks around `centre` [B, T]."""
        # A forward hook is how somebody watches this module, and a watcher wants the weights.
        if refusal(self.score, self.normalise, watched=bool(self._forward_hooks)) is None:
            check_memory(query, memory)
            scaled, causal = self.score is scaled_dot, self.normalise is causal_softmax
            return Look(fused_attend(query, memory, scaled, causal), None, None)
        return self.look(query, memory, centre)

    def look(self, query: Tensor, memory: Memory, centre: Tensor | None = None) -> Look:
        """`forward` by the three plain lines, whatever the kernels could do."""
        normalise = self.normalise if centre is None else partial(self.normalise, centre=centre)
        return attend(query, memory, self.score, normalise)


class Looks:
    """The looks of a time loop, one query after another: [B, D] -> context [B, Dv], as `attention` gives it.

    In training the gradients of keys, values and W are taken once, after the loop (see `Repeated`): with one query at a
    time they are most of the work. Where that cannot be, or somebody watches, `attention` itself is called.
    """

    def __init__(self, attention: Attention, memory: Memory, steps: int) -> None:
        self.attention, self.memory = attention, memory
        watched = attention._forward_hooks or attention._forward_pre_hooks
        late = torch.is_grad_enabled() and steps > 1 and not watched
        self.compare = _compare(attention.score, memory.keys, steps) if late else None
        if self.compare is None:
            return
        B, _, Dv = memory.values.shape
        self.read = Repeated(nothing(memory.values, B, 1, steps, Dv), memory.values.mT)
        # Every step has the same mask: for the softmax it is turned round here and not at each of them.
        self.normalise, self.mask = attention.normalise, memory.mask
        if self.normalise is softmax and self.mask is not None:
            self.normalise, self.mask = softmax_but, ~self.mask

    def __call__(self, query: Tensor, centre: Tensor | None = None) -> Tensor:
        """Local attention looks around `centre` [B, 1]."""
        if self.compare is None:
            return self.attention(query[:, None], self.memory, centre).context[:, 0]
        scores, around = self.compare(query), {} if centre is None else {"centre": centre}
        return self.read(self.normalise(scores, self.mask, **around))[:, 0]


def _compare(score: Any, keys: Tensor, steps: int) -> Callable[[Tensor], Tensor] | None:
    """A score for one query a step, [B, D] -> [B, 1, S], by `Repeated` products; None where it has no such form."""
    B, S, width = keys.shape
    if is_dot(score):
        match = Repeated(nothing(keys, B, 1, steps, S), keys)
        return lambda query: match(query[:, None])
    if isinstance(score, Additive) and type(score).forward is Additive.forward:
        ask = Repeated(nothing(keys, B, steps, width), score.W.weight)
        return lambda query: score.v(torch.tanh(ask(query)[:, None] + keys)).mT
    return None


class MultiHead(nn.Module):
    """[head_1; ...; head_H] W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Vaswani 2017, section 3.2.2).

    The H matrices of a kind are kept side by side as one. As in the paper, the projections have no biases.
    """

    def __init__(self, width: int, heads: int, normalise: Any = softmax) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"width must be a multiple of heads; got width={width} and heads={heads}.")
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.attention = Attention(scaled_dot, normalise)

    def ask(self, x: Tensor) -> Tensor:
        """The queries of x [B, T, D], one for each head: [B, H, T, D/H]."""
        return self.split(self.query(x))

    def remember(self, states: Tensor, mask: Tensor | None = None) -> Memory:
        """Keys and values of `states` [B, S, D] for each head; `mask` [B, 1, S] or [B, T, S]."""
        wide = None if mask is None else mask[:, None]  # [B, 1, 1 or T, S]: the same for every head
        return Memory(self.split(self.key(states)), self.split(self.value(states)), wide)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """query [B, H, T, D/H] from `ask` -> [B, T, D]."""
        context = self.attention(query, memory).context  # [B, H, T, D/H]
        return self.output(context.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, H, T, D/H]."""
        B, T, D = x.shape
        return x.view(B, T, self.heads, D // self.heads).transpose(1, 2)
