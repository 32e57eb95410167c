"""Nested tuples of tensors: what a state of a model or of a search is."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


def map_nested(part: Any, act: Callable[[Any], Any], leaf: Any = Tensor) -> Any:
    """The same tuples with `act` applied to every `leaf`; what else they hold stays."""
    if isinstance(part, leaf):
        return act(part)
    if not isinstance(part, tuple):
        return part
    mapped = [map_nested(inner, act, leaf) for inner in part]
    return type(part)(*mapped) if hasattr(part, "_fields") else tuple(mapped)


def leaves(part: Any) -> Iterator[Tensor]:
    """The tensors of nested tuples, in order."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from leaves(inner)


def device_of(part: Any) -> torch.device:
    """Where the tensors of nested tuples are; the CPU where there are none."""
    first = next(leaves(part), None)
    return torch.device("cpu") if first is None else first.device


def on_host(part: Any) -> Any:
    """The same tensors in the memory of the host, all of them by one transfer."""
    here = list(leaves(part))
    if all(tensor.is_cpu for tensor in here):
        return part
    # Wide types first, so that each tensor begins at a multiple of the size of its elements.
    order = sorted(range(len(here)), key=lambda number: -here[number].element_size())
    bytes_of = [here[number].contiguous().flatten().view(torch.uint8) for number in order]
    packed = torch.cat(bytes_of).to("cpu", non_blocking=True)  # into pinned memory, which is several times as fast
    torch.cuda.current_stream(here[0].device).synchronize()
    pieces = packed.split([len(piece) for piece in bytes_of])
    found = dict(zip(order, pieces, strict=True))
    in_order = iter(found[number] for number in range(len(here)))
    return map_nested(part, lambda tensor: next(in_order).view(tensor.dtype).view(tensor.shape))
