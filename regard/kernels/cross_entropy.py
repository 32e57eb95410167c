"""The output layer and its loss in one function, which computes the logits of a few rows at a time.

All logits in float32 would be the largest tensor of an update. The gradient of a sum of cross-entropies depends on what
follows only by one factor. So the forward pass replaces each chunk of logits by its gradient and computes those of
hidden, weight and bias from it; the backward pass multiplies them by the factor.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.core.products import padded, product_dtype, weight_gradient
from regard.kernels.choose import or_triton

CHUNK = {"cpu": 2**23, "cuda": 2**28}  # logits at a time: 32 MiB in float32, 512 MiB in bfloat16
# logits [n, V], gold [n], losses [2, n], smoothing, padding, grad -> d_logits [n, V]; the losses are written
Differentiate = Callable[[Tensor, Tensor, Tensor, float, int, bool], Tensor]


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float = 0.0, padding: int = 0
) -> tuple[Tensor, Tensor]:
    """The loss to minimise and the plain negative log-likelihood of softmax(hidden W^T + b), summed over real tokens.

    hidden [..., D], weight [V, D], bias [V], target [...] of the same leading dimensions; tokens equal to `padding` do
    not count. Smoothing takes `smoothing` of the probability and spreads it over all V words, the gold word included.
    Products are taken in the dtype of autocast, sums in float32 at least. The second result carries no gradient.
    """
    return _summed(differentiate, hidden.flatten(0, -2), weight, bias, target.flatten(), smoothing, padding)


def linear_consistency(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    agreement: float,
    smoothing: float = 0.0,
    padding: int = 0,
) -> tuple[Tensor, Tensor]:
    """R-Drop's loss of two passes, p and q, and the mean of their plain negative log-likelihoods, over real tokens.

    sum of (CE(p) + CE(q)) / 2 + agreement / 4 (KL(p || q) + KL(q || p))

    hidden [2, ..., D] of the two passes, target [...]; the rest as in `linear_cross_entropy`.
    """
    rows = hidden.flatten(1, -2).transpose(0, 1).flatten(0, 1)  # [2 N, D], both passes of a token are neighbours
    gold = target.flatten().repeat_interleave(2)  # [2 N]
    return _summed(partial(differentiate_pairs, agreement=agreement), rows, weight, bias, gold, smoothing, padding)


def _summed(
    gradient_of: Differentiate,
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gold: Tensor,
    smoothing: float,
    padding: int,
) -> tuple[Tensor, Tensor]:
    if rows.device.type == "cpu":  # elsewhere it would wait for the device
        real = (gold != padding).nonzero()[:, 0]
        if len(real) < len(gold):
            rows, gold = rows[real], gold[real]
    return _LinearLoss.apply(rows, weight, bias, gold, gradient_of, smoothing, padding, torch.is_grad_enabled())


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gold: Tensor,
        gradient_of: Differentiate,
        smoothing: float,
        padding: int,
        grad: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype, D = product_dtype(hidden), hidden.shape[-1]
        exact = torch.promote_types(dtype, torch.float32)
        rows, W = padded(hidden.to(dtype)), padded(weight.detach().to(dtype))  # [N, D], [V, D]
        N, V = len(rows), len(W)
        b = None if bias is None else bias.detach().to(dtype)  # [V]
        losses = torch.zeros(2, N, dtype=exact, device=hidden.device)  # with smoothing, and without
        needs = [grad and needed for needed in ctx.needs_input_grad[:3]]
        d_hidden = torch.empty_like(rows) if needs[0] else None  # [N, D]
        d_weight = None if N or not needs[1] else torch.zeros(W.shape, dtype=exact, device=hidden.device)
        d_bias = torch.zeros(V, dtype=exact, device=hidden.device) if needs[2] else None
        size = 2 * max(1, CHUNK["cuda" if hidden.is_cuda else "cpu"] // (2 * V))  # pairs stay together
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, N, size):
                part = slice(start, start + size)
                logits = F.linear(rows[part], W, b)  # [n, V]
                d_logits = gradient_of(logits, gold[part], losses[:, part], smoothing, padding, any(needs))  # [n, V]
                if d_hidden is not None:
                    torch.mm(d_logits, W, out=d_hidden[part])
                if needs[1]:
                    d_weight = weight_gradient(d_logits, rows[part], exact, d_weight)
                if d_bias is not None:
                    d_bias += d_logits.sum(dim=0, dtype=exact)
        parts = (None if part is None else part[:, :D] for part in (d_hidden, d_weight))
        ctx.save_for_backward(*parts, d_bias)
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        loss, plain = losses.sum(dim=1).unbind()
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [
            None if whole is None else (whole * grads[0].to(whole.dtype)).to(dtype)
            for whole, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *scaled, None, None, None, None, None


@or_triton("softmax_gradient")
def differentiate(logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int, grad: bool) -> Tensor:
    """Write the losses [2, n] of logits [n, V], and return the gradient of their sum, [n, V]."""
    p, _ = _write_losses(logits, gold, losses, smoothing, padding)
    return _gradient(p, gold, smoothing, padding).to(logits.dtype) if grad else p


def _write_losses(
    logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int
) -> tuple[Tensor, Tensor]:
    """Write the losses [2, n] of logits [n, V], and return their softmax [n, V] and logsumexp [n]."""
    exact, keep = logits.to(losses.dtype), gold != padding  # [n, V], [n]
    right = exact.gather(1, gold[:, None])[:, 0]  # [n]
    top, mean = exact.amax(dim=1), exact.mean(dim=1) if smoothing else right  # [n]
    p = torch.softmax(exact, dim=1)  # [n, V]
    whole = top - p.amax(dim=1).log()  # [n], logsumexp: the highest probability is exp(top - logsumexp)
    losses[1] = (whole - right) * keep
    losses[0] = (whole - (1 - smoothing) * right - smoothing * mean) * keep
    return p, whole


def _gradient(p: Tensor, gold: Tensor, smoothing: float, padding: int) -> Tensor:
    """The gradient of the sum of the losses [n, V], in place of the softmax."""
    if smoothing:
        p -= smoothing / p.shape[1]
    p.scatter_add_(1, gold[:, None], p.new_full((1, 1), smoothing - 1).expand(len(p), 1))
    if p.is_cuda:  # on a CPU there are no rows of padding
        p *= (gold != padding)[:, None]
    return p


@or_triton("softmax_gradient")
def differentiate_pairs(
    logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int, grad: bool, agreement: float
) -> Tensor:
    """The same for pairs of rows: half of each row's loss, plus agreement / 4 of its divergence from the other one.

    d KL(p || q) / d logits of p = p (log p - log q - KL(p || q)),  d KL(q || p) / d logits of p = p - q
    """
    keep = (gold != padding)[:, None]  # [n, 1]
    p, whole = _write_losses(logits, gold, losses, smoothing, padding)  # [n, V], [n]
    apart = _less_other(logits - whole[:, None])  # [n, V], log p - log q
    divergence = (p * apart).sum(dim=1, keepdim=True)  # [n, 1]
    losses[1] /= 2
    losses[0] = losses[0] / 2 + agreement / 4 * (divergence * keep)[:, 0]
    if not grad:
        return p
    pull = agreement / 4 * keep * (p * (apart - divergence) + _less_other(p))
    return (_gradient(p, gold, smoothing, padding) / 2 + pull).to(logits.dtype)


def _less_other(rows: Tensor) -> Tensor:
    """The difference of each row [n, V] from the other one of its pair."""
    return rows - rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
