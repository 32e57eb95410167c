"""BLEU, chrF and TER by sacreBLEU, each with its signature; BLEU-1 to BLEU-4 of captions; perplexity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.errors import DataError, check_known, unknown

TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
METRICS = tuple(TITLES)
_TER_LIMIT = 3e7  # cubed lengths, summed: about a minute


@dataclass(frozen=True)
class Score:
    """A score with the sacreBLEU signature of how it was computed."""

    name: str
    value: float
    signature: str
    # BLEU: `precisions` of n-grams, `brevity_penalty`, `length` and `reference` length
    parts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        details = ""
        if self.parts:
            precisions = "/".join(f"{precision:.1f}" for precision in self.parts["precisions"])
            penalty, length, reference = (self.parts[name] for name in ("brevity_penalty", "length", "reference"))
            details = f" {precisions} (BP {penalty:.3f}, length {length}, reference {reference})"
        return f"{self.name} {self.value:.2f}{details}  {self.signature}"


@dataclass(frozen=True)
class ScoreReport:
    """The scores of one system on one corpus; `str(report)` is one line per score, with its signature."""

    scores: tuple[Score, ...]
    sentences: int

    def __getitem__(self, name: str) -> float:
        """The value of one score, by its name in lower case: report["bleu"]."""
        for score in self.scores:
            if score.name.lower() == name:
                return score.value
        raise KeyError(unknown("score", name, [score.name.lower() for score in self.scores]))

    def __str__(self) -> str:
        return "\n".join(str(score) for score in self.scores)


def score(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    metrics: Sequence[str] = METRICS,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> ScoreReport:
    """Score `hypotheses` against one or more sets of references, line by line.

    `tokenize` is a sacreBLEU tokeniser for BLEU (default "13a"; "none" for text that is already tokenised).
    `lowercase` ignores case in every metric. For TER, lower is better.
    """
    check_lines(hypotheses, references)
    scores = []
    for name in metrics:
        metric = build_metric(name, lowercase, tokenize)
        result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
        parts: dict[str, Any] = {}
        if name == "bleu":
            parts = {"precisions": list(result.precisions), "brevity_penalty": float(result.bp)}
            parts |= {"length": int(result.sys_len), "reference": int(result.ref_len)}
        scores.append(Score(TITLES[name], result.score, str(metric.get_signature()), parts))
    return ScoreReport(tuple(scores), len(hypotheses))


def ter_takes_long(references: Sequence[str]) -> bool:
    """Whether sacreBLEU needs more than about a minute for the TER of this corpus.

    Its search for shifts grows with the cube of a sentence's length: 300 sentences of 60 words can take three minutes.
    """
    return sum(len(line.split()) ** 3 for line in references) > _TER_LIMIT


def build_metric(name: str, lowercase: bool = False, tokenize: str | None = None) -> Any:
    """The sacreBLEU metric of this name: an object with `corpus_score(hypotheses, references)`."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize is not None:
        check_known("sacreBLEU tokeniser", tokenize, BLEU.TOKENIZERS, error=DataError)
    check_known("metric", name, METRICS, error=DataError)
    if name == "bleu":
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=True)  # force: no warning about tokenised text
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    return TER(case_sensitive=not lowercase)


def check_lines(hypotheses: Sequence[str], others: Sequence[Sequence[str]], what: str = "references") -> None:
    """Refuse an empty corpus, missing references, or different numbers of lines."""
    if not others:
        raise DataError("Scoring needs at least one set of references; got none.")
    if not hypotheses:
        raise DataError("Scoring needs at least one sentence; got none.")
    for lines in others:
        if len(lines) != len(hypotheses):
            raise DataError(f"Expected as many {what} as hypotheses; got {len(lines)} and {len(hypotheses)}.")


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

    most = max(map(len, references), default=0)
    # sacreBLEU needs the same number of references everywhere; repeating one changes neither counts nor lengths
    columns = [[texts[min(k, len(texts) - 1)] for texts in references] for k in range(most)]
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


def perplexity(total_nll: float, tokens: int) -> float:
    """exp(total negative log-likelihood / number of target tokens, END included); infinite if exp overflows."""
    if tokens < 1:
        raise DataError(f"Perplexity needs at least one token; got {tokens}.")
    try:
        return math.exp(total_nll / tokens)
    except OverflowError:
        return math.inf
