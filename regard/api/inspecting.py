"""Inspect a trained translator: measures and importance of each head, gradient flow, and what-ifs given as text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from regard.api.aligning import align, check_gold, traces
from regard.api.links import Heads
from regard.api.tracing import check_words, tokens_of
from regard.api.translator import Translator, clean
from regard.errors import ConfigError, DataError, counted, numbered
from regard.evaluate.alignment import score_alignments
from regard.look.change import Importance, Mask, Silence, find, importance
from regard.look.flow import Flow, flow
from regard.look.measure import Report, report
from regard.look.record import attentions
from regard.look.table import Show, labels, leading_modules
from regard.look.text import label
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
    rates = {place: {"aer": score_alignments(found, gold or ()).aer} for place, found in links.items()}
    rows = (replace(row, values={**row.values, **rates.get((row.name, row.head), {})}) for row in measured.rows)
    return Report(tuple(rows), measured.sentences)


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


def silence(translator: Translator, place: str) -> Silence:
    """The what-if that silences LAYER.HEAD or LAYER of the attention over the source, from 0, or a module by name."""
    cross = find(translator.model, None)
    numbers = re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?", place)
    if numbers is None:
        return Silence(place)
    layer, head = int(numbers[1]), None if numbers[2] is None else int(numbers[2])
    if layer >= len(cross):
        have = numbered("layer", len(cross))
        raise ConfigError(f"There is no layer {layer} of attention over the source; this model has {have}.")
    return Silence(cross[layer], head)


def mask_word(translator: Translator, source: str, word: str) -> list[Mask]:
    """Mask all pieces of a source word, given by its text (every occurrence) or by its position from 0.

    A word is what a picture shows in one cell ("1992" of "1992.") or the text between two spaces ("1992.").
    """
    encoded = translator.encode(source)
    tokens = tokens_of(encoded, ended=False).tokens
    listed = encoded.text.split()
    for show in (Show(), Show(punctuation=False)):
        cells = [cell for cell in labels(encoded.text, tokens, show) if cell.text == clean(word)]
        if cells:
            return [Mask(at, word=cell.text) for cell in cells for at in cell.tokens]
    if not (word.isascii() and word.isdecimal() and int(word[:9]) < len(listed)):
        raise ConfigError(
            f"There is no word {label(word)!r} in the sentence; pass one of its {counted(len(listed), 'word')}, or its "
            "position, from 0."
        )
    return [Mask(at, word=listed[int(word)]) for at, group in enumerate(encoded.words) if group == int(word)]
