"""A model into sentences: `decode_many` writes for any number of rows, `decode` for a batch, `search` from a state."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.nested import device_of
from regard.data.batching import pad
from regard.decode.beam import beam_search
from regard.decode.captured import captured_start
from regard.decode.greedy import draw, follow, sample, seed_for
from regard.decode.hypothesis import Hypothesis, Weigh, rank, rank_by_coverage
from regard.decode.settings import DecodeConfig
from regard.decode.steps import PLAIN, SearchRequest, is_host
from regard.errors import ConfigError, DataError, counted, out_of_memory
from regard.kernels.choose import steps_path
from regard.models.contract import SequenceModel, State, take
from regard.symbols import END, PAD
from regard.work import Progress

Weigher = Callable[[Tensor, Tensor], Weigh]


@torch.inference_mode()
def decode(
    model: SequenceModel,
    source: Tensor,
    lengths: Tensor,
    config: DecodeConfig,
    *,
    weigh: Weigh | None = None,
    request: SearchRequest = PLAIN,
) -> list[list[Hypothesis]]:
    """Translate `source` [B, S] with `lengths` [B], on any device: the best hypotheses of each row, the best first.

    `weigh` gives the attention weights of hypotheses, for the coverage penalty. The sentences of an observed step
    number the rows that hold words. A source of END alone gives the empty sentence.

    The model should be in eval mode: dropout would make search a lottery.
    """
    if config.coverage_penalty and weigh is None:
        raise ConfigError(
            "decode.coverage_penalty needs the attention weights of hypotheses; pass weigh=..., or set it to 0."
        )
    if request.prefixes is not None and len(request.prefixes) != len(source):
        raise DataError(f"Expected one prefix for each sentence, {len(source)} in all; got {len(request.prefixes)}.")
    end = 1 if source.dim() == 2 else 0  # a sentence ends with END, a picture has no such cell
    best: list[list[Hypothesis]] = []
    chosen: list[int] = []  # the rows that hold something to read
    longest: list[int] = []
    for row, length in enumerate(lengths.tolist()):  # on the host: once the model reads, this would wait
        best.append([Hypothesis([], 0.0, 0.0, "end", [0.0])])
        if length > end:
            chosen.append(row)
            longest.append(config.longest(length - 1))
    if not chosen:
        return best
    limits, lengths = torch.tensor(longest), lengths.to(source.device)  # [B] each
    if len(chosen) < len(best):
        source, lengths = source[chosen], lengths[chosen]
    if source.is_cuda and source.dim() == 2:  # few lengths, so that the same captured steps serve many sentences
        size = min(-(-source.shape[1] // 16) * 16, getattr(model, "longest", None) or sys.maxsize)
        source = F.pad(source, (0, max(0, size - source.shape[1])), value=PAD)
    with products(config.precision, source.device):
        if is_host(source.device) or steps_path(model, "cuda").name == "plain":
            state = model.start(model.encode(source, lengths))
        else:
            state = captured_start(model, source, lengths)
    # The coverage penalty ranks all that was found.
    wide = replace(config, nbest=max(config.nbest, config.beam)) if config.coverage_penalty else config
    contents = _contents(source, lengths) if config.temperature else None
    some = request if len(chosen) == len(best) else request.take(chosen)
    found = search(model, state, limits, wide, some, contents)
    if config.coverage_penalty and weigh is not None:
        found = rank_by_coverage(found, weigh, torch.tensor(chosen, device=source.device), config.coverage_penalty)
    for row, hypotheses in zip(chosen, found, strict=True):
        best[row] = hypotheses[: config.nbest]
    return best


def search(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    request: SearchRequest = PLAIN,
    contents: Sequence[bytes] | None = None,
) -> list[list[Hypothesis]]:
    """Continue from `state`, whose rows are sentences, to at most `limits` [B] tokens each (END counted), on the host.

    Samples where the temperature is above 0, otherwise searches: greedily with one beam that is not observed, else
    with beams. A row's samples are seeded by its `contents` (by its number where they are not given). A limit that
    leaves no room after a row's prefix is raised to one token more than the prefix; one beyond the most that the model
    can write (its `longest`, where it has one) is lowered to that.
    """
    most = getattr(model, "longest", None)
    if most is not None:
        limits = limits.clamp(max=most)
    if request.prefixes is not None:
        least = [len(prefix) + 1 for prefix in request.prefixes]
        if most is not None and max(least, default=0) > most:
            raise DataError(
                f"The model writes at most {most} tokens, END counted; got a prefix of {max(least) - 1}. "
                f"Shorten the prefix."
            )
        limits = torch.maximum(limits, torch.tensor(least))
    try:
        with products(config.precision, device_of(state)):
            if config.temperature:
                if request.terms is not None:
                    raise ConfigError("Terms are placed by a search; set decode.temperature to 0.")
                return _sample(model, state, limits, config, request, contents)
            if config.beam == 1 and request.observe is None and request.terms is None:
                return [[path] for path in follow(model, state, limits, config, request=request)]
            return beam_search(model, state, limits, config, request)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        many = counted(config.nbest, "sample") if config.temperature else f"a beam of {config.beam}"
        raise ConfigError(
            f"There is not enough memory for {counted(len(limits), 'sentence')} at once with {many}; set a smaller "
            f"{'decode.nbest' if config.temperature else 'decode.beam'}, or give shorter sentences."
        ) from error


def products(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Products in bfloat16 while the block runs, or in whatever precision is set already."""
    check_precision(precision, device)
    return nullcontext() if precision == "float32" else torch.autocast("cuda", torch.bfloat16)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that the device does not have."""
    if precision != "float32" and device.type != "cuda":
        raise ConfigError(f"decode.precision = '{precision}' needs a GPU; use float32 on a {device.type.upper()}.")


def _sample(
    model: SequenceModel,
    state: State,
    limits: Tensor,
    config: DecodeConfig,
    request: SearchRequest,
    contents: Sequence[bytes] | None,
) -> list[list[Hypothesis]]:
    """`nbest` samples for each sentence, each in a separate row, ranked by score."""
    n = config.nbest
    each = [row for row in range(len(limits)) for _ in range(n)]
    contents = contents or [str(row).encode() for row in range(len(limits))]
    limits = limits[each]  # [B * n]
    seeds = [seed_for(content, config.seed, number) for content in contents for number in range(n)]
    state = take(state, torch.tensor(each, device=device_of(state))) if n > 1 else state
    found = follow(model, state, limits, config, sample, draw(seeds, limits), request.take(each))
    return [rank(found[first : first + n]) for first in range(0, len(found), n)]


def _contents(source: Tensor, lengths: Tensor) -> list[bytes]:
    """What each row holds, without its padding, as bytes."""
    rows = source.cpu()
    if source.dim() == 2:
        return [row[:length].numpy().tobytes() for row, length in zip(rows, lengths.tolist(), strict=True)]
    return [row.numpy().tobytes() for row in rows]


def decode_many(
    model: SequenceModel,
    rows: Sequence[Sequence[int]],
    config: DecodeConfig,
    device: torch.device,
    *,
    batch_tokens: int = 4096,
    weigher: Weigher | None = None,
    progress: Progress | None = None,
    request: SearchRequest = PLAIN,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each row of source ids (without END), the row's place kept.

    `weigher(source, lengths)` gives the `weigh` of a batch, for the coverage penalty. The steps of each batch are
    observed in turn. A batch holds about `batch_tokens` source tokens, padding counted,
    over all its beams (samples); long rows go first, so that a lack of memory shows at the start.
    """
    found: dict[int, list[Hypothesis]] = {}
    copies = config.nbest if config.temperature else config.beam
    for some in by_length(rows, batch_tokens // copies):
        source, lengths = pad([[*rows[row], END] for row in some])
        source = source.to(device)
        weigh = weigher(source, lengths.to(device)) if weigher and config.coverage_penalty else None
        results = decode(model, source, lengths, config, weigh=weigh, request=request.take(some))
        found.update(zip(some, results, strict=True))
        if progress:
            progress(len(found), len(rows))
    return [found[row] for row in range(len(rows))]


def by_length(rows: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    """The numbers of rows in batches of like length, the longest first: at most `tokens` with END, padding counted."""
    lengths, done = list(map(len, rows)), 0
    order = sorted(range(len(rows)), key=lengths.__getitem__, reverse=True)
    while done < len(order):
        some = order[done : done + max(1, tokens // (lengths[order[done]] + 1))]
        yield some
        done += len(some)
