"""Word alignments from attention: the source word of each target word, and the error rate of such links."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.api.heads import CHOICE, Heads, is_fixed, word_weights
from regard.api.loading import build_outline, read_experiment
from regard.api.translator import Translator
from regard.errors import DataError, RunError, check_known, counted
from regard.evaluate import alignment
from regard.look.table import leading_modules
from regard.look.trace import Trace
from regard.runs.included import shipped_name
from regard.text.pharaoh import Alignment, Gold
from regard.work import Progress, reporting

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
    """One trace for each pair, as `Translator.trace_pairs` gives them; pairs without words are refused."""
    check_pairs(sources, targets)
    yield from reporting(translator.trace_pairs(sources, targets, names), progress, len(sources))


def check_pairs(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse pairs without words."""
    if len(sources) != len(targets):
        raise DataError(f"Each source needs its target; got {len(sources)} and {len(targets)}.")
    if not sources:
        raise DataError("There is no pair to read: the files are empty.")
    for number, pair in enumerate(zip(sources, targets, strict=True), 1):
        if not all(side.split() for side in pair):
            raise DataError(f"Pair {number} has an empty side; an alignment needs words on both sides.")


def check_gold(gold: Sequence[Gold], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse gold links that do not belong to these pairs: another number of lines, or words that do not exist."""
    if len(gold) != len(sources):
        found = f"{counted(len(sources), 'pair')} and {counted(len(gold), 'line')}"
        raise DataError(f"Each pair needs a line of gold links; got {found}.")
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
    return {place: pair for place, pair in enumerate(pairs) if translator.can_trace(*pair)}


def weigh_pairs(translator: Translator, pairs: Sequence[tuple[str, str]], heads: Heads = CHOICE) -> list[NDArray[Any]]:
    """The weights of each pair; zeros where it cannot be traced. `heads` replace the choice of the run."""
    fit = traceable(translator, pairs)
    seen = translator.trace_pairs([source for source, _ in fit.values()], [target for _, target in fit.values()])
    weights = dict(zip(fit, weigh(seen, translator.heads.override(heads)), strict=True))
    return [
        weights[place] if place in weights else np.zeros((len(target.split()), len(source.split())), np.float32)
        for place, (source, target) in enumerate(pairs)
    ]


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
