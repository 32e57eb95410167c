"""Beam search over a batch, knowing only `step`: the K best beginnings of each sentence, one token longer each time.

The rules, which a plain search of one sentence at a time would give as well:

* The first step expands one beam; K equal beams would find the same words K times.
* Each step ranks all continuations of a sentence by log-probability. Those of the K best that end with END are
  finished and leave the beam; the K best others go on. Finished hypotheses are never expanded.
* A sentence is done when K hypotheses have finished, when nothing alive could still beat the `nbest` best finished
  (a log-probability only falls, so alive / lp(longest) bounds every score to come), or at its longest length.
* All of this looks at one sentence alone. A done sentence is dropped from the batch, so it costs nothing more.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decode.hypothesis import Found, Hypothesis, length_penalty
from regard.decode.rules import NEVER, Rules
from regard.decode.settings import DecodeConfig
from regard.models.contract import SequenceModel, State, take, take_beams
from regard.symbols import END, PAD, START


class Step(NamedTuple):
    """What one step of the search weighed: the C best continuations of each of the A sentences still open.

    A node of the search tree is (number, slot); its parent is (number - 1, parent). Where `slot` is -1 and `ended`
    is False, the candidate was pruned; candidates of log-probability -inf were never possible.
    """

    number: int  # 1 for the first token
    sentences: Tensor  # [A] rows of the batch
    parent: Tensor  # [A, C] the beam it continues
    token: Tensor  # [A, C]
    logprob: Tensor  # [A, C] of the token
    total: Tensor  # [A, C] of the hypothesis up to here
    score: Tensor  # [A, C] total / length penalty
    slot: Tensor  # [A, C] the beam it goes on as, or -1
    ended: Tensor  # [A, C] bool: finished here with END


class _Alive(NamedTuple):
    """The open sentences [A] and their hypotheses [A, K]; histories are rows [A * K], as the model sees them."""

    sentences: Tensor  # [A]
    limits: Tensor  # [A] longest length, END counted
    penalties: Tensor  # [A] lp(limit): no score to come exceeds total / penalty
    finished: Tensor  # [A, K] the best finished scores, -inf where there are fewer
    total: Tensor  # [A, K] log-probability, -inf for a beam that is not used
    tokens: Tensor  # [A * K, t]
    logprobs: Tensor  # [A * K, t]


class _Candidates(NamedTuple):
    """The C = 2K best continuations of each sentence, best first; at most K of them end, so K can go on."""

    total: Tensor  # [A, C]
    parent: Tensor  # [A, C]
    token: Tensor  # [A, C]
    logprob: Tensor  # [A, C]
    ended: Tensor  # [A, C] bool


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
    rules = Rules(config, prefixes, limits.device)
    found = Found(len(limits), config.length_penalty)
    alive = _begin(limits, config)
    token = torch.full_like(limits, START)  # [A * K]
    while len(alive.sentences):
        if stop is not None and stop():
            _collect_alive(found, alive, alive.total > NEVER, "stopped")
            break
        logits, state = model.step(token, state)
        candidates = _continue(logits, alive, rules, config.beam)
        after, rows, done = _advance(alive, candidates, config)
        if observe is not None:
            observe(_describe(alive, candidates, config))
        any_ended, any_done, moved = _ask(candidates.ended, done, rows != torch.arange(len(rows), device=rows.device))
        if any_ended:
            _collect_ended(found, alive, candidates)
        if any_done:
            _collect_done(found, alive, after, done, config)
            keep = (~done).nonzero().squeeze(1)  # [A]
            rows = rows.view(len(done), -1)[keep].flatten()
            after = _keep(after, keep)
            state = take(state, rows)
        elif len(rows) > len(token):
            state = take(state, rows)  # the first step: K rows of one
        elif moved:
            state = take_beams(state, rows)
        alive = after
        token = alive.tokens[:, -1]
    return found.ranked(config.nbest)


def _ask(*questions: Tensor) -> list[bool]:
    """Whether each is True anywhere; asked together, since every answer makes a GPU wait."""
    return torch.stack([question.any() for question in questions]).tolist()


def _begin(limits: Tensor, config: DecodeConfig) -> _Alive:
    B, device = len(limits), limits.device
    penalties = [length_penalty(limit, config.length_penalty) for limit in limits.tolist()]
    return _Alive(
        sentences=torch.arange(B, device=device),
        limits=limits,
        penalties=torch.tensor(penalties, device=device),
        finished=torch.full((B, config.beam), NEVER, device=device),
        total=torch.zeros(B, 1, device=device),
        tokens=torch.empty(B, 0, dtype=torch.long, device=device),
        logprobs=torch.empty(B, 0, device=device),
    )


def _continue(logits: Tensor, alive: _Alive, rules: Rules, beam: int) -> _Candidates:
    """Rank every continuation of every sentence: log P(hypothesis) + log P(token | hypothesis)."""
    A, beams = alive.total.shape
    logprobs = logits.float().log_softmax(-1)  # [A * K, V]
    broken = logprobs[:, END].isnan()  # [A * K]; one NaN, +inf or nothing but -inf turns the whole row into NaN
    rules.apply(logprobs, alive.tokens, alive.sentences)
    # One beam gives at most K words and END to the K best that go on, so its K + 1 best are enough.
    each, token = logprobs.topk(min(beam + 1, logprobs.shape[1]))  # [A * K, M]
    each.masked_fill_(broken[:, None], NEVER)
    M = each.shape[1]
    missing = max(0, 2 * beam - beams * M)
    each = F.pad(each.view(A, beams * M), (0, missing), value=NEVER)  # [A, K * M]
    token = F.pad(token.view(A, beams * M), (0, missing), value=PAD)  # [A, K * M]
    total = alive.total.repeat_interleave(M, dim=1)  # [A, K * M]
    total = each + F.pad(total, (0, missing), value=NEVER)  # [A, K * M]
    total, order = total.sort(dim=1, descending=True, stable=True)  # equal ones: the better beam first
    total, order = total[:, : 2 * beam], order[:, : 2 * beam]  # [A, C]
    token = token.gather(1, order)  # [A, C]
    ended = (token == END) & (total > NEVER)  # [A, C]
    ended[:, beam:] = False  # END must be among the K best
    parent = (order // M).clamp_(max=beams - 1)  # [A, C]
    return _Candidates(total, parent, token, each.gather(1, order), ended)


def _advance(alive: _Alive, candidates: _Candidates, config: DecodeConfig) -> tuple[_Alive, Tensor, Tensor]:
    """The K best that go on, the rows they come from [A * K], and which sentences are done [A]."""
    A, beams = alive.total.shape
    K, length = config.beam, alive.tokens.shape[1] + 1
    ongoing = candidates.total.masked_fill(candidates.token == END, NEVER)  # [A, C]
    total, chosen = ongoing.sort(dim=1, descending=True, stable=True)
    total, chosen = total[:, :K], chosen[:, :K]  # [A, K]
    first = torch.arange(0, A * beams, beams, device=total.device)[:, None]  # [A, 1]
    rows = (candidates.parent.gather(1, chosen) + first).flatten()  # [A * K]
    token = candidates.token.gather(1, chosen).view(-1, 1)  # [A * K, 1]
    each = candidates.logprob.gather(1, chosen).view(-1, 1)  # [A * K, 1]
    scores = candidates.total[:, :K] / length_penalty(length, config.length_penalty)  # [A, K]
    scores = scores.masked_fill(~candidates.ended[:, :K], NEVER)
    finished = torch.cat([alive.finished, scores], 1).sort(dim=1, descending=True).values[:, :K]  # [A, K]
    enough = finished[:, K - 1] > NEVER  # [A]
    hopeless = total[:, 0] / alive.penalties <= finished[:, config.nbest - 1]  # [A]; also where nothing is alive
    after = alive._replace(
        finished=finished,
        total=total,
        tokens=torch.cat([alive.tokens.index_select(0, rows), token], 1),
        logprobs=torch.cat([alive.logprobs.index_select(0, rows), each], 1),
    )
    return after, rows, enough | hopeless | (alive.limits <= length)


def _keep(alive: _Alive, keep: Tensor) -> _Alive:
    """The sentences asked for, with all their beams."""
    K = alive.total.shape[1]
    rows = (keep[:, None] * K + torch.arange(K, device=keep.device)).flatten()  # [A * K]
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
    sentence, place = candidates.ended.nonzero(as_tuple=True)  # [E]
    rows = sentence * alive.total.shape[1] + candidates.parent[sentence, place]  # [E]
    logprobs = torch.cat([alive.logprobs[rows], candidates.logprob[sentence, place][:, None]], 1)  # [E, t + 1]
    total = candidates.total[sentence, place]  # [E]
    found.add(alive.sentences[sentence], alive.tokens[rows], logprobs, total, "end")


def _collect_done(found: Found, before: _Alive, after: _Alive, done: Tensor, config: DecodeConfig) -> None:
    """Sentences that are done with too few finished hypotheses: cut at their longest, or with no token possible."""
    short = done & (after.finished[:, config.nbest - 1] == NEVER)  # [A]
    possible = after.total > NEVER  # [A, K]
    _collect_alive(found, after, possible & short[:, None], "length")
    broken = short & ~possible.any(1)  # [A]
    _collect_alive(found, before, broken[:, None] & (before.total > NEVER), "not finite")


def _collect_alive(
    found: Found, alive: _Alive, which: Tensor, ended: Literal["length", "not finite", "stopped"]
) -> None:
    sentence, beam = which.nonzero(as_tuple=True)  # [E]
    rows = sentence * which.shape[1] + beam  # [E]
    found.add(alive.sentences[sentence], alive.tokens[rows], alive.logprobs[rows], alive.total[which], ended)


def _describe(alive: _Alive, candidates: _Candidates, config: DecodeConfig) -> Step:
    total, parent, token, logprob, ended = candidates
    length = alive.tokens.shape[1] + 1
    going = (token != END) & (total > NEVER)  # [A, C]
    slot = going.long().cumsum(1) - 1  # [A, C]; the best K of those that do not end, in order
    slot = slot.masked_fill(~going | (slot >= config.beam), -1)
    score = total / length_penalty(length, config.length_penalty)
    return Step(length, alive.sentences, parent, token, logprob, total, score, slot, ended)
