"""Triton: dot-product attention of short sequences, a whole head as one tile; one launch forward and one backward.

Sentences are short enough. The softmax then needs no running sums, padding is masked by a comparison, and the backward
pass computes the weights again instead of storing them. Queries, keys and values may be strided views of one
projection, and so are their gradients, which `split_heads` returns to the projection without a copy.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.attend import Memory
from regard.core.blocks import Blocks
from regard.core.products import product_dtype


def short_attend(query: Tensor, memory: Memory, scaled: bool, causal: bool, blocks: Blocks | None = None) -> Tensor:
    """`regard.kernels.torch_attention.fused_attend`: query [B, H, T, D] -> context [B, H, T, D].

    mask [B or 1, 1, 1, S] or [1, S]. With `blocks`, query [1, H, N, D] and memory are sentences end to end.
    """
    keys, values, mask, _ = memory
    dtype, scale = product_dtype(query), query.shape[-1] ** -0.5 if scaled else 1.0
    if mask is not None:
        mask = mask.flatten(0, -2)
        mask = (mask if mask.stride(1) == 1 else mask.contiguous()).expand(len(keys), keys.shape[2])
    places = (None, None) if blocks is None else blocks
    return _Attend.apply(query.to(dtype), keys.to(dtype), values.to(dtype), mask, *places, scale, causal)


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """x [B, T, parts * D] -> a [B, H, T, D/H] for each part. Gradients that lie side by side are not copied."""
    return _Split.apply(x, parts, heads)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
        ctx.shape = x.shape
        return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        first, wide = grads[0], ctx.shape[-1]
        _, H, T, D = first.shape
        strides = (T * wide, D, wide, 1)
        begin, whole = first.storage_offset(), first.untyped_storage().data_ptr()
        if all(
            grad.stride() == strides
            and grad.storage_offset() == begin + k * H * D
            and grad.untyped_storage().data_ptr() == whole
            for k, grad in enumerate(grads)
        ):
            return first.as_strided(ctx.shape, (T * wide, wide, 1)), None, None
        return torch.cat([grad.transpose(1, 2).flatten(2) for grad in grads], dim=-1), None, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        queries: Tensor | None,
        slots: Tensor | None,
        scale: float,
        causal: bool,
    ) -> Tensor:
        query, keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, keys, values))
        if keys.stride() != values.stride():
            keys, values = keys.contiguous(), values.contiguous()
        B, H, T, D = query.shape
        context = query.new_empty(B, T, H, D).transpose(1, 2)  # [B, H, T, D]
        _launch(_attend, (query, keys, values, context), mask, queries, slots, scale, causal)
        ctx.save_for_backward(query, keys, values, mask, queries, slots)
        ctx.scale, ctx.causal = scale, causal
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, mask, queries, slots = ctx.saved_tensors
        grads = _same_layout(*inputs)
        grad = grad.transpose(1, 2).contiguous()  # [B, T, H, D], as it comes from the layer that follows
        _launch(_attend_back, (*inputs, grad, *grads), mask, queries, slots, ctx.scale, ctx.causal)
        return *grads, None, None, None, None, None


def _same_layout(*tensors: Tensor) -> list[Tensor]:
    """Memory for the gradients, with the strides of the tensors.

    The gradients of views that make up one tensor are views of one tensor again.
    """
    views: dict[int, list[Tensor]] = {}
    for x in tensors:
        views.setdefault(x.untyped_storage().data_ptr(), []).append(x)
    wholes = {
        place: found[0].new_empty(found[0].untyped_storage().nbytes() // found[0].element_size())
        for place, found in views.items()
    }
    grads = []
    for x in tensors:
        place = x.untyped_storage().data_ptr()
        complete = sum(view.numel() for view in views[place]) == wholes[place].numel()
        whole = wholes[place] if complete else torch.empty_like(wholes[place])
        grads.append(whole.as_strided(x.shape, x.stride(), x.storage_offset()))
    return grads


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    mask: Tensor | None,
    queries: Tensor | None,
    slots: Tensor | None,
    scale: float,
    causal: bool,
) -> None:
    """`tensors` are query, keys, values [B, H, T or S, D], and what else the kernel reads and writes."""
    (B, H, T, D), S = tensors[0].shape, tensors[1].shape[2]
    if queries is not None and slots is not None:
        (B, T), S = queries.shape, slots.shape[1]
    tiles = [max(16, triton.next_power_of_2(size)) for size in (T, S, D)]
    strides = *tensors[0].stride()[:3], *tensors[1].stride()[:3], 0 if mask is None else mask.stride(0)
    warps = 8 if max(tiles[:2]) > 64 else 4 if tiles[0] > 32 else 2
    flags = causal, mask is not None, queries is not None
    kernel[(B * H,)](*tensors, mask, queries, slots, *strides, T, S, H, D, scale, *flags, *tiles, num_warps=warps)


# query and its gradient have the strides query_*; keys, values and their gradients the strides slot_*; the context and
# its gradient are [B, T, H, D] without gaps.


@triton.jit
def _at(b, h, row, d, b_stride, h_stride, row_stride):
    return b * b_stride + h * h_stride + row[:, None] * row_stride + d[None, :]


@triton.jit
def _places(places, b, t, T, PACKED: tl.constexpr):
    """Where the words t of sentence b are, -1 where it has none."""
    if PACKED:
        return tl.load(places + b * T + t, t < T, other=-1).to(tl.int32)
    return tl.where(t < T, t, -1)


@triton.jit
def _seen(slots, mask, b, s, mask_b, S, MASKED: tl.constexpr, PACKED: tl.constexpr):
    """Where the slots s of sentence b are, -1 where there is none or the mask hides it: hidden slots are never read."""
    s_at = _places(slots, b, s, S, PACKED)
    if MASKED:
        s_at = tl.where(tl.load(mask + b * mask_b + s, s < S, other=0) != 0, s_at, -1)
    return s_at


@triton.jit
def _weights(q, k, t, s, t_at, s_at, T, S, scale, CAUSAL: tl.constexpr):
    """softmax(scale q k^T) [TT, SS] in float32; zeros for a query that is wholly masked."""
    visible = (s_at >= 0)[None, :] & (t_at >= 0)[:, None]
    if CAUSAL:
        visible = visible & (s[None, :] <= t[:, None] + (S - T))
    scores = tl.where(visible, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)
    e = tl.where(visible, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    mass = tl.sum(e, 1)
    return e * tl.where(mass > 0, 1.0 / tl.where(mass > 0, mass, 1.0), 0.0)[:, None]


@triton.jit(do_not_specialize=["T", "S"])
def _attend(
    query, keys, values, context, mask, queries, slots,
    query_b, query_h, query_t, slot_b, slot_h, slot_s, mask_b, T, S, H: tl.constexpr, D: tl.constexpr, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
    TT: tl.constexpr, SS: tl.constexpr, DD: tl.constexpr,
):  # fmt: skip
    h, b = tl.program_id(0) % H, (tl.program_id(0) // H).to(tl.int64)
    t, s, d = tl.arange(0, TT), tl.arange(0, SS), tl.arange(0, DD)
    t_at, s_at = _places(queries, b, t, T, PACKED), _seen(slots, mask, b, s, mask_b, S, MASKED, PACKED)
    in_t = (t_at >= 0)[:, None] & (d < D)[None, :]
    in_s = (s_at >= 0)[:, None] & (d < D)[None, :]
    row = b * (1 - PACKED)  # sentences end to end are all in the first row
    at_slot = _at(row, h, s_at, d, slot_b, slot_h, slot_s)
    q = tl.load(query + _at(row, h, t_at, d, query_b, query_h, query_t), in_t, other=0.0)
    k = tl.load(keys + at_slot, in_s, other=0.0)
    v = tl.load(values + at_slot, in_s, other=0.0)
    w = _weights(q, k, t, s, t_at, s_at, T, S, scale, CAUSAL)
    c = tl.dot(w.to(v.dtype), v, input_precision="ieee")
    tl.store(context + _at(row, h, t_at, d, T * H * D, D, H * D), c.to(context.dtype.element_ty), in_t)


@triton.jit(do_not_specialize=["T", "S"])
def _attend_back(
    query, keys, values, grad, d_query, d_keys, d_values, mask, queries, slots,
    query_b, query_h, query_t, slot_b, slot_h, slot_s, mask_b, T, S, H: tl.constexpr, D: tl.constexpr, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PACKED: tl.constexpr,
    TT: tl.constexpr, SS: tl.constexpr, DD: tl.constexpr,
):  # fmt: skip
    h, b = tl.program_id(0) % H, (tl.program_id(0) // H).to(tl.int64)
    t, s, d = tl.arange(0, TT), tl.arange(0, SS), tl.arange(0, DD)
    t_at, s_at = _places(queries, b, t, T, PACKED), _seen(slots, mask, b, s, mask_b, S, MASKED, PACKED)
    written = _places(slots, b, s, S, PACKED)  # hidden slots have a gradient too, which is zero
    in_t = (t_at >= 0)[:, None] & (d < D)[None, :]
    in_s = (s_at >= 0)[:, None] & (d < D)[None, :]
    row = b * (1 - PACKED)  # sentences end to end are all in the first row
    at_query = _at(row, h, t_at, d, query_b, query_h, query_t)
    at_slot = _at(row, h, written, d, slot_b, slot_h, slot_s)
    q = tl.load(query + at_query, in_t, other=0.0)
    k = tl.load(keys + at_slot, in_s, other=0.0)
    v = tl.load(values + at_slot, in_s, other=0.0)
    g = tl.load(grad + _at(row, h, t_at, d, T * H * D, D, H * D), in_t, other=0.0)
    w = _weights(q, k, t, s, t_at, s_at, T, S, scale, CAUSAL)
    in_s = (written >= 0)[:, None] & (d < D)[None, :]
    d_v = tl.dot(tl.trans(w.to(g.dtype)), g, input_precision="ieee")
    tl.store(d_values + at_slot, d_v.to(v.dtype), in_s)
    d_w = tl.dot(g, tl.trans(v), input_precision="ieee")
    d_scores = (scale * w * (d_w - tl.sum(w * d_w, 1)[:, None])).to(q.dtype)
    d_q = tl.dot(d_scores, k, input_precision="ieee")
    tl.store(d_query + at_query, d_q.to(q.dtype), in_t)
    d_k = tl.dot(tl.trans(d_scores), q, input_precision="ieee")
    tl.store(d_keys + at_slot, d_k.to(k.dtype), in_s)
