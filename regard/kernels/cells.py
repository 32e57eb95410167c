"""Triton: the elementwise part of recurrent cells, one launch forward and one backward for all operations.

Results of products may have a low precision; the state keeps its dtype, and all arithmetic is in float32. The backward
pass computes the gates again from the inputs, so that nothing is stored for it. All tensors may have more leading
dimensions than the [B, ...] given here.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.cells import LinearMap
from regard.errors import ShapeError
from regard.kernels.additive_attention import tanh

Rounded = Tensor | None


def lstm_cell(wx: Tensor, uh: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Rounded]:
    """c' = f c + i g;  h' = o tanh(c'). wx + uh [B, 4n] are i, f, g, o before their nonlinearities, cell [B, n].

    Returns h' and c', [B, n] each, in the dtype of `cell`, and h' in that of `uh` where it is another.
    """
    _check("lstm_cell", cell, 4, wx, uh)
    return _LSTM.apply(wx.to(uh.dtype), uh, cell)


def gru(wx: Tensor, state: Tensor, U_gates: LinearMap, U: LinearMap, update_keeps: bool) -> tuple[Tensor, Rounded]:
    """A GRU that resets before the product: wx [B, 3n], state [B, n] -> the next state, twice as in `lstm_cell`.

    An update gate z of one keeps the old state, z h + (1 - z) h~, or writes the new one, (1 - z) h + z h~.
    """
    uh = U_gates(state)  # [B, 2n]
    _check("gru", state, 3, wx)
    _check("gru", state, 2, uh)
    left, update, candidate, state = _Gates.apply(wx.to(uh.dtype), uh, state)
    return _Blend.apply(update, state, U(left), candidate, update_keeps)


def gru_cell(wx: Tensor, uh: Tensor, state: Tensor, update_keeps: bool) -> Tensor:
    """A GRU that resets after the product, h~ = tanh(wx + r * uh): wx and uh [B, 3n], state [B, n]."""
    _check("gru_cell", state, 3, wx, uh)
    return _GRU.apply(wx, uh, state, update_keeps)


def _check(name: str, state: Tensor, parts: int, *uh: Tensor) -> None:
    shape = (*state.shape[:-1], parts * state.shape[-1])
    for x in uh:
        if x.shape != shape:
            raise ShapeError(f"{name} needs inputs {list(shape)} for a state {list(state.shape)}; got {list(x.shape)}.")
        if torch.float64 in (x.dtype, state.dtype):
            raise ShapeError(f"{name} by Triton computes in float32; got float64. Use the plain form.")


def _launch(
    kernel: Any, like: Tensor, inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...], *flags: bool
) -> None:
    """Run a kernel over a state `like` [..., n]; outputs are contiguous, inputs may have any row stride."""
    n = like.shape[-1]
    rows = [None if x is None else _rows(x) for x in inputs]
    block = min(1024, triton.next_power_of_2(n))
    grid = (like.numel() // n, triton.cdiv(n, block))
    strides = (0 if x is None else x.stride(0) for x in rows)
    kernel[grid](*rows, *outputs, *strides, n, *flags, block, num_warps=4)


def _rows(x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, wx: Tensor, uh: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Rounded]:
        hidden, after, rounded = _empty(cell), _empty(cell), _lower(cell, uh)
        _launch(_lstm, cell, (wx, uh, cell), (hidden, after, rounded), rounded is not None)
        ctx.save_for_backward(wx, uh, cell)
        ctx.set_materialize_grads(False)
        return hidden, after, rounded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Rounded) -> tuple[Tensor, ...]:
        wx, uh, cell = ctx.saved_tensors
        d_uh, d_cell = _empty(uh), _empty(cell)
        _launch(_lstm_back, cell, (wx, uh, cell, *grads), (d_uh, d_cell), *(grad is not None for grad in grads))
        return d_uh, d_uh, d_cell


class _Gates(torch.autograd.Function):
    """r, z = sigmoid(wx + uh) -> r h, z, the wx of the candidate, and the state as it was.

    The last two are returned unchanged, so that one launch computes all gradients of wx and state.
    """

    @staticmethod
    def forward(ctx: Any, wx: Tensor, uh: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        left, update = torch.empty(state.shape, dtype=uh.dtype, device=state.device), _empty(state)
        _launch(_gates, state, (wx, uh, state), (left, update))
        ctx.save_for_backward(wx, uh, state)
        return left, update, wx[..., 2 * state.shape[-1] :], state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        wx, uh, state = ctx.saved_tensors
        d_wx, d_state = _empty(wx), _empty(state)
        _launch(_gates_back, state, (wx, uh, state, *grads), (d_wx, d_state))
        return d_wx, d_wx[..., : uh.shape[-1]], d_state


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, update: Tensor, state: Tensor, uh: Tensor, wx: Tensor, update_keeps: bool
    ) -> tuple[Tensor, Rounded]:
        after, rounded = _empty(state), _lower(state, uh)
        _launch(_blend, state, (update, state, uh, wx), (after, rounded), rounded is not None, update_keeps)
        ctx.save_for_backward(update, state, uh, wx)
        ctx.update_keeps = update_keeps
        ctx.set_materialize_grads(False)
        return after, rounded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Rounded) -> tuple[Tensor | None, ...]:
        update, state, uh, _ = inputs = ctx.saved_tensors
        outputs = _empty(update), _empty(state), _empty(uh)
        flags = (grad is not None for grad in grads)
        _launch(_blend_back, state, (*inputs, *grads), outputs, *flags, ctx.update_keeps)
        return *outputs, outputs[2], None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, wx: Tensor, uh: Tensor, state: Tensor, update_keeps: bool) -> Tensor:
        after = _empty(state)
        _launch(_gru, state, (wx, uh, state), (after,), update_keeps)
        ctx.save_for_backward(wx, uh, state)
        ctx.update_keeps = update_keeps
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs = tuple(_empty(x) for x in ctx.saved_tensors)
        _launch(_gru_back, grad, (*ctx.saved_tensors, grad), outputs, ctx.update_keeps)
        return *outputs, None


def _empty(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)  # contiguous, whatever x is


def _lower(state: Tensor, uh: Tensor) -> Rounded:
    """Memory for a state in the dtype of the products; None if it has that dtype."""
    same = state.dtype == uh.dtype
    return None if same else torch.empty(state.shape, dtype=uh.dtype, device=state.device)


@triton.jit
def _read(x, stride, part, n: tl.constexpr, BLOCK: tl.constexpr):
    """Part number `part` of this program's row, as float32."""
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return tl.load(x + tl.program_id(0).to(tl.int64) * stride + part * n + place, place < n, other=0.0).to(tl.float32)


@triton.jit
def _write(x, parts, part, n: tl.constexpr, value, BLOCK: tl.constexpr):
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = x + (tl.program_id(0).to(tl.int64) * parts + part) * n
    tl.store(row + place, value.to(x.dtype.element_ty), place < n)


@triton.jit
def _sum(a, b, a_row, b_row, part, n: tl.constexpr, BLOCK: tl.constexpr):
    return _read(a, a_row, part, n, BLOCK) + _read(b, b_row, part, n, BLOCK)


@triton.jit
def _lstm(
    wx, uh, cell, hidden, after, rounded,
    wx_row, uh_row, cell_row, n: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK))
    f = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 1, n, BLOCK))
    g = tanh(_sum(wx, uh, wx_row, uh_row, 2, n, BLOCK), False)
    o = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 3, n, BLOCK))
    c = f * _read(cell, cell_row, 0, n, BLOCK) + i * g
    h = o * tanh(c, False)
    _write(after, 1, 0, n, c, BLOCK)
    _write(hidden, 1, 0, n, h, BLOCK)
    if LOW:
        _write(rounded, 1, 0, n, h, BLOCK)


@triton.jit
def _lstm_back(
    wx, uh, cell, d_hidden, d_after, d_low, d_uh, d_cell,
    wx_row, uh_row, cell_row, d_hidden_row, d_after_row, d_low_row,
    n: tl.constexpr, HIDDEN: tl.constexpr, AFTER: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK))
    f = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 1, n, BLOCK))
    g = tanh(_sum(wx, uh, wx_row, uh_row, 2, n, BLOCK), False)
    o = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 3, n, BLOCK))
    before = _read(cell, cell_row, 0, n, BLOCK)
    squashed = tanh(f * before + i * g, False)
    d_h = tl.zeros([BLOCK], tl.float32)
    if HIDDEN:
        d_h += _read(d_hidden, d_hidden_row, 0, n, BLOCK)
    if LOW:
        d_h += _read(d_low, d_low_row, 0, n, BLOCK)
    d_c = d_h * o * (1 - squashed * squashed)
    if AFTER:
        d_c += _read(d_after, d_after_row, 0, n, BLOCK)
    _write(d_uh, 4, 0, n, d_c * g * i * (1 - i), BLOCK)
    _write(d_uh, 4, 1, n, d_c * before * f * (1 - f), BLOCK)
    _write(d_uh, 4, 2, n, d_c * i * (1 - g * g), BLOCK)
    _write(d_uh, 4, 3, n, d_h * squashed * o * (1 - o), BLOCK)
    _write(d_cell, 1, 0, n, d_c * f, BLOCK)


@triton.jit
def _gates(
    wx, uh, state, left, update, wx_row, uh_row, state_row, n: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    reset = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK))
    _write(left, 1, 0, n, reset * _read(state, state_row, 0, n, BLOCK), BLOCK)
    _write(update, 1, 0, n, tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 1, n, BLOCK)), BLOCK)


@triton.jit
def _gates_back(
    wx, uh, state, d_left, d_update, d_candidate, d_same, d_wx, d_state,
    wx_row, uh_row, state_row, d_left_row, d_update_row, d_candidate_row, d_same_row,
    n: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK))
    z = tl.sigmoid(_sum(wx, uh, wx_row, uh_row, 1, n, BLOCK))
    d_kept = _read(d_left, d_left_row, 0, n, BLOCK)
    _write(d_wx, 3, 0, n, d_kept * _read(state, state_row, 0, n, BLOCK) * reset * (1 - reset), BLOCK)
    _write(d_wx, 3, 1, n, _read(d_update, d_update_row, 0, n, BLOCK) * z * (1 - z), BLOCK)
    _write(d_wx, 3, 2, n, _read(d_candidate, d_candidate_row, 0, n, BLOCK), BLOCK)
    _write(d_state, 1, 0, n, d_kept * reset + _read(d_same, d_same_row, 0, n, BLOCK), BLOCK)


@triton.jit
def _blend(
    update, state, uh, wx, after, rounded,
    update_row, state_row, uh_row, wx_row,
    n: tl.constexpr, LOW: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    z = _read(update, update_row, 0, n, BLOCK)
    old = _read(state, state_row, 0, n, BLOCK)
    new = tanh(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK), False)
    blended = z * old + (1 - z) * new if KEEP else z * new + (1 - z) * old
    _write(after, 1, 0, n, blended, BLOCK)
    if LOW:
        _write(rounded, 1, 0, n, blended, BLOCK)


@triton.jit
def _blend_back(
    update, state, uh, wx, d_after, d_low, d_update, d_state, d_uh,
    update_row, state_row, uh_row, wx_row, d_after_row, d_low_row,
    n: tl.constexpr, AFTER: tl.constexpr, LOW: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    z = _read(update, update_row, 0, n, BLOCK)
    old = _read(state, state_row, 0, n, BLOCK)
    new = tanh(_sum(wx, uh, wx_row, uh_row, 0, n, BLOCK), False)
    g = tl.zeros([BLOCK], tl.float32)
    if AFTER:
        g += _read(d_after, d_after_row, 0, n, BLOCK)
    if LOW:
        g += _read(d_low, d_low_row, 0, n, BLOCK)
    share = z if KEEP else 1 - z  # of the old state
    _write(d_update, 1, 0, n, g * (old - new) if KEEP else g * (new - old), BLOCK)
    _write(d_state, 1, 0, n, g * share, BLOCK)
    _write(d_uh, 1, 0, n, g * (1 - share) * (1 - new * new), BLOCK)


@triton.jit
def _gru(
    wx, uh, state, after,
    wx_row, uh_row, state_row, n: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_read(wx, wx_row, 0, n, BLOCK) + _read(uh, uh_row, 0, n, BLOCK))
    z = tl.sigmoid(_read(wx, wx_row, 1, n, BLOCK) + _read(uh, uh_row, 1, n, BLOCK))
    new = tanh(_read(wx, wx_row, 2, n, BLOCK) + reset * _read(uh, uh_row, 2, n, BLOCK), False)
    old = _read(state, state_row, 0, n, BLOCK)
    _write(after, 1, 0, n, z * old + (1 - z) * new if KEEP else z * new + (1 - z) * old, BLOCK)


@triton.jit
def _gru_back(
    wx, uh, state, grad, d_wx, d_uh, d_state,
    wx_row, uh_row, state_row, grad_row, n: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_read(wx, wx_row, 0, n, BLOCK) + _read(uh, uh_row, 0, n, BLOCK))
    z = tl.sigmoid(_read(wx, wx_row, 1, n, BLOCK) + _read(uh, uh_row, 1, n, BLOCK))
    across = _read(uh, uh_row, 2, n, BLOCK)
    new = tanh(_read(wx, wx_row, 2, n, BLOCK) + reset * across, False)
    old = _read(state, state_row, 0, n, BLOCK)
    g = _read(grad, grad_row, 0, n, BLOCK)
    share = z if KEEP else 1 - z  # of the old state
    d_new = g * (1 - share) * (1 - new * new)
    d_reset = d_new * across * reset * (1 - reset)
    d_z = (g * (old - new) if KEEP else g * (new - old)) * z * (1 - z)
    _write(d_wx, 3, 0, n, d_reset, BLOCK)
    _write(d_wx, 3, 1, n, d_z, BLOCK)
    _write(d_wx, 3, 2, n, d_new, BLOCK)
    _write(d_uh, 3, 0, n, d_reset, BLOCK)
    _write(d_uh, 3, 1, n, d_z, BLOCK)
    _write(d_uh, 3, 2, n, d_new * reset, BLOCK)
    _write(d_state, 1, 0, n, g * share, BLOCK)
