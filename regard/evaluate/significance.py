"""The bootstrap: the interval of a score, and the paired test of two systems or of two groups of seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, counted
from regard.evaluate.scores import TITLES, build_metric, check_lines
from regard.work import Progress, reporting

SAMPLES, SEED = 1000, 12345


@dataclass(frozen=True)
class Comparison:
    """System A against system B on the same sentences; `str(comparison)` is one line."""

    metric: str
    a: float
    b: float
    delta: float  # a - b
    low: float  # 95 % interval of the resampled differences
    high: float
    p: float  # probability of a difference this large by chance
    samples: int
    signature: str

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.a:.2f} - {self.b:.2f} = {self.delta:+.2f} [{self.low:+.2f}, {self.high:+.2f}], "
            f"p = {self.p:.4f} ({counted(self.samples, 'sample')})  {self.signature}"
        )


def statistics(scorer: Any, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
    """sacreBLEU's sufficient statistics of each sentence, [N, k]; a corpus score needs only their sum."""
    return np.asarray(scorer._extract_corpus_statistics(list(hypotheses), [list(references)]))


def interval(counts: NDArray[Any], score: Callable[[NDArray[Any]], float]) -> tuple[float, float]:
    """95 % interval of a score of the sums of `counts` [N, k] over `SAMPLES` corpora of N sentences, resampled from
    these with replacement."""
    size, generator = len(counts), np.random.default_rng(SEED)
    times = generator.multinomial(size, np.full(size, 1 / size), SAMPLES)  # [SAMPLES, N]
    low, high = np.percentile([score(sums) for sums in times @ counts], [2.5, 97.5]).tolist()
    return low, high


def bootstrap_interval(scorer: Any, hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """The `interval` of the corpus score."""
    counts = statistics(scorer, hypotheses, references)  # [N, k]
    return interval(counts, lambda sums: float(scorer._compute_score_from_stats(sums.tolist()).score))


def group_bootstrap(
    a: Sequence[Sequence[str]],
    b: Sequence[Sequence[str]],
    references: Sequence[str],
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """The paired bootstrap of two groups, each the translations of one system trained with one or several seeds.

    The score of a group is the mean BLEU over its seeds. Each of `SAMPLES` samples draws sentences with replacement,
    the same for all, and seeds within each group, so the interval covers both the choice of sentences and the variance
    of training. The p value is two-sided (Riezler and Maxwell, as in sacreBLEU): (1 + count) / (1 + SAMPLES), where
    count is the number of samples whose difference is at least as far from the mean difference as the observed one is
    from zero. `options` are those of `build_metric`.
    """
    if not a or not b:
        raise DataError("A group needs the translations of at least one seed; got none.")
    check_lines(a[0], [references])
    for system in (*a, *b):
        check_lines(a[0], [system], "lines of the other system")
    scorer = build_metric("bleu", **options)
    counts = [np.stack([statistics(scorer, system, references) for system in group]) for group in (a, b)]
    signature = str(scorer.get_signature())

    def score_seeds(sums: NDArray[Any]) -> NDArray[Any]:  # [seeds, k] -> [seeds]
        return np.array([scorer._compute_score_from_stats(seed.tolist()).score for seed in sums])

    score_a, score_b = (float(score_seeds(group.sum(1)).mean()) for group in counts)
    generator, size = np.random.default_rng(SEED), len(a[0])
    deltas = np.empty(SAMPLES)
    for number in reporting(range(SAMPLES), progress, SAMPLES):
        times = np.bincount(generator.integers(size, size=size), minlength=size)  # [N]
        scores = [score_seeds(times @ group) for group in counts]
        means = [group[generator.integers(len(group), size=len(group))].mean() for group in scores]
        deltas[number] = means[0] - means[1]
    delta = score_a - score_b
    extreme = np.abs(deltas - deltas.mean()) >= abs(delta)
    low, high = np.percentile(deltas, [2.5, 97.5]).tolist()
    p = float((1 + extreme.sum()) / (1 + SAMPLES))
    return Comparison(TITLES["bleu"], score_a, score_b, delta, low, high, p, SAMPLES, signature)
