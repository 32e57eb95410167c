"""Beam search over a batch, knowing only `step`: the K best beginnings of each sentence, one token longer each time.

The rules, which a plain search of one sentence at a time would give as well:

* The first step expands one beam; K equal beams would find the same words K times.
* `expand`: each step ranks all continuations of a sentence by log-probability.
* `select`: those of the K best that end with END are finished and leave the beam; the K best unfinished ones
  continue. Finished hypotheses are never expanded.
* A sentence is done when K hypotheses have finished (and, if `patient`, none alive scores better than the worst of
  them), when nothing alive could still beat the `nbest` best finished (a log-probability only falls, so alive /
  lp(longest) bounds every score to come), or at its longest length.
* With terms that a sentence must hold, the K beams are shared out by how many of them a hypothesis has (terms.py).
* Sentences do not affect each other. A sentence that is done stays as it is until it is dropped from the batch.

Everything is a tensor of a fixed size on the model's device, so that a step can be captured.
The hypotheses are a tree: the token, the log-probability and the parent of each slot of each step.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decode.hypothesis import Ended, Hypothesis
from regard.decode.rules import NEVER, apply_rules, banned, best, padded
from regard.decode.settings import DecodeConfig
from regard.decode.steps import PLAIN, Advanced, SearchRequest, is_host, take_steps
from regard.decode.terms import Wanted, after_step, by_banks, forbid, next_tokens, want, write_token
from regard.kernels.choose import beam_kernels
from regard.models.contract import SequenceModel, State
from regard.symbols import END, PAD, START

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Bools = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class SearchStep(NamedTuple):
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
    slot: Ints  # [A, C] the beam it continues as, or -1
    ended: Bools  # [A, C] finished here with END


class FinishedHypotheses(NamedTuple):
    """The K best finished hypotheses of each sentence, the best first; a score of -inf where there are fewer."""

    score: Tensor  # [A, K] total / length penalty
    total: Tensor  # [A, K] log-probability
    length: Tensor  # [A, K] END counted
    parent: Tensor  # [A, K] the slot that wrote END
    logprob: Tensor  # [A, K] of END


class BeamState(NamedTuple):
    """The K best hypotheses of each of A sentences; before the first step k may be 1."""

    row: Tensor  # [A] of the batch
    limit: Tensor  # [A] longest length, END counted
    bound: Tensor  # [A] lp(limit): no score to come exceeds total / bound
    penalties: Tensor  # [A, T + 1] lp of 1 to T + 1 tokens
    length: Tensor  # [A] tokens written so far
    done: Tensor  # [A]
    broken: Tensor  # [A] done because no token had a probability
    token: Tensor  # [A, k] what the next step reads
    total: Tensor  # [A, k] log-probability, -inf for a beam that is not used
    tokens: Tensor  # [A, T + 1, K] the tree; steps at and after `length` mean nothing
    parents: Tensor  # [A, T + 1, K]
    logprobs: Tensor  # [A, T + 1, K]
    written: Tensor | None  # [A, K, T + 1] what each hypothesis wrote, where repeats are banned
    prefix: Tensor | None  # [A, P + 1]
    wanted: Wanted | None  # terms that a hypothesis must have
    finished: FinishedHypotheses


class Candidates(NamedTuple):
    """The C = 2K best continuations of each sentence, best first; at most K of them end, so K can continue.

    Where a sentence must hold terms they are in the order of `terms.by_banks`.
    """

    total: Tensor  # [A, C]
    parent: Tensor  # [A, C]
    token: Tensor  # [A, C]
    logprob: Tensor  # [A, C]
    reached: Tensor | None = None  # [A, C, terms] what they have of the terms


@torch.inference_mode()
def beam_search(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    request: SearchRequest = PLAIN,
) -> list[list[Hypothesis]]:
    """The `config.nbest` best hypotheses for each row of `state`, none longer than `limits` [B] (END counted).

    Only hypotheses with all terms of their row end; where there is none, those that were cut are given.
    """
    parts = (
        partial(begin, config=config, request=request),
        partial(advance, config=config, observe=request.observe),
        partial(hypotheses_of, config=config),
    )
    return take_steps(model, *parts, state, limits, request)


def begin(limits: Tensor, T: int, device: torch.device, config: DecodeConfig, request: SearchRequest) -> BeamState:
    """Nothing written yet, and room for T tokens.

    Where steps are captured every one has K beams, of which the first step expands one.
    """
    A, K, k = len(limits), config.beam, 1 if is_host(device) else config.beam
    limits = limits.to(device, non_blocking=True)  # the device may still read the source
    none, no = limits.new_zeros(A, K), limits.new_zeros(A, dtype=torch.bool)  # [A, K], [A]
    never = limits.new_full((A, K), NEVER, dtype=torch.float64)
    lengths = torch.arange(1, T + 2, dtype=torch.float64, device=limits.device)  # [T + 1]
    return BeamState(
        row=torch.arange(A, device=limits.device),
        limit=limits,
        bound=config.penalty(limits.double()),
        penalties=config.penalty(lengths).expand(A, -1),
        length=limits.new_zeros(A),
        done=no,
        broken=no.clone(),
        token=limits.new_full((A, k), START),
        total=F.pad(limits.new_zeros(A, 1, dtype=torch.float64), (0, k - 1), value=NEVER),
        tokens=limits.new_full((A, T + 1, K), PAD),
        parents=limits.new_zeros(A, T + 1, K),
        logprobs=limits.new_zeros(A, T + 1, K, dtype=torch.float32),
        written=limits.new_full((A, K, T + 1), PAD) if config.no_repeat_ngram else None,
        prefix=None if request.prefixes is None else padded(request.prefixes, limits.device),
        wanted=None if request.terms is None else want(request.terms, K, limits.device),
        finished=FinishedHypotheses(never, never.clone(), none, none.clone(), none.float()),
    )


def advance(
    beam: BeamState, logits: Tensor, config: DecodeConfig, observe: Callable[[SearchStep], None] | None
) -> Advanced[BeamState]:
    """One token more for every sentence, given logits [A * k, V]; and the rows that the beams come from, [A * K]."""
    penalty = beam.penalties.gather(1, beam.length[:, None]).squeeze(1)  # [A]
    kernels = beam_kernels(
        logits, config.beam, observe is not None or beam.written is not None or beam.wanted is not None
    )
    if kernels and beam.prefix is None:
        M = min(config.beam + 1, logits.shape[1])
        each, token = kernels.likely(logits, beam.length, M, banned(config), config.min_length)
    else:
        each, token = continuations(beam, logits, config)
    if kernels:
        selected: Advanced[BeamState] = kernels.select(
            each, token, beam, penalty, config.beam, config.nbest, config.patient
        )
        return selected
    candidates = expand(beam, each, token, config.beam)
    if observe is not None:
        observe(describe(beam, candidates, config))
    return select(beam, candidates, penalty, config)


def continuations(beam: BeamState, logits: Tensor, config: DecodeConfig) -> tuple[Tensor, Tensor]:
    """The tokens that may continue each beam: log-probabilities [A * k, M] and tokens [A * k, M].

    One beam gives at most K words and END to the K best that continue, so its best K + 1 tokens are enough. A row with
    NaN, +inf or nothing but -inf has no likely token.
    """
    k = beam.total.shape[1]
    # One number that is not finite makes the whole row NaN.
    logprobs = logits.log_softmax(-1, dtype=torch.float32)  # [A * k, V]
    written = None if beam.written is None else beam.written[:, :k].flatten(0, 1)  # [A * k, T + 1]
    prefix = None if beam.prefix is None else beam.prefix.repeat_interleave(k, 0)  # [A * k, P + 1]
    apply_rules(logprobs, config, beam.length.repeat_interleave(k), written, prefix)
    M = min(config.beam + 1, logits.shape[1])
    if beam.wanted is None:
        return best(logprobs, M)
    forbid(logprobs, beam.wanted, k)
    return also_terms(beam, beam.wanted, logprobs, *best(logprobs, M))


def expand(beam: BeamState, each: Tensor, token: Tensor, K: int) -> Candidates:
    """Rank the continuations of every sentence: log P(hypothesis) + log P(token | hypothesis).

    each [A * k, M] are the log-probabilities of token [A * k, M].
    """
    (A, k), M = beam.total.shape, each.shape[1]
    each = torch.where(each.isnan(), NEVER, each).view(A, k * M)  # [A, k * M]
    sums = (each.view(A, k, M) + beam.total[..., None]).view(A, k * M)  # [A, k * M]
    token = token.view(A, k * M)
    missing = max(0, 2 * K - k * M)  # the first step, or a vocabulary smaller than the beam
    if missing:
        each, sums = F.pad(each, (0, missing), value=NEVER), F.pad(sums, (0, missing), value=NEVER)
        token = F.pad(token, (0, missing), value=PAD)
    sums, order = sums.sort(dim=1, descending=True, stable=True)  # of equal ones, the better beam first
    reached = None
    if beam.wanted is not None:
        parent = (order // M).clamp_(max=k - 1)
        reached = write_token(beam.wanted, parent, token.gather(1, order), beam.length)  # [A, k * M, terms]
        banks = by_banks(sums, reached)[:, : 2 * K]  # [A, C]
        order, sums = order.gather(1, banks), sums.gather(1, banks)
        reached = reached.gather(1, banks[..., None].expand(-1, -1, reached.shape[2]))
    order = order[:, : 2 * K]  # [A, C]
    parent = (order // M).clamp_(max=k - 1)
    return Candidates(sums[:, : 2 * K], parent, token.gather(1, order), each.gather(1, order), reached)


def also_terms(beam: BeamState, wanted: Wanted, logprobs: Tensor, each: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """The next token of every term beside the best ones of each beam, [A * k, M]; twice the same counts once."""
    k = beam.total.shape[1]
    more = next_tokens(wanted, beam.length)[:, :k].flatten(0, 1)  # [A * k, terms]
    earlier = (more[:, :, None] == more[:, None]).tril(-1).any(-1)  # [A * k, terms]
    there = (more[:, :, None] == token[:, None]).any(-1) | earlier | (more == PAD)
    return torch.cat([each, logprobs.gather(1, more).masked_fill(there, NEVER)], 1), torch.cat([token, more], 1)


def select(beam: BeamState, candidates: Candidates, penalty: Tensor, config: DecodeConfig) -> Advanced[BeamState]:
    """What ended among the K best joins the finished ones; the K best of the others continue.

    Also says which sentences are done. penalty [A] is that of one token more.
    """
    (A, k), K = beam.total.shape, config.beam
    ended = (candidates.token == END) & (candidates.total > NEVER)  # [A, C]
    score = torch.where(ended & ~beam.done[:, None], candidates.total / penalty[:, None], NEVER)[:, :K]  # [A, K]
    parent = candidates.parent[:, :K]
    length = (beam.length + 1)[:, None].expand_as(parent)
    ending = FinishedHypotheses(score, candidates.total[:, :K], length, parent, candidates.logprob[:, :K])
    both = FinishedHypotheses(*(torch.cat(pair, 1) for pair in zip(beam.finished, ending, strict=True)))  # [A, 2K]
    order = both.score.sort(dim=1, descending=True, stable=True).indices  # [A, 2K]; of equal ones, the first found
    finished = FinishedHypotheses(*(part.gather(1, order[:, :K]) for part in both))
    stays = (candidates.token == END) | (candidates.total == NEVER)  # [A, C]
    chosen = stays.byte().sort(dim=1, stable=True).indices[:, :K]  # [A, K]; those that continue, in order
    total, parent, token, logprob = (part.gather(1, chosen) for part in candidates[:4])  # [A, K]
    total = total.masked_fill(stays.gather(1, chosen), NEVER)
    at = beam.length[:, None, None].expand(A, 1, K)
    for part, new in ((beam.tokens, token), (beam.parents, parent), (beam.logprobs, logprob)):
        part.scatter_(1, at, new[:, None])
    written = beam.written
    if written is not None:
        written = written.gather(1, parent[..., None].expand_as(written)).scatter_(2, at.mT, token[..., None])
    wanted = beam.wanted
    if wanted is not None and candidates.reached is not None:
        terms = candidates.reached.shape[2]
        wanted = after_step(wanted, parent, candidates.reached.gather(1, chosen[..., None].expand(-1, -1, terms)))
    alive = total.amax(1)  # [A]; the first one, but for terms
    stuck = alive == NEVER  # [A]; every continuation ended, or none was possible
    frozen = beam.done | stuck  # [A]
    length = beam.length + ~frozen
    enough = finished.score[:, K - 1] > NEVER  # [A]
    if config.patient:
        enough &= alive / penalty <= finished.score[:, K - 1]
    hopeless = alive / beam.bound <= finished.score[:, config.nbest - 1]  # [A]; also where nothing is alive
    after = beam._replace(
        length=length,
        done=beam.done | enough | hopeless | (beam.limit <= beam.length + 1),
        broken=beam.broken | (stuck & ~beam.done),
        token=token,
        total=torch.where(frozen[:, None], F.pad(beam.total, (0, K - k), value=NEVER), total),
        written=written,
        wanted=wanted,
        finished=finished,
    )
    rows = parent + torch.arange(0, A * k, k, device=parent.device)[:, None]  # [A, K]
    return after, rows.flatten()


def hypotheses_of(beam: BeamState, config: DecodeConfig) -> list[list[Hypothesis]]:
    """The `nbest` best of each sentence: those that finished; where they are too few, also those that were cut."""
    n, parts = config.nbest, (beam.length, beam.done, beam.broken, beam.total, *beam.finished)
    length, done, broken, total, *finished = (part.cpu().numpy() for part in parts)
    ended = finished[0][:, :n] > NEVER  # [A, n]
    count = ended.sum(1)  # [A]
    # Where every hypothesis ended or broke: the best of those that broke, if none ended.
    wanted = np.where(broken, count == 0, n - count)  # [A]
    order = np.argsort(-total, axis=1, kind="stable")  # [A, K]
    cut = (np.arange(total.shape[1]) < wanted[:, None]) & (np.take_along_axis(total, order, 1) > NEVER)  # [A, K]
    _, totals, lengths, parents, last = (part[:, :n][ended] for part in finished)  # [those that ended] each
    at, place = cut.nonzero()  # [those that were cut] each
    slots = order[at, place]
    sentence = np.concatenate([ended.nonzero()[0], at])  # [N]
    total = np.concatenate([totals, total[at, slots]])
    written = np.concatenate([lengths - 1, length[at]])  # END not counted
    size = np.concatenate([lengths, length[at]])
    score = total / config.penalty(torch.from_numpy(size).double()).numpy()
    # Trace all hypotheses back, from their last nodes to the root.
    tokens, tree, logprobs = (part.cpu().numpy().ravel() for part in (beam.tokens, beam.parents, beam.logprobs))
    (_, T, K), slot = beam.tokens.shape, np.concatenate([parents, slots])  # [N]
    nodes = np.empty((int(written.max(initial=0)), len(sentence)), np.intp)
    for step in reversed(range(len(nodes))):
        nodes[step] = sentence * (T * K) + step * K + slot
        slot = np.where(step < written, tree.take(nodes[step]), slot)
    ids, each_logprob = tokens.take(nodes.T).tolist(), logprobs.take(nodes.T).tolist()
    reasons: list[Ended] = [
        "not finite" if b else "length" if d else "stopped" for b, d in zip(broken, done, strict=True)
    ]
    found: list[list[Hypothesis]] = [[] for _ in done]
    ends = last.tolist()
    columns = (part.tolist() for part in (sentence, written, total, score))
    for number, (a, some, logprob, value) in enumerate(zip(*columns, strict=True)):  # finished ones first, best first
        each = each_logprob[number][:some]
        if number < len(ends):
            each.append(ends[number])
        reason: Ended = "end" if number < len(ends) else reasons[a]
        found[a].append(Hypothesis(ids[number][:some], logprob, value, reason, each))
    return found


def describe(beam: BeamState, candidates: Candidates, config: DecodeConfig) -> SearchStep:
    """The step as `observe` sees it."""
    total, parent, token, logprob = (part.cpu().numpy() for part in candidates[:4])
    number = int(beam.length.max()) + 1
    going = (token != END) & (total > NEVER)  # [A, C]
    slot = going.cumsum(1) - 1  # [A, C]; the best K of those that do not end, in order
    slot = np.where(going & (slot < config.beam), slot, -1)
    ended = (token == END) & (total > NEVER) & (np.arange(token.shape[1]) < config.beam)
    score = total / config.penalty(number)
    return SearchStep(
        number, beam.row.cpu().numpy(), parent, token, logprob.astype(np.float64), total, score, slot, ended
    )
