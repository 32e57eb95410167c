"""How far to trust a translation: signals of the decoding pass, in a function fitted to sentences with references.

The confidence of a word is the probability that the word is in a reference translation. The confidence of a sentence is
its expected chrF, from 0 to 1, where a translation without a proper source (shuffled words, random letters, another
language, another sentence) counts as 0. All signals are by-products of the search, so that no second pass is needed.
"""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import Settings, setting
from regard.errors import DataError
from regard.text.languages import common_words, other_language

Floats = NDArray[np.float64]
BINS = 15  # of a reliability diagram, of equal width
KNOTS = 20
DETACHED = 0.1  # weight of all detached sources, as a share of the true ones
LEAST = 50  # sentences to fit on: each signal needs several
FEW = 200  # with fewer sentences, the calibration error depends on which they are (docs/trust.md)
_RIDGE = 1e-5  # keeps the slopes finite where a signal is constant or separates the labels
SURE = 1e-3  # added to a negative log-probability, whose logarithm is taken
_EDGES = re.compile(r"^\W+|(?<!\W)\W+$")


class Judged(NamedTuple):
    """A translation, its reference, and its chrF from 0 to 1."""

    found: "Decoded"
    reference: str
    chrf: float


class Decoded(NamedTuple):
    """A translation as the search found it."""

    source: str  # as the model read it
    language: str  # of the source; "" if it is not known
    pieces: int  # of the source
    text: str  # as the model wrote it
    words: list[int]  # the white-space word of `text` that each token belongs to
    logprobs: list[float]  # of each token, and of END where it was written


def bare(word: str) -> str:
    """A word as it is compared: without punctuation at its edges, in lower case."""
    return word.lower() if word.isalnum() else (_EDGES.sub("", word) or word).lower()


SENTENCE_SIGNALS = (
    "surprise", "end", "length", "ratio", "ratio squared", "copied", "source pieces", "target pieces",
    "other language", "common words", "probability", "first",
)  # fmt: skip
LATER = ("probability", "first")  # calibrations of earlier versions lack these signals
WORD_SIGNALS = (
    "surprise", "sentence surprise", "pieces", "letters", "before", "after", "copied", "capital", "digit"
)  # fmt: skip


def sentence_signals(found: Decoded) -> Floats:
    """The `SENTENCE_SIGNALS` of a translation: how surprising its tokens are on average, the probability of its end,
    its length and that relative to the source, the share of words that are the source's, pieces per word on both
    sides (words that are not in the vocabulary have many), the language of the source, the mean probability of the
    tokens, and the log-probability of the first."""
    read, wrote = ([bare(word) for word in text.split()] for text in (found.source, found.text))
    known, size = set(read), max(1, len(found.logprobs))
    ratio = math.log(size / (found.pieces + 1))
    return np.array(
        [
            math.log(SURE - sum(found.logprobs) / size),
            math.exp(found.logprobs[-1]) if found.logprobs else 0.0,
            math.log(size),
            ratio,
            ratio * ratio,
            sum(word in known for word in wrote) / max(1, len(wrote)),
            found.pieces / max(1, len(read)),
            size / max(1, len(wrote)),
            float(bool(other_language(found.source, found.language))),
            common_words(found.source, found.language) / max(1, len(read)),
            sum(map(math.exp, found.logprobs)) / size,
            found.logprobs[0] if found.logprobs else 0.0,
        ]
    )


def word_signals(found: Decoded) -> Floats:
    """The `WORD_SIGNALS` of each word [words, signals]: how surprising it and the whole sentence are, its pieces and
    letters, the probabilities of the words around it, and whether it is in the source, has a capital or a digit."""
    written = found.text.split()
    sums, pieces = np.zeros(len(written)), np.zeros(len(written))
    np.add.at(sums, found.words, found.logprobs[: len(found.words)])
    np.add.at(pieces, found.words, 1)
    chances = np.exp([0.0, *sums, found.logprobs[-1] if found.logprobs else 0.0])  # before and after: START and END
    known = {bare(word) for word in found.source.split()}
    plain = [bare(word) for word in written]
    surprise = math.log(SURE - sum(found.logprobs) / max(1, len(found.logprobs)))
    columns = [
        np.log(SURE - sums),
        np.full(len(written), surprise),
        pieces,
        np.log([max(1, len(word)) for word in plain]),
        chances[:-2],
        chances[2:],
        [word in known for word in plain],
        [any(map(str.isupper, word)) for word in written],
        [any(map(str.isdigit, word)) for word in written],
    ]
    return np.array(columns, dtype=np.float64).T.reshape(len(written), len(WORD_SIGNALS))


def word_labels(text: str, reference: str) -> NDArray[np.bool_]:
    """Whether each word of a translation is in the reference."""
    known = {bare(word) for word in reference.split()}
    return np.array([bare(word) in known for word in text.split()], dtype=bool)


# --- from signals to a confidence


@dataclass(frozen=True)
class Fitted:
    """p = g(1 / (1 + exp(-(intercept + slopes . signals)))), with g increasing, linear between its knots (x, g(x))."""

    intercept: float
    slopes: tuple[float, ...]
    knots: tuple[tuple[float, float], ...] = ((0.0, 0.0), (1.0, 1.0))

    def __call__(self, signals: Floats) -> Floats:
        """[..., signals] -> [...] in [0, 1]."""
        scores = self.intercept + signals @ np.array(self.slopes)
        logistic = 0.5 + 0.5 * np.tanh(0.5 * scores)  # does not overflow
        return np.interp(logistic, *np.array(self.knots).T)


def fit(signals: Floats, labels: Floats, weights: Floats | None = None) -> Fitted:
    """Fit labels in [0, 1], [N], of signals [N, signals] with weights [N]: the slopes by maximum likelihood (Newton's
    method), then g by isotonic regression of `KNOTS` bins of equal weight."""
    weights = np.ones(len(labels)) if weights is None else weights
    mean, spread = signals.mean(0), signals.std(0)
    spread = np.where(spread > 1e-12, spread, 1.0)
    inputs = np.column_stack([(signals - mean) / spread, np.ones(len(labels))])  # [N, signals + 1]
    ridge = _RIDGE * weights.sum() * np.eye(inputs.shape[1])
    found = np.zeros(inputs.shape[1])
    for _ in range(100):
        chances = Fitted(0.0, tuple(found))(inputs)
        gradient = inputs.T @ (weights * (chances - labels)) + ridge @ found
        curvature = (inputs * (weights * chances * (1 - chances))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curvature, gradient)
        found -= step * min(1.0, 10 / max(1e-300, np.abs(step).max()))  # far from the optimum it may overshoot
        if np.abs(step).max() < 1e-9:
            break
    slopes = found[:-1] / spread
    logistic = Fitted(float(found[-1] - slopes @ mean), tuple(map(float, slopes)))
    chances = logistic(signals)
    order = np.argsort(chances, kind="stable")
    shares = weights[order].cumsum() / weights.sum()
    blocks: list[list[float]] = []  # weight, mean of the logistic function, mean label; both increase
    for chosen in np.split(order, np.searchsorted(shares, np.arange(1, KNOTS) / KNOTS)):
        if not len(chosen):
            continue
        means = (float(np.average(part[chosen], weights=weights[chosen])) for part in (chances, labels))
        blocks.append([float(weights[chosen].sum()), *means])
        while len(blocks) > 1 and not (blocks[-2][1] < blocks[-1][1] and blocks[-2][2] <= blocks[-1][2]):
            one, other = blocks.pop(), blocks.pop()
            total = one[0] + other[0]
            pooled = (
                (one[0] * first + other[0] * second) / total for first, second in zip(one[1:], other[1:], strict=True)
            )
            blocks.append([total, *pooled])
    inner = tuple((x, y) for _, x, y in blocks if 0 < x < 1)
    return Fitted(logistic.intercept, logistic.slopes, ((0.0, 0.0), *inner, (1.0, 1.0)))


# --- measures


def reliability(chances: Floats, labels: Floats, bins: int = BINS) -> list[tuple[float, float, int]]:
    """The mean confidence, the mean label and the number of items in each bin of equal width that holds some."""
    place = np.minimum((chances * bins).astype(int), bins - 1)
    chosen = [place == number for number in range(bins) if (place == number).any()]
    return [(float(chances[one].mean()), float(labels[one].mean()), int(one.sum())) for one in chosen]


def calibration_error(chances: Floats, labels: Floats) -> float:
    """Expected calibration error: the mean of |mean label - mean confidence| over bins, by their size."""
    return sum(abs(label - chance) * size for chance, label, size in reliability(chances, labels)) / len(labels)


def auroc(above: Floats, below: Floats) -> float:
    """The probability that a number of `above` is larger than one of `below`; ties count one half."""
    order, size = np.sort(below), len(below)
    wins = np.searchsorted(order, above, "left") + np.searchsorted(order, above, "right")
    return float(wins.sum() / (2 * size * len(above)))


# --- sources without a proper translation


def shuffle_words(source: str, rng: random.Random) -> str:
    """The words in random order."""
    words = source.split()
    rng.shuffle(words)
    return " ".join(words)


def randomise_letters(source: str, rng: random.Random) -> str:
    """Every letter replaced by a random one of a to z, capitals by capitals."""
    drawn = "".join(chr(rng.randrange(97, 123)) if letter.isalpha() else letter for letter in source)
    return "".join(new.upper() if old.isupper() else new for old, new in zip(source, drawn, strict=True))


BREAKS: dict[str, Callable[[str, random.Random], str]] = {"shuffled": shuffle_words, "gibberish": randomise_letters}


# --- confidence


@dataclass(frozen=True)
class Confidence:
    """How far to trust a translation.

    `sentence` is its expected chrF from 0 to 1, `words` each word with the probability that a reference has it.

    >>> found = regard.load("en-fr").translate("Where is the station?", confidence=True)
    >>> found.confidence.sentence > 0.5, [word for word, chance in found.confidence.words]
    (True, ['Où', 'est', 'la', 'gare', '?'])
    """

    sentence: float
    words: list[tuple[str, float]]


@dataclass(frozen=True)
class Trust(Settings):
    """What is done with the confidence of translations."""

    table = "translate"

    confidence: bool = setting(False, "whether the confidence is written")
    min_confidence: float | None = setting(None, "the confidence below which a translation is not used", "[0, 1]")

    @property
    def wanted(self) -> bool:
        return self.confidence or self.min_confidence is not None

    def doubts(self, found: Confidence | None) -> bool:
        """Whether a translation is not to be used."""
        return self.min_confidence is not None and found is not None and found.sentence < self.min_confidence


@dataclass(frozen=True)
class Calibration:
    """The two functions of a model, and what is known about the fit."""

    sentence: Fitted
    word: Fitted
    about: Mapping[str, Any]

    def rate(self, found: Decoded) -> Confidence:
        """The confidence of a translation and of its words."""
        if not found.logprobs or not np.isfinite(found.logprobs).all():
            return Confidence(0.0, [(word, 0.0) for word in found.text.split()])
        chances = self.word(word_signals(found)).tolist()
        words = list(zip(found.text.split(), chances, strict=True))
        return Confidence(float(self.sentence(sentence_signals(found))), words)

    def as_data(self) -> dict[str, Any]:
        """Plain numbers, each slope with the name of its signal."""

        def numbers(fitted: Fitted, names: Sequence[str]) -> dict[str, Any]:
            slopes = dict(zip(names, fitted.slopes, strict=True))
            return {"intercept": fitted.intercept, "slopes": slopes, "knots": [list(knot) for knot in fitted.knots]}

        both = {"sentence": numbers(self.sentence, SENTENCE_SIGNALS), "word": numbers(self.word, WORD_SIGNALS)}
        return {**both, "about": dict(self.about)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Calibration":
        """What `as_data` wrote; ValueError if it has other signals, or something that is no number."""

        def read(part: Mapping[str, Any], names: Sequence[str]) -> Fitted:
            slopes, knots = dict(part["slopes"]), np.array(part["knots"], dtype=np.float64)
            if not slopes.keys() & {*LATER}:
                slopes |= {name: 0.0 for name in names if name in LATER}
            if tuple(slopes) != tuple(names) or knots.ndim != 2 or knots.shape[1] != 2:
                raise ValueError("it has other signals")
            numbers, rises = [part["intercept"], *slopes.values()], np.diff(knots, axis=0)  # [knots - 1, 2]
            bounded = knots.min() >= 0 and knots.max() <= 1 and (rises[:, 0] > 0).all() and (rises[:, 1] >= 0).all()
            if not bounded or not all(type(number) is float and math.isfinite(number) for number in numbers):
                raise ValueError("its numbers are not those of a confidence")
            return Fitted(numbers[0], tuple(numbers[1:]), tuple((x, y) for x, y in knots.tolist()))

        return cls(read(data["sentence"], SENTENCE_SIGNALS), read(data["word"], WORD_SIGNALS), dict(data["about"]))


def fit_calibration(true: Sequence[Judged], detached: Sequence[Decoded]) -> Calibration:
    """Fit on translations with references, and on translations of detached sources, whose label is 0. Words are fitted
    on the former only. `about` holds what `judge` measures on the second half after a fit on the first."""
    true = [one for one in true if one.found.text.split()]
    if len(true) < LEAST or len(detached) < LEAST:
        least = min(len(true), len(detached))
        raise DataError(f"A calibration needs at least {LEAST} sentences that have a translation; got {least}.")

    def both(true: Sequence[Judged], detached: Sequence[Decoded], about: dict[str, Any]) -> Calibration:
        words = np.concatenate([word_signals(one.found) for one in true])
        labels = np.concatenate([word_labels(one.found.text, one.reference) for one in true])
        sentences = np.stack([*map(sentence_signals, (*(one.found for one in true), *detached))])
        quality = np.array([*(one.chrf for one in true), *[0.0] * len(detached)])
        share = DETACHED * len(true) / len(detached)
        weights = np.array([1.0] * len(true) + [share] * len(detached))
        about |= {"sentences": len(true), "words": len(labels), "detached": len(detached)}
        return Calibration(fit(sentences, quality, weights), fit(words, labels.astype(float)), about)

    half, rest = len(true) // 2, len(detached) // 2
    judged = judge(both(true[:half], detached[:rest], {}), true[half:], detached[rest:])
    return both(true, detached, judged)


def judge(calibration: Calibration, true: Sequence[Judged], detached: Sequence[Decoded]) -> dict[str, Any]:
    """The calibration error of words, before (their own probability) and after; how well detached sources are found
    (AUROC) and the correlation with chrF, by log-probability alone and by confidence."""
    words = np.concatenate([word_signals(one.found) for one in true])
    labels = np.concatenate([word_labels(one.found.text, one.reference) for one in true]).astype(float)
    own, broken = (np.stack([*map(sentence_signals, some)]) for some in ([one.found for one in true], detached))
    chrf, plain, rated = np.array([one.chrf for one in true]), np.exp(-np.exp(own[:, 0])), calibration.sentence(own)
    known = chrf.std() > 0
    return {
        "word_error_before": calibration_error(np.exp(SURE - np.exp(words[:, 0])), labels),
        "word_error": calibration_error(calibration.word(words), labels),
        "detached_auroc_before": auroc(-own[:, 0], -broken[:, 0]),
        "detached_auroc": auroc(rated, calibration.sentence(broken)),
        "chrf_correlation_before": float(np.corrcoef(plain, chrf)[0, 1]) if known else 0.0,
        "chrf_correlation": float(np.corrcoef(rated, chrf)[0, 1]) if known else 0.0,
    }
