"""Triton: the most likely tokens of a search step, and the bookkeeping of its beams, in three launches.

The first reads each row of logits once, for its logsumexp and the maximum of each block of words. The second finds the
most likely tokens in the blocks with the highest maxima, without sorting the row. In the third, one program for each
sentence ranks the continuations of its beams, which in torch takes many small launches.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.symbols import END

BLOCK, STRETCH = 128, 16  # words of a block, and blocks that one program reads


def likely(logits: Tensor, length: Tensor, k: int, banned: tuple[int, ...], min_length: int) -> tuple[Tensor, Tensor]:
    """`regard.decode.rules.likely`: log-probabilities [N, k] and tokens [N, k] of logits [N, V], length [A].

    The k likeliest words are in the k blocks with the highest peaks.
    """
    N, V = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    blocks = triton.cdiv(V, BLOCK)
    parts, beams = triton.cdiv(blocks, STRETCH), N // len(length)
    peaks = torch.empty(N, blocks, device=logits.device)
    masses = torch.empty(2, N, parts, device=logits.device)  # the highest logit of a stretch, and sum exp(x - highest)
    rules = min_length, END, sum(1 << token for token in set(banned))
    _peaks[N, parts](
        logits, length, peaks, masses, logits.stride(0), beams, N * parts, V, blocks, *rules, STRETCH, BLOCK,
        num_warps=4,
    )  # fmt: skip
    logprob = torch.empty(N, k, device=logits.device)
    token = torch.empty(N, k, dtype=torch.long, device=logits.device)
    few = min(k, blocks)
    sizes = (triton.next_power_of_2(size) for size in (few, blocks, parts))
    _top[(N,)](
        logits, length, peaks, masses, logprob, token, logits.stride(0), beams, N * parts, V, blocks, parts, *rules,
        k, few, *sizes, BLOCK, num_warps=4,
    )  # fmt: skip
    return logprob, token


@triton.jit
def _allowed(x, v, length, min_length, LAST: tl.constexpr, BANNED: tl.constexpr):
    """Logits x of the words v, -inf where they may not come."""
    never = ((v < 32) & (((BANNED >> (v & 31)) & 1) == 1)) | ((v == LAST) & (tl.load(length) < min_length))
    return tl.where(never | (x != x), float("-inf"), x)


@triton.jit
def _peaks(
    logits, length, peaks, masses, logits_n, beams, size, V, blocks, min_length,
    LAST: tl.constexpr, BANNED: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    block = part * ROWS + tl.arange(0, ROWS)
    v = block[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    x = tl.load(logits + n * logits_n + v, v < V, other=float("-inf")).to(tl.float32)
    top = tl.max(tl.max(x, 1), 0)
    # A NaN or +inf makes the sum NaN, and with it the whole row.
    mass = tl.sum(tl.sum(tl.exp(x - tl.where(top == float("-inf"), 0.0, top)), 1), 0)
    at = n * tl.num_programs(1) + part
    tl.store(masses + at, top)
    tl.store(masses + size + at, mass)
    x = _allowed(x, v, length + n // beams, min_length, LAST, BANNED)
    tl.store(peaks + n * blocks + block, tl.max(x, 1), block < blocks)


@triton.jit
def _top(
    logits, length, peaks, masses, logprob, token, logits_n, beams, size, V, blocks, parts, min_length,
    LAST: tl.constexpr, BANNED: tl.constexpr, K: tl.constexpr, BEST: tl.constexpr,
    GG: tl.constexpr, BB: tl.constexpr, PP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n, g, b, p = tl.program_id(0).to(tl.int64), tl.arange(0, GG), tl.arange(0, BB), tl.arange(0, PP)
    tops = tl.load(masses + n * parts + p, p < parts, other=float("-inf"))
    sums = tl.load(masses + size + n * parts + p, p < parts, other=0.0)
    top = tl.max(tops, 0)
    whole = top + tl.log(tl.sum(sums * tl.exp(tops - top), 0))  # NaN where nothing is above -inf
    heights = tl.load(peaks + n * blocks + b, b < blocks, other=float("-inf"))
    heights = tl.where(b < blocks, tl.maximum(heights, -3e38), float("-inf"))  # above -inf, so that none is taken twice
    chosen = tl.zeros([GG], tl.int32)
    for i in tl.static_range(BEST):
        best = tl.argmax(heights, 0)
        chosen = tl.where(g == i, best, chosen)
        heights = tl.where(b == best, float("-inf"), heights)
    v = chosen[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    x = tl.load(logits + n * logits_n + v, (g < BEST)[:, None] & (v < V), other=float("-inf")).to(tl.float32)
    x = tl.reshape(_allowed(x, v, length + n // beams, min_length, LAST, BANNED), [GG * WIDE])
    v, place = tl.reshape(v, [GG * WIDE]), tl.arange(0, GG * WIDE)
    for i in tl.static_range(K):
        most, best = tl.max(x, 0, return_indices=True)
        hit = place == best
        tl.store(logprob + n * K + i, most - whole)
        tl.store(token + n * K + i, tl.minimum(tl.sum(tl.where(hit, v, 0), 0), V - 1).to(tl.int64))
        x = tl.where(hit, float("-inf"), x)


def select(
    each: Tensor, token: Tensor, beam: Any, penalty: Tensor, beams: int, nbest: int, patient: bool
) -> tuple[Any, Tensor]:
    """`regard.decode.beam.select`: each, token [A * k, M], penalty [A]; K = `beams`."""
    (A, k), M, K = beam.total.shape, each.shape[1], beams
    old, room = beam.finished, beam.tokens.shape[1]
    length, done, broken = (torch.empty_like(part) for part in (beam.length, beam.done, beam.broken))
    total = torch.empty(A, K, dtype=torch.float64, device=each.device)
    tokens, rows = (torch.empty(A, K, dtype=torch.long, device=each.device) for _ in range(2))
    finished = type(old)(*(torch.empty_like(part) for part in old))
    sizes = (triton.next_power_of_2(size) for size in (K, 2 * K, k * M))
    _select[(A,)](
        each, token, beam.total, beam.length, beam.limit, beam.bound, penalty, beam.done, beam.broken,
        *(part.contiguous() for part in old), beam.tokens, beam.parents, beam.logprobs,
        tokens, total, length, done, broken, *finished, rows,
        room * K, k, K, M, nbest, patient, END, *sizes, num_warps=1,
    )  # fmt: skip
    after = beam._replace(length=length, done=done, broken=broken, token=tokens, total=total, finished=finished)
    return after, rows.flatten()


@triton.jit
def _nth(score, place, others, other_place, n: tl.constexpr):
    """The score at place n among two lists."""
    first = tl.max(tl.where(place == n, score, float("-inf")), 0)
    return tl.maximum(first, tl.max(tl.where(other_place == n, others, float("-inf")), 0))


@triton.jit
def _select(
    each, token, total, length, limit, bound, penalty, done, broken,
    old_score, old_total, old_length, old_parent, old_logprob, tree_token, tree_parent, tree_logprob,
    new_token, new_total, new_length, new_done, new_broken,
    end_score, end_total, end_length, end_parent, end_logprob, rows,
    tree_a, k: tl.constexpr, K: tl.constexpr, M: tl.constexpr, NBEST: tl.constexpr, PATIENT: tl.constexpr,
    LAST: tl.constexpr, KK: tl.constexpr, CC: tl.constexpr, JJ: tl.constexpr,
):  # fmt: skip
    a = tl.program_id(0).to(tl.int64)
    s, c, j = tl.arange(0, KK), tl.arange(0, CC), tl.arange(0, JJ)
    # expand: the 2K best of the k * M continuations; of equal ones, the better beam first
    words = tl.load(token + a * k * M + j, j < k * M, other=0)
    each_j = tl.load(each + a * k * M + j, j < k * M, other=float("-inf"))
    each_j = tl.where(each_j == each_j, each_j, float("-inf"))
    sums = tl.load(total + a * k + j // M, j < k * M, other=float("-inf")) + each_j.to(tl.float64)
    c_total = tl.full([CC], float("-inf"), tl.float64)
    c_logprob = tl.full([CC], float("-inf"), tl.float32)
    c_token, c_parent = tl.zeros([CC], tl.int64), tl.zeros([CC], tl.int64)
    for i in tl.static_range(2 * K):
        most, best = tl.max(sums, 0, return_indices=True)
        hit = j == best
        c_total = tl.where(c == i, most, c_total)
        c_logprob = tl.where(c == i, tl.max(tl.where(hit, each_j, float("-inf")), 0), c_logprob)
        c_token = tl.where(c == i, tl.sum(tl.where(hit, words, 0), 0), c_token)
        c_parent = tl.where(c == i, (best // M).to(tl.int64), c_parent)
        sums = tl.where(hit, float("-inf"), sums)
    was_done, at, most = tl.load(done + a).to(tl.int32), tl.load(length + a), tl.load(limit + a)
    lp = tl.load(penalty + a)
    # finish: those of the K best that end join the finished ones, behind those of an equal score
    ends = (c < K) & (c_token == LAST) & (c_total > float("-inf")) & (was_done == 0)
    score = tl.where(ends, c_total / lp, float("-inf"))
    old = tl.load(old_score + a * K + s, s < K, other=float("-inf"))
    ahead = (s < K)[:, None] & (old[:, None] >= score[None, :])  # [KK, CC]
    behind = (c < K)[None, :] & (score[None, :] > old[:, None])  # [KK, CC]
    better = (score[:, None] > score[None, :]) | ((score[:, None] == score[None, :]) & (c[:, None] < c[None, :]))
    place = tl.sum(ahead.to(tl.int32), 0) + tl.sum((better & (c < K)[:, None]).to(tl.int32), 0)  # [CC]
    old_place = s + tl.sum(behind.to(tl.int32), 1)  # [KK]; the old ones are in order
    place, old_place = tl.where(c < K, place, K), tl.where(s < K, old_place, K)
    kept, stay = place < K, old_place < K
    tl.store(end_score + a * K + place, score, kept)
    tl.store(end_total + a * K + place, c_total, kept)
    tl.store(end_length + a * K + place, tl.zeros([CC], tl.int64) + at + 1, kept)
    tl.store(end_parent + a * K + place, c_parent, kept)
    tl.store(end_logprob + a * K + place, c_logprob, kept)
    tl.store(end_score + a * K + old_place, old, stay)
    tl.store(end_total + a * K + old_place, tl.load(old_total + a * K + s, stay), stay)
    tl.store(end_length + a * K + old_place, tl.load(old_length + a * K + s, stay), stay)
    tl.store(end_parent + a * K + old_place, tl.load(old_parent + a * K + s, stay), stay)
    tl.store(end_logprob + a * K + old_place, tl.load(old_logprob + a * K + s, stay), stay)
    worst = _nth(score, place, old, old_place, K - 1)
    needed = _nth(score, place, old, old_place, NBEST - 1)
    # prune: the K best that continue, in order; behind them, for slots that are not used, those that do not
    going = (c < 2 * K) & (c_token != LAST) & (c_total > float("-inf"))
    rest = (c < 2 * K) & (going == 0)
    many = tl.sum(going.to(tl.int32), 0)
    slot = tl.where(going, tl.cumsum(going.to(tl.int32), 0) - 1, many + tl.cumsum(rest.to(tl.int32), 0) - 1)
    used = (c < 2 * K) & (slot < K)
    left = tl.where(going, c_total, float("-inf"))
    alive = tl.max(tl.where(used, left, float("-inf")), 0)
    stuck = alive == float("-inf")
    frozen = tl.maximum(was_done, tl.where(stuck, 1, 0))
    tree = a * tree_a + at * K + slot
    tl.store(tree_token + tree, c_token, used)
    tl.store(tree_parent + tree, c_parent, used)
    tl.store(tree_logprob + tree, c_logprob, used)
    tl.store(new_token + a * K + slot, c_token, used)
    tl.store(rows + a * K + slot, a * k + c_parent, used)
    before = tl.load(total + a * k + s, s < k, other=float("-inf"))
    tl.store(new_total + a * K + slot, left, used & (tl.zeros_like(slot) + frozen == 0))
    tl.store(new_total + a * K + s, before, (s < K) & (tl.zeros_like(s) + frozen != 0))
    enough = worst > float("-inf")
    if PATIENT:
        enough = enough & (alive / lp <= worst)
    hopeless = alive / tl.load(bound + a) <= needed
    tl.store(new_length + a, at + 1 - frozen)
    tl.store(new_done + a, (was_done != 0) | enough | hopeless | (most <= at + 1))
    tl.store(new_broken + a, (tl.load(broken + a).to(tl.int32) != 0) | (stuck & (was_done == 0)))
