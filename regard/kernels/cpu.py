"""Cells and linear layers for a CPU: the plain numbers with fewer passes over memory."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class _Lerp(torch.autograd.Function):
    """torch.lerp with half the passes of torch's backward."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(start, end, weight)
        return torch.lerp(start, end, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        start, end, weight = ctx.saved_tensors
        to_end = grad * weight
        return grad - to_end, to_end, grad * (end - start)


def keep(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """`regard.core.cells.keep`."""
    return _Lerp.apply(new.to(old.dtype), old, update.to(old.dtype))  # type: ignore[no-untyped-call]


def write(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """`regard.core.cells.write`."""
    return _Lerp.apply(old, new.to(old.dtype), update.to(old.dtype))  # type: ignore[no-untyped-call]


def lstm(drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """`regard.core.cells.lstm`."""
    return _LSTM.apply((drive + pushed).to(cell.dtype), cell)  # type: ignore[no-untyped-call]


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        n = cell.shape[-1]
        gates = torch.empty_like(pushed)  # [B, 4n]
        torch.sigmoid(pushed[..., : 2 * n], out=gates[..., : 2 * n])  # i and f are adjacent
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


DROPOUT_STEPS = 2**16  # a share is rounded to a multiple of 1 / 65536


def dropout(x: Tensor, p: float) -> Tensor:
    """F.dropout with one random number for four elements.

    A CPU draws random numbers one after another, on one core, and each draw has 64 bits; sixteen are enough for one
    element.
    """
    dropped = round(p * DROPOUT_STEPS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.long).random_(-(2**63), None)
    noise = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform in [-2^15, 2^15)
    kept = noise >= dropped - DROPOUT_STEPS // 2
    return x * (kept * x.new_tensor(DROPOUT_STEPS / (DROPOUT_STEPS - dropped)))


class StepLinear(nn.Module):
    """nn.Linear for the steps of one search: several rows are multiplied fastest by a transposed copy of the weights.

    The copy is made when it is first needed and lives as long as this object, so it cannot be out of date.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.turned: Tensor | None = None  # [m, n]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            return F.linear(x, self.weight, self.bias)
        if self.turned is None:
            self.turned = self.weight.detach().t().contiguous()
        if self.bias is None:
            return torch.matmul(x, self.turned)
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.turned)
        return rows.view(*x.shape[:-1], -1)
