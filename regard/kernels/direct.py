"""Modules without what torch does around each call: with one row a step costs its calls more than its arithmetic."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.kernels.cpu import StepLinear
from regard.kernels.products import padded


def for_steps(model: Any) -> Any:
    """The same model, weights and hooks with its linear layers laid out for the few rows of a decoding step, and its
    modules called directly.

    It lives as long as one search; weights that change later are not seen.
    """
    if not isinstance(model, nn.Module) or torch.is_grad_enabled():
        return model
    if all(weight.is_cpu for weight in model.parameters()):
        return direct(model, partial(_swap_linear, by=StepLinear))
    return direct(model, partial(_swap_linear, by=LowLinear)) if torch.is_autocast_enabled("cuda") else model


def _swap_linear(module: nn.Module, by: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """`by` in place of a linear layer, or of a module that is one (`as_linear`), unless hooks observe it."""
    linear = getattr(module, "as_linear", lambda: module)()
    seen = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return by(linear) if type(linear) is nn.Linear and not seen else module


class LowLinear(nn.Linear):
    """nn.Linear for the steps of one search, its weights cast to the dtype of autocast, and aligned, once for all."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        dtype = torch.get_autocast_dtype("cuda")
        self.wide = padded(linear.weight.detach().to(dtype))
        # Scores read the matrix itself: it is the part of the aligned one that has its width.
        self.weight = nn.Parameter(self.wide[:, : linear.in_features], requires_grad=False)
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(dtype), requires_grad=False)
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(padded(x.to(self.wide.dtype)), self.wide, self.bias)


def direct(
    module: nn.Module, swap: Callable[[nn.Module], nn.Module] = lambda part: part, made: dict[int, Any] | None = None
) -> Any:
    """A copy of a module's structure, with the same weights and hooks, that calls each `forward` directly.

    `swap` may replace a part by another. A part with hooks is called as usual, so that they run. The copy serves for
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
