"""Triton: additive attention, v^T tanh(q + k), without storing the hidden layer [B, T, S, D].

The scores [B, T, S] are D times smaller than the hidden layer. One kernel computes them from queries and keys, and
everything after them (mask, softmax, context) is plain torch. The backward pass computes the tanh again, once for the
gradient of the queries and once for that of the keys: this is faster than storing and reading it.

`AttentionLoop` does the same for one query at a time inside a time loop, for the additive and the dot score. The
gradients of keys, values and v do not depend on the previous step, so they are computed after the loop for all steps
at once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.products import product_dtype
from regard.errors import ShapeError


def additive_scores(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(q_t + k_s) for all t and s, in float32: [B, T, D], [B, S, D], [D] -> [B, T, S]."""
    _check(query, keys, v)
    return _Scores.apply(query, keys, v)


def _check(query: Tensor, keys: Tensor, v: Tensor | None) -> None:
    width = keys.shape[-1] if v is None else v.numel()
    if len(query) != len(keys) or not query.shape[-1] == keys.shape[-1] == width:
        raise ShapeError(
            "Additive attention needs a query [B, T, D], keys [B, S, D] and v [D] with the same B and D; got "
            f"{list(query.shape)}, {list(keys.shape)} and [{width}]. Project query and keys to the width of v."
        )
    if query.dtype == torch.float64:
        raise ShapeError("Additive attention by Triton computes in float32; got float64. Use the plain form.")


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        (B, T, D), S = query.shape, keys.shape[1]
        scores = torch.empty(B, T, S, dtype=torch.float32, device=query.device)
        rows, columns = _tile(T), _tile(S)
        grid = (triton.cdiv(S, columns), triton.cdiv(T, rows), B)
        transposed = _transposed(query, rows), _transposed(keys, columns)  # [B, D, T + ...], [B, D, S + ...]
        _scores[grid](*transposed, v, scores, T, S, D, fast(query), rows, columns, num_warps=4)
        ctx.save_for_backward(query, keys, v)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, v = ctx.saved_tensors
        grad = grad.contiguous()  # [B, T, S]
        d_query, d_v = _gradient(query, keys, v, grad.mT.contiguous(), with_v=True)
        d_keys, _ = _gradient(keys, query, v, grad)
        return d_query, d_keys, d_v


def _gradient(own: Tensor, other: Tensor, v: Tensor, d_scores: Tensor, with_v: bool = False) -> tuple[Tensor, Any]:
    """The gradients of `own` [B, M, D], queries or keys, and of v [D]; other [B, N, D], d_scores [B, N, M]."""
    own, other = own.contiguous(), other.contiguous()
    (B, M, D), N = own.shape, other.shape[1]
    rows, columns = _tile(M), 64
    grid = (triton.cdiv(D, columns), triton.cdiv(M, rows), B)
    d_own = torch.empty_like(own)
    d_v = torch.empty(B * grid[1], D, dtype=torch.float32, device=own.device) if with_v else None  # a row a program
    _gradients[grid](own, other, v, d_scores, d_own, d_v, M, N, D, fast(own), with_v, rows, columns, num_warps=4)
    return d_own, None if d_v is None else d_v.sum(dim=0).to(v.dtype).view_as(v)


def _tile(length: int) -> int:
    """Rows of a tile, such that each of 128 threads loads its own part of a row and no shared memory is needed."""
    return min(64, max(16, triton.next_power_of_2(length)))


def _wide(width: int) -> int:
    """Columns of a tile of few rows."""
    return min(1024, max(128, triton.next_power_of_2(width)))


def _transposed(x: Tensor, tile: int) -> Tensor:
    """[B, T, D] -> [B, D, T], with T padded to whole tiles, so that the kernel's loads are wide and need no mask."""
    missing = -x.shape[1] % tile
    return (torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x).mT.contiguous()


def fast(x: Tensor) -> bool:
    """Whether the hardware tanh (relative error 2^-11) is exact enough: its error is below that of bfloat16."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16)


class AttentionLoop:
    """Attention in a time loop: query [B, D] -> context [B, Dv] and weights [B, S] (float32), two launches.

    keys [B, S, D] are projected already, values [B, S, Dv], mask [B or 1, S] or [B, 1, S]. The score is v^T
    tanh(q + k) with v [D], or q . k without. The gradients of keys, values and v are computed once, after the
    backward pass of all steps.
    """

    def __init__(self, keys: Tensor, v: Tensor | None, values: Tensor, mask: Tensor | None = None) -> None:
        _check(keys, keys, v)
        self.dtype = product_dtype(values)
        keys, values = keys.to(self.dtype).contiguous(), values.to(self.dtype).contiguous()
        self.seen: list[tuple[Tensor, ...]] = []
        self.gate = _Gate.apply(keys, v, values, self.seen)
        self.keys, self.v, self.values = keys.detach(), None if v is None else v.detach(), values.detach()
        # One row for all sentences is expanded to [B, S]; any other shape is torch's error, and not a read outside.
        self.mask = None if mask is None else mask.flatten(0, -2).expand(keys.shape[:2]).contiguous()

    def __call__(self, query: Tensor) -> tuple[Tensor, Tensor]:
        _check(query, self.keys, self.v)
        return _Step.apply(query, self.gate, self)


class _Gate(torch.autograd.Function):
    """A scalar input of every step, so that autograd runs its backward after that of all steps."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, v: Tensor | None, values: Tensor, seen: list[tuple[Tensor, ...]]) -> Tensor:
        ctx.save_for_backward(keys, v, values)
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return keys.new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, ...]:
        keys, v, values = ctx.saved_tensors
        queries, weights, d_contexts, d_scores = (torch.stack(x, dim=1) for x in zip(*ctx.seen, strict=True))
        ctx.seen.clear()
        d_values = weights.to(values.dtype).mT @ d_contexts.to(values.dtype)  # [B, S, Dv]
        if v is None:
            return d_scores.to(keys.dtype).mT @ queries.to(keys.dtype), None, d_values, None
        d_keys, d_v = _gradient(keys, queries, v, d_scores, with_v=True)
        return d_keys, d_v, d_values, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, gate: Tensor, loop: AttentionLoop) -> tuple[Tensor, Tensor]:
        keys, v, values, mask = loop.keys, loop.v, loop.values, loop.mask
        (B, S, D), Dv, query = keys.shape, values.shape[2], query.contiguous()
        scores = torch.empty(2, B, S, dtype=torch.float32, device=keys.device)
        weights = scores[1]  # [B, S]
        context = torch.empty(B, Dv, dtype=values.dtype, device=keys.device)
        whole, wide = triton.next_power_of_2(S), _columns(B, Dv)
        additive = v is not None, fast(keys)
        _one_query[triton.cdiv(S, 4), B](query, keys, v, scores, S, D, *additive, 4, _wide(D), num_warps=4)
        _one_context[triton.cdiv(Dv, wide), B](
            scores, values, mask, weights, context, S, Dv, mask is not None, whole, ROWS, wide, num_warps=_warps(wide)
        )
        ctx.save_for_backward(query, weights)
        ctx.loop = loop
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        query, weights = ctx.saved_tensors
        keys, v, values = ctx.loop.keys, ctx.loop.v, ctx.loop.values
        (B, S, D), Dv = keys.shape, values.shape[2]
        d_context = values.new_zeros(B, Dv) if d_context is None else d_context
        d_context = d_context if d_context.stride(1) == 1 else d_context.contiguous()
        d_weights = None if d_weights is None else d_weights.contiguous()
        d_all = torch.empty(2, B, S, dtype=torch.float32, device=keys.device)
        d_scores, d_query = d_all[1], torch.empty_like(query)
        whole, wide = triton.next_power_of_2(S), _columns(B, D)
        _one_d_weights[triton.cdiv(S, 4), B](
            d_context, values, d_weights, d_all, d_context.stride(0), S, Dv,
            d_weights is not None, 4, _wide(Dv), num_warps=4,
        )  # fmt: skip
        additive = v is not None, fast(keys)
        _one_d_query[triton.cdiv(D, wide), B](
            query, keys, v, weights, d_all, d_scores, d_query, S, D, *additive, whole, ROWS, wide,
            num_warps=_warps(wide),
        )  # fmt: skip
        ctx.loop.seen.append((query, weights, d_context, d_scores))
        return d_query, None, None


# Widths are compile-time constants, so that the compiler uses wide loads for widths that are no multiples of 16 too.


@triton.jit
def tanh(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        e = tl.exp(-2.0 * tl.abs(x))
        large = (1.0 - e) / (1.0 + e)
        square = x * x  # near zero the difference above would cancel
        p = ((1.57394409e-2 * square - 5.23025580e-2) * square + 1.33152470e-1) * square - 3.33327681e-1
        return tl.where(tl.abs(x) < 0.6, x + x * (p * square), tl.where(x < 0, -large, large))


@triton.jit
def _scores(
    query, keys, v, scores, T, S, D: tl.constexpr, FAST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    b = tl.program_id(2).to(tl.int64)
    t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    s = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    place = scores + b * T * S + t.to(tl.int64)[:, None] * S + s[None, :]
    inside = (t < T)[:, None] & (s < S)[None, :]
    wide_T = tl.num_programs(1) * ROWS
    wide_S = tl.num_programs(0) * COLUMNS
    # Zeros: the mask is all False, but the tile gets the layout of a wide load, with neighbouring columns in a thread.
    total = tl.load(keys + t[:, None] * wide_S + s[None, :], (t < -D)[:, None], other=0.0).to(tl.float32)
    lost = total
    query += b * D * wide_T + t
    keys += b * D * wide_S + s
    for d in tl.range(0, D, loop_unroll_factor=4):
        q = tl.load(query).to(tl.float32)
        k = tl.load(keys).to(tl.float32)
        term = tl.load(v + d).to(tl.float32) * tanh(q[:, None] + k[None, :], FAST)
        if FAST:
            total += term
        else:  # Kahan's sum: a plain sum of a thousand terms has larger errors than torch's products
            term -= lost
            more = total + term
            lost = (more - total) - term
            total = more
        query += wide_T
        keys += wide_S
    tl.store(place, total, inside)


@triton.jit
def _gradients(
    own, other, v, d_scores, d_own, d_v, M, N, D: tl.constexpr,
    FAST: tl.constexpr, WITH_V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(2).to(tl.int64)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (i < M)[:, None] & (d < D)[None, :]
    place = b * M * D + i.to(tl.int64)[:, None] * D + d[None, :]
    mine = tl.load(own + place, inside, other=0.0).to(tl.float32)
    other += b * N * D + d
    d_scores += b * N * M + i
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    hidden = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in tl.range(0, N, loop_unroll_factor=4):
        theirs = tl.load(other, d < D, other=0.0).to(tl.float32)
        slope = tl.load(d_scores, i < M, other=0.0)
        t = tanh(mine + theirs[None, :], FAST)
        total += slope[:, None] * (1.0 - t * t)
        if WITH_V:
            hidden += slope[:, None] * t
        other += D
        d_scores += M
    w = tl.load(v + d, d < D, other=0.0).to(tl.float32)
    tl.store(d_own + place, (total * w[None, :]).to(d_own.dtype.element_ty), inside)
    if WITH_V:
        row = b * tl.num_programs(1) + tl.program_id(1)
        tl.store(d_v + row * D + d, tl.sum(hidden, 0), d < D)


# One query: the time is that of reading keys and values once, so many loads must be in flight at a time. A program has
# a tile of 4 whole rows, or of 8 rows with 8 columns for each thread, so that the sum over the rows stays inside a
# thread.
ROWS = 8


def _columns(rows: int, width: int) -> int:
    """Columns of a program: more if there are enough rows to keep the GPU busy."""
    return min(1024 if rows >= 32 else 256, max(16, triton.next_power_of_2(width)))


def _warps(columns: int) -> int:
    return max(1, columns // 256)


@triton.jit
def _one_query(
    query, keys, v, scores, S, D: tl.constexpr,
    ADDITIVE: tl.constexpr, FAST: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    s = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in tl.static_range(0, D, WIDE):
        d = start + tl.arange(0, WIDE)
        k = tl.load(keys + (b * S + s)[:, None] * D + d[None, :], (s < S)[:, None] & (d < D)[None, :], other=0.0)
        q = tl.load(query + b * D + d, d < D, other=0.0).to(tl.float32)
        if ADDITIVE:
            w = tl.load(v + d, d < D, other=0.0).to(tl.float32)
            total += w[None, :] * tanh(q[None, :] + k.to(tl.float32), FAST)
        else:
            total += q[None, :] * k.to(tl.float32)
    tl.store(scores + b * S + s, tl.sum(total, 1), s < S)


@triton.jit
def _one_context(
    scores, values, mask, weights, context, S, Dv: tl.constexpr,
    MASKED: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    r = tl.arange(0, ROWS)
    tile = values + (b * S + r)[:, None] * Dv + d[None, :]
    x = tl.load(tile, (r < S)[:, None] & (d < Dv)[None, :], other=0.0)  # loaded while the softmax is computed
    s = tl.arange(0, WHOLE)
    visible = s < S
    if MASKED:
        visible = visible & (tl.load(mask + b * S + s, s < S, other=0) != 0)
    row = tl.load(scores + b * S + s, visible, other=-1e30)
    top = tl.max(row, 0)
    e = tl.where(visible, tl.exp(row - top), 0.0)
    mass = tl.sum(e, 0)
    scale = tl.where(mass > 0, 1.0 / tl.where(mass > 0, mass, 1.0), 0.0)  # all masked: zeros
    if tl.program_id(0) == 0:
        tl.store(weights + b * S + s, e * scale, s < S)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, S, ROWS):
        seen = start + r < S
        if MASKED:
            seen = seen & (tl.load(mask + b * S + start + r, start + r < S, other=0) != 0)
        w = tl.where(seen, tl.exp(tl.load(scores + b * S + start + r, seen, other=-1e30) - top), 0.0)
        tile += ROWS * Dv
        after = tl.load(tile, (start + ROWS + r < S)[:, None] & (d < Dv)[None, :], other=0.0)
        total += w[:, None] * x.to(tl.float32)
        x = after
    tl.store(context + b * Dv + d, (tl.sum(total, 0) * scale).to(context.dtype.element_ty), d < Dv)


@triton.jit
def _one_d_weights(
    d_context, values, d_weights, out, row, S,
    Dv: tl.constexpr, GIVEN: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    s = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in tl.static_range(0, Dv, WIDE):
        d = start + tl.arange(0, WIDE)
        x = tl.load(values + (b * S + s)[:, None] * Dv + d[None, :], (s < S)[:, None] & (d < Dv)[None, :], other=0.0)
        g = tl.load(d_context + b * row + d, d < Dv, other=0.0).to(tl.float32)
        total += g[None, :] * x.to(tl.float32)
    d_weight = tl.sum(total, 1)
    if GIVEN:
        d_weight += tl.load(d_weights + b * S + s, s < S, other=0.0)
    tl.store(out + b * S + s, d_weight, s < S)


@triton.jit
def _one_d_query(
    query, keys, v, weights, d_weights, d_scores, d_query, S, D: tl.constexpr,
    ADDITIVE: tl.constexpr, FAST: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    r = tl.arange(0, ROWS)
    tile = keys + (b * S + r)[:, None] * D + d[None, :]
    k = tl.load(tile, (r < S)[:, None] & (d < D)[None, :], other=0.0)
    q = tl.load(query + b * D + d, d < D, other=0.0).to(tl.float32)
    s = tl.arange(0, WHOLE)
    row = tl.load(weights + b * S + s, s < S, other=0.0)
    d_row = tl.load(d_weights + b * S + s, s < S, other=0.0)
    mean = tl.sum(row * d_row, 0)
    if tl.program_id(0) == 0:
        tl.store(d_scores + b * S + s, row * (d_row - mean), s < S)
    total = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, S, ROWS):
        w = tl.load(weights + b * S + start + r, start + r < S, other=0.0)
        g = tl.load(d_weights + b * S + start + r, start + r < S, other=0.0)
        tile += ROWS * D
        after = tl.load(tile, (start + ROWS + r < S)[:, None] & (d < D)[None, :], other=0.0)
        slope = k.to(tl.float32)
        if ADDITIVE:
            t = tanh(q[None, :] + slope, FAST)
            slope = 1.0 - t * t
        total += (w * (g - mean))[:, None] * slope
        k = after
    found = tl.sum(total, 0)
    if ADDITIVE:
        found *= tl.load(v + d, d < D, other=0.0).to(tl.float32)
    tl.store(d_query + b * D + d, found.to(d_query.dtype.element_ty), d < D)
