"""Nested tuples of tensors: what a state of a model or of a search is."""

from collections.abc import Callable, Iterator
from typing import Any

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
