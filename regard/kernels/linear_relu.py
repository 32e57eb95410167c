"""max(0, x W^T + b) with bias and ReLU fused into the product; in the backward pass, one Triton launch does both.

Separate operators would read and write the wide hidden layer of a Transformer once more each.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.products import product_dtype, weight_gradient
from regard.kernels.column_sums import column_sums

EACH = 128  # rows of a program of the backward pass, which sums them for the bias


def linear_relu(x: Tensor, linear: nn.Linear) -> Tensor:
    """x [..., n] -> [..., m], in the dtype of autocast. Hooks of the layer run with the plain form only."""
    if linear._forward_hooks or linear.bias is None:
        return torch.relu(linear(x))
    return LinearReLU.apply(x, linear.weight, linear.bias)


class LinearReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        dtype = product_dtype(x)
        rows, W = x.to(dtype).flatten(0, -2), weight.to(dtype)  # [N, n], [m, n]
        y = torch._addmm_activation(bias.to(dtype), rows, W.T)  # [N, m]
        ctx.save_for_backward(rows, W, y)
        ctx.dtypes = x.dtype, weight.dtype
        return y.unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        rows, W, y = ctx.saved_tensors
        (N, m), grad = y.shape, grad.contiguous()
        d, partial = torch.empty_like(y), torch.empty(triton.cdiv(N, EACH), m, dtype=torch.float32, device=y.device)
        columns = min(256, max(16, triton.next_power_of_2(m)))
        _relu_back[triton.cdiv(m, columns), len(partial)](grad, y, d, partial, N, m, EACH, 8, columns, num_warps=4)
        d_x = (d @ W).unflatten(0, grad.shape[:-1]).to(ctx.dtypes[0])
        return d_x, weight_gradient(d, rows, ctx.dtypes[1]), column_sums(partial).to(ctx.dtypes[1])


@triton.jit(do_not_specialize=["N"])
def _relu_back(
    grad, y, d, partial, N, M: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, EACH, ROWS):
        row = tl.program_id(1) * EACH + start + tl.arange(0, ROWS)
        inside = (row < N)[:, None] & (column < M)[None, :]
        place = row.to(tl.int64)[:, None] * M + column[None, :]
        alive = tl.load(y + place, inside, other=0.0) > 0
        g = tl.where(alive, tl.load(grad + place, inside, other=0.0).to(tl.float32), 0.0)
        tl.store(d + place, g.to(d.dtype.element_ty), inside)
        total += g
    tl.store(partial + tl.program_id(1) * M + column, tl.sum(total, 0), column < M)
