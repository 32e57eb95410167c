"""Triton: the elementwise half of recurrent cells, one launch forward and one backward.

Whatever comes from a product may be in a low precision; the state keeps its own dtype, and all arithmetic is float32.
The backward pass computes the gates again from the inputs, so that nothing is stored for it. All tensors may have more
leading dimensions than the [B, ...] given here.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.cells import Linear
from regard.errors import ShapeError
from regard.kernels.additive import tanh

Low = Tensor | None


def lstm_cell(drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Low]:
    """c' = f c + i g;  h' = o tanh(c'). drive + pushed [B, 4n] are i, f, g, o before their nonlinearities, cell [B, n].

    Returns h' and c', [B, n] each, in the dtype of `cell`, and h' in that of `pushed` where it is another.
    """
    _check("lstm_cell", cell, 4, drive, pushed)
    return _LSTM.apply(drive.to(pushed.dtype), pushed, cell)  # type: ignore[no-untyped-call]


def gru(drive: Tensor, state: Tensor, U_gates: Linear, U: Linear, keep: bool) -> tuple[Tensor, Low]:
    """A GRU that resets before the product: drive [B, 3n], state [B, n] -> the next state, and as `lstm_cell` has it.

    An update gate z of one keeps the old state (`keep`: z h + (1 - z) h~) or writes the new one ((1 - z) h + z h~).
    """
    pushed = U_gates(state)  # [B, 2n]
    _check("gru", state, 3, drive)
    _check("gru", state, 2, pushed)
    left, update, candidate, state = _Gates.apply(drive.to(pushed.dtype), pushed, state)  # type: ignore[no-untyped-call]
    return _Blend.apply(update, state, U(left), candidate, keep)  # type: ignore[no-untyped-call]


def gru_cell(driven: Tensor, pushed: Tensor, state: Tensor, keep: bool) -> Tensor:
    """A GRU that resets after the product, h~ = tanh(driven + r * pushed): driven and pushed [B, 3n], state [B, n]."""
    _check("gru_cell", state, 3, driven, pushed)
    return _GRU.apply(driven, pushed, state, keep)  # type: ignore[no-untyped-call]


def _check(name: str, state: Tensor, parts: int, *pushed: Tensor) -> None:
    shape = (*state.shape[:-1], parts * state.shape[-1])
    for x in pushed:
        if x.shape != shape:
            raise ShapeError(f"{name} needs inputs {list(shape)} for a state {list(state.shape)}; got {list(x.shape)}.")
        if torch.float64 in (x.dtype, state.dtype):
            raise ShapeError(f"{name} by Triton computes in float32; got float64. Use the plain form.")


def _launch(
    kernel: Any, like: Tensor, inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...], *flags: bool
) -> None:
    """Run over all numbers of a state `like` [..., n]; outputs are contiguous, inputs have any distance of rows."""
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
    def forward(ctx: Any, drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Low]:
        hidden, after, low = _empty(cell), _empty(cell), _lower(cell, pushed)
        _launch(_lstm, cell, (drive, pushed, cell), (hidden, after, low), low is not None)
        ctx.save_for_backward(drive, pushed, cell)
        ctx.set_materialize_grads(False)
        return hidden, after, low

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Low) -> tuple[Tensor, ...]:
        drive, pushed, cell = ctx.saved_tensors
        d_pushed, d_cell = _empty(pushed), _empty(cell)
        _launch(
            _lstm_back, cell, (drive, pushed, cell, *grads), (d_pushed, d_cell), *(grad is not None for grad in grads)
        )
        return d_pushed, d_pushed, d_cell


class _Gates(torch.autograd.Function):
    """r, z = sigmoid(drive + pushed) -> r h, z, the drive of the candidate, and the state as it was.

    The last two are handed through, so that all gradients of drive and state meet here and are written by one launch.
    """

    @staticmethod
    def forward(ctx: Any, drive: Tensor, pushed: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        left, update = torch.empty(state.shape, dtype=pushed.dtype, device=state.device), _empty(state)
        _launch(_gates, state, (drive, pushed, state), (left, update))
        ctx.save_for_backward(drive, pushed, state)
        return left, update, drive[..., 2 * state.shape[-1] :], state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        drive, pushed, state = ctx.saved_tensors
        d_drive, d_state = _empty(drive), _empty(state)
        _launch(_gates_back, state, (drive, pushed, state, *grads), (d_drive, d_state))
        return d_drive, d_drive[..., : pushed.shape[-1]], d_state


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, update: Tensor, state: Tensor, pushed: Tensor, drive: Tensor, keep: bool
    ) -> tuple[Tensor, Low]:
        after, low = _empty(state), _lower(state, pushed)
        _launch(_blend, state, (update, state, pushed, drive), (after, low), low is not None, keep)
        ctx.save_for_backward(update, state, pushed, drive)
        ctx.keep = keep
        ctx.set_materialize_grads(False)
        return after, low

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Low) -> tuple[Tensor | None, ...]:
        update, state, pushed, _ = inputs = ctx.saved_tensors
        outputs = _empty(update), _empty(state), _empty(pushed)
        flags = (grad is not None for grad in grads)
        _launch(_blend_back, state, (*inputs, *grads), outputs, *flags, ctx.keep)
        return *outputs, outputs[2], None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, driven: Tensor, pushed: Tensor, state: Tensor, keep: bool) -> Tensor:
        after = _empty(state)
        _launch(_gru, state, (driven, pushed, state), (after,), keep)
        ctx.save_for_backward(driven, pushed, state)
        ctx.keep = keep
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs = tuple(_empty(x) for x in ctx.saved_tensors)
        _launch(_gru_back, grad, (*ctx.saved_tensors, grad), outputs, ctx.keep)
        return *outputs, None


def _empty(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)  # contiguous, whatever x is


def _lower(state: Tensor, pushed: Tensor) -> Low:
    """Memory for a state in the dtype of the products, unless it has that already."""
    same = state.dtype == pushed.dtype
    return None if same else torch.empty(state.shape, dtype=pushed.dtype, device=state.device)


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
    drive, pushed, cell, hidden, after, low,
    drive_row, pushed_row, cell_row, n: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK))
    f = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 1, n, BLOCK))
    g = tanh(_sum(drive, pushed, drive_row, pushed_row, 2, n, BLOCK), False)
    o = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 3, n, BLOCK))
    c = f * _read(cell, cell_row, 0, n, BLOCK) + i * g
    h = o * tanh(c, False)
    _write(after, 1, 0, n, c, BLOCK)
    _write(hidden, 1, 0, n, h, BLOCK)
    if LOW:
        _write(low, 1, 0, n, h, BLOCK)


@triton.jit
def _lstm_back(
    drive, pushed, cell, d_hidden, d_after, d_low, d_pushed, d_cell,
    drive_row, pushed_row, cell_row, d_hidden_row, d_after_row, d_low_row,
    n: tl.constexpr, HIDDEN: tl.constexpr, AFTER: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK))
    f = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 1, n, BLOCK))
    g = tanh(_sum(drive, pushed, drive_row, pushed_row, 2, n, BLOCK), False)
    o = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 3, n, BLOCK))
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
    _write(d_pushed, 4, 0, n, d_c * g * i * (1 - i), BLOCK)
    _write(d_pushed, 4, 1, n, d_c * before * f * (1 - f), BLOCK)
    _write(d_pushed, 4, 2, n, d_c * i * (1 - g * g), BLOCK)
    _write(d_pushed, 4, 3, n, d_h * squashed * o * (1 - o), BLOCK)
    _write(d_cell, 1, 0, n, d_c * f, BLOCK)


@triton.jit
def _gates(
    drive, pushed, state, left, update, drive_row, pushed_row, state_row, n: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    reset = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK))
    _write(left, 1, 0, n, reset * _read(state, state_row, 0, n, BLOCK), BLOCK)
    _write(update, 1, 0, n, tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 1, n, BLOCK)), BLOCK)


@triton.jit
def _gates_back(
    drive, pushed, state, d_left, d_update, d_candidate, d_same, d_drive, d_state,
    drive_row, pushed_row, state_row, d_left_row, d_update_row, d_candidate_row, d_same_row,
    n: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK))
    z = tl.sigmoid(_sum(drive, pushed, drive_row, pushed_row, 1, n, BLOCK))
    d_kept = _read(d_left, d_left_row, 0, n, BLOCK)
    _write(d_drive, 3, 0, n, d_kept * _read(state, state_row, 0, n, BLOCK) * reset * (1 - reset), BLOCK)
    _write(d_drive, 3, 1, n, _read(d_update, d_update_row, 0, n, BLOCK) * z * (1 - z), BLOCK)
    _write(d_drive, 3, 2, n, _read(d_candidate, d_candidate_row, 0, n, BLOCK), BLOCK)
    _write(d_state, 1, 0, n, d_kept * reset + _read(d_same, d_same_row, 0, n, BLOCK), BLOCK)


@triton.jit
def _blend(
    update, state, pushed, drive, after, low,
    update_row, state_row, pushed_row, drive_row,
    n: tl.constexpr, LOW: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    z = _read(update, update_row, 0, n, BLOCK)
    old = _read(state, state_row, 0, n, BLOCK)
    new = tanh(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK), False)
    blended = z * old + (1 - z) * new if KEEP else z * new + (1 - z) * old
    _write(after, 1, 0, n, blended, BLOCK)
    if LOW:
        _write(low, 1, 0, n, blended, BLOCK)


@triton.jit
def _blend_back(
    update, state, pushed, drive, d_after, d_low, d_update, d_state, d_pushed,
    update_row, state_row, pushed_row, drive_row, d_after_row, d_low_row,
    n: tl.constexpr, AFTER: tl.constexpr, LOW: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    z = _read(update, update_row, 0, n, BLOCK)
    old = _read(state, state_row, 0, n, BLOCK)
    new = tanh(_sum(drive, pushed, drive_row, pushed_row, 0, n, BLOCK), False)
    g = tl.zeros([BLOCK], tl.float32)
    if AFTER:
        g += _read(d_after, d_after_row, 0, n, BLOCK)
    if LOW:
        g += _read(d_low, d_low_row, 0, n, BLOCK)
    share = z if KEEP else 1 - z  # of the old state
    _write(d_update, 1, 0, n, g * (old - new) if KEEP else g * (new - old), BLOCK)
    _write(d_state, 1, 0, n, g * share, BLOCK)
    _write(d_pushed, 1, 0, n, g * (1 - share) * (1 - new * new), BLOCK)


@triton.jit
def _gru(
    driven, pushed, state, after,
    driven_row, pushed_row, state_row, n: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_read(driven, driven_row, 0, n, BLOCK) + _read(pushed, pushed_row, 0, n, BLOCK))
    z = tl.sigmoid(_read(driven, driven_row, 1, n, BLOCK) + _read(pushed, pushed_row, 1, n, BLOCK))
    new = tanh(_read(driven, driven_row, 2, n, BLOCK) + reset * _read(pushed, pushed_row, 2, n, BLOCK), False)
    old = _read(state, state_row, 0, n, BLOCK)
    _write(after, 1, 0, n, z * old + (1 - z) * new if KEEP else z * new + (1 - z) * old, BLOCK)


@triton.jit
def _gru_back(
    driven, pushed, state, grad, d_driven, d_pushed, d_state,
    driven_row, pushed_row, state_row, grad_row, n: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    reset = tl.sigmoid(_read(driven, driven_row, 0, n, BLOCK) + _read(pushed, pushed_row, 0, n, BLOCK))
    z = tl.sigmoid(_read(driven, driven_row, 1, n, BLOCK) + _read(pushed, pushed_row, 1, n, BLOCK))
    across = _read(pushed, pushed_row, 2, n, BLOCK)
    new = tanh(_read(driven, driven_row, 2, n, BLOCK) + reset * across, False)
    old = _read(state, state_row, 0, n, BLOCK)
    g = _read(grad, grad_row, 0, n, BLOCK)
    share = z if KEEP else 1 - z  # of the old state
    d_new = g * (1 - share) * (1 - new * new)
    d_reset = d_new * across * reset * (1 - reset)
    d_z = (g * (old - new) if KEEP else g * (new - old)) * z * (1 - z)
    _write(d_driven, 3, 0, n, d_reset, BLOCK)
    _write(d_driven, 3, 1, n, d_z, BLOCK)
    _write(d_driven, 3, 2, n, d_new, BLOCK)
    _write(d_pushed, 3, 0, n, d_reset, BLOCK)
    _write(d_pushed, 3, 1, n, d_z, BLOCK)
    _write(d_pushed, 3, 2, n, d_new * reset, BLOCK)
    _write(d_state, 1, 0, n, g * share, BLOCK)
