"""The products of one update in 16 bits on a GPU: of linear layers, forward and backward.

Autocast converts each weight by itself, forms its gradient in 16 bits and converts that again. Here all weights are
converted by one launch, and products write their gradients in float32.

A GPU reads rows sixteen bytes at a time, and has kernels of a third of the speed for rows whose width is no multiple of
eight: zeros fill them up. The paper's Bahdanau, with embeddings of 620 numbers, has such products.
"""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

WIDTH = 8
copies: dict[int, Tensor] = {}  # of weights in 16 bits, by id, while an update runs


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast takes a product of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def low(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight in the dtype of products, without its gradient."""
    copy = copies.get(id(weight))
    return copy if copy is not None and copy.dtype == dtype else weight.detach().to(dtype)


def padded(x: Tensor) -> Tensor:
    """x [n, D] with zeros up to a multiple of eight, on a GPU and in 16 bits."""
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


def bias_gradient(d: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of the columns of d [N, m] in `dtype`."""
    if d.is_cuda and dtype == torch.float32 and find_spec("triton"):
        from regard.kernels.columns import column_sums

        return column_sums(d)
    return d.sum(dim=0, dtype=dtype)


class Products(TorchFunctionMode):
    """While it is entered, the linear layers of a model take their products as this file says."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        layers = [part for part in model.modules() if isinstance(part, nn.Linear)]
        self.weights: list[Tensor] = list(
            {id(weight): weight for layer in layers for weight in layer.parameters()}.values()
        )

    def __enter__(self) -> "Products":
        made = [torch.empty(weight.shape, dtype=product_dtype(weight), device=weight.device) for weight in self.weights]
        with torch.no_grad():
            torch._foreach_copy_(made, self.weights)
        copies.update(zip(map(id, self.weights), made, strict=True))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for weight in self.weights:
            copies.pop(id(weight), None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or not _applies(*args[:2]):
            return func(*args, **(kwargs or {}))
        return _Linear.apply(*args, *[None] * (3 - len(args)))


def _applies(x: Tensor, weight: Tensor) -> bool:
    """Whether this is a product of rows with a matrix, in the dtype of autocast and with gradients."""
    lowered = torch.is_autocast_enabled(x.device.type) and torch.is_grad_enabled()
    return lowered and x.dim() > 1 and weight.dim() == 2


class _Linear(torch.autograd.Function):
    """F.linear: x [..., n], weight [m, n], bias [m] -> [..., m]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        dtype = product_dtype(x)
        rows, W = padded(x.to(dtype).flatten(0, -2)), padded(low(weight, dtype))  # [N, n], [m, n]
        ctx.save_for_backward(rows, W)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        return F.linear(rows, W, None if bias is None else low(bias, dtype)).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, W = ctx.saved_tensors
        (of_x, of_weight, of_bias), n, d = ctx.dtypes, ctx.shape[-1], grad.flatten(0, -2)  # [N, m]
        needs = ctx.needs_input_grad
        d_x = (d @ W)[:, :n].to(of_x).unflatten(0, ctx.shape[:-1]) if needs[0] else None
        d_weight = weight_gradient(d, rows, of_weight)[:, :n].contiguous() if needs[1] else None
        return d_x, d_weight, bias_gradient(d, of_bias) if of_bias and needs[2] else None
