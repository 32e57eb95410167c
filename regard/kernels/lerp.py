"""Between two states, with the gradient written by hand: torch's own takes twice as many passes over memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """start + weight * (end - start), all of one shape."""
    return _Lerp.apply(start, end, weight)  # type: ignore[no-untyped-call]


class _Lerp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(start, end, weight)
        return torch.lerp(start, end, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        start, end, weight = ctx.saved_tensors
        to_end = grad * weight
        return grad - to_end, to_end, grad * (end - start)
