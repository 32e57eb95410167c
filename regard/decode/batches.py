"""Any number of sentences into translations, in batches of like length, in the order they came."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.data.batching import pad
from regard.data.files import Progress
from regard.decode.beam import Step
from regard.decode.hypothesis import Hypothesis, Weigh
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.decode.terms import Terms
from regard.models.contract import SequenceModel
from regard.symbols import END

Weigher = Callable[[Tensor, Tensor], Weigh]


def decode_many(
    model: SequenceModel,
    rows: Sequence[Sequence[int]],
    config: DecodeConfig,
    device: torch.device,
    *,
    batch_tokens: int = 4096,
    prefixes: Sequence[Sequence[int]] | None = None,
    terms: Terms | None = None,
    weigher: Weigher | None = None,
    observe: Callable[[Step], None] | None = None,
    tell: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each row of source ids (without END), the row's place kept.

    `weigher(source, lengths)` gives the `weigh` of a batch, for the coverage penalty; `observe` sees the steps of each
    batch in turn. A batch holds about `batch_tokens` source tokens, padding counted, over all its beams (samples);
    long rows go first, so that a lack of memory shows at the start.
    """
    copies = config.nbest if config.temperature else config.beam
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
    found: list[list[Hypothesis]] = [[] for _ in rows]
    done = 0
    while done < len(order):
        widest = len(rows[order[done]]) + 1
        some = order[done : done + max(1, batch_tokens // (widest * copies))]
        source, lengths = pad([[*rows[row], END] for row in some])
        chosen = None if prefixes is None else [prefixes[row] for row in some]
        wanted = None if terms is None else terms.take(some)
        source, lengths = source.to(device), lengths.to(device)
        weigh = weigher(source, lengths) if weigher and config.coverage_penalty else None
        results = decode(
            model, source, lengths, config, prefixes=chosen, terms=wanted, weigh=weigh, observe=observe, stop=stop
        )
        for row, hypotheses in zip(some, results, strict=True):
            found[row] = hypotheses
        done += len(some)
        if tell:
            tell(done, len(order))
    return found
