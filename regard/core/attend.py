"""Attention: weights over a memory, and the context that they select.

    scores  = score(query, keys)             how well each slot matches the query
    weights = normalise(scores, mask)        how much each slot counts
    context = weights @ values               the weighted sum

Every model in regard is a choice of memory, query, score and normaliser for these three lines.

Shape letters used in all of regard: B batch, T target or query, S source or key, H heads, D width,
Dv value width, V vocabulary. Batch comes first, always.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.normalise import softmax
from regard.core.products import matmul
from regard.core.scores import scaled_dot
from regard.errors import ShapeError

Score = Callable[..., Tensor]
Normalise = Callable[[Tensor, Tensor | None], Tensor]


class Memory(NamedTuple):
    """What is attended to: encoder states, the cells of a picture, a model's own past.

    `keys` are matched with the query, `values` are what is seen; a score with a key projection keeps projected
    keys here, so that they are computed once for a sentence. `summary` holds what else the encoder passes on,
    such as the first state or the source words; each model defines it.

    >>> states = torch.eye(3)[None]  # [B, S, D]
    >>> mask = torch.tensor([[[True, True, False]]])  # the last slot is padding
    >>> regard.attend(torch.zeros(1, 1, 3), regard.Memory(states, states, mask)).weights
    tensor([[[0.5000, 0.5000, 0.0000]]])
    """

    keys: Tensor  # [B, ..., S, D]
    values: Tensor  # [B, ..., S, Dv]
    mask: Tensor | None = None  # bool, broadcastable to [B, ..., T, S]; True = may look
    summary: Any = None  # a tensor [B, ...], or a NamedTuple of them


class Look(NamedTuple):
    """The result of one attention call. A fused kernel, which runs where no forward hook is registered, leaves weights
    and scores None.

    >>> states = torch.randn(1, 4, 8)
    >>> context, weights, scores = regard.attend(states, regard.Memory(states, states))
    >>> torch.equal(context, weights @ states)
    True
    """

    context: Tensor  # [B, ..., T, Dv]
    weights: Tensor | None  # [B, ..., T, S]
    scores: Tensor | None  # [B, ..., T, S]


def attend(query: Tensor, memory: Memory, score: Score = scaled_dot, normalise: Normalise = softmax) -> Look:
    """Attend to `memory` with `query` [B, ..., T, D].

    The plain form. Models call it through `layers.attention.Attention`; `kernels.choose` may run a faster function with
    the same result. `score(query, keys)` gives scores [B, ..., T, S], `normalise(scores, mask)` weights of that shape.

    >>> states = torch.randn(2, 5, 8)  # [B, S, D]: two sentences of five words
    >>> look = regard.attend(torch.randn(2, 3, 8), regard.Memory(keys=states, values=states))
    >>> look.weights.shape, look.context.shape  # [B, T, S], whose rows sum to one, and [B, T, Dv]
    (torch.Size([2, 3, 5]), torch.Size([2, 3, 8]))
    """
    if not isinstance(memory, Memory):
        raise ShapeError(
            f"attend needs a Memory; got a {type(memory).__name__}. Write Memory(keys, values) or, with a mask of what "
            "may be looked at, Memory(keys, values, mask)."
        )
    for name, part in (("query", query), ("keys of the memory", memory.keys), ("values of the memory", memory.values)):
        if not isinstance(part, Tensor):
            raise ShapeError(f"The {name} must be a tensor [B, ..., size]; got a {type(part).__name__}.")
    for name, function in (("score", score), ("normaliser", normalise)):
        if not callable(function):
            raise ShapeError(f"The {name} must be a function, such as those in regard.core; got {function!r:.40}.")
    check_memory(query, memory)
    return attend_unchecked(query, memory, score, normalise)


def attend_unchecked(query: Tensor, memory: Memory, score: Score, normalise: Normalise) -> Look:
    """`attend`, for a query and memory whose shapes are known to be right."""
    scores = score(query, memory.keys)  # [B, ..., T, S]
    weights = normalise(scores, memory.mask)  # [B, ..., T, S]
    context = matmul(weights, memory.values)  # [B, ..., T, Dv]
    return Look(context, weights, scores)


def check_memory(query: Tensor, memory: Memory) -> None:
    """Refuse a query and memory that cannot meet, before torch broadcasts them into something else.

    A mask is boolean: additive masks and 0/1 numbers are refused.
    """
    keys, values, mask = memory.keys, memory.values, memory.mask
    if query.dim() < 3 or keys.dim() < 3 or query.shape[:-2] != keys.shape[:-2]:
        raise ShapeError(
            f"attend needs a query [B, ..., T, D] and keys [B, ..., S, D] with the same leading sizes; "
            f"the query is {list(query.shape)} and the keys are {list(keys.shape)}. "
            f"A single query vector needs a T of one: query.unsqueeze(-2)."
        )
    if keys.shape[:-1] != values.shape[:-1]:
        raise ShapeError(
            f"Memory needs one value for each key; keys are {list(keys.shape)} and values {list(values.shape)}. "
            f"All sizes but the last must be equal."
        )
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ShapeError(
            f"A mask must be boolean with True = may look; got {mask.dtype}. "
            f"Use mask.bool() if ones mean 'may look', or scores_mask == 0 for an additive mask of zeros and -inf."
        )
    shape = (*query.shape[:-1], keys.shape[-2])
    if mask.dim() > len(shape) or any(m not in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False)):
        raise ShapeError(
            f"A mask must broadcast to the scores {list(shape)}; got {list(mask.shape)}. A padding mask has shape "
            f"[B, 1, S] and is True for words, not for padding (see padding_mask)."
        )
