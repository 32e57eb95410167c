"""A caption's attention on its picture: one word's map, the sum of all words, or which words looked at a region.

The true grid by default; `smooth` blends the cells, and the caption under the drawing says so. What lies behind the
map is the square that the model saw, read through the gateway of `regard.data.images`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.data.images import Pixels
from regard.look.contents import Contents
from regard.look.contents import Picture as Size
from regard.look.draw import matrix
from regard.look.draw.cells import Cells, background, describe, map_of, region_of, shares_of, size_of
from regard.look.draw.palette import CHANGED, FAINT, INK
from regard.look.text import label
from regard.look.words import Head, Layer, arrange

_WIDE = 3.2  # inches of a map


def figure(
    trace: Contents,
    *,
    picture: str | Path | Pixels | None = None,
    step: int | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    smooth: bool = False,
    palette: str = "viridis",
    title: str | None = None,
) -> tuple[Figure, str]:
    """The picture beside the map of word `step` (from 0), or of all words together: how often each cell was seen."""
    size = size_of(trace)
    table = arrange(trace, layer, head, words, special)
    cells = map_of(table, step, size)
    behind = background(picture, size)
    tall = _WIDE * size.height / max(1, size.width)
    across = 2 if behind is not None else 1
    whole = (across * _WIDE + (across - 1) * 0.15, tall)
    drawing = Figure(figsize=whole)
    most = 1.0 if step is not None else max(1.0, float(cells.max(initial=0)))
    first = None
    if behind is not None:
        first = drawing.add_axes((0, 0, _WIDE / whole[0], 1))
        paint(first, None, behind, size)
    axes = drawing.add_axes((1 - _WIDE / whole[0], 0, _WIDE / whole[0], 1))
    paint(axes, cells, behind, size, palette=palette, smooth=smooth, most=most, lines=True)
    blended = ", smoothed for display" if smooth else ""
    caption = f"{describe(table, step, cells)} {table.caption}, grid {size.grid[0]} x {size.grid[1]}{blended}."
    matrix.under(first or axes, caption, title, whole)
    return drawing, caption


def region(
    trace: Contents,
    *,
    cells: tuple[int, int] | tuple[int, int, int, int] = (0, 0),
    picture: str | Path | Pixels | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    title: str | None = None,
) -> tuple[Figure, str]:
    """The reverse: how much each word looked at a region, as bars. `cells` is (row, column), or the corners of a
    rectangle (top, left, bottom, right), all from 0 and the last ones included."""
    size = size_of(trace)
    top, left, bottom, right = region_of(cells, size.grid)
    table = arrange(trace, layer, head, words, special)
    shares, sentence = shares_of(table, (top, left, bottom, right), size)
    tall = _WIDE * size.height / max(1, size.width)
    bars = max(tall, 0.2 * len(shares))
    whole = (2 * _WIDE + 1.3, bars)
    drawing = Figure(figsize=whole)
    axes = drawing.add_axes((0, 1 - tall / bars, _WIDE / whole[0], tall / bars))
    paint(axes, None, background(picture, size), size, lines=True)
    high, wide = 1 / size.grid[0], 1 / size.grid[1]
    corner = (left * wide, 1 - (bottom + 1) * high)
    box = ((right - left + 1) * wide, (bottom - top + 1) * high)
    axes.add_patch(Rectangle(corner, *box, fill=False, edgecolor=CHANGED, linewidth=2.5, clip_on=False))
    side = drawing.add_axes(((_WIDE + 1.2) / whole[0], 0, _WIDE / whole[0], 1))
    _bars(side, shares, [label(each.text, 18) for each in table.rows])
    caption = f"{sentence} {table.caption}."
    matrix.under(axes, caption, title, (_WIDE, tall))
    return drawing, caption


def paint(
    axes: Axes,
    cells: Cells | None,
    behind: Pixels | None,
    size: Size,
    *,
    palette: str = "viridis",
    smooth: bool = False,
    most: float = 1.0,
    lines: bool = False,
) -> None:
    """The picture, over it the map of `cells`, over that the lines of the grid; each where it is there."""
    frame: dict[str, Any] = {"extent": (0, 1, 0, 1), "aspect": "auto"}
    if behind is not None:
        axes.imshow(behind, interpolation="nearest" if behind.shape[0] < 128 else "antialiased", **frame)
    if cells is not None:
        axes.imshow(
            cells, cmap=matrix.colours(palette), vmin=0, vmax=most, alpha=0.62 if behind is not None else 1.0,
            interpolation="bilinear" if smooth else "nearest", **frame,
        )  # fmt: skip
    if lines and not smooth:
        for count, draw in ((size.grid[0], axes.axhline), (size.grid[1], axes.axvline)):
            for place in range(1, count):
                draw(place / count, color="white" if cells is not None else FAINT, linewidth=0.4, alpha=0.7)
    axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    for spine in axes.spines.values():
        spine.set(color="#c3cad3", linewidth=0.6)


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
