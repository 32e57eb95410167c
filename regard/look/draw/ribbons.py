"""Ribbons: source words left, target words right, and bands between them as wide as the weight."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from regard.errors import ConfigError
from regard.look.draw import matrix
from regard.look.table import Label, Show, Table, arrange, summary
from regard.look.trace_data import TraceData
from regard.text.visible import label

Places = tuple[NDArray[np.float64], NDArray[np.float64]]
_COLOUR = "#124983"
_THICK = 0.86  # of the height of a word: the width of a band of weight 1


def figure(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """The strongest links that together hold `show.mass` of each row."""
    mass = show.mass
    if not 0 < mass <= 1:
        raise ConfigError(f"mass must be above 0 and at most 1; got {mass}.")
    table = arrange(trace, show)
    rows = max(len(table.rows), len(table.columns), 1)
    line = float(np.clip(40 / rows, 0.08, 0.3))  # inches for a word
    tall, wide = rows * line, 2.6
    drawing, axes = matrix.canvas(wide, tall)
    axes.set(xlim=(0, 1), ylim=(rows, 0))
    axes.axis("off")
    down, up = _places(len(table.rows), rows), _places(len(table.columns), rows)
    _bands(axes, table, (down, up), mass)
    changed = trace.changed()
    size = float(np.clip(line * 72 * 0.62, 2.5, 11))
    _column(axes, table.columns, up, (0, -6, "right"), (size, changed[1]))
    _column(axes, table.rows, down, (1, 6, "left"), (size, changed[0]))
    caption = f"{table.caption}; links that hold {mass:.0%} of each row's mass"
    matrix.under(axes, caption, show.title, (wide + 1.5, tall))
    return drawing, f"{summary(table)} {table.caption}."


def strongest(row: NDArray[np.float32], mass: float) -> list[int]:
    """The fewest positions, strongest first, that hold at least `mass` of the row's sum; none for a row of zeros.

    The page has the same function, since its slider changes `mass` while the page is shown.
    """
    order = np.argsort(-row, kind="stable")
    total = np.cumsum(row[order], dtype=np.float64)
    if not row.size or total[-1] <= 0:
        return []
    enough = int(np.searchsorted(total, mass * total[-1] * (1 - 1e-6))) + 1
    return [int(at) for at in order[:enough] if row[at] > 0]


def _places(count: int, rows: int) -> NDArray[np.float64]:
    """Heights of `count` words, spread over the height of the longer side."""
    return np.asarray((np.arange(count) + 0.5) * (rows / max(1, count)), dtype=np.float64)


def _bands(axes: Axes, table: Table, places: Places, mass: float) -> None:
    """The bands, stacked where several meet at a word, so that none hides another."""
    down, up = places
    kept = np.zeros_like(table.weights, dtype=np.float64)  # [T, S]
    for t, row in enumerate(table.weights):
        kept[t, strongest(row, mass)] = row[strongest(row, mass)]
    right = kept  # widths at the target; a row holds at most one
    left = kept / np.maximum(1.0, kept.sum(0, keepdims=True))  # at the source several rows share the room
    right_from = np.cumsum(right, 1) - right - right.sum(1, keepdims=True) / 2  # [T, S]
    left_from = np.cumsum(left, 0) - left - left.sum(0, keepdims=True) / 2  # [T, S]
    for t, s in np.argwhere(kept > 0):
        y0, y1 = up[s] + left_from[t, s] * _THICK, down[t] + right_from[t, s] * _THICK
        band = _band(y0, max(0.02, left[t, s] * _THICK), y1, max(0.02, right[t, s] * _THICK))
        alpha = 0.22 + 0.58 * float(kept[t, s])
        axes.add_patch(PathPatch(band, facecolor=_COLOUR, alpha=alpha, linewidth=0.25, edgecolor=_COLOUR))


def _band(y0: float, left: float, y1: float, right: float) -> Outline:
    """A band from (0, y0) of height `left` to (1, y1) of height `right`."""
    points = [
        (0, y0), (0.45, y0), (0.55, y1), (1, y1),
        (1, y1 + right), (0.55, y1 + right), (0.45, y0 + left), (0, y0 + left), (0, y0),
    ]  # fmt: skip
    curve = [Outline.CURVE4] * 3
    return Outline(points, [Outline.MOVETO, *curve, Outline.LINETO, *curve, Outline.CLOSEPOLY])


def _column(
    axes: Axes,
    labels: tuple[Label, ...],
    places: NDArray[np.float64],
    side: tuple[float, float, str],
    look: tuple[float, set[int]],
) -> None:
    x, offset, align = side
    size, changed = look
    for each, y in zip(labels, places, strict=True):
        style = {"ha": align, "va": "center_baseline", **matrix.style_of(each, changed)}
        matrix.note(axes, label(each.text), (x, y), (offset, 0), size, **style)
