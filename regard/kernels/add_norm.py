"""Triton: LN(x + dropout(added)) in one launch, backward in two: one for the rows, one for the sums of gamma and beta.

Addition, dropout and normalisation share one pass over the rows. The backward pass computes the
sum, its statistics and the dropped elements again, so that only the inputs are stored. All arithmetic is in float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.products import product_dtype
from regard.kernels.column_sums import column_sums

PROGRAMS = 528  # of the backward pass: four for each multiprocessor of an H200; each sums over its rows


def add_norm(x: Tensor, added: Tensor | None, gamma: Tensor, beta: Tensor, eps: float, p: float = 0.0) -> Tensor:
    """LN(x + dropout(added)) over the last dimension, or LN(x) if nothing is added; x and added [..., D].

    The result has the dtype that autocast gives to a product. Dropped elements are a function of a seed that is drawn
    on the device, so that every replay of a CUDA graph draws others.
    """
    seed = torch.empty((), dtype=torch.int64, device=x.device).random_() if p else None
    return _AddNorm.apply(x, added, gamma, beta, eps, p, seed)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        eps: float,
        p: float,
        seed: Tensor | None,
    ) -> Tensor:
        x, added = x.contiguous(), None if added is None else added.contiguous()
        y = torch.empty(x.shape, dtype=product_dtype(x), device=x.device)
        N, D, rows, block = _sizes(x)
        flags = added is not None, p > 0, rows, block
        _norm[(triton.cdiv(N, rows),)](x, added, gamma, beta, seed, y, N, D, eps, p, *flags, num_warps=4)
        ctx.save_for_backward(x, added, gamma, seed)
        ctx.eps, ctx.p = eps, p
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, added, gamma, seed = ctx.saved_tensors
        grad = grad.contiguous()
        N, D, rows, block = _sizes(x)
        programs = min(PROGRAMS, triton.cdiv(N, rows))
        d_x = torch.empty_like(x)
        apart = added is not None and (ctx.p > 0 or added.dtype != x.dtype)  # else both gradients are the same numbers
        d_added = torch.empty_like(added) if apart else None
        partial = torch.empty(programs, 2 * D, dtype=torch.float32, device=x.device)  # of gamma and beta
        flags = added is not None, ctx.p > 0, apart, rows, block
        _norm_back[(programs,)](
            x, added, gamma, seed, grad, d_x, d_added, partial, N, D, ctx.eps, ctx.p, *flags, num_warps=4
        )
        d_gamma, d_beta = column_sums(partial).to(gamma.dtype).chunk(2)
        return d_x, d_added if apart else None if added is None else d_x, d_gamma, d_beta, None, None, None


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    """Rows and width of x, and those of a tile."""
    D = x.shape[-1]
    block = max(16, triton.next_power_of_2(D))
    return x.numel() // D, D, max(1, 2048 // block), block


@triton.jit
def _kept(seed, row, D: tl.constexpr, p, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / (1 - p) where an element is kept, 0 elsewhere: [ROWS, BLOCK]. One draw gives four numbers."""
    quarter: tl.constexpr = BLOCK // 4
    place = row[:, None] * quarter + tl.arange(0, quarter)[None, :]
    a, b, c, d = tl.rand4x(tl.load(seed), place)
    draws = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, BLOCK])
    return tl.where(draws < p, 0.0, 1.0 / (1.0 - p))


@triton.jit
def _centred(
    x, added, seed, row, place, inside, D: tl.constexpr, eps, p,
    ADDED: tl.constexpr, DROP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x + dropout(added), normalised, [ROWS, BLOCK]; 1 / its deviation [ROWS]; the factors of dropout [ROWS, BLOCK]."""
    total = tl.load(x + place, inside, other=0.0).to(tl.float32)
    kept = total
    if ADDED:
        more = tl.load(added + place, inside, other=0.0).to(tl.float32)
        if DROP:
            kept = _kept(seed, row, D, p, ROWS, BLOCK)
            more *= kept
        total += more
    centred = tl.where(inside, total - (tl.sum(total, 1) / D)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    return centred * scale[:, None], scale, kept


@triton.jit(do_not_specialize=["N"])
def _norm(
    x, added, gamma, beta, seed, y, N, D: tl.constexpr, eps, p,
    ADDED: tl.constexpr, DROP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (row < N)[:, None] & (d < D)[None, :]
    place = row.to(tl.int64)[:, None] * D + d[None, :]
    unit, _, _ = _centred(x, added, seed, row, place, inside, D, eps, p, ADDED, DROP, ROWS, BLOCK)
    g = tl.load(gamma + d, d < D, other=0.0).to(tl.float32)
    b = tl.load(beta + d, d < D, other=0.0).to(tl.float32)
    tl.store(y + place, (unit * g[None, :] + b[None, :]).to(y.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["N"])
def _norm_back(
    x, added, gamma, seed, grad, d_x, d_added, partial, N, D: tl.constexpr, eps, p,
    ADDED: tl.constexpr, DROP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK)
    g = tl.load(gamma + d, d < D, other=0.0).to(tl.float32)
    d_gamma = tl.zeros([ROWS, BLOCK], tl.float32)
    d_beta = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < N)[:, None] & (d < D)[None, :]
        place = row.to(tl.int64)[:, None] * D + d[None, :]
        d_y = tl.load(grad + place, inside, other=0.0).to(tl.float32)
        unit, scale, kept = _centred(x, added, seed, row, place, inside, D, eps, p, ADDED, DROP, ROWS, BLOCK)
        d_gamma += d_y * unit
        d_beta += d_y
        d_unit = d_y * g[None, :]
        slope = tl.sum(d_unit * unit, 1) / D
        d_total = (d_unit - (tl.sum(d_unit, 1) / D)[:, None] - unit * slope[:, None]) * scale[:, None]
        tl.store(d_x + place, d_total.to(d_x.dtype.element_ty), inside)
        if APART:
            if DROP:
                d_total *= kept
            tl.store(d_added + place, d_total.to(d_added.dtype.element_ty), inside)
    sums = partial + tl.program_id(0) * 2 * D + d
    tl.store(sums, tl.sum(d_gamma, 0), d < D)
    tl.store(sums + D, tl.sum(d_beta, 0), d < D)
