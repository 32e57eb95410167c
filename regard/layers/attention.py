"""Attention as a module: one for each place in a model that attends to something.

Every attention call passes through `Attention.forward`, so that forward hooks can record or change what a model attends
to without any code in the models.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.core.attend import Look, Memory, Score
from regard.core.blocks import Blocks
from regard.core.normalise import softmax
from regard.core.scores import project_keys
from regard.kernels.choose import attend


class Attention(nn.Module):
    """A score and a normaliser, called with a query and a memory: `forward` returns (context, weights, scores).

    >>> from regard.layers.attention import Attention
    >>> attention = Attention(core.Additive(query_width=2, key_width=3, width=8), core.sparsemax)
    >>> states, query = torch.randn(1, 5, 3), torch.randn(1, 4, 2)  # [B, S, D], [B, T, query width]
    >>> context, weights, scores = attention(query, attention.remember(states))
    >>> context.shape, weights.shape
    (torch.Size([1, 4, 3]), torch.Size([1, 4, 5]))
    """

    def __init__(self, score: Score, normalise: Any = softmax) -> None:
        super().__init__()
        self.score = score
        self.normalise = normalise

    def remember(self, states: Tensor, mask: Tensor | None = None, summary: Any = None) -> Memory:
        """A memory of `states` [B, S, D], with the keys that this score compares projected once.

        >>> memory = attention.remember(states, mask=core.padding_mask(torch.tensor([4]), size=5))
        >>> memory.keys.shape, memory.values is states  # keys have the width of the score
        (torch.Size([1, 5, 8]), True)
        """
        return Memory(project_keys(self.score, states), states, mask, summary)

    def normaliser(self, centre: Tensor | None, previous: Tensor | None) -> Any:
        """The normaliser with what it reads besides scores and mask."""
        normalise = self.normalise
        if centre is not None:
            normalise = partial(normalise, centre=centre)
        return normalise if previous is None else partial(normalise, previous=previous)

    def forward(
        self,
        query: Tensor,
        memory: Memory,
        centre: Tensor | None = None,
        *,
        extra: Tensor | None = None,
        previous: Tensor | None = None,
        blocks: Blocks | None = None,
    ) -> Look:
        """Attend to `memory` with `query` [B, ..., T, D]; local attention is centred at `centre` [B, T].

        `extra` is what the score reads besides query and keys, such as the distances [T, S] of relative positions.
        `previous` [B, T, S] are the weights of the step before, which monotonic attention continues.
        With `blocks`, query [1, H, N, D] and memory are rows of sentences end to end, each of which attends to itself.
        """
        normalise = self.normaliser(centre, previous)
        score = self.score if extra is None else lambda query, keys: self.score(query, keys, extra)
        # Fused attention never forms the weights, which a forward hook reads.
        return attend(query, memory, score, normalise, watched=bool(self._forward_hooks), blocks=blocks)
