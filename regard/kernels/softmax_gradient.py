"""Triton: the loss of logits, and its gradient in their place; one program for each row, or each pair of rows.

A row is read twice and written once; separate operators for softmax, loss and gradient would each pass over it.
"""

import triton
import triton.language as tl
from torch import Tensor


def differentiate(logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int, grad: bool) -> Tensor:
    """Write the losses [2, n] of logits [n, V], with smoothing and without; `grad` puts the gradient in their place."""
    n, V = logits.shape
    _differentiate[(n,)](
        logits, gold, losses[0], losses[1], V, logits.stride(0), padding, smoothing, grad, _block(V), num_warps=8
    )
    return logits


def differentiate_pairs(
    logits: Tensor, gold: Tensor, losses: Tensor, smoothing: float, padding: int, grad: bool, agreement: float
) -> Tensor:
    """The same for two passes over each token, in neighbouring rows: half of each row's losses; losses[0] also has
    agreement / 4 of the row's divergence from the other one."""
    n, V = logits.shape
    _differentiate_pairs[(n // 2,)](
        logits, gold, losses[0], losses[1], V, logits.stride(0), padding, smoothing, agreement / 4, grad, _block(V),
        num_warps=8,
    )  # fmt: skip
    return logits


def _block(V: int) -> int:
    return min(2048, max(8, triton.next_power_of_2(V)))


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


@triton.jit
def _differentiate_pairs(
    logits, gold, loss, plain, V, stride, padding, smoothing, agreement, GRAD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * 2
    first = logits + row * stride
    second = first + stride
    word = tl.load(gold + row)
    places = tl.arange(0, BLOCK // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    top_x = tl.full([BLOCK // 8], -1e30, tl.float32)
    top_y = tl.full([BLOCK // 8], -1e30, tl.float32)
    mass_x = tl.zeros([BLOCK // 8], tl.float32)
    mass_y = tl.zeros([BLOCK // 8], tl.float32)
    apart_x = tl.zeros([BLOCK // 8], tl.float32)  # sum of exp(x) (x - y), as `mass` relative to the maximum
    apart_y = tl.zeros([BLOCK // 8], tl.float32)
    total_x = tl.zeros([BLOCK // 8, 8], tl.float32)
    total_y = tl.zeros([BLOCK // 8, 8], tl.float32)
    right_x = tl.zeros([BLOCK // 8, 8], tl.float32)
    right_y = tl.zeros([BLOCK // 8, 8], tl.float32)
    for start in range(0, V, BLOCK):
        place = start + places
        x = tl.load(first + place, place < V, other=-1e30).to(tl.float32)
        y = tl.load(second + place, place < V, other=-1e30).to(tl.float32)
        top_x, mass_x, apart_x = _gather(x, y, top_x, mass_x, apart_x)
        top_y, mass_y, apart_y = _gather(y, x, top_y, mass_y, apart_y)
        total_x += tl.where(place < V, x, 0.0)
        total_y += tl.where(place < V, y, 0.0)
        right_x += tl.where(place == word, x, 0.0)
        right_y += tl.where(place == word, y, 0.0)
    whole_x, mean_x = _finish(top_x, mass_x, apart_x)  # logsumexp, and the mean of x - y under p
    whole_y, mean_y = _finish(top_y, mass_y, apart_y)
    from_y = mean_x - whole_x + whole_y  # KL(p || q)
    from_x = mean_y - whole_y + whole_x
    gold_x = tl.sum(tl.sum(right_x, 1), 0)
    gold_y = tl.sum(tl.sum(right_y, 1), 0)
    loss_x = whole_x - (1 - smoothing) * gold_x - smoothing * (tl.sum(tl.sum(total_x, 1), 0) / V)
    loss_y = whole_y - (1 - smoothing) * gold_y - smoothing * (tl.sum(tl.sum(total_y, 1), 0) / V)
    real = word != padding
    tl.store(plain + row, tl.where(real, (whole_x - gold_x) / 2, 0.0))
    tl.store(plain + row + 1, tl.where(real, (whole_y - gold_y) / 2, 0.0))
    tl.store(loss + row, tl.where(real, loss_x / 2 + agreement * from_y, 0.0))
    tl.store(loss + row + 1, tl.where(real, loss_y / 2 + agreement * from_x, 0.0))
    if GRAD:
        for start in range(0, V, BLOCK):
            place = start + places
            log_p = tl.load(first + place, place < V, other=-1e30).to(tl.float32) - whole_x
            log_q = tl.load(second + place, place < V, other=-1e30).to(tl.float32) - whole_y
            p, q, apart = tl.exp(log_p), tl.exp(log_q), log_p - log_q
            wanted = smoothing / V + tl.where(place == word, 1 - smoothing, 0.0)
            d_x = (p - wanted) / 2 + agreement * (p * (apart - from_y) + p - q)
            d_y = (q - wanted) / 2 + agreement * (q * (-apart - from_x) + q - p)
            tl.store(first + place, tl.where(real, d_x, 0.0).to(logits.dtype.element_ty), place < V)
            tl.store(second + place, tl.where(real, d_y, 0.0).to(logits.dtype.element_ty), place < V)


@triton.jit
def _gather(x, y, top, mass, apart):
    """One more block of a row x: its maximum so far, and relative to it the sums of exp(x) and of exp(x) (x - y)."""
    higher = tl.maximum(top, tl.max(x, 1))
    scale, e = tl.exp(top - higher), tl.exp(x - higher[:, None])
    return higher, mass * scale + tl.sum(e, 1), apart * scale + tl.sum(e * (x - y), 1)


@triton.jit
def _finish(top, mass, apart):
    highest = tl.max(top, 0)
    scale = tl.exp(top - highest)
    whole = tl.sum(mass * scale, 0)
    return highest + tl.log(whole), tl.sum(apart * scale, 0) / whole
