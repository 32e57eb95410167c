"""Curves: gradient norm against distance, in all and with attention held fixed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from regard.errors import ConfigError
from regard.look.draw import matrix, still
from regard.look.palette import FAINT, HEADS, INK
from regard.look.table import STILL
from regard.text.visible import label, visible

_MARKS = "osD^vPX*"


def render(flows: Mapping[str, Any], path: Path, title: str | None) -> bytes:
    """The bytes of the picture of `regard.look.flow.draw_flows`."""
    if path.suffix.lower() not in STILL:
        raise ConfigError(f"A picture of curves must end in {', '.join(STILL)}; got '{path.name}'.")
    if not flows:
        raise ConfigError("Curves need at least one flow; got none.")
    names = [visible(name) for name in flows]
    return still.save(lambda: _figure(flows, title), names, path.suffix.lower())


def _figure(flows: Mapping[str, Any], title: str | None) -> tuple[Figure, str]:
    size = (6.4, 3.6)
    drawing, axes = matrix.canvas(*size)
    ends: list[tuple[float, float, str, str]] = []
    for number, (name, flow) in enumerate(flows.items()):
        largest = max(flow.by_distance()[1].max(initial=0), 1e-30)
        colour, mark = HEADS[number % len(HEADS)], _MARKS[number % len(_MARKS)]
        lines = {label(name, 28): ("total", "-")}
        if flow.attention.any() and flow.state.any():  # both ways are open: what is left without attention?
            lines[label(name, 28) + ", attention held fixed"] = ("state", "--")
        for words, (which, style) in lines.items():
            distance, norm = flow.by_distance(which)
            shown = np.maximum(norm / largest, 1e-12)
            filled = colour if which == "total" else "white"
            axes.plot(
                distance, shown, style, color=colour, marker=mark, markersize=4, linewidth=1.6, markerfacecolor=filled
            )
            ends.append((float(distance[-1]), float(shown[-1]), words, colour))
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _name(axes, ends)
    axes.set_xlabel("distance: words read after the source word + words written before the target word", fontsize=9)
    axes.set_ylabel("gradient norm, largest = 1", fontsize=9)
    axes.grid(color="#e4e8ed", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8, colors=FAINT)
    caption = "mean norm of d log p(target word) / d (source embedding), each model divided by its largest value"
    matrix.under(axes, "\n\n\n" + caption, None, size)
    if title:
        axes.set_title(visible(title), loc="left", fontsize=11, fontweight="bold", parse_math=False)
    return drawing, f"Gradient norm against distance for {', '.join(label(name) for name in flows)}."


def _name(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """The name of each line at its right end, moved apart where they would overlap."""
    tall = axes.get_figure().get_size_inches()[1] * 72  # type: ignore[union-attr]  # points
    to_points = axes.transData + axes.transAxes.inverted()
    free = float("inf")
    for x, y, text, colour in sorted(ends, key=lambda end: -end[1]):
        height = to_points.transform((x, y))[1] * tall
        place = min(height, free)
        free = place - 11
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.8}
        matrix.note(axes, text, (x, y), (14, place - height), 9, color=INK, va="center", arrowprops=line)
