"""Scores by source length, as a table and as a plot."""

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.evaluate.scores import TITLES, build_metric, check_lines
from regard.evaluate.significance import bootstrap_interval
from regard.sealed import write_output

EDGES = (10, 20, 30, 40, 50, 60)
FORMATS = (".pdf", ".png", ".svg")

# Okabe and Ito's colour-blind safe palette; markers and dashes for greyscale prints.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class LengthBin:
    """The sentences with `low` to `high` source words (None: no upper bound), their score and its 95 % interval from a
    bootstrap over sentences (None: no sentences)."""

    low: int
    high: int | None
    sentences: int
    score: float | None
    interval: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        """ "11-20", or ">60" for the last."""
        return f">{self.low - 1}" if self.high is None else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class LengthTable:
    """A corpus score for each bin of source lengths; `str(table)` is a text table of those with
    sentences, and the signature."""

    metric: str
    signature: str
    bins: tuple[LengthBin, ...]

    def __str__(self) -> str:
        lines = [f"{'words':>8} {'sentences':>9} {self.metric:>7}  95 % interval"]
        for part in self.bins:
            if part.score is None:  # no sentence of such a length
                continue
            interval = "" if part.interval is None else "  [{:.2f}, {:.2f}]".format(*part.interval)
            lines.append(f"{part.label:>8} {part.sentences:>9} {part.score:>7.2f}{interval}")
        return "\n".join([*lines, self.signature])


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] = EDGES,
    **options: Any,
) -> LengthTable:
    """Group sentences by the number of source words (split at white space): BLEU of each group as a corpus, with a 95 %
    interval from a bootstrap over its sentences.

    `edges` are the upper bounds of the bins: (10, 20) gives 1 to 10, 11 to 20, and more than 20. `options` are those of
    `build_metric`.
    """
    check_lines(hypotheses, [references])
    check_lines(hypotheses, [sources], "sources")
    if not edges or edges[0] < 1 or any(a >= b for a, b in itertools.pairwise(edges)):
        raise DataError(f"The edges of length bins must be increasing whole numbers from 1; got {list(edges)}.")
    groups: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for number, source in enumerate(sources):
        words = len(source.split())
        groups[sum(words > edge for edge in edges)].append(number)
    scorer = build_metric("bleu", **options)
    bins, low = [], 1
    for group, high in zip(groups, [*edges, None], strict=True):
        score = interval = None
        if group:
            chosen, written = ([lines[number] for number in group] for lines in (references, hypotheses))
            score = scorer.corpus_score(written, [chosen]).score
            interval = bootstrap_interval(scorer, written, chosen)
        bins.append(LengthBin(low, high, len(group), score, interval))
        low = (high or 0) + 1
    return LengthTable(TITLES["bleu"], str(scorer.get_signature()), tuple(bins))


def check_plot(path: str | Path) -> Path:
    """Refuse a file name with an unsupported ending; call it before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"A plot is written as PNG, SVG or PDF; '{path.name}' ends with none of {', '.join(FORMATS)}.")
    return path


def plot_by_length(tables: Mapping[str, LengthTable], path: str | Path) -> Path:
    """Plot one line per system in a band of its 95 % intervals; the ending of `path` selects PNG, SVG or PDF."""
    from matplotlib.figure import Figure

    path = check_plot(path)
    if not tables:
        raise DataError("A plot by length needs at least one system; got none.")
    (first_name, first), *others = tables.items()
    bins = first.bins
    for name, table in others:
        if [(b.label, b.sentences) for b in table.bins] != [(b.label, b.sentences) for b in bins]:
            raise DataError(
                f"A plot shows one corpus; {first_name} and {name} have different bins or numbers of sentences. "
                f"Score both on the same source with the same edges."
            )
    shown = [place for place, part in enumerate(bins) if part.sentences]
    figure = Figure(figsize=(8.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, table) in enumerate(tables.items()):
        scores = [float(table.bins[place].score or 0) for place in shown]
        colour, marker, dashes = (kinds[number % len(kinds)] for kinds in (COLOURS, MARKERS, DASHES))
        axes.plot(range(len(shown)), scores, label=name, color=colour, marker=marker, linestyle=dashes)
        bands = [interval for place in shown if (interval := table.bins[place].interval)]
        if len(bands) == len(shown):
            low, high = zip(*bands, strict=True)
            axes.fill_between(range(len(shown)), low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(shown)), [f"{bins[place].label}\nn={bins[place].sentences}" for place in shown])
    axes.set_xlabel("source length in words, with the number of sentences")
    axes.set_ylabel(first.metric)
    axes.set_xlim(-0.5, len(shown) - 0.5)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)  # beside the lines, not over them
    figure.supxlabel(
        " / ".join(dict.fromkeys(table.signature for table in tables.values())), fontsize=6, color="#555555"
    )
    return save_plot(figure, path)


def save_plot(figure: Any, path: Path) -> Path:
    """Write a figure of matplotlib whole or not at all; text stays text."""
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(content, format=path.suffix[1:].lower(), dpi=160)
    return write_output(path, content.getvalue())
