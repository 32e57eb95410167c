"""Words that a translation must hold: beam search with dynamic beam allocation (Post and Vilar 2018).

Every hypothesis knows how many tokens of its terms it has written. At each step the next tokens of all terms are
candidates beside the likeliest words, the candidates are sorted into banks by the number of tokens of terms that they
have, and the K beams go round the banks, the fullest first: so hypotheses with and without a term are kept side by
side, and the model's own score decides where the term goes. A hypothesis may end when it has all terms.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decode.rules import NEVER
from regard.symbols import END, PAD

MOST = 1 << 20  # more tokens than all terms of a sentence have


class Term(NamedTuple):
    """Tokens that must be written in one run, and the steps (from 0) at which that run may begin."""

    ids: tuple[int, ...]
    first: int = 0
    last: int = 1 << 30
    open: bool = False  # whether the last token may be the beginning of a longer word


class Terms(NamedTuple):
    """What the translations of some sentences must hold."""

    each: Sequence[Sequence[Term]]  # of each sentence
    banned: Sequence[Collection[int]]  # tokens that a sentence may not have: what its terms replace
    joined: Collection[int]  # tokens that would make a longer word of a term; they never follow one

    def take(self, rows: Sequence[int]) -> "Terms":
        """The same for some sentences."""
        return Terms([self.each[row] for row in rows], [self.banned[row] for row in rows], self.joined)


class Wanted(NamedTuple):
    """The C terms of each of A sentences, and what each of K hypotheses has of them."""

    tokens: Tensor  # [A, C, L + 1], PAD behind the tokens of a term
    size: Tensor  # [A, C] tokens of a term; 0 where a sentence has fewer terms
    first: Tensor  # [A, C] steps
    last: Tensor  # [A, C]
    twins: Tensor  # [A, C, C] whether the second of the same term waits for the first
    banned: Tensor  # [A, B] tokens that are never written, PAD behind them
    open: Tensor  # [A, C]
    joined: Tensor  # [A, J] tokens that never follow a term that is not open
    ended: Tensor  # [A, K] whether the last token ended a term
    reached: Tensor  # [A, K, C] tokens of each term that the hypothesis ends with; all of them where it has the term


def want(terms: Terms, beams: int, device: torch.device) -> Wanted:
    """The terms of each sentence before the first step."""
    A = len(terms.each)
    C = max(1, max(map(len, terms.each), default=0))
    L = max((len(term.ids) for some in terms.each for term in some), default=0)
    each = [[*some, *[Term(())] * (C - len(some))] for some in terms.each]

    def table(numbers: list[list[int]], columns: int = C) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=device).view(A, columns, -1)

    tokens = table([[token for one in some for token in [*one.ids, *[PAD] * (L + 1 - len(one.ids))]] for some in each])
    size, first, last, may_grow = (
        table(numbers)[..., 0]
        for numbers in (
            [[len(one.ids) for one in some] for some in each],
            [[one.first for one in some] for some in each],
            [[one.last for one in some] for some in each],
            [[int(one.open) for one in some] for some in each],
        )
    )
    same = (tokens[:, :, None] == tokens[:, None]).all(-1) & (size > 0)[:, None]  # [A, C, C]
    most = max(map(len, terms.banned), default=0)
    banned = table([[*some, *[PAD] * (most + 1 - len(some))] for some in terms.banned], 1)[:, 0]
    joined = table([[PAD, *terms.joined]] * A, 1)[:, 0]
    reached = torch.zeros(A, beams, C, dtype=torch.long, device=device)
    return Wanted(tokens, size, first, last, same.tril(-1), banned, may_grow > 0, joined, reached[..., 0] > 0, reached)


def next_tokens(wanted: Wanted, length: Tensor) -> Tensor:
    """The token with which each term of each hypothesis begins or goes on; PAD where it is there or may not begin."""
    following = _at(wanted.tokens, wanted.reached)  # [A, K, C]
    return following.masked_fill(~((wanted.reached > 0) | _may_begin(wanted, length)), PAD)


def after_step(wanted: Wanted, parent: Tensor, reached: Tensor) -> Wanted:
    """The terms of hypotheses that go on from `parent` [A, K] with `reached` [A, K, C] of them."""
    before = wanted.reached.gather(1, parent[..., None].expand_as(reached))
    ended = ((reached == wanted.size[:, None]) & (before < reached) & ~wanted.open[:, None]).any(-1)  # [A, K]
    return wanted._replace(reached=reached, ended=ended)


def write_token(wanted: Wanted, parent: Tensor, token: Tensor, length: Tensor) -> Tensor:
    """What hypotheses have of the terms, [A, N, C], when `token` [A, N] is written behind their `parent` [A, N]."""
    C = wanted.size.shape[1]
    before = wanted._replace(reached=wanted.reached.gather(1, parent[..., None].expand(-1, -1, C)))
    begins = (token[..., None] == wanted.tokens[:, None, :, 0]) & _may_begin(before, length)  # [A, N, C]
    goes_on = token[..., None] == next_tokens(before, length)
    there = before.reached == wanted.size[:, None]
    return torch.where(there, before.reached, torch.where(goes_on, before.reached + 1, begins.long()))


def by_banks(total: Tensor, reached: Tensor) -> Tensor:
    """The order in which candidates [A, N], best first, take beams: the best of every bank, then the second best, ...

    Of each round the fullest bank is first. Candidates that cannot be come last.
    """
    bank, N = reached.sum(-1), total.shape[1]  # [A, N]
    together, order = bank.sort(dim=1, stable=True)
    place = torch.arange(N, device=bank.device) - torch.searchsorted(together, together)  # [A, N]; in its bank
    place = torch.empty_like(place).scatter_(1, order, place).masked_fill_(total == NEVER, N)
    return (place * MOST - bank).sort(dim=1, stable=True).indices


def forbid(logprobs: Tensor, wanted: Wanted, beams: int) -> None:
    """Give -inf, in place, in `logprobs` [A * k, V] to what terms replace, to what would make another word of a term
    that was just written, and to END where a term is missing."""
    logprobs.scatter_(1, wanted.banned.repeat_interleave(beams, 0), NEVER)
    follows = wanted.ended[:, :beams, None] & (wanted.joined != PAD)[:, None]  # [A, k, J]
    logprobs.scatter_(1, (wanted.joined[:, None] * follows).flatten(0, 1), NEVER)  # PAD is never written
    complete = (wanted.reached == wanted.size[:, None]).all(-1)  # [A, K]
    logprobs[:, END].masked_fill_(~complete[:, :beams].flatten(), NEVER)


def _may_begin(wanted: Wanted, length: Tensor) -> Tensor:
    """Whether a term is missing, its first token may come at this step, and no twin is missing before it: [A, N, C]."""
    missing = wanted.reached < wanted.size[:, None]  # [A, N, C]
    step = length[:, None]
    here = (wanted.first <= step) & (step <= wanted.last)  # [A, C]
    waits = (wanted.twins[:, None] & missing[:, :, None]).any(-1)  # [A, N, C]
    return missing & here[:, None] & ~waits


def _at(tokens: Tensor, reached: Tensor) -> Tensor:
    """tokens[a, c, reached[a, n, c]]: [A, N, C]; PAD behind the last."""
    N = reached.shape[1]
    return tokens[:, None].expand(-1, N, -1, -1).gather(3, reached[..., None])[..., 0]
