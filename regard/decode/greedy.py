"""One path for each row, with no beams: greedy search and sampling differ only in how a token is chosen."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decode.hypothesis import Ended, Hypothesis
from regard.decode.rules import apply_rules, padded
from regard.decode.settings import DecodeConfig
from regard.decode.steps import PLAIN, Advanced, SearchRequest, take_steps
from regard.models.contract import SequenceModel, State
from regard.symbols import END, PAD, START

# Log-probabilities [A, V], and a number in [0, 1) for each row [A, 1] where tokens are drawn -> tokens [A, 1].
Choose = Callable[[Tensor, Tensor | None, DecodeConfig], Tensor]


class GreedyState(NamedTuple):
    """What each of A rows wrote."""

    row: Tensor  # [A] of the batch
    limit: Tensor  # [A] longest length, END counted
    length: Tensor  # [A] tokens written so far
    done: Tensor  # [A]
    broken: Tensor  # [A] done because no token had a probability
    token: Tensor  # [A, 1] what the next step reads
    tokens: Tensor  # [A, T + 1]; those at and after `length` mean nothing
    logprobs: Tensor  # [A, T + 1]
    prefix: Tensor | None  # [A, P + 1]
    drawn: Tensor | None  # [A, T + 1] numbers in [0, 1) that choose the samples


def likeliest(logprobs: Tensor, drawn: Tensor | None, config: DecodeConfig) -> Tensor:
    """Greedy: the token of the highest probability, the first of equal ones. [A, V] -> [A, 1]"""
    return logprobs.max(dim=1, keepdim=True).indices


def draw(seeds: Sequence[int], limits: Tensor) -> Tensor:
    """The numbers in [0, 1) that choose the tokens of each row, [B, T].

    Each row has its own, drawn on the CPU from its own seed before the search, so a sample depends neither on the other
    rows of the batch nor on the device.
    """
    drawn = torch.zeros(len(seeds), int(limits.max()) if len(limits) else 0, dtype=torch.float64)
    for row, seed, limit in zip(drawn, seeds, limits.tolist(), strict=True):
        row[:limit] = torch.rand(limit, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn


def sample(logprobs: Tensor, drawn: Tensor | None, config: DecodeConfig) -> Tensor:
    """Draw from softmax(logprobs / temperature) [A, V], within the top k and the top p: the inverse of the cumulated
    probability at `drawn` [A, 1]. Returns tokens [A, 1]."""
    assert drawn is not None
    V = logprobs.shape[1]
    probabilities = (logprobs / config.temperature).softmax(1).double()  # [A, V]
    k = min(config.top_k or V, V)
    if k < V:
        probabilities, tokens = probabilities.topk(k)  # [A, k]
    elif config.top_p < 1:
        probabilities, tokens = probabilities.sort(dim=1, descending=True, stable=True)  # [A, V]
    else:
        tokens = torch.arange(k, device=logprobs.device).expand_as(probabilities)
    heights = probabilities.cumsum(1)  # [A, k]
    mass = heights[:, -1:]  # [A, 1]
    if config.top_p < 1:
        # The likeliest tokens that together reach p of what is left, the one that crosses it included.
        crossing = (heights < config.top_p * mass).sum(1, keepdim=True).clamp_(max=k - 1)  # [A, 1]
        mass = heights.gather(1, crossing)
    place = torch.searchsorted(heights, drawn * mass, right=True).clamp_(max=k - 1)  # [A, 1]
    return tokens.gather(1, place)


def seed_for(content: bytes, seed: int, sample: int) -> int:
    """A seed made of what is translated, the seed of the settings and the number of the sample."""
    digest = hashlib.blake2b(content, digest_size=8, key=f"{seed}:{sample}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


@torch.inference_mode()
def follow(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    choose: Choose = likeliest,
    drawn: Tensor | None = None,
    request: SearchRequest = PLAIN,
) -> list[Hypothesis]:
    """Write one token after another for each row of `state`, until END or the row's longest length `limits` [B]."""
    parts = (
        partial(begin, prefixes=request.prefixes, drawn=drawn),
        partial(advance, config=config, choose=choose),
        partial(hypotheses_of, config=config),
    )
    return take_steps(model, *parts, state, limits, request)


def begin(
    limits: Tensor, T: int, device: torch.device, prefixes: Sequence[Sequence[int]] | None, drawn: Tensor | None
) -> GreedyState:
    """Nothing written yet, and room for T tokens."""
    A, limits = len(limits), limits.to(device, non_blocking=True)  # the device may still read the source
    zeros = torch.zeros_like(limits)  # [A]
    never = zeros.bool()
    if drawn is not None:
        drawn = torch.nn.functional.pad(drawn, (0, T + 1 - drawn.shape[1])).to(device, non_blocking=True)
    return GreedyState(
        row=torch.arange(A, device=limits.device),
        limit=limits,
        length=zeros,
        done=never,
        broken=never,
        token=torch.full_like(limits, START)[:, None],
        tokens=zeros.new_full((A, T + 1), PAD),
        logprobs=torch.zeros(A, T + 1, device=limits.device),
        prefix=None if prefixes is None else padded(prefixes, limits.device),
        drawn=drawn,
    )


def advance(path: GreedyState, logits: Tensor, config: DecodeConfig, choose: Choose) -> Advanced[GreedyState]:
    """One token more for every row, given logits [A, V]; all rows stay where they are."""
    # One number that is not finite makes the whole row NaN.
    logprobs = logits.log_softmax(-1, dtype=torch.float32)  # [A, V]
    apply_rules(logprobs, config, path.length, path.tokens, path.prefix)
    at = path.length[:, None]  # [A, 1]
    token = choose(logprobs, None if path.drawn is None else path.drawn.gather(1, at), config)  # [A, 1]
    logprob = logprobs.gather(1, token)  # [A, 1]
    path.tokens.scatter_(1, at, token)
    path.logprobs.scatter_(1, at, logprob)
    finite = logprob.isfinite().squeeze(1)  # [A]
    length = path.length + (finite & ~path.done)
    return path._replace(
        length=length,
        done=path.done | ~finite | (token == END).squeeze(1) | (length >= path.limit),
        broken=path.broken | ~(finite | path.done),
        token=token,
    ), None


def hypotheses_of(path: GreedyState, config: DecodeConfig) -> list[Hypothesis]:
    """What each row wrote."""
    found = []
    tokens, logprobs = path.tokens.cpu().numpy(), path.logprobs.cpu().numpy()
    for a, (length, done, broken) in enumerate(
        zip(*(x.tolist() for x in (path.length, path.done, path.broken)), strict=True)
    ):
        ids, each = tokens[a, :length].tolist(), logprobs[a, :length].tolist()
        ended: Ended = "not finite" if broken else "length" if done else "stopped"
        if ids and ids[-1] == END:
            ids, ended = ids[:-1], "end"
        score = sum(each) / config.penalty(length)
        found.append(Hypothesis(ids, sum(each), score, ended, each))
    return found
