"""Cells, additive scores and linear layers for a CPU: the plain numbers with fewer passes and fewer calls.

The elementwise half of a cell is one autograd function. Inside it no product is taken, so `aside` hides its calls from
the loop around it (`recur`), which would otherwise look at each of them.
"""

import platform
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.cells import Linear
from regard.kernels.recur import Function, aside, once_differentiable

ARM = platform.machine() in ("aarch64", "arm64")
sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def tanh_(x: Tensor) -> Tensor:
    """x.tanh_(). On 64-bit Arm numpy needs 40 % of the time of torch, but has one thread."""
    if ARM and x.dtype == torch.float32 and torch.get_num_threads() <= 2:
        numbers = x.numpy()
        np.tanh(numbers, out=numbers)
        return x
    return x.tanh_()


def additive_scores(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(q + k): query [..., T, D] and keys [..., S, D], both projected, and v [D] -> scores [..., T, S]."""
    return _Additive.apply(query, keys, v)


class _Additive(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        with aside():
            hidden = tanh_(query.unsqueeze(-2) + keys.unsqueeze(-3))  # [..., T, S, D]
            ctx.save_for_backward(hidden, v)
            return hidden @ v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        hidden, v = ctx.saved_tensors
        d_v = grad.flatten() @ hidden.flatten(0, -2)  # [D]
        d_hidden = grad.unsqueeze(-1) * v  # [..., T, S, D]
        tanh_backward(d_hidden, hidden, grad_input=d_hidden)
        d_keys = d_hidden.squeeze(-3) if grad.shape[-2] == 1 else d_hidden.sum(-3)
        return d_hidden.sum(-2), d_keys, d_v


def gru(input_gates: Tensor, state: Tensor, U_gates: Linear, U: Linear, keep: bool) -> Tensor:
    """`regard.core.cells.gru`; an update gate of one keeps the old state (`keep`) or writes the new one."""
    left, update, candidate, state = _Gates.apply(input_gates, U_gates(state), state)
    return _Blend.apply(update, state, U(left), candidate, keep)


class _Gates(Function):
    """r, z = sigmoid(...) -> r h, z, the candidate's input, and the state as it was.

    The last two are handed through, so that all gradients of input and state meet here and are written once.
    """

    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, hidden_gates: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        with aside():
            n = state.shape[-1]
            gates = torch.add(input_gates[..., : 2 * n], hidden_gates).sigmoid_()  # [B, 2n]
            reset, update = gates.chunk(2, dim=-1)
            ctx.save_for_backward(gates, state)
            return reset * state, update, input_gates[..., 2 * n :], state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_left: Tensor, d_update: Tensor, d_candidate: Tensor, d_same: Tensor) -> tuple[Tensor, ...]:
        gates, state = ctx.saved_tensors
        n = state.shape[-1]
        d_input = torch.cat([d_left * state, d_update, d_candidate], dim=-1)  # [B, 3n]
        d_gates = d_input[..., : 2 * n]
        sigmoid_backward(d_gates, gates, grad_input=d_gates)
        return d_input, d_gates, torch.addcmul(d_same, d_left, gates[..., :n])


class _Blend(Function):
    """h~ = tanh(candidate + U (r h)), and z between it and the old state."""

    @staticmethod
    def forward(ctx: Any, update: Tensor, state: Tensor, pushed: Tensor, candidate: Tensor, keep: bool) -> Tensor:
        with aside():
            new = tanh_(torch.add(candidate, pushed))  # [B, n]
            ctx.save_for_backward(update, state, new)
            ctx.keep = keep
            return torch.lerp(new, state, update) if keep else torch.lerp(state, new, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        update, state, new = ctx.saved_tensors
        d_update, d_state, d_new = _blend_backward(grad, update, state, new, ctx.keep)
        return d_update, d_state, d_new, d_new, None


def gru_reset_after(input_gates: Tensor, hidden_gates: Tensor, state: Tensor, keep: bool) -> Tensor:
    """`regard.core.cells.gru_reset_after`; `keep` as in `gru`."""
    return _ResetAfter.apply(input_gates, hidden_gates, state, keep)


class _ResetAfter(Function):
    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, hidden_gates: Tensor, state: Tensor, keep: bool) -> Tensor:
        with aside():
            n = state.shape[-1]
            gates = torch.add(input_gates[..., : 2 * n], hidden_gates[..., : 2 * n]).sigmoid_()  # [B, 2n]
            reset, update = gates.chunk(2, dim=-1)
            pushed = hidden_gates[..., 2 * n :]
            new = tanh_(torch.addcmul(input_gates[..., 2 * n :], reset, pushed))  # [B, n]
            ctx.save_for_backward(gates, state, new, pushed)
            ctx.keep = keep
            return torch.lerp(new, state, update) if keep else torch.lerp(state, new, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gates, state, new, pushed = ctx.saved_tensors
        reset, update = gates.chunk(2, dim=-1)
        n = state.shape[-1]
        d_update, d_state, d_new = _blend_backward(grad, update, state, new, ctx.keep)
        d_input = torch.cat([d_new * pushed, d_update, d_new], dim=-1)  # [B, 3n]
        sigmoid_backward(d_input[..., : 2 * n], gates, grad_input=d_input[..., : 2 * n])
        d_hidden = d_input.clone()
        d_hidden[..., 2 * n :] *= reset
        return d_input, d_hidden, d_state, None


def _blend_backward(grad: Tensor, update: Tensor, state: Tensor, new: Tensor, keep: bool) -> tuple[Tensor, ...]:
    """The gradients of the update gate, of the old state, and of the new one before its tanh."""
    to_end = grad * update
    d_state, d_new = (to_end, grad - to_end) if keep else (grad - to_end, to_end)
    return grad * (state - new if keep else new - state), d_state, tanh_backward(d_new, new)


def lstm(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """`regard.core.cells.lstm`."""
    return _LSTM.apply(input_gates, hidden_gates, cell)


class _LSTM(Function):
    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        with aside():
            n = cell.shape[-1]
            gates = torch.add(input_gates, hidden_gates)  # [B, 4n]
            gates[..., : 2 * n].sigmoid_()  # i and f are adjacent
            tanh_(gates[..., 2 * n : 3 * n])
            gates[..., 3 * n :].sigmoid_()
            i, f, g, o = gates.chunk(4, dim=-1)
            after = torch.addcmul(f * cell, i, g)  # [B, n]
            squashed = tanh_(after.clone())  # [B, n]
            ctx.save_for_backward(gates, cell, squashed)
            return o * squashed, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hidden: Tensor, d_after: Tensor) -> tuple[Tensor, ...]:
        gates, cell, squashed = ctx.saved_tensors
        n = cell.shape[-1]
        i, f, g, o = gates.chunk(4, dim=-1)
        d_cell = d_after + tanh_backward(d_hidden * o, squashed)  # [B, n], of c'
        d_gates = torch.empty_like(gates)  # [B, 4n]
        torch.mul(d_cell, g, out=d_gates[..., :n])
        torch.mul(d_cell, cell, out=d_gates[..., n : 2 * n])
        torch.mul(d_cell, i, out=d_gates[..., 2 * n : 3 * n])
        torch.mul(d_hidden, squashed, out=d_gates[..., 3 * n :])
        for part, slope in (
            (slice(0, 2 * n), sigmoid_backward),
            (slice(2 * n, 3 * n), tanh_backward),
            (slice(3 * n, 4 * n), sigmoid_backward),
        ):
            slope(d_gates[..., part], gates[..., part], grad_input=d_gates[..., part])
        return d_gates, d_gates, d_cell * f


def linear_relu(x: Tensor, linear: nn.Linear) -> Tensor:
    """`regard.layers.transformer.linear_relu`. A layer that does more than its product is called as it is."""
    hooked = linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks
    if type(linear) is not nn.Linear or hooked or linear.bias is None or x.dim() < 2:
        return torch.relu(linear(x))
    return _LinearReLU.apply(x, linear.weight, linear.bias)


class _LinearReLU(Function):
    """A product that begins with the bias is slower than one with the bias added later, and a sum over rows than a
    product with ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = (x @ weight.T).add_(bias).relu_()  # [..., m]
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        x, weight, y = ctx.saved_tensors
        d = torch.ops.aten.threshold_backward(grad, y, 0)
        rows = d.flatten(0, -2)  # [N, m]
        return d @ weight, rows.T @ x.flatten(0, -2), rows.new_ones(len(rows)) @ rows


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
        self.transposed: Tensor | None = None  # [m, n]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            return F.linear(x, self.weight, self.bias)
        if self.transposed is None:
            self.transposed = self.weight.detach().t().contiguous()
        if self.bias is None:
            return torch.matmul(x, self.transposed)
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.transposed)
        return rows.view(*x.shape[:-1], -1)
