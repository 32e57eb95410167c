"""A copy of a model for the steps of one search.

Its weights are laid out for products of few rows, and `forward` of its modules is called directly: a step of one
sentence is about a hundred small calls, and nn.Module's own bookkeeping would take a fifth of its time.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.nested import device_of
from regard.core.products import Linear, padded


def for_steps(model: Any) -> Any:
    """The same model, weights and hooks with its linear layers laid out for the few rows of a decoding step.

    It lives as long as one search; weights that change later are not seen.
    """
    if not isinstance(model, nn.Module) or torch.is_grad_enabled():
        return model
    if device_of(tuple(model.parameters())).type == "cpu":
        return called_directly(model, TransposedLinear)
    return called_directly(model, CastLinear) if torch.is_autocast_enabled("cuda") else model


class TransposedLinear(nn.Module):
    """nn.Linear on a CPU, which multiplies several rows fastest by a transposed copy of the weights.

    The copy is made when it is first needed and lives as long as this object, so it cannot be out of date.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.transposed: Tensor | None = None  # [n, m]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            return F.linear(x, self.weight, self.bias)
        if self.transposed is None:
            self.transposed = self.weight.detach().t().contiguous()
        if self.bias is None:
            return torch.matmul(x, self.transposed)
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.transposed)
        return rows.view(*x.shape[:-1], -1)


class CastLinear(nn.Linear):
    """nn.Linear on a GPU under autocast: its weights are cast, and padded to a multiple of eight, once."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        dtype = torch.get_autocast_dtype("cuda")
        self.wide = padded(linear.weight.detach().to(dtype))
        # Scores read the matrix itself: it is the part of the padded one that has its width.
        self.weight = nn.Parameter(self.wide[:, : linear.in_features], requires_grad=False)
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(dtype), requires_grad=False)
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(padded(x.to(self.wide.dtype)), self.wide, self.bias)


def called_directly(
    module: nn.Module, replace: Callable[[nn.Linear], nn.Module] | None = None, copies: dict[int, Any] | None = None
) -> Any:
    """A copy of a module's structure, with the same weights and hooks, that calls each `forward` directly.

    `replace` gives a module in place of a linear layer, or of a module that is one (`as_linear`). A part with hooks is
    neither replaced nor called directly, so that they run; hooks that are added later are not seen.
    """
    copies = {} if copies is None else copies
    if id(module) not in copies:
        other: Any = module
        linear: Any = other.as_linear() if hasattr(other, "as_linear") else module
        if replace and type(linear) in (nn.Linear, Linear) and not any(map(_has_hooks, module.modules())):
            other = replace(linear)
        kind: Any = type(other) if _has_hooks(other) else _direct(type(other))  # type: ignore[arg-type]
        copy = copies[id(module)] = kind.__new__(kind)
        parts = {
            name: part if part is None else called_directly(part, replace, copies)
            for name, part in other._modules.items()
        }
        # As plain attributes, parts and weights are found without nn.Module's search for them.
        copy.__dict__.update(other.__dict__ | {"_modules": parts} | parts | other._parameters | other._buffers)
    return copies[id(module)]


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


@cache
def _direct(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (kind,), {"__call__": kind.forward})
