"""Triton: logits into their cross-entropy and its gradient, in place; one program for each row."""

import triton
import triton.language as tl
from torch import Tensor


def differentiate(logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int, grad: bool) -> Tensor:
    """Write the losses [2, n] of logits [n, V], with smoothing and without; `grad` puts the gradient in their place."""
    n, V = logits.shape
    block = min(2048, max(8, triton.next_power_of_2(V)))
    _differentiate[(n,)](
        logits, gold, losses[0], losses[1], V, logits.stride(0), padding, smoothing, grad, block, num_warps=8
    )
    return logits


@triton.jit
def _differentiate(
    logits, gold, loss, plain, V, stride, padding, smoothing, GRAD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    word = tl.load(gold + row)
    # Eight neighbours are in one thread: they share a maximum, and the sum is rescaled once for all of them.
    places = tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    top = tl.full([BLOCK // 8], -1e30, tl.float32)  # finite, so that the difference of two of them is
    mass = tl.zeros([BLOCK // 8], tl.float32)
    total = tl.zeros([BLOCK // 8, 8], tl.float32)
    right = tl.zeros([BLOCK // 8, 8], tl.float32)
    for start in range(0, V, BLOCK):
        place = start + places
        x = tl.load(logits + place, place < V, other=-1e30).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 1))
        mass = mass * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        top = higher
        total += tl.where(place < V, x, 0.0)
        right += tl.where(place == word, x, 0.0)
    highest = tl.max(top, 0)
    whole = highest + tl.log(tl.sum(mass * tl.exp(top - highest), 0))  # logsumexp
    right_logit = tl.sum(tl.sum(right, 1), 0)
    mean = tl.sum(tl.sum(total, 1), 0) / V
    real = word != padding
    tl.store(plain + row, tl.where(real, whole - right_logit, 0.0))
    tl.store(loss + row, tl.where(real, whole - (1 - smoothing) * right_logit - smoothing * mean, 0.0))
    if GRAD:
        for start in range(0, V, BLOCK):
            place = start + places
            x = tl.load(logits + place, place < V, other=-1e30).to(tl.float32)
            d = tl.exp(x - whole) - smoothing / V - tl.where(place == word, 1 - smoothing, 0.0)
            tl.store(logits + place, tl.where(real, d, 0.0).to(logits.dtype.element_ty), place < V)
