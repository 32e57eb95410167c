"""Where a query may look. A mask is boolean and True means *may look*, everywhere in regard."""

import torch
from torch import Tensor

from regard.errors import ShapeError


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """May look at the first `lengths[b]` slots of row b. Returns [B, 1, size], ready for any number of queries.

    >>> core.padding_mask(torch.tensor([3, 1]), size=3)
    tensor([[[ True,  True,  True]],
            [[ True, False, False]]])
    """
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ShapeError(
            f"lengths must be whole numbers of shape [B]; got {lengths.dtype} {list(lengths.shape)}. "
            f"Pass the number of real tokens of each row."
        )
    return torch.arange(size, device=lengths.device) < lengths[:, None, None]


def causal_mask(size: int, device: torch.device | str | None = None, queries: int | None = None) -> Tensor:
    """Position t may look at positions up to and including t. Returns [size, size], or its last `queries` rows.

    >>> core.causal_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    queries = size if queries is None else queries
    return torch.ones(queries, size, dtype=torch.bool, device=device).tril(size - queries)


def window_mask(centre: Tensor, half_width: float, size: int) -> Tensor:
    """May look at slots s with `|s - centre| <= half_width`. centre [..., T] -> [..., T, size].

    >>> core.window_mask(torch.tensor([0.0, 2.5]), half_width=1, size=4)
    tensor([[ True,  True, False, False],
            [False, False,  True,  True]])
    """
    # bfloat16 counts to 256 only.
    centre = centre.to(torch.promote_types(centre.dtype, torch.float32))
    slots = torch.arange(size, device=centre.device, dtype=centre.dtype)
    return (slots - centre[..., None]).abs() <= half_width
