"""Systems that were trained with several seeds: a table by group, the best group tested against each other, a plot."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DataError, counted
from regard.evaluate.by_length import COLOURS, check_plot, save_plot
from regard.evaluate.scores import score
from regard.evaluate.significance import Comparison, group_bootstrap
from regard.work import Progress, reporting

ONE_SEED = "A group with one seed is compared by sentences only: its interval and p leave out the variance of training."


class System(NamedTuple):
    """The translations of one seed of a group, and its cost."""

    written: Sequence[str]
    parameters: int
    seconds: float | None  # of training, where it is known


@dataclass(frozen=True)
class Group:
    """One choice of settings. The lists have one value for each seed."""

    name: str
    seeds: list[int]
    bleu: list[float]
    mean: float
    spread: float | None  # standard deviation over the seeds (n - 1); None for one seed
    seconds: float | None  # mean time of training
    parameters: int
    best_against: Comparison | None  # the best group against this one; None for the best


@dataclass(frozen=True)
class GroupTable:
    """Groups, the best mean first; `str(table)` is a text table with the signature."""

    groups: list[Group]
    sentences: int
    signature: str

    def __str__(self) -> str:
        width = max(5, *(len(group.name) for group in self.groups))
        lines = [f"{'group':<{width}}  {'BLEU':>6} {'spread':>6} {'best minus this':>24} {'p':>7} {'time':>7} "
                 f"{'parameters':>10}  seeds"]  # fmt: skip
        for group in self.groups:
            spread = "-" if group.spread is None else f"{group.spread:.2f}"
            time = "-" if group.seconds is None else f"{group.seconds:.0f} s"
            test, p = "-", "-"
            if best := group.best_against:
                test, p = f"{best.delta:+.2f} [{best.low:+.2f}, {best.high:+.2f}]", f"{best.p:.4f}"
            seeds = ", ".join(f"{seed}: {bleu:.2f}" for seed, bleu in zip(group.seeds, group.bleu, strict=True))
            lines.append(
                f"{group.name:<{width}}  {group.mean:>6.2f} {spread:>6} {test:>24} {p:>7} {time:>7} "
                f"{group.parameters:>10}  {seeds}"
            )
        if len(self.groups) > 1 and any(len(group.seeds) == 1 for group in self.groups):
            lines.append(ONE_SEED)
        return "\n".join([*lines, f"{counted(self.sentences, 'sentence')}  {self.signature}"])


def compare_groups(
    groups: Mapping[str, Mapping[int, System]],
    references: Sequence[str],
    progress: Progress | None = None,
    **options: Any,
) -> GroupTable:
    """Score every seed of every group, and test the group of the best mean against each other one.

    The test resamples sentences and seeds (see `group_bootstrap`); with one seed a group, sentences alone. Its p
    values are not corrected for the number of groups, nor for the best having been chosen by the same numbers.
    `options` are those of `build_metric`.
    """
    if not groups or not all(groups.values()):
        raise DataError("A table by group needs at least one group, and each group at least one seed.")
    reports = {
        name: [score(system.written, references, metrics=["bleu"], **options) for system in seeds.values()]
        for name, seeds in groups.items()
    }
    means = {name: statistics.fmean(report["bleu"] for report in seeds) for name, seeds in reports.items()}
    order = sorted(groups, key=lambda name: -means[name])
    best = [system.written for system in groups[order[0]].values()]
    rows = []
    for name in reporting(order, progress, len(order)):
        seeds = groups[name]
        bleu = [report["bleu"] for report in reports[name]]
        times = [system.seconds for system in seeds.values() if system.seconds is not None]
        test = None
        if name != order[0]:
            written = [system.written for system in seeds.values()]
            test = group_bootstrap(best, written, references, **options)
        spread = statistics.stdev(bleu) if len(bleu) > 1 else None
        seconds = statistics.fmean(times) if len(times) == len(seeds) else None
        parameters = max(system.parameters for system in seeds.values())
        rows.append(Group(name, list(seeds), bleu, means[name], spread, seconds, parameters, test))
    return GroupTable(rows, len(references), reports[order[0]][0].scores[0].signature)


def plot_groups(table: GroupTable, path: str | Path) -> Path:
    """Plot the mean of each group and every seed, best on top; the ending of `path` selects PNG, SVG or PDF."""
    from matplotlib.figure import Figure

    path = check_plot(path)
    groups = table.groups
    figure = Figure(figsize=(8.5, 1.4 + 0.28 * len(groups)), layout="constrained")
    axes = figure.add_subplot()
    for place, group in enumerate(groups):
        first = place == 0
        axes.plot(group.bleu, [place] * len(group.bleu), "o", color=COLOURS[0], alpha=0.5, markersize=4,
                  label="a seed" if first else None)  # fmt: skip
        axes.errorbar(group.mean, place, xerr=group.spread, fmt="D", color=COLOURS[1], markersize=5, capsize=3,
                      label="mean and standard deviation" if first else None)  # fmt: skip
    axes.set_yticks(range(len(groups)), [group.name for group in groups], fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("BLEU")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    figure.supxlabel(f"{counted(table.sentences, 'sentence')}  {table.signature}", fontsize=6, color="#555555")
    return save_plot(figure, path)
