"""Beam search over a batch, knowing only `step`: the K best beginnings of each sentence, one token longer each time.

The rules, which a plain search of one sentence at a time would give as well:

* The first step expands one beam; K equal beams would find the same words K times.
* Each step ranks all continuations of a sentence by log-probability. Those of the K best that end with END are
  finished and leave the beam; the K best others go on. Finished hypotheses are never expanded.
* A sentence is done when K hypotheses have finished, when nothing alive could still beat the `nbest` best finished
  (a log-probability only falls, so alive / lp(longest) bounds every score to come), or at its longest length.
* All of this looks at one sentence alone. A done sentence is dropped from the batch, so it costs nothing more.

Only the model and the choice of the K + 1 best tokens of each beam run on the device; what follows is small, and runs
in numpy on the CPU. A step makes the device wait once.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.decode.hypothesis import Found, Hypothesis, length_penalty
from regard.decode.rules import NEVER, Ints, Rules
from regard.decode.settings import DecodeConfig
from regard.models.contract import SequenceModel, State, take, take_beams
from regard.symbols import END, PAD, START

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Bools = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Step(NamedTuple):
    """What one step of the search weighed: the C best continuations of each of the A sentences still open.

    A node of the search tree is (number, slot); its parent is (number - 1, parent). Where `slot` is -1 and `ended`
    is False, the candidate was pruned; candidates of log-probability -inf were never possible.
    """

    number: int  # 1 for the first token
    sentences: Ints  # [A] rows of the batch
    parent: Ints  # [A, C] the beam it continues
    token: Ints  # [A, C]
    logprob: Floats  # [A, C] of the token
    total: Floats  # [A, C] of the hypothesis up to here
    score: Floats  # [A, C] total / length penalty
    slot: Ints  # [A, C] the beam it goes on as, or -1
    ended: Bools  # [A, C] finished here with END


class _Alive(NamedTuple):
    """The open sentences [A] and their hypotheses [A, K]; histories are rows [A * K], as the model sees them."""

    sentences: Ints  # [A]
    limits: Ints  # [A] longest length, END counted
    penalties: Floats  # [A] lp(limit): no score to come exceeds total / penalty
    finished: Floats  # [A, K] the best finished scores, -inf where there are fewer
    total: Floats  # [A, K] log-probability, -inf for a beam that is not used
    tokens: Ints  # [A * K, t]
    logprobs: Floats  # [A * K, t]


class _Candidates(NamedTuple):
    """The C = 2K best continuations of each sentence, best first; at most K of them end, so K can go on."""

    total: Floats  # [A, C]
    parent: Ints  # [A, C]
    token: Ints  # [A, C]
    logprob: Floats  # [A, C]
    ended: Bools  # [A, C]


@torch.inference_mode()
def beam_search(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    observe: Callable[[Step], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Hypothesis]]:
    """The `config.nbest` best hypotheses for each row of `state`, none longer than `limits` [B] (END counted).

    `observe` is shown every step; `stop` is asked before every step and ends the search when it answers True.
    """
    device = limits.device
    rules = Rules(config, prefixes, device)
    found = Found(len(limits), config.length_penalty)
    alive = _begin(limits, config)
    token = torch.full_like(limits, START)  # [A * K]
    while len(alive.sentences):
        if stop is not None and stop():
            _collect_alive(found, alive, alive.total > NEVER, "stopped")
            break
        logits, state = model.step(token, state)
        candidates = _rank(*_expand(logits, alive, rules, config.beam), alive.total, config.beam)
        after, rows, done = _advance(alive, candidates, config)
        if observe is not None:
            observe(_describe(alive, candidates, config))
        if candidates.ended.any():
            _collect_ended(found, alive, candidates)
        if done.any():
            _collect_done(found, alive, after, done, config)
            rows = rows.reshape(len(done), -1)[~done].flatten()
            after = _keep(after, ~done)
            state = take(state, torch.from_numpy(rows).to(device))
        elif len(rows) > len(token):
            state = take(state, torch.from_numpy(rows).to(device))  # the first step: K rows of one
        elif (rows != np.arange(len(rows))).any():
            state = take_beams(state, torch.from_numpy(rows).to(device))
        alive = after
        token = torch.from_numpy(alive.tokens[:, -1].copy()).to(device)  # [A * K]
    return found.ranked(config.nbest)


def _begin(limits: Tensor, config: DecodeConfig) -> _Alive:
    B, lengths = len(limits), limits.cpu().numpy()
    return _Alive(
        sentences=np.arange(B),
        limits=lengths,
        penalties=((5 + lengths) / 6) ** config.length_penalty,
        finished=np.full((B, config.beam), NEVER),
        total=np.zeros((B, 1)),
        tokens=np.empty((B, 0), dtype=np.int64),
        logprobs=np.empty((B, 0)),
    )


def _expand(logits: Tensor, alive: _Alive, rules: Rules, beam: int) -> tuple[Floats, Ints]:
    """The likeliest tokens of each beam and their log-probabilities: logits [A * K, V] -> two [A * K, M].

    One beam gives at most K words and END to the K best that go on, so M = K + 1 is enough. A row with NaN, +inf or
    nothing but -inf has no likely token.
    """
    logprobs = logits.float().log_softmax(-1)  # [A * K, V]; one number that is not finite makes the whole row NaN
    rules.apply(logprobs, alive.tokens, alive.sentences)
    each, token = best(logprobs, min(beam + 1, logprobs.shape[1]))  # [A * K, M]
    values = each.cpu().numpy().astype(np.float64)  # [A * K, M]
    values[np.isnan(values)] = NEVER
    return values, token.cpu().numpy()


def best(values: Tensor, k: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """`values.topk(k)` of [N, V], in less time on a CPU: only the k blocks with the highest peaks are searched."""
    N, V = values.shape
    if not values.is_cpu or V // block < 32 or k >= 16:
        return values.topk(k)
    blocks = values[:, : V // block * block].view(N, -1, block)  # [N, G, block]
    rest = values[:, V // block * block :]  # [N, fewer than block]
    chosen = blocks.amax(-1).topk(k).indices  # [N, k]
    near = blocks[torch.arange(N)[:, None], chosen].flatten(1)  # [N, k * block]
    ids = (chosen[..., None] * block + torch.arange(block)).flatten(1)  # [N, k * block]
    tail = torch.arange(V - rest.shape[1], V).expand(N, -1)  # [N, fewer than block]
    top, place = torch.cat([near, rest], 1).topk(k)  # [N, k]
    return top, torch.cat([ids, tail], 1).gather(1, place)


def _rank(each: Floats, token: Ints, total: Floats, beam: int) -> _Candidates:
    """Rank every continuation of every sentence: log P(hypothesis) + log P(token | hypothesis)."""
    (A, beams), M = total.shape, each.shape[1]
    each, token = each.reshape(A, beams * M), token.reshape(A, beams * M)  # [A, K * M]
    missing = 2 * beam - beams * M
    if missing > 0:  # the first step, or a vocabulary smaller than the beam
        each = np.pad(each, ((0, 0), (0, missing)), constant_values=NEVER)
        token = np.pad(token, ((0, 0), (0, missing)), constant_values=PAD)
    parent = np.minimum(np.arange(each.shape[1]) // M, beams - 1)  # [K * M]
    sums = each + total[:, parent]  # [A, K * M]
    order = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam]  # [A, C]; of equal ones, the better beam first
    rows = np.arange(A)[:, None]
    sums, token = sums[rows, order], token[rows, order]  # [A, C]
    ended = (token == END) & (sums > NEVER)  # [A, C]
    ended[:, beam:] = False  # END must be among the K best
    return _Candidates(sums, parent[order], token, each[rows, order], ended)


def _advance(alive: _Alive, candidates: _Candidates, config: DecodeConfig) -> tuple[_Alive, Ints, Bools]:
    """The K best that go on, the rows they come from [A * K], and which sentences are done [A]."""
    A, beams = alive.total.shape
    K, length = config.beam, alive.tokens.shape[1] + 1
    stays = (candidates.token == END) | (candidates.total == NEVER)  # [A, C]
    chosen = np.argsort(stays, axis=1, kind="stable")[:, :K]  # [A, K]; those that go on, in order
    at = (np.arange(A)[:, None], chosen)
    total = np.where(stays[at], NEVER, candidates.total[at])  # [A, K]
    rows = (candidates.parent[at] + np.arange(0, A * beams, beams)[:, None]).flatten()  # [A * K]
    finished = alive.finished  # [A, K]
    if candidates.ended.any():
        scores = candidates.total[:, :K] / length_penalty(length, config.length_penalty)  # [A, K]
        scores = np.where(candidates.ended[:, :K], scores, NEVER)
        finished = -np.sort(-np.concatenate([finished, scores], 1), axis=1)[:, :K]
    enough = finished[:, K - 1] > NEVER  # [A]
    hopeless = total[:, 0] / alive.penalties <= finished[:, config.nbest - 1]  # [A]; also where nothing is alive
    after = alive._replace(
        finished=finished,
        total=total,
        tokens=np.concatenate([alive.tokens[rows], candidates.token[at].reshape(-1, 1)], 1),
        logprobs=np.concatenate([alive.logprobs[rows], candidates.logprob[at].reshape(-1, 1)], 1),
    )
    return after, rows, enough | hopeless | (alive.limits <= length)


def _keep(alive: _Alive, keep: Bools) -> _Alive:
    """The sentences asked for, with all their beams."""
    rows = keep.repeat(alive.total.shape[1])  # [A * K]
    return _Alive(
        sentences=alive.sentences[keep],
        limits=alive.limits[keep],
        penalties=alive.penalties[keep],
        finished=alive.finished[keep],
        total=alive.total[keep],
        tokens=alive.tokens[rows],
        logprobs=alive.logprobs[rows],
    )


def _collect_ended(found: Found, alive: _Alive, candidates: _Candidates) -> None:
    at = candidates.ended.nonzero()  # [E] each
    rows = at[0] * alive.total.shape[1] + candidates.parent[at]  # [E]
    logprobs = np.concatenate([alive.logprobs[rows], candidates.logprob[at][:, None]], 1)  # [E, t + 1]
    found.add(alive.sentences[at[0]], alive.tokens[rows], logprobs, candidates.total[at], "end")


def _collect_done(found: Found, before: _Alive, after: _Alive, done: Bools, config: DecodeConfig) -> None:
    """Sentences that are done with too few finished hypotheses: cut at their longest, or with no token possible."""
    short = done & (after.finished[:, config.nbest - 1] == NEVER)  # [A]
    possible = after.total > NEVER  # [A, K]
    _collect_alive(found, after, possible & short[:, None], "length")
    broken = short & ~possible.any(1)  # [A]
    _collect_alive(found, before, broken[:, None] & (before.total > NEVER), "not finite")


def _collect_alive(
    found: Found, alive: _Alive, which: Bools, ended: Literal["length", "not finite", "stopped"]
) -> None:
    sentence, beam = which.nonzero()  # [E] each
    rows = sentence * which.shape[1] + beam  # [E]
    found.add(alive.sentences[sentence], alive.tokens[rows], alive.logprobs[rows], alive.total[which], ended)


def _describe(alive: _Alive, candidates: _Candidates, config: DecodeConfig) -> Step:
    total, parent, token, logprob, ended = candidates
    length = alive.tokens.shape[1] + 1
    going = (token != END) & (total > NEVER)  # [A, C]
    slot = going.cumsum(1) - 1  # [A, C]; the best K of those that do not end, in order
    slot = np.where(going & (slot < config.beam), slot, -1)
    score = total / length_penalty(length, config.length_penalty)
    return Step(length, alive.sentences, parent, token, logprob, total, score, slot, ended)
