"""Measures of attention heads, and how far back a language model attends: the weight of each distance and word.

Weights are [..., T, S]; each docstring is the exact definition.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.normalise import NORMALISERS, ForwardOnly, softmax
from regard.errors import ConfigError, DataError, ShapeError, check_known
from regard.look.record import record
from regard.look.table import tokens_of
from regard.look.trace_data import HIDING, KINDS, Attended, TraceData
from regard.look.trace_file import fits
from regard.models.contract import shift_right
from regard.symbols import PAD

Array = NDArray[np.floating[Any]]


def entropy(weights: Array) -> Array:
    """-sum_s w_ts ln w_ts for each row, in nats: 0 for one place, ln S for equal weights. [..., T, S] -> [..., T]"""
    weights = np.asarray(weights, dtype=np.float64)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)


def confidence(weights: Array) -> Array:
    """The largest weight of each row. [..., T, S] -> [..., T]"""
    weights = np.asarray(weights, dtype=np.float64)
    return weights.max(-1, initial=0.0)


def coverage(weights: Array) -> Array:
    """The total weight of each source position: sum_t w_ts. [..., T, S] -> [..., S]"""
    return np.asarray(weights, dtype=np.float64).sum(-2)


def covered(weights: Array) -> Array:
    """The share of the source that is covered: mean_s min(1, sum_t w_ts). [..., T, S] -> [...]"""
    total = np.minimum(1.0, coverage(weights))
    return total.mean(-1) if total.shape[-1] else np.zeros(total.shape[:-1])


def coverage_penalty(weights: Array) -> Array:
    """sum_s ln min(1, sum_t w_ts), of Wu 2016 with beta = 1: 0 when all is covered. [..., T, S] -> [...]

    A position without any weight counts as 1e-10."""
    return np.log(np.clip(coverage(weights), 1e-10, 1.0)).sum(-1)


def diagonality(weights: Array) -> Array:
    """1 - sum_ts w_ts |s/(S-1) - t/(T-1)| / sum_ts w_ts: 1 on the diagonal, 0 far from it. [..., T, S] -> [...]

    With T or S of one, its positions count as 0; weights that are all zero give 0."""
    weights = np.asarray(weights, dtype=np.float64)
    T, S = weights.shape[-2:]
    far = np.abs(np.arange(S)[None, :] / max(1, S - 1) - np.arange(T)[:, None] / max(1, T - 1))  # [T, S]
    total = weights.sum((-2, -1))
    away = np.divide((weights * far).sum((-2, -1)), total, out=np.ones_like(total), where=total > 0)
    return 1.0 - away


def special_mass(weights: Array, special: Sequence[bool]) -> Array:
    """The weight of special tokens in each row such as </s>: sum of w_ts over special s. [..., T, S] -> [..., T]"""
    weights = np.asarray(weights, dtype=np.float64)
    if len(special) != weights.shape[-1]:
        raise ShapeError(f"special must name all {weights.shape[-1]} columns; got {len(special)}.")
    return weights[..., np.asarray(special, dtype=bool)].sum(-1)


def _average(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0


# Of one head [T, S] and the columns that are special; those of rows are averaged over the rows.
_OF_A_HEAD: dict[str, Callable[[Array, Sequence[bool]], Any]] = {
    "entropy": lambda weights, special: _average(entropy(weights)),
    "confidence": lambda weights, special: _average(confidence(weights)),
    "coverage": lambda weights, special: covered(weights),
    "coverage_penalty": lambda weights, special: coverage_penalty(weights),
    "diagonality": lambda weights, special: diagonality(weights),
    "special": lambda weights, special: _average(special_mass(weights, special)),
}
MEASURES = tuple(_OF_A_HEAD)
LOW_FIRST = frozenset(("entropy", "special", "aer"))  # ranked from the lowest, all else from the highest


def head(weights: Array, special: Sequence[bool] | None = None) -> dict[str, float]:
    """All measures of one head [T, S]."""
    marks = [False] * weights.shape[-1] if special is None else special
    return {name: float(measured(weights, marks)) for name, measured in _OF_A_HEAD.items()}


@dataclass(frozen=True)
class HeadMeasures:
    """The measures of one head, of one layer (head None: the mean over its heads) or of all (name "all")."""

    name: str
    layer: int | None
    head: int | None
    values: dict[str, float]


def measure(trace: TraceData) -> list[HeadMeasures]:
    """Measures of every head, every layer and the sentence, on tokens with special ones included.

    >>> from regard.look import measure
    >>> heads = [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]  # [H, T, S]: a diagonal, and uniform weights
    >>> trace = regard.Trace.from_arrays(["the", "cat"], ["le", "chat"], heads)
    >>> [(row.head, round(row.values["entropy"], 3)) for row in measure(trace) if row.head is not None]
    [(0, 0.0), (1, 0.693)]
    """
    rows: list[HeadMeasures] = []
    for seen in trace.attention.values():
        special = [token.special for token in tokens_of(trace, KINDS[seen.kind][1])]
        heads = [HeadMeasures(seen.name, seen.layer, h, head(seen.weights[h], special)) for h in range(seen.heads)]
        rows += [*heads, HeadMeasures(seen.name, seen.layer, None, _mean([row.values for row in heads]))]
    singles = [row for row in rows if row.head is not None]
    if singles:
        rows.append(HeadMeasures("all", None, None, _mean([row.values for row in singles])))
    return rows


def _mean(values: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.average([measures[name] for measures in values])) for name in MEASURES}


@dataclass
class Report:
    """Measures over a corpus: each head's mean over sentences, weighted by their rows. It holds totals, so that the
    reports of parts of a corpus add up to that of the corpus."""

    sentences: int = 0
    # (module, layer, head) -> its rows, and the sum of every measure times the rows of each sentence
    totals: dict[tuple[str, int | None, int | None], list[float]] = field(default_factory=dict)
    others: Mapping[tuple[str, int | None], dict[str, float]] = field(default_factory=dict)  # (module, head) -> "aer"

    def add(self, trace: TraceData) -> None:
        """Measure one more sentence."""
        self.sentences += 1
        for row in measure(trace):
            share = float(trace.attention[row.name].weights.shape[1]) if row.name in trace.attention else 1.0
            share = max(1.0, share)
            self._add((row.name, row.layer, row.head), [share, *(share * row.values[name] for name in MEASURES)])

    def _add(self, key: tuple[str, int | None, int | None], values: list[float]) -> None:
        kept = self.totals.setdefault(key, [0.0] * len(values))
        self.totals[key] = [mine + theirs for mine, theirs in zip(kept, values, strict=True)]

    def merge(self, other: "Report") -> None:
        """Add the report of another part of the corpus."""
        self.sentences += other.sentences
        for key, values in other.totals.items():
            self._add(key, values)

    def as_data(self) -> dict[str, Any]:
        """For JSON, which has no keys of several parts."""
        return {"sentences": self.sentences, "heads": [[*key, values] for key, values in self.totals.items()]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Report":
        return cls(data["sentences"], {(name, layer, head): values for name, layer, head, values in data["heads"]})

    @property
    def rows(self) -> tuple[HeadMeasures, ...]:
        """The means."""
        found = []
        for (name, layer, head), (total, *sums) in self.totals.items():
            means = dict(zip(MEASURES, (value / total for value in sums), strict=True))
            found.append(HeadMeasures(name, layer, head, means | self.others.get((name, head), {})))
        return tuple(found)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of any row: MEASURES, then others that were added to `values`, such as "aer"."""
        return tuple(dict.fromkeys((*MEASURES, *(name for row in self.rows for name in row.values))))

    def ranked(self, by: str = "confidence") -> list[HeadMeasures]:
        """The single heads that have this measure, in order of it: see `LOW_FIRST`."""
        check_known("measure", by, self.measures)
        singles = [row for row in self.rows if row.head is not None and by in row.values]
        return sorted(singles, key=lambda row: row.values[by], reverse=by not in LOW_FIRST)

    def to_text(self, by: str = "confidence") -> str:
        """The ranking as a plain table; a head without some measure shows a dash."""
        rows = self.ranked(by)
        wide = max((len(row.name) for row in rows), default=6)
        columns = {name: max(7, len(name)) for name in self.measures}
        lines = [f"{'module':<{wide}}  head  " + "  ".join(f"{name:>{size}}" for name, size in columns.items())]
        for row in rows:
            numbers = (f"{row.values[name]:.3f}" if name in row.values else "-" for name in columns)
            cells = "  ".join(f"{text:>{size}}" for text, size in zip(numbers, columns.values(), strict=True))
            lines.append(f"{row.name:<{wide}}  {row.head:>4}  {cells}")
        return "\n".join(lines)


def report(traces: Iterable[TraceData]) -> Report:
    """Measure many sentences of one model.

    >>> from regard.look import report
    >>> translator = regard.load("en-fr")
    >>> found = report(translator.look(text) for text in ("Where is the station?", "The cat sleeps."))
    >>> found.sentences, len(found.ranked(by="entropy"))  # the head with the lowest entropy first
    (2, 60)
    """
    total = Report()
    for trace in traces:
        total.add(trace)
    if not total.sentences:
        raise DataError("A report needs at least one trace; got none.")
    return total


def reproduce(seen: Attended) -> Array | None:
    """The weights recomputed from the scores by the stated normaliser, [H, T, S]; None if that is not possible.

    Softmax over the scores that are not hidden; a Gaussian window then multiplies by exp(-(s - p)^2 / (2 sigma^2)) with
    sigma = half_width / 2 (Luong 2015, eq. 10). Where the future or a window hides slots, those have weight 0. A row of
    monotonic attention starts from the row before, the first one from slot 0.
    """
    if seen.scores is None:
        return None
    scores = torch.from_numpy(seen.scores.astype(np.float64))
    weights: Array
    if seen.normalise == "monotonic":
        first = np.broadcast_to(np.arange(scores.shape[2]) == 0, seen.weights[:, :1].shape)
        previous = torch.from_numpy(np.concatenate([first, seen.weights[:, :-1]], axis=1).astype(np.float64))
        hard = bool(((seen.weights == 0) | (seen.weights == 1)).all())
        weights = ForwardOnly(hard=hard).eval()(scores, None, previous).numpy()
        return weights
    hides = seen.normalise in HIDING
    normalise = softmax if hides else NORMALISERS.get(seen.normalise.removeprefix("causal "))
    if normalise is None:
        return None
    weights = normalise(scores, torch.from_numpy(seen.weights != 0) if hides else None).numpy()
    if seen.normalise != "Gaussian window":
        return weights
    if seen.centre is None or not seen.half_width:
        return None
    away = np.arange(scores.shape[-1])[None, :] - seen.centre[:, None].astype(np.float64)  # [T, S]
    return weights * np.exp(-(away**2) / (2 * (seen.half_width / 2) ** 2))


@dataclass
class Reach:
    """The attention of one module to the past, over all words of a text that have a past. It holds totals, so that the
    parts of a text can be merged.

    Distance 0 is the word just read (a Transformer sees it), distance 1 the one before.
    """

    name: str
    weights: list[float]  # total weight at distance 0 ... D - 1, and of everything beyond
    distance: float = 0.0
    rows: float = 0.0
    attended: Counter[int] = field(default_factory=Counter)  # weight of each word, times the places to attend to
    seen: Counter[int] = field(default_factory=Counter)  # how often each word could be attended to

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the weight at distance 0 ... D - 1, and of everything beyond, [D + 1]."""
        return np.array(self.weights) / max(self.rows, 1e-12)

    @property
    def mean(self) -> float:
        """The mean distance."""
        return self.distance / max(self.rows, 1e-12)

    @property
    def times(self) -> dict[int, int]:
        """How often each word id could be attended to: a mean of few is no finding."""
        return dict(+self.seen)

    @property
    def words(self) -> dict[int, float]:
        """The mean weight of each word id where it can be attended to, times the number of places there: 1 is what
        uniform attention would give."""
        return {word: self.attended[word] / count for word, count in self.times.items()}

    def favourites(self, least: int = 20) -> list[int]:
        """The words that were visible at least `least` times, those with the largest weights first."""
        words = self.words
        return sorted((word for word in words if self.seen[word] >= least), key=lambda word: -words[word])

    def add(self, weights: Tensor, target: Tensor) -> None:
        """weights [B, T, S] of the rows of target [B, T]."""
        T, S = weights.shape[1:]
        weights = weights * (target != PAD)[:, :, None]
        back = torch.arange(T)[:, None] - torch.arange(S)  # [T, S]
        weights = weights * (back >= 0)
        bins = back.clamp(0, len(self.weights) - 1).expand_as(weights)
        shares = torch.tensor(self.weights, dtype=torch.float64)
        self.weights = shares.scatter_add_(0, bins.reshape(-1), weights.reshape(-1)).tolist()
        self.distance += float((weights * back.clamp(min=0)).sum())
        self.rows += float(weights.sum())
        visible = weights > 0  # [B, T, S]
        places = visible.sum(-1, keepdim=True)  # [B, T, 1]
        read = shift_right(target)[:, :S]  # [B, S]: what each slot has read
        scaled, times = (weights * places).sum(1), visible.sum(1)  # [B, S]
        for word, weight, count in zip(*(part.flatten().tolist() for part in (read, scaled, times)), strict=True):
            self.attended[word] += weight
            self.seen[word] += count

    def merge(self, other: "Reach") -> None:
        """Add another part of the text."""
        self.weights = [mine + theirs for mine, theirs in zip(self.weights, other.weights, strict=True)]
        self.distance, self.rows = self.distance + other.distance, self.rows + other.rows
        self.attended.update(other.attended)
        self.seen.update(other.seen)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Reach":
        """From its fields in JSON, where a word id is text."""
        words = {name: Counter({int(word): one for word, one in data[name].items()}) for name in ("attended", "seen")}
        return cls(**{**data, **words})


def reach(model: nn.Module, batches: Iterable[Tensor], farthest: int = 20) -> list[Reach]:
    """Read batches of rows [B, T] (padded) and measure every attention module; heads are averaged.

    >>> from regard.look import reach
    >>> from regard.models.attentive_lm import AttentiveConfig, AttentiveLanguageModel
    >>> model = AttentiveLanguageModel(AttentiveConfig(vocabulary=9, embedding=4, width=6)).eval()
    >>> (found,) = reach(model, [torch.tensor([[4, 5, 6, 7]])], farthest=2)
    >>> found.name, len(found.shares)  # at distance 0 and 1, and beyond
    ('attention', 3)
    """
    if not fits(farthest, int) or farthest < 1:
        raise ConfigError(f"farthest must be at least 1; got {farthest!r}.")
    found: dict[str, Reach] = {}
    device = next(model.parameters()).device
    for target in batches:
        target = target.to(device)
        with torch.inference_mode(), record(model) as seen:
            model(target)
        for name in seen:
            weights = seen[name].weights.double()  # [B, (H), T, S]
            weights = weights.mean(1) if weights.dim() == 4 else weights  # [B, T, S]
            found.setdefault(name, Reach(name, [0.0] * (farthest + 1))).add(weights.cpu(), target.cpu())
    return list(found.values())
