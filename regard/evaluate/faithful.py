"""Faithfulness: does a model depend on the source words that an attribution ranks first?

Everything here is numbers: attributions [R, S] of target words to source words, and the log-probability of each target
word without sets of source words. `regard.api.faithful` computes them with a model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.evaluate.alignment import AlignmentScore, argmax_links, score_alignments, threshold_links
from regard.evaluate.by_length import COLOURS, DASHES, MARKERS, check_plot, save_plot
from regard.evaluate.significance import interval
from regard.text.pharaoh import Gold

Array = NDArray[Any]
Words = frozenset[int]  # source words, by their places
WORDS, PERCENT = (1, 2), (10, 20, 30, 40, 50)  # how many words are erased, and how many of a hundred, rounded up
LEVELS = (*map(str, WORDS), *(f"{share} %" for share in PERCENT))
THRESHOLDS = np.arange(1, 20) / 20  # of the share of a row that a link has at least
RANDOM, ORACLE = "random", "oracle"


class Estimate(NamedTuple):
    """A value with its 95 % bootstrap interval over sentences."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Estimate | None":
        """The mean of one value for each sentence; NaN is left out, and None if nothing is left."""
        known = np.array([value for value in values if not np.isnan(value)], dtype=np.float64)
        if not len(known):
            return None
        return cls(float(known.mean()), *interval(known[:, None], lambda sums: float(sums[0]) / len(known)))


def counts(size: int) -> list[int]:
    """The number of words at each of `LEVELS`, for a sentence of `size` words."""
    return [min(size, count) for count in (*WORDS, *(-(-share * size // 100) for share in PERCENT))]


def rank(values: Array, generator: np.random.Generator) -> list[int]:
    """The places of a row [S] in the order of its values, the largest first; equal ones in random order."""
    return np.lexsort((generator.random(len(values)), -values)).tolist()


def needed(order: Sequence[int]) -> set[Words]:
    """The sets of words to erase for the curves of an order: its first words, and all but these."""
    return {frozenset(part) for count in counts(len(order)) for part in (order[:count], order[count:])}


def subsets(size: int) -> list[Words]:
    """All sets of `size` words, the empty one first."""
    return [frozenset(some) for count in range(size + 1) for some in combinations(range(size), count)]


def curves(order: Sequence[int], logprobs: Mapping[Words, float]) -> Array:
    """Comprehensiveness p(y | x) - p(y | x without the first k words) and sufficiency p(y | x) - p(y | these alone) at
    each of `LEVELS`, [2, L] (DeYoung et al. 2020, eq. 1-2). Means over the levels are the areas over these curves.

    `logprobs` has log p(y) without each set of `needed` words, and without none.
    """
    whole, parts = np.exp(logprobs[frozenset()]), counts(len(order))
    left = [[logprobs[frozenset(some)] for some in (order[:count], order[count:])] for count in parts]
    return whole - np.exp(np.array(left, dtype=np.float64)).T


def best_curves(size: int, logprobs: Mapping[Words, float]) -> Array:
    """The same for the best set of words at each level, found among all `subsets`: no order is above the first curve or
    below the second."""
    whole, every = np.exp(logprobs[frozenset()]), range(size)
    least = [min(logprobs[frozenset(some)] for some in combinations(every, count)) for count in counts(size)]
    most = [max(logprobs[frozenset(some)] for some in combinations(every, size - count)) for count in counts(size)]
    return whole - np.exp(np.array([least, most], dtype=np.float64))


def kendall(found: Array, reference: Array) -> float:
    """Kendall's tau-b of two rows [S]: (concordant - discordant pairs) / sqrt(pairs without a tie in each).

    0 where `found` has only ties; NaN where `reference` has, which orders nothing.
    """
    upper = np.triu_indices(len(found), 1)
    a, b = (np.sign(row[:, None] - row[None])[upper] for row in (found, reference))
    if not b.any():
        return float("nan")
    return float(a @ b / np.sqrt((a @ a) * (b @ b))) if a.any() else 0.0


def similarity(found: Array, reference: Array) -> float:
    """The mean of `kendall` over the rows of two attributions [R, S]; NaN if no row has an order."""
    return mean(map(kendall, found, reference))


def mean(values: Iterable[float]) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def reach(areas: Sequence[Sequence[float]]) -> Estimate | None:
    """How far a method is on the way from a random order (0) to the oracle (1), by the areas [N, 3] of all three; None
    if no order is better than a random one.

    Sentences of which every order is as good, such as those of one word, are left out: they add nothing to either
    part, and a sample of them alone has no value.
    """
    table = np.array(areas, dtype=np.float64).reshape(-1, 3)
    table = table[table[:, 2] - table[:, 1] > 1e-12]

    def share(sums: Array) -> float:
        method, random, oracle = sums.tolist()
        return (method - random) / (oracle - random)

    return Estimate(share(table.sum(0)), *interval(table, share)) if len(table) else None


def align(attributions: Sequence[Array], gold: Sequence[Gold]) -> dict[str, Estimate]:
    """The alignment error rate of attributions [target words, source words]: "aer" of the largest value of each row,
    and "aer_threshold" of all pairs above a share of their row's positive values, which is chosen for the even lines on
    the odd ones, and the reverse."""
    shares = []
    for values in attributions:
        positive = values.clip(min=0)
        total = positive.sum(-1, keepdims=True)
        shares.append(np.divide(positive, total, out=np.zeros_like(positive), where=total > 0))

    def score(links: Iterable[Any]) -> Array:  # [N, 4]
        pairs = (score_alignments([found], [answer]) for found, answer in zip(links, gold, strict=True))
        return np.array([(one.found, one.sure, one.found_sure, one.found_possible) for one in pairs])

    def rate(sums: Array) -> float:
        return AlignmentScore(*sums.tolist()).aer

    first = score(map(argmax_links, shares))
    by_threshold = np.stack([score(threshold_links(one, least) for one in shares) for least in THRESHOLDS])  # [K, N, 4]
    chosen = np.empty_like(first)
    for fold in (0, 1):
        others = by_threshold[:, 1 - fold :: 2].sum(1)  # [K, 4]
        chosen[fold::2] = by_threshold[np.argmin([rate(sums) for sums in others]), fold::2]
    found = {"aer": first, "aer_threshold": chosen}
    return {name: Estimate(rate(table.sum(0)), *interval(table, rate)) for name, table in found.items()}


@dataclass(frozen=True)
class Faithful:
    """The measures of one method, or of `RANDOM` or `ORACLE`; None where one is not defined."""

    method: str
    comprehensiveness: Estimate | None  # the probability of a target word that its first words carry: more is better
    sufficiency: Estimate | None  # the probability that is lost if only they are left: less is better
    reach: Estimate | None = None  # comprehensiveness in short sentences: 0 is a random order, 1 the oracle
    correlation: Estimate | None = None  # with leaving out one word
    aer: Estimate | None = None
    aer_threshold: Estimate | None = None
    seconds: float | None = None  # for each sentence
    curves: Array = field(default_factory=lambda: np.zeros((2, 0)))  # [2, L]
    kept: Mapping[str, float] = field(default_factory=dict)  # part -> similarity once all up to it are randomised


@dataclass(frozen=True)
class Report:
    """Methods on the same sentences, `RANDOM` and `ORACLE` last."""

    sentences: int
    words: int  # target words whose probability was measured
    short: int  # sentences with an oracle
    erase: str
    methods: tuple[Faithful, ...]
    skipped: Mapping[str, str]  # methods that the model does not have, and why


def plot_faithful(report: Report, path: str | Path) -> Path:
    """Both curves, one line for each method; the ending of `path` selects PNG, SVG or PDF."""
    from matplotlib.figure import Figure

    path = check_plot(path)
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    places = np.insert(np.arange(len(LEVELS), dtype=float), len(WORDS), np.nan)  # no line from words to shares
    titles = "comprehensiveness (more is better)", "sufficiency (less is better)"
    for side, (axes, title) in enumerate(zip(figure.subplots(1, 2), titles, strict=True)):
        for number, one in enumerate(report.methods):
            look = {"color": "black" if one.method in (RANDOM, ORACLE) else COLOURS[number % len(COLOURS)]}
            look |= {"marker": MARKERS[number % len(MARKERS)], "linestyle": DASHES[number % len(DASHES)]}
            if one.curves.size and not (one.method == ORACLE and report.short < report.sentences):
                values = np.insert(one.curves[side], len(WORDS), np.nan)
                axes.plot(places, values, label=one.method if not side else None, **look)
        axes.set_xticks(range(len(LEVELS)), LEVELS)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("source words erased" if not side else "source words left")
        axes.grid(axis="y", alpha=0.3)
    figure.supylabel("probability of the target word that is lost", fontsize=9)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return save_plot(figure, path)
