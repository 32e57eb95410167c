"""Word alignments from attention: the source word of each target word, and the error rate of such links."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.api.drafts import lower
from regard.api.heads import CHOICE, Heads, is_fixed, read_together
from regard.api.loading import build_outline, read_experiment
from regard.api.terms import Termbase, link_terms
from regard.api.tracing import LONGEST_LOOK, assemble, check_length, tokens_of
from regard.api.translator import Translator
from regard.decode.hypothesis import Weigh
from regard.errors import DataError, RunError, check_known, counted
from regard.evaluate import alignment
from regard.files.segment import Link, Sentence
from regard.look.change import find
from regard.look.record import record
from regard.look.table import Label, Table, arrange, choose, leading_modules
from regard.look.tokens import Side
from regard.look.trace import Trace
from regard.models.contract import attentions_to_source, guided_head, guided_module
from regard.runs.included import shipped_name
from regard.text.pharaoh import Alignment, Gold
from regard.text.sentences import Span, split_words
from regard.work import Progress, reporting

AT_ONCE = 64  # pairs whose traces are held together

MEAN = "mean"  # joins two directions by their weights instead of their links
METHODS: dict[str, Callable[[Any, float], Alignment]] = {  # of weights, and the least weight of a link
    "argmax": lambda weights, least: alignment.argmax_links(weights),
    "mutual": lambda weights, least: alignment.mutual_argmax_links(weights),
    "threshold": alignment.threshold_links,
}


def check_attends(run: str | Path) -> None:
    """Refuse a model with one vector for the whole source, whose weights do not align words."""
    if is_fixed(build_outline(run)):
        raise RunError(
            f"{shipped_name(Path(run)) or run} has no attention to words (model {read_experiment(run).name}); use "
            "a run of another model, such as bahdanau, luong or transformer."
        )


def traces(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    progress: Progress | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[Trace]:
    """The traces of given translations, in order; pairs without words are refused. See `trace_pairs`."""
    check_pairs(sources, targets)
    yield from reporting(
        trace_pairs(translator, list(zip(sources, targets, strict=True)), names), progress, len(sources)
    )


def trace_pairs(
    translator: Translator, pairs: Sequence[tuple[str, str]], names: Sequence[str] | None = None
) -> Iterator[Trace]:
    """The traces of sentences and their translations, in order, computed a few at a time since they are large: only the
    weights of the modules `names`, by default those of the attention over the source."""
    translator.needs_one_model("look inside")
    names = find(translator.model, None) if names is None else names
    for start in range(0, len(pairs), AT_ONCE):
        some = pairs[start : start + AT_ONCE]
        encoded = [translator.encode(source) for source, _ in some]
        written = [translator.prefix_ids(target) for _, target in some]
        for ids in (*(read.ids for read in encoded), *written):
            check_length(ids)
        found: dict[int, Trace] = {}
        for places, *batch in read_together([read.ids for read in encoded], written, translator.device):
            with torch.inference_mode(), record(translator.model, names) as seen:
                translator.model(*batch)
            for row, place in enumerate(places):
                texts = encoded[place], translator.target_vocabulary.tokenised(written[place])
                source, target = (tokens_of(text, ended=True) for text in texts)
                found[place] = assemble(
                    translator.model, seen, source, target, row, about=translator.about, weights_alone=True
                )
        yield from (found[place] for place in range(len(some)))


def check_pairs(sources: Sequence[str], targets: Sequence[str], places: Iterable[int] | None = None) -> None:
    """Refuse pairs without words: all, or those at `places`."""
    if len(sources) != len(targets):
        raise DataError(f"Each source needs its target; got {len(sources)} and {len(targets)}.")
    if not sources:
        raise DataError("There is no pair to read: the files are empty.")
    for place in range(len(sources)) if places is None else places:
        if not all(side.split() for side in (sources[place], targets[place])):
            raise DataError(f"Pair {place + 1} has an empty side; give words on both sides, or leave the pair out.")


def check_gold(gold: Sequence[Gold], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse gold links that do not belong to these pairs: another number of lines, words that do not exist, or no link
    at all."""
    if len(gold) != len(sources):
        found = f"{counted(len(sources), 'pair')} and {counted(len(gold), 'line')}"
        raise DataError(f"Each pair needs a line of gold links; got {found}.")
    if not any(answer.possible for answer in gold):
        raise DataError("The gold file has no links, so there is nothing to compare with; leave it out.")
    for number, (answer, source, target) in enumerate(zip(gold, sources, targets, strict=False), 1):
        sizes = len(source.split()), len(target.split())
        for i, j in sorted(answer.possible):
            if i >= sizes[0] or j >= sizes[1]:
                raise DataError(
                    f"The gold links of pair {number} name words {i + 1}-{j + 1}, but it has "
                    f"{counted(sizes[0], 'source word')} and {counted(sizes[1], 'target word')}; do the files belong "
                    f"together?"
                )


def weigh(seen: Iterable[Trace], heads: Heads, text: Sequence[NDArray[Any]] | None = None) -> list[NDArray[Any]]:
    """[target words, source words] of each trace; with the weights of `expect_links`, the mean of both."""
    weights = [word_weights(trace, heads) for trace in seen]
    return weights if text is None else means(weights, text)


def means(ahead: Iterable[NDArray[Any]], other: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """The mean of two sets of weights, pair by pair."""
    pairs = list(zip(ahead, other, strict=True))
    for number, (first, second) in enumerate(pairs, start=1):
        if first.shape != second.shape:
            raise DataError(
                f"Pair {number} has other words once the model has read it: {first.shape[1]} source and "
                f"{first.shape[0]} target words against {second.shape[1]} and {second.shape[0]}. Leave it out, or "
                f"separate words by spaces."
            )
    return [(first + second) / 2 for first, second in pairs]


@dataclass(frozen=True)
class Linking:
    """How weights become links. Unknown values are refused here, before any work is done."""

    method: str = "argmax"
    threshold: float = 0.3  # smallest weight of a link, for the method "threshold"
    join: str = "grow-diag"  # of two directions: one of `alignment.SYMMETRISATIONS`, or `MEAN`

    def __post_init__(self) -> None:
        check_known("method", self.method, METHODS, error=DataError)
        check_known("join", self.join, (MEAN, *alignment.SYMMETRISATIONS), error=DataError)
        if not 0 <= self.threshold <= 1:
            raise DataError(f"threshold must be between 0 and 1; got {self.threshold}.")


ARGMAX = Linking()


def link(
    ahead: Iterable[NDArray[Any]], behind: Iterable[NDArray[Any]] | None = None, how: Linking = ARGMAX
) -> list[Alignment]:
    """(source word, target word) links of each pair, from 0, from its weights [target words, source words].

    `behind` are the weights of a model of the other direction, [source words, target words]. The links of both
    directions are joined; with `MEAN`, links are found in the mean of the weights.
    """
    find, least = METHODS[how.method], how.threshold
    if behind is None or how.join == MEAN:
        both = ahead if behind is None else means(ahead, (weights.T for weights in behind))
        return [find(weights, least) for weights in both]
    links = ((find(there, least), reverse(find(back, least))) for there, back in zip(ahead, behind, strict=True))
    return [alignment.symmetrise(*pair, how.join) for pair in links]


def align(seen: Iterable[Trace], heads: Heads) -> list[Alignment]:
    """(source word, target word) links of each trace by the argmax of its weights, from 0."""
    return link(weigh(seen, heads))


def traceable(translator: Translator, pairs: Sequence[tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """The pairs with words on both sides that are not too long to trace, by their indices."""

    def fits(text: str, encode_many: Callable[[list[str]], list[list[int]]]) -> bool:
        short = len(text.encode("utf-8", "replace")) <= LONGEST_LOOK  # a token has at least one byte
        return bool(text.split()) and (short or len(encode_many([text])[0]) <= LONGEST_LOOK)

    sides = translator.source_vocabulary.encode_many, translator.target_vocabulary.encode_many
    return {place: pair for place, pair in enumerate(pairs) if all(map(fits, pair, sides))}


def weigh_pairs(translator: Translator, pairs: Sequence[tuple[str, str]], heads: Heads = CHOICE) -> list[NDArray[Any]]:
    """The weights of each pair; zeros where it cannot be traced. `heads` replace the choice of the run."""
    fit = traceable(translator, pairs)
    seen = trace_pairs(translator, list(fit.values()))
    weights = dict(zip(fit, weigh(seen, translator.heads.override(heads)), strict=True))
    return [
        weights[place] if place in weights else np.zeros((len(target.split()), len(source.split())), np.float32)
        for place, (source, target) in enumerate(pairs)
    ]


def align_pair(translator: Translator, source: str, target: str) -> list[tuple[int, int]]:
    """`Translator.align`."""
    translator.needs_one_model("align words")
    if is_fixed(translator.model):
        raise DataError(
            f"{translator.name} has no attention to words; use another model, such as bahdanau or transformer."
        )
    if not traceable(translator, [(source, target)]):
        raise DataError("An alignment needs words on both sides, and no more than can be traced at once.")
    [links] = align(trace_pairs(translator, [(source, target)]), translator.heads)
    return sorted(links)


def candidates(trace: Trace) -> list[Heads]:
    """All choices for the alignment: each layer's mean and each head, with and without the shift."""
    return [
        Heads(seen.layer, head, shift)
        for seen in leading_modules(trace)
        for head in (None, *(range(seen.heads) if seen.heads > 1 else ()))
        for shift in (0, 1)
    ]


def choose_by_gold(seen: Sequence[Trace], gold: Sequence[Gold]) -> tuple[Heads, dict[Heads, float]]:
    """The choice with the lowest alignment error rate on a small gold set, and the rates of all."""
    rates = {heads: alignment.score_alignments(align(seen, heads), gold).aer for heads in candidates(seen[0])}
    return min(rates, key=lambda heads: rates[heads]), rates


def choose_by_agreement(seen: Sequence[Trace], back: Sequence[Trace]) -> tuple[Heads, Heads]:
    """Without gold: the choices of both directions whose links agree most, by twice the shared links over all links."""
    ahead = {heads: align(seen, heads) for heads in candidates(seen[0])}
    behind = {heads: [reverse(links) for links in align(back, heads)] for heads in candidates(back[0])}

    def agreement(pair: tuple[Heads, Heads]) -> float:
        links = list(zip(ahead[pair[0]], behind[pair[1]], strict=True))
        shared, total = sum(len(a & b) for a, b in links), sum(len(a) + len(b) for a, b in links)
        return 2 * shared / max(1, total)

    return max(((a, b) for a in ahead for b in behind), key=agreement)


def reverse(links: Alignment) -> Alignment:
    """The links of the other direction: (target, source) as (source, target)."""
    return frozenset((target, source) for source, target in links)


# --- the weights of given ids


def weigh_ids(
    model: Any, heads: Heads, sources: Sequence[list[int]], targets: Sequence[list[int]], device: torch.device
) -> list[NDArray[np.float32]]:
    """The weights [T, S] with which each word of a translation attended to its source, by `heads`, END included in
    both; zeros where the model has one vector for the whole source."""
    name = guided_module(model, -2 if heads.layer is None else heads.layer)
    shift = model.attention_layout.shift if heads.shift is None else heads.shift
    found: dict[int, NDArray[np.float32]] = {}
    for places, read, lengths, written in read_together(sources, targets, device):
        with torch.inference_mode(), record(model, [name]) as seen:
            model(read, lengths, written)
        weights = guided_head(seen[name].weights, -1 if heads.head is None else heads.head)  # [B, T, S]
        for row, place in zip(weights.float().cpu().numpy(), places, strict=True):
            T, S = len(targets[place]) + 1, len(sources[place]) + 1
            shifted = np.concatenate([row[shift:T, :S], row[T - shift : T, :S]])
            found[place] = shifted if shifted.shape == (T, S) else np.zeros((T, S), np.float32)
    return [found[place] for place in range(len(sources))]


def weigher(model: Any, source: Tensor, lengths: Tensor) -> Weigh:
    """For the coverage penalty: the mean weights [N, T, S] with which rows of a batch attended to their source, and
    which of its positions the model can attend to [N, S]."""

    def weigh(rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        with record(model) as seen:
            model(source[rows], lengths[rows], target)
        calls = [seen[name] for name in attentions_to_source(model)]
        weights = [call.weights.mean(1) if call.weights.dim() == 4 else call.weights for call in calls]
        visible = [(call.scores > -torch.inf).flatten(1, -2).any(1) for call in calls]  # [N, S]
        return torch.stack(weights).mean(0), torch.stack(visible).any(0)

    return weigh


# --- the weights and links of a trace


def tabulate(trace: Trace, heads: Heads, **options: Any) -> Table:
    """The weights of these heads as a table of words."""
    head = "mean" if heads.head is None else heads.head
    return arrange(trace, layer=heads.layer, head=head, shift=heads.shift, **options)


def word_weights(trace: Trace, heads: Heads) -> NDArray[np.float32]:
    """[target words, source words]: pieces merged, special tokens left out, words split at white space."""
    table = tabulate(trace, heads, punctuation=False)
    sizes = len(trace.target.text.split()), len(trace.source.text.split())
    sides = (trace.target, table.rows, sizes[0]), (trace.source, table.columns, sizes[1])
    rows, columns = (  # the word of each label; -1 where it belongs to none
        np.array([-1 if word is None or word >= size else word for word in words], dtype=np.int64)
        for words, size in (([side.tokens[cell.tokens[0]].word for cell in cells], size) for side, cells, size in sides)
    )
    weights = np.zeros(sizes, dtype=np.float32)
    np.add.at(weights, np.ix_(rows[rows >= 0], columns[columns >= 0]), table.weights[np.ix_(rows >= 0, columns >= 0)])
    return weights


def mark_aligning(trace: Trace, heads: Heads) -> Trace:
    """The trace with the choice of its run marked: these weights are drawn by default, with their shift."""
    if heads == Heads() or not _attends(trace):
        return trace
    seen = choose(trace, heads.layer)
    if heads.head is None:
        seen = replace(seen, aligning="mean", shift=seen.shift if heads.shift is None else heads.shift)
    else:
        seen = replace(seen, aligning=heads.head, shifted_heads=(heads.head,) if heads.shift else ())
    return replace(trace, attention={**trace.attention, seen.name: seen})


def link_words(
    translator: Translator, sources: Sequence[str], targets: Sequence[str], terms: Termbase | None
) -> list[Sentence]:
    """`Translator.link_words`."""
    pairs = list(zip(sources, targets, strict=True))
    # As they were read and written, before the translation was written in capitals.
    pairs = [(lower(a), lower(b)) if a.isupper() and b.isupper() else (a, b) for a, b in pairs]
    linked = [_diagonal(*pair) for pair in pairs]
    fit = traceable(translator, pairs) if translator.attends else {}
    for place, trace in zip(fit, trace_pairs(translator, list(fit.values())) if fit else (), strict=True):
        linked[place] = _links(trace, translator.heads) or linked[place]
    if terms:
        linked = [link_terms(terms, *pair, words) for pair, words in zip(pairs, linked, strict=True)]
    return [Sentence(target, words) for target, words in zip(targets, linked, strict=True)]


def _attends(trace: Trace) -> bool:
    return any(seen.kind == "cross" for seen in trace.attention.values())


def _links(trace: Trace, heads: Heads) -> tuple[Link, ...]:
    """The source word with the largest weight for each target word; nothing for a model without cross-attention."""
    table = tabulate(trace, heads) if _attends(trace) else None
    if table is None or all(row.special for row in table.rows) or not table.columns:
        return ()
    best = np.argmax(table.weights, axis=1)  # [rows]
    return tuple(
        Link(_span(trace.source, table.columns[column]), _span(trace.target, row), round(float(weights[column]), 4))
        for row, weights, column in zip(table.rows, table.weights, best, strict=True)
    )


def _diagonal(source: str, target: str) -> tuple[Link, ...]:
    """Word j of T is linked with word j * S / T."""
    read, wrote = (split_words(text, (0, len(text))) for text in (source, target))
    return tuple(Link(read[at * len(read) // len(wrote)], span) for at, span in enumerate(wrote)) if read else ()


def _span(side: Side, label: Label) -> Span:
    return side.tokens[label.tokens[0]].start, side.tokens[label.tokens[-1]].end
