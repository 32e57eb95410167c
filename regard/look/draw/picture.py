"""A caption's attention on its picture: a film of all words, one word's map, or the words that attend to a region.

By default the cells are drawn as they are; `smooth` interpolates between them, and the caption says so. The background
is the square crop that the model reads, from `regard.data.images`.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.data.images import Pixels
from regard.errors import counted
from regard.look.draw import matrix
from regard.look.maps import Cells, background, describe, map_of, region_of, shares_of, size_of
from regard.look.palette import CHANGED, FAINT, INK
from regard.look.table import Show, arrange
from regard.look.trace_data import Picture, TraceData
from regard.text.visible import label

_WIDE = 3.2  # inches of a map
_FRAME = 1.7  # inches of a frame of a film


def film(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """A film strip: one frame for each word, all on one scale."""
    image, table = size_of(trace), arrange(trace, show)
    behind = background(show.picture, image)
    rows, across = image.grid
    count = max(1, len(table.rows))
    per_line = min(count, 6)
    lines = -(-count // per_line)
    tall = _FRAME * image.height / max(1, image.width)
    gap, room = 0.12, 0.3
    size = (per_line * (_FRAME + gap), lines * (tall + room))
    drawing = Figure(figsize=size)
    most = float(table.weights.max(initial=0)) or 1.0
    first = None
    for number, each in enumerate(table.rows):
        line, place = divmod(number, per_line)
        bottom = size[1] - (line + 1) * (tall + room)
        corner = (place * (_FRAME + gap) / size[0], bottom / size[1])
        axes = drawing.add_axes((*corner, _FRAME / size[0], tall / size[1]))
        first = axes if line == lines - 1 and place == 0 else first
        cells = map_of(table, number, image)
        _paint(axes, cells, behind, image, show, most=most)
        at = np.unravel_index(int(cells.argmax()), cells.shape)
        axes.set_title(label(each.text, 18), fontsize=10, pad=3, parse_math=False)
        axes.set_xlabel(f"strongest: row {at[0]}, column {at[1]}, {cells.max():.2f}", fontsize=6.5, labelpad=2)
    blended = " (smoothed for display)" if show.smooth else ""
    caption = f"{table.caption}, grid {rows} x {across} (counted from 0){blended}, colours from 0 to {most:.2f}"
    if first is not None:
        matrix.under(first, "\n" + caption, show.title, size)
    return drawing, f"Attention of {counted(count, 'word')} over a picture. {caption}."


def one(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """The picture beside the map of word `show.step` (from 0), or of all words together: the sum of their weights."""
    size, table = size_of(trace), arrange(trace, show)
    cells = map_of(table, show.step, size)
    behind = background(show.picture, size)
    tall = _WIDE * size.height / max(1, size.width)
    across = 2 if behind is not None else 1
    whole = (across * _WIDE + (across - 1) * 0.15, tall)
    drawing = Figure(figsize=whole)
    most = 1.0 if show.step is not None else max(1.0, float(cells.max(initial=0)))
    first = None
    if behind is not None:
        first = drawing.add_axes((0, 0, _WIDE / whole[0], 1))
        _paint(first, None, behind, size, show)
    axes = drawing.add_axes((1 - _WIDE / whole[0], 0, _WIDE / whole[0], 1))
    _paint(axes, cells, behind, size, show, most=most, lines=True)
    blended = ", smoothed for display" if show.smooth else ""
    caption = f"{describe(table, show.step, cells)} {table.caption}, grid {size.grid[0]} x {size.grid[1]}{blended}."
    matrix.under(first or axes, caption, show.title, whole)
    return drawing, caption


def region(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """The reverse: how much each word attends to the region `show.cells`, as bars."""
    size, table = size_of(trace), arrange(trace, show)
    top, left, bottom, right = region_of(show.cells, size.grid)
    shares, sentence = shares_of(table, (top, left, bottom, right), size)
    tall = _WIDE * size.height / max(1, size.width)
    bars = max(tall, 0.2 * len(shares))
    whole = (2 * _WIDE + 1.3, bars)
    drawing = Figure(figsize=whole)
    axes = drawing.add_axes((0, 1 - tall / bars, _WIDE / whole[0], tall / bars))
    _paint(axes, None, background(show.picture, size), size, show, lines=True)
    high, wide = 1 / size.grid[0], 1 / size.grid[1]
    corner = (left * wide, 1 - (bottom + 1) * high)
    box = ((right - left + 1) * wide, (bottom - top + 1) * high)
    axes.add_patch(Rectangle(corner, *box, fill=False, edgecolor=CHANGED, linewidth=2.5, clip_on=False))
    side = drawing.add_axes(((_WIDE + 1.2) / whole[0], 0, _WIDE / whole[0], 1))
    _bars(side, shares, [label(each.text, 18) for each in table.rows])
    caption = f"{sentence} {table.caption}."
    matrix.under(axes, caption, show.title, (_WIDE, tall))
    return drawing, caption


def _paint(
    axes: Axes,
    cells: Cells | None,
    behind: Pixels | None,
    size: Picture,
    show: Show,
    most: float = 1.0,
    lines: bool = False,
) -> None:
    """The picture, over it the map of `cells`, over that the lines of the grid; what is None is left out."""
    frame: dict[str, Any] = {"extent": (0, 1, 0, 1), "aspect": "auto"}
    if behind is not None:
        axes.imshow(behind, interpolation="nearest" if behind.shape[0] < 128 else "antialiased", **frame)
    if cells is not None:
        axes.imshow(
            cells, cmap=matrix.colours(show.palette or "viridis"), vmin=0, vmax=most,
            alpha=0.62 if behind is not None else 1.0, interpolation="bilinear" if show.smooth else "nearest", **frame,
        )  # fmt: skip
    if lines and not show.smooth:
        for count, draw in ((size.grid[0], axes.axhline), (size.grid[1], axes.axvline)):
            for place in range(1, count):
                draw(place / count, color="white" if cells is not None else FAINT, linewidth=0.4, alpha=0.7)
    axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    matrix.frame(axes)


def _bars(axes: Axes, shares: NDArray[np.float32], names: list[str]) -> None:
    places = np.arange(len(shares))
    axes.barh(places, shares, color=CHANGED, height=0.7)
    for place, share in zip(places, shares, strict=True):
        axes.text(min(float(share), 1.0) + 0.01, float(place), f"{share:.2f}", va="center", fontsize=7.5, color=FAINT)
    axes.set_yticks(places, names, fontsize=9, parse_math=False)
    axes.set(xlim=(0, 1), ylim=(len(shares) - 0.4, -0.6))
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=8)
    axes.tick_params(length=2, width=0.6, colors=INK)
    for name, spine in axes.spines.items():
        spine.set(visible=name in ("left", "bottom"), color="#c3cad3", linewidth=0.6)
