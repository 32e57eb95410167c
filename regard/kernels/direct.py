"""Modules without what torch does around each call: with one row a step costs its calls more than its arithmetic."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn


def direct(
    module: nn.Module, swap: Callable[[nn.Module], nn.Module] = lambda part: part, made: dict[int, Any] | None = None
) -> Any:
    """A copy of a module's structure, with the same weights and hooks, that calls each `forward` directly.

    `swap` may replace a part by another. A part with hooks is called as ever, so that they run. The copy serves for
    steps without gradients, as long as one search: hooks that are added later are not seen.
    """
    made = {} if made is None else made
    if id(module) not in made:
        other = swap(module)
        kind = type(other) if other._forward_hooks or other._forward_pre_hooks else _called_directly(type(other))  # type: ignore[arg-type]
        copy = made[id(module)] = kind.__new__(kind)
        parts = {name: part if part is None else direct(part, swap, made) for name, part in other._modules.items()}
        # As plain attributes, parts and weights are found without nn.Module's search for them.
        copy.__dict__.update(other.__dict__ | {"_modules": parts} | parts | other._parameters | other._buffers)
    return made[id(module)]


@cache
def _called_directly(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (kind,), {"__call__": kind.forward})
