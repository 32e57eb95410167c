"""The elementwise half of an LSTM cell: on a CPU with its gradient written by hand, half as many passes over memory; on
a GPU by torch's kernel, one launch where there would be a dozen."""

import platform
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ARM = platform.machine() in ("aarch64", "arm64")


def prefers_loop(x: Tensor) -> bool:
    """Whether an LSTM over x is faster as a loop of `lstm_cell` than in torch's own kernels.

    On 64-bit Arm torch runs an LSTM in a reference implementation of oneDNN, at half the speed of the loop.
    """
    return ARM and x.device.type == "cpu"


def lstm_cell(pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g;  h' = o tanh(c'). pushed [B, 4n] holds i, f, g, o before their nonlinearities, cell [B, n].

    Returns h' and c', [B, n] each.
    """
    if pushed.is_cuda:
        return _FusedCell.apply(pushed, cell)  # type: ignore[no-untyped-call]
    return _Cell.apply(pushed, cell)  # type: ignore[no-untyped-call]


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        n = cell.shape[-1]
        gates = torch.empty_like(pushed)  # [B, 4n]
        torch.sigmoid(pushed[..., : 2 * n], out=gates[..., : 2 * n])  # i and f stand side by side
        torch.tanh(pushed[..., 2 * n : 3 * n], out=gates[..., 2 * n : 3 * n])
        torch.sigmoid(pushed[..., 3 * n :], out=gates[..., 3 * n :])
        i, f, g, o = gates.chunk(4, dim=-1)
        after = torch.addcmul(f * cell, i, g)  # [B, n]
        squashed = torch.tanh(after)  # [B, n]
        ctx.save_for_backward(gates, cell, squashed)
        return o * squashed, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hidden: Tensor, d_after: Tensor) -> tuple[Tensor, Tensor]:
        gates, cell, squashed = ctx.saved_tensors
        i, f, g, o = gates.chunk(4, dim=-1)
        d_cell = d_after + torch.ops.aten.tanh_backward(d_hidden * o, squashed)  # [B, n], of c'
        d_pushed = torch.empty_like(gates)  # [B, 4n]
        d_i, d_f, d_g, d_o = d_pushed.chunk(4, dim=-1)
        torch.mul(d_cell, g, out=d_i)
        torch.mul(d_cell, cell, out=d_f)
        torch.mul(d_cell, i, out=d_g)
        torch.mul(d_hidden, squashed, out=d_o)
        n = cell.shape[-1]
        for part, slope in (
            (slice(0, 2 * n), torch.ops.aten.sigmoid_backward),
            (slice(2 * n, 3 * n), torch.ops.aten.tanh_backward),
            (slice(3 * n, 4 * n), torch.ops.aten.sigmoid_backward),
        ):
            slope(d_pushed[..., part], gates[..., part], grad_input=d_pushed[..., part])
        return d_pushed, d_cell * f


class _FusedCell(torch.autograd.Function):
    """Torch's kernel adds two sets of gates; here there is one, and the other is a zero that takes no memory."""

    @staticmethod
    def forward(ctx: Any, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        gates = pushed.to(cell.dtype)
        nothing = gates.new_zeros(()).expand_as(gates)  # [B, 4n]
        with torch.autocast("cuda", enabled=False):  # the state keeps its precision where that of products is lowered
            hidden, after, saved = torch.ops.aten._thnn_fused_lstm_cell(gates, nothing, cell)
        ctx.save_for_backward(cell, after, saved)
        ctx.dtype = pushed.dtype
        return hidden, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hidden: Tensor, d_after: Tensor) -> tuple[Tensor, Tensor]:
        backward = torch.ops.aten._thnn_fused_lstm_cell_backward_impl
        d_gates, d_cell, _ = backward(d_hidden, d_after, *ctx.saved_tensors, False)
        return d_gates.to(ctx.dtype), d_cell
