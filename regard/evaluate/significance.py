"""The paired bootstrap test of two systems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import DataError
from regard.evaluate.scores import TITLES, build_metric, check_lines


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
            f"{self.metric} {self.a:.2f} - {self.b:.2f} = {self.delta:+.2f} "
            f"[{self.low:+.2f}, {self.high:+.2f}], p = {self.p:.4f} ({self.samples} samples)  {self.signature}"
        )


def paired_bootstrap(
    a: Sequence[str],
    b: Sequence[str],
    *references: Sequence[str],
    metric: str = "bleu",
    samples: int = 1000,
    seed: int = 12345,
    lowercase: bool = False,
    tokenize: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Comparison:
    """Score both systems on `samples` corpora, resampled from this one with replacement, the same for both.

    The p value is two-sided (Riezler and Maxwell, as in sacreBLEU): (1 + count) / (1 + samples), where count is the
    number of samples whose difference is at least as far from the mean difference as the observed one is from zero.
    """
    check_lines(a, references)
    check_lines(a, [b], "hypotheses of the other system")
    if samples < 1:
        raise DataError(f"The bootstrap needs at least one sample; got {samples}.")
    scorer = build_metric(metric, lowercase, tokenize)
    lines = [list(each) for each in references]
    # sacreBLEU's sufficient statistics of each sentence; a corpus score needs only their sum.
    counts = [np.asarray(scorer._extract_corpus_statistics(list(system), lines)) for system in (a, b)]  # [N, k] each
    score_a, score_b = (scorer._compute_score_from_stats(each.sum(0).tolist()).score for each in counts)
    signature = str(scorer.get_signature())
    generator = np.random.default_rng(seed)
    deltas = np.empty(samples)
    for number in range(samples):
        times = np.bincount(generator.integers(len(a), size=len(a)), minlength=len(a))  # [N]
        sums = [(times @ each).tolist() for each in counts]
        deltas[number] = np.subtract(*(scorer._compute_score_from_stats(each).score for each in sums))
        if progress:
            progress(number + 1, samples)
    delta = score_a - score_b
    extreme = np.abs(deltas - deltas.mean()) >= abs(delta)
    low, high = np.percentile(deltas, [2.5, 97.5]).tolist()
    p = float((1 + extreme.sum()) / (1 + samples))
    return Comparison(TITLES[metric], score_a, score_b, delta, low, high, p, samples, signature)
