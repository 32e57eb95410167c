"""Triton: the tokens that a search considers, and the bookkeeping of its beams; three launches for hundreds.

A row of logits is read once: programs find the likeliest tokens of a stretch of words each, one more those of the row.
Then one program for each sentence ranks the continuations of its beams, and moves the finished ones out.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.symbols import END

STRETCH = 4096  # words that one program reads


def likely(logits: Tensor, length: Tensor, k: int, banned: tuple[int, ...], min_length: int) -> tuple[Tensor, Tensor]:
    """`regard.decode.rules.likely`: log-probabilities [N, k] and tokens [N, k] of logits [N, V], length [A]."""
    N, V = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    block = min(STRETCH, triton.next_power_of_2(V))
    parts = triton.cdiv(V, block)
    values = torch.empty(N, parts, k, device=logits.device)
    tokens = torch.empty(N, parts, k, dtype=torch.int32, device=logits.device)
    masses = torch.empty(2, N, parts, device=logits.device)  # the highest logit of a stretch, and sum exp(x - highest)
    bits = sum(1 << token for token in set(banned))
    _stretches[N, parts](
        logits, length, values, tokens, masses, logits.stride(0), N // len(length), N * parts, V, min_length,
        END, bits, k, block, num_warps=8,
    )  # fmt: skip
    logprob = torch.empty(N, k, device=logits.device)
    token = torch.empty(N, k, dtype=torch.long, device=logits.device)
    sizes = triton.next_power_of_2(parts), triton.next_power_of_2(parts * k)
    _rows[(N,)](values, tokens, masses, logprob, token, N * parts, V, parts, k, *sizes, num_warps=1)
    return logprob, token


@triton.jit
def _stretches(
    logits, length, values, tokens, masses, logits_n, beams, size, V, min_length,
    LAST: tl.constexpr, BANNED: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + n * logits_n + v, v < V, other=float("-inf")).to(tl.float32)
    at = n * tl.num_programs(1) + part
    top = tl.max(x, 0)
    tl.store(masses + at, top)
    # A NaN or +inf makes the sum NaN, and with it the whole row.
    tl.store(masses + size + at, tl.sum(tl.exp(x - tl.where(top == float("-inf"), 0.0, top)), 0))
    early = tl.load(length + n // beams) < min_length
    never = ((v < 32) & (((BANNED >> (v & 31)) & 1) == 1)) | ((v == LAST) & early)
    x = tl.where(never | (x != x), float("-inf"), x)
    for i in tl.static_range(K):
        best = tl.argmax(x, 0)
        tl.store(values + at * K + i, tl.max(x, 0))
        tl.store(tokens + at * K + i, part * BLOCK + best)
        x = tl.where(v == part * BLOCK + best, float("-inf"), x)


@triton.jit
def _rows(
    values, tokens, masses, logprob, token, size, V,
    PARTS: tl.constexpr, K: tl.constexpr, PP: tl.constexpr, CC: tl.constexpr,
):  # fmt: skip
    n, p, c = tl.program_id(0).to(tl.int64), tl.arange(0, PP), tl.arange(0, CC)
    tops = tl.load(masses + n * PARTS + p, p < PARTS, other=float("-inf"))
    sums = tl.load(masses + size + n * PARTS + p, p < PARTS, other=0.0)
    top = tl.max(tops, 0)
    whole = top + tl.log(tl.sum(sums * tl.exp(tops - top), 0))  # NaN where nothing is above -inf
    x = tl.load(values + n * PARTS * K + c, c < PARTS * K, other=float("-inf"))
    words = tl.load(tokens + n * PARTS * K + c, c < PARTS * K, other=0)
    for i in tl.static_range(K):
        best = tl.argmax(x, 0)
        tl.store(logprob + n * K + i, tl.max(x, 0) - whole)
        tl.store(token + n * K + i, tl.minimum(tl.sum(tl.where(c == best, words, 0), 0), V - 1).to(tl.int64))
        x = tl.where(c == best, float("-inf"), x)


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
        best = tl.argmax(sums, 0)
        hit = j == best
        c_total = tl.where(c == i, tl.max(sums, 0), c_total)
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
