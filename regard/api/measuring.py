"""Measures of a trained translator over sentences: every head, the BLEU without it, and gradient flow."""

from collections.abc import Iterator, Sequence

import torch

from regard.api.aligning import align, check_gold, traces
from regard.api.heads import Heads
from regard.api.tracing import check_words
from regard.api.translator import Translator
from regard.errors import DataError
from regard.evaluate.alignment import score_alignments
from regard.look.change import Importance, importance
from regard.look.flow import Flow, flow
from regard.look.measure import Report, report
from regard.look.record import attentions
from regard.look.table import leading_modules
from regard.look.trace import Trace
from regard.symbols import END
from regard.text.pharaoh import Alignment, Gold
from regard.work import Progress


def report_heads(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[Gold] | None = None,
    progress: Progress | None = None,
) -> Report:
    """The measures of every head over pairs of sentences, the targets forced; with `gold` also "aer".

    The alignment error rate is that of the argmax of one head of attention over the source, with the model's own shift.
    """
    if gold is not None:
        check_gold(gold, sources, targets)
    links: dict[tuple[str, int | None], list[Alignment]] = {}

    def passing() -> Iterator[Trace]:
        for trace in traces(translator, sources, targets, progress, list(attentions(translator.model))):
            for seen in leading_modules(trace) if gold is not None else ():
                for head in range(seen.heads) if seen.kind == "cross" else ():
                    links.setdefault((seen.name, head), []).extend(align([trace], Heads(seen.layer, head)))
            yield trace

    measured = report(passing())
    measured.others = {place: {"aer": score_alignments(found, gold or ()).aer} for place, found in links.items()}
    return measured


def silence_heads(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    beam: int = 1,
    progress: Progress | None = None,
) -> list[Importance]:
    """Remove each head in turn and translate again: BLEU without it and the loss, the largest first."""
    if not sources or len(sources) != len(targets):
        raise DataError(f"Each source needs its target; got {len(sources)} and {len(targets)}.")

    def bleu() -> float:
        return float(translator.score(sources, targets, metrics=["bleu"], beam=beam)["bleu"])

    return importance(translator.model, bleu, progress)


def flow_of(translator: Translator, source: str, target: str | None = None) -> Flow:
    """The gradient flow of a sentence and `target`, by default its translation."""
    read = translator.encode(source)
    check_words(source, read)
    text = translator.translate(source, split=False).text if target is None else target
    written = translator.prefix_ids(text)
    ids = (torch.tensor([*row, END], device=translator.device) for row in (read.ids, written))
    return flow(translator.model, *ids)
