"""Additive scores and dropout for a CPU: the plain forms with fewer passes over memory and fewer random numbers."""

import platform
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ARM = platform.machine() in ("aarch64", "arm64")


class _AdditiveScores(torch.autograd.Function):
    """v^T tanh(q + k): query [..., T, D] and keys [..., S, D], both projected, and v [D] -> scores [..., T, S]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        hidden = query.unsqueeze(-2) + keys.unsqueeze(-3)  # [..., T, S, D]
        # On 64-bit Arm numpy needs 40 % of the time of torch, but has one thread.
        if ARM and hidden.dtype == torch.float32 and torch.get_num_threads() <= 2:
            np.tanh(hidden.numpy(), out=hidden.numpy())
        else:
            hidden.tanh_()
        ctx.save_for_backward(hidden, v)
        return hidden @ v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        hidden, v = ctx.saved_tensors
        d_v = grad.flatten() @ hidden.flatten(0, -2)  # [D]
        d_hidden = grad.unsqueeze(-1) * v  # [..., T, S, D]
        torch.ops.aten.tanh_backward(d_hidden, hidden, grad_input=d_hidden)
        d_keys = d_hidden.squeeze(-3) if grad.shape[-2] == 1 else d_hidden.sum(-3)
        return d_hidden.sum(-2), d_keys, d_v


additive_scores = _AdditiveScores.apply

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
