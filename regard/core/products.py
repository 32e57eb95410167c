"""Products of activations with matrices: `Linear`, `linear` and `matmul` compute what torch's functions do.

Layers, scores and models call these, and not torch's, wherever one of two faster forms may be chosen:

* In a recurrence with gradients (`kernels.recur`), the gradient of a matrix that every step multiplies by is one
  product, formed after the last step.
* On a GPU under autocast with gradients, `LowPrecisionLinear` fills up widths to multiples of eight and writes the
  gradient of the weight in float32.

Both give the same numbers up to rounding.
"""

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

WIDTH = 8


class Linear(nn.Linear):
    """nn.Linear by `linear`: x [..., n] -> x W^T + b [..., m]."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear: x [..., n], weight [m, n], bias [m] -> [..., m]."""
    recurrence = current_recurrence()
    collected: Tensor | None = None if recurrence is None else recurrence.product(x, weight, bias, transposed=True)
    if collected is not None:
        return collected
    if x.is_cuda and x.dim() > 1 and torch.is_autocast_enabled("cuda") and torch.is_grad_enabled():
        return LowPrecisionLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def matmul(x: Tensor, matrix: Tensor) -> Tensor:
    """torch.matmul: x [..., T, n], matrix [..., n, m] -> [..., T, m]."""
    recurrence = current_recurrence()
    collected: Tensor | None = None if recurrence is None else recurrence.product(x, matrix, None, transposed=False)
    return x @ matrix if collected is None else collected


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x.to(dtype); in a recurrence, the copy that a product of the same step has made of x."""
    recurrence = current_recurrence()
    return x.to(dtype) if recurrence is None else recurrence.copy_of(x, dtype)


class _Running(threading.local):
    def __init__(self) -> None:
        self.recurrences: list[Any] = []  # `kernels.recur.Loop`s


running = _Running()  # the recurrences of this thread, the innermost last


def current_recurrence() -> Any:
    """The innermost `kernels.recur.Loop` of this thread; None outside of one, and while torch traces a model."""
    found = running.recurrences
    return found[-1] if found and not torch.compiler.is_compiling() else None


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast takes a product of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def padded(x: Tensor) -> Tensor:
    """x [n, D] with zeros up to a multiple of eight, on a GPU and in 16 bits.

    A GPU reads rows 16 bytes at a time, and its kernels for other widths run at a third of the speed. The embeddings of
    Bahdanau's paper, 620 numbers wide, have such products.
    """
    missing = -x.shape[-1] % WIDTH if x.is_cuda and x.element_size() == 2 else 0
    return F.pad(x, (0, missing)) if missing else x  # F.pad copies, whether there is something to add or not


def weight_gradient(d: Tensor, x: Tensor, dtype: torch.dtype, total: Tensor | None = None) -> Tensor:
    """d^T x in `dtype` of d [N, m] and x [N, n], plus `total` [m, n], which is overwritten."""
    if d.dtype == dtype:
        return d.T @ x if total is None else total.addmm_(d.T, x)
    if not d.is_cuda:
        return (d.T @ x).to(dtype) if total is None else total.add_(d.T @ x)
    # a GPU writes a product of 16-bit numbers in float32
    return (
        torch.mm(d.T, x, out_dtype=dtype) if total is None else torch.addmm(total, d.T, x, out_dtype=dtype, out=total)
    )


class LowPrecisionLinear(torch.autograd.Function):
    """F.linear in the dtype of autocast: x [..., n], weight [m, n], bias [m] -> [..., m]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        dtype = product_dtype(x)
        rows, W = padded(x.to(dtype).flatten(0, -2)), padded(weight.to(dtype))  # [N, n], [m, n]
        ctx.save_for_backward(rows, W)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        return F.linear(rows, W, None if bias is None else bias.to(dtype)).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, W = ctx.saved_tensors
        (of_x, of_weight, of_bias), n, d = ctx.dtypes, ctx.shape[-1], grad.flatten(0, -2)  # [N, m]
        needs = ctx.needs_input_grad
        d_x = (d @ W)[:, :n].to(of_x).unflatten(0, ctx.shape[:-1]) if needs[0] else None
        d_weight = weight_gradient(d, rows, of_weight)[:, :n].contiguous() if needs[1] else None
        return d_x, d_weight, d.sum(dim=0, dtype=of_bias) if of_bias and needs[2] else None
