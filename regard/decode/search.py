"""A model into sentences: `decode` reads a batch and writes it, `search` goes on from any state."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.decode.beam import Step, beam_search
from regard.decode.coverage import Weigh, rank_by_coverage
from regard.decode.hypothesis import Hypothesis, rank
from regard.decode.path import follow
from regard.decode.sampling import Sampler, seed_for
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError
from regard.models.contract import SequenceModel, State, take

Prefixes = Sequence[Sequence[int]]


@torch.inference_mode()
def decode(
    model: SequenceModel,
    source: Tensor,
    lengths: Tensor,
    config: DecodeConfig,
    *,
    prefixes: Prefixes | None = None,
    weigh: Weigh | None = None,
    observe: Callable[[Step], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Hypothesis]]:
    """Translate `source` [B, S] with `lengths` [B]: the best hypotheses of each row, the best first.

    `prefixes` are ids that the translation of each row must begin with. `weigh` tells where a hypothesis looked
    and is needed for the coverage penalty. `observe` is shown every step of a beam search (its sentences number
    the rows that hold words); `stop` is asked before every step. A source of END alone gives the empty sentence.

    The model should be in eval mode: dropout would make search a lottery.
    """
    if config.coverage_penalty and weigh is None:
        raise ConfigError(
            "decode.coverage_penalty needs to know where the model looked; pass weigh=..., or set it to 0."
        )
    if prefixes is not None and len(prefixes) != len(source):
        raise DataError(f"Expected one prefix for each of the {len(source)} sentences; got {len(prefixes)}.")
    empty = [[Hypothesis([], 0.0, 0.0, "end", [0.0])] for _ in range(len(source))]
    rows = (lengths > 1).nonzero().squeeze(1)  # [B] those that hold more than END
    if not len(rows):
        return empty
    some = slice(None) if len(rows) == len(source) else rows
    chosen = rows.tolist()
    state = model.start(model.encode(source[some], lengths[some]))
    # The coverage penalty ranks all that was found, so all of it is asked for.
    wide = replace(config, nbest=max(config.nbest, config.beam)) if config.coverage_penalty else config
    found = search(
        model,
        state,
        longest(lengths[some], config),
        wide,
        prefixes=None if prefixes is None else [prefixes[row] for row in chosen],
        contents=_contents(source[some], lengths[some]) if config.temperature else None,
        observe=observe,
        stop=stop,
    )
    if config.coverage_penalty and weigh is not None:
        found = rank_by_coverage(found, weigh, lengths, rows, config.coverage_penalty)
    for row, hypotheses in zip(chosen, found, strict=True):
        empty[row] = hypotheses[: config.nbest]
    return empty


def search(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    *,
    prefixes: Prefixes | None = None,
    contents: Sequence[bytes] | None = None,
    observe: Callable[[Step], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Hypothesis]]:
    """Go on from `state`, whose rows are sentences, to at most `limits` [B] tokens each (END counted).

    Samples where the temperature is above 0, otherwise searches: greedily with one beam that nobody observes, else
    with beams. A row's samples are seeded by its `contents` (by its number where they are not given). A limit that
    leaves no room after a row's prefix is raised to one token more than the prefix.
    """
    if prefixes is not None:
        least = torch.tensor([len(prefix) + 1 for prefix in prefixes], device=limits.device)  # [B]
        limits = torch.maximum(limits, least)
    try:
        if config.temperature:
            return _sample(model, state, limits, config, prefixes, contents, stop)
        if config.beam == 1 and observe is None:
            return [[hypothesis] for hypothesis in follow(model, state, limits, config, prefixes=prefixes, stop=stop)]
        return beam_search(model, state, limits, config, prefixes=prefixes, observe=observe, stop=stop)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        many = f"{config.nbest} samples" if config.temperature else f"a beam of {config.beam}"
        raise ConfigError(
            f"There is not enough memory for {len(limits)} sentences at once with {many}; set a smaller "
            f"{'decode.nbest' if config.temperature else 'decode.beam'}, or give shorter sentences."
        ) from error


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a CPU or a GPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def longest(lengths: Tensor, config: DecodeConfig) -> Tensor:
    """The most tokens a translation may have, END counted: max_ratio * source words + max_extra. [B] -> [B]"""
    limits = [math.ceil(config.max_ratio * (length - 1)) + config.max_extra for length in lengths.tolist()]
    return torch.tensor(limits, device=lengths.device).clamp_(min=1)


def _sample(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    prefixes: Prefixes | None,
    contents: Sequence[bytes] | None,
    stop: Callable[[], bool] | None,
) -> list[list[Hypothesis]]:
    """`nbest` samples for each sentence, each in a row of its own, ranked by score."""
    n = config.nbest
    rows = torch.arange(len(limits), device=limits.device).repeat_interleave(n)  # [B * n]
    limits = limits[rows]
    contents = contents or [str(row).encode() for row in range(len(limits) // n)]
    seeds = [seed_for(content, config.seed, sample) for content in contents for sample in range(n)]
    prefixes = None if prefixes is None else [prefix for prefix in prefixes for _ in range(n)]
    choose = Sampler(config, seeds, limits)
    state = take(state, rows) if n > 1 else state
    drawn = follow(model, state, limits, config, choose, prefixes=prefixes, stop=stop)
    return [rank(drawn[first : first + n]) for first in range(0, len(drawn), n)]


def _contents(source: Tensor, lengths: Tensor) -> list[bytes]:
    """What each row holds, without its padding, as bytes."""
    rows = source.cpu()
    if source.dim() == 2:
        return [row[:length].numpy().tobytes() for row, length in zip(rows, lengths.tolist(), strict=True)]
    return [row.numpy().tobytes() for row in rows]
