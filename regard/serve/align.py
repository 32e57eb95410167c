"""Which words belong together, as code points of the two texts."""

from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request

from regard.look.pieces import Sentence
from regard.look.trace import Trace
from regard.look.words import Label, arrange
from regard.serve.house import House
from regard.serve.models import Look, TranslationModel
from regard.serve.text import Layout
from regard.serve.worker import Worker

Link = dict[str, Any]


async def links(
    house: House, request: Request, worker: Worker[TranslationModel], layout: Layout, results: list[Any]
) -> list[Link]:
    """For every word of the translation the source word that was looked at most:
    {"source": [start, end], "target": [start, end], "weight": w}, ends exclusive."""
    found: list[Link] = []
    places = layout.places([one.text for one in results])
    for sentence, start, result, place in zip(layout.sentences, layout.starts, results, places, strict=True):
        if not result.text:
            continue
        trace = await house.look(request, worker, sentence, partial(worker.model.trace, Look(sentence, result.text)))
        found += [_moved(link, start, place) for link in strongest(trace)]
    return found


def strongest(trace: Trace) -> list[Link]:
    """The strongest link of each target word; nothing for a model without attention to the source."""
    if not any(seen.kind == "cross" for seen in trace.attention.values()):
        return []
    table = arrange(trace)
    if not table.columns:
        return []
    best = np.argmax(table.weights, axis=1)  # [rows]
    return [
        {
            "source": _span(trace.source, table.columns[column]),
            "target": _span(trace.target, row),
            "weight": round(float(table.weights[number, column]), 4),
        }
        for number, (row, column) in enumerate(zip(table.rows, best, strict=True))
    ]


def _span(side: Sentence, label: Label) -> list[int]:
    return [side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end]


def _moved(link: Link, source: int, target: int) -> Link:
    return {
        "source": [at + source for at in link["source"]],
        "target": [at + target for at in link["target"]],
        "weight": link["weight"],
    }
