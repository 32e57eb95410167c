"""Caption scores: BLEU-1 to BLEU-4 against several references, with and without the brevity penalty."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from regard.evaluate.scores import check_lines


class CaptionScore(NamedTuple):
    """BLEU-1 ... BLEU-4 in percent; `without_penalty` is the variant that Xu et al. (2015) report."""

    bleu: tuple[float, ...]
    without_penalty: tuple[float, ...]
    brevity_penalty: float
    signature: str

    def __str__(self) -> str:
        numbers = " / ".join(f"{value:.1f}" for value in self.bleu)
        bare = " / ".join(f"{value:.1f}" for value in self.without_penalty)
        return f"BLEU-1..4 {numbers} (without brevity penalty {bare}; BP {self.brevity_penalty:.3f})  {self.signature}"


def score_captions(written: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScore:
    """Score captions against the references of each picture, split at spaces.

    BLEU-n = BP exp(1/n sum_{k<=n} log p_k), p_k the clipped k-gram precision over the whole corpus. Pictures may have
    different numbers of references. An order without a match counts as zero.
    """
    from sacrebleu.metrics.bleu import BLEU

    most = max((len(some) for some in references), default=0)
    # sacreBLEU needs the same number of references everywhere; repeating one changes neither counts nor lengths
    columns = [[some[min(k, len(some) - 1)] for some in references] for k in range(most)]
    check_lines(written, columns)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)  # force: no warning about tokenised text
    result = metric.corpus_score(list(written), columns)
    precisions = [100 * count / max(1, total) for count, total in zip(result.counts, result.totals, strict=True)]
    bare = tuple(_mean(precisions[:order]) for order in range(1, 5))
    return CaptionScore(tuple(result.bp * value for value in bare), bare, result.bp, str(metric.get_signature()))


def _mean(precisions: Sequence[float]) -> float:
    """The geometric mean; zero if one value is."""
    if min(precisions) <= 0:
        return 0.0
    return math.exp(sum(math.log(value) for value in precisions) / len(precisions))
