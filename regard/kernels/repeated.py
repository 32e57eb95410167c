"""The products inside a time loop, with the gradients of their weights taken once, after the loop.

A recurrent cell computes y_t = base_t + x_t W^T + z_t V^T at every step. Autograd would form dW_t = dy_t^T x_t for each
step, T products of few rows, and add them up, T passes over all of W. But base enters by a sum, so that its gradient
is dy_t, and those of all steps arrive together when the loop has been walked back: dW = sum_t dy_t^T x_t is then one
product. The answers are the same up to rounding.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class Repeated:
    """x_t, z_t, ... -> base_t + x_t W^T + z_t V^T + ..., to be called once for each step t, in order.

    base [..., B, T, m], weights [..., m, n] each with an input of its own width n; inputs [..., B, n] -> [..., B, m].
    Without gradients or with a single step there is nothing to put off, and the products are plain.
    """

    def __init__(self, base: Tensor, *weights: Tensor) -> None:
        self.weights, self.seen = weights, list[Tensor]()
        self.late = torch.is_grad_enabled() and base.shape[-2] > 1 and bool(weights)
        if self.late:
            dtype = product_dtype(base)
            self.whole = torch.cat([weight.detach() for weight in weights], dim=-1).to(dtype)  # [..., m, n + ...]
            self.turned = self.whole.mT.contiguous()  # [..., n + ..., m]: what BLAS likes best for few rows
            base = _Late.apply(base.to(dtype), self.seen, *weights)  # type: ignore[no-untyped-call]
        self.bases = iter(base.unbind(-2))  # T times [..., B, m]

    def __call__(self, *inputs: Tensor) -> Tensor:
        base = next(self.bases)
        if self.late:
            x = torch.cat(inputs, dim=-1).to(self.whole.dtype) if len(inputs) > 1 else inputs[0].to(self.whole.dtype)
            self.seen.append(x.detach())
            return _Product.apply(base, x, self.whole, self.turned)  # type: ignore[no-untyped-call]
        for x, weight in zip(inputs, self.weights, strict=True):
            base = base + (F.linear(x, weight) if weight.dim() == 2 else x @ weight.mT)
        return base


def nothing(x: Tensor, *shape: int) -> Tensor:
    """Zeros of this shape that take no memory, beside x: a base for products that have nothing to be added to."""
    return torch.zeros((), dtype=product_dtype(x), device=x.device).expand(shape)


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would take a product of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class _Late(torch.autograd.Function):
    """Hands base through. Going back, the gradient of base is dy of all steps: time for the weights."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, seen: list[Tensor], *weights: Tensor) -> Tensor:
        ctx.seen, ctx.widths, ctx.dtype = seen, [weight.shape[-1] for weight in weights], weights[0].dtype
        return base.view_as(base)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads  # [..., B, T, m]
        inputs = torch.stack(ctx.seen, dim=-2)  # [..., B, T, n + ...]
        # A loop that stopped early has no input for its last steps, and they have no gradient.
        steps = grad[..., : inputs.shape[-2], :]
        whole = steps.flatten(-3, -2).mT @ inputs.flatten(-3, -2)  # [..., m, n + ...]
        return grad, None, *whole.to(ctx.dtype).split(ctx.widths, dim=-1)


class _Product(torch.autograd.Function):
    """base + x W^T with W as a constant, kept in both layouts: each direction has a product of few rows."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, x: Tensor, whole: Tensor, turned: Tensor) -> Tensor:
        ctx.whole = whole
        return torch.addmm(base, x, turned) if x.dim() == 2 else torch.baddbmm(base, x, turned)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], grads[0] @ ctx.whole, None, None
