"""Any number of sentences into translations, in batches of like length, in the order they came."""

from collections.abc import Callable, Sequence

import torch

from regard.data.batching import pad
from regard.decode.hypothesis import Hypothesis
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.models.contract import SequenceModel
from regard.symbols import END

Tell = Callable[[int, int | None], None]


def decode_many(
    model: SequenceModel,
    rows: Sequence[Sequence[int]],
    config: DecodeConfig,
    device: torch.device,
    *,
    batch_tokens: int = 4096,
    prefixes: Sequence[Sequence[int]] | None = None,
    tell: Tell | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each row of source ids (without END), the row's place kept.

    A batch holds about `batch_tokens` source tokens, padding counted, over all its beams; long rows go first, so that
    memory is asked for at the start.
    """
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
    found: list[list[Hypothesis]] = [[] for _ in rows]
    done = 0
    while done < len(order):
        widest = len(rows[order[done]]) + 1
        some = order[done : done + max(1, batch_tokens // (widest * config.beam))]
        source, lengths = pad([[*rows[row], END] for row in some])
        chosen = None if prefixes is None else [prefixes[row] for row in some]
        results = decode(model, source.to(device), lengths.to(device), config, prefixes=chosen, stop=stop)
        for row, hypotheses in zip(some, results, strict=True):
            found[row] = hypotheses
        done += len(some)
        if tell:
            tell(done, len(order))
    return found
