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

from regard.data.images import Pixels, read_picture
from regard.errors import ConfigError
from regard.look.contents import Contents
from regard.look.contents import Picture as Size
from regard.look.draw import matrix
from regard.look.draw.palette import CHANGED, FAINT, INK
from regard.look.text import label
from regard.look.words import Head, Layer, Table, arrange

Cells = NDArray[np.float32]  # [rows, columns]
_WIDE = 3.2  # inches of a map
_TOP = 5  # cells that the sentence under a map sums up


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
    size = _size(trace)
    table = arrange(trace, layer, head, words, special)
    cells = _map(table, step, size)
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
    size = _size(trace)
    top, left, bottom, right = _corners(cells, size.grid)
    table = arrange(trace, layer, head, words, special)
    maps = table.weights.reshape(-1, *size.grid)  # [T, rows, columns]
    shares = maps[:, top : bottom + 1, left : right + 1].sum(axis=(1, 2))  # [T]
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
    where = (
        f"row {top}, column {left}"
        if (top, left) == (bottom, right)
        else f"rows {top}-{bottom}, columns {left}-{right}"
    )
    strongest = f"'{label(table.rows[int(shares.argmax())].text)}' with {shares.max():.2f}" if len(shares) else "nobody"
    caption = f"How much each word looked at {where}: most of all {strongest}. {table.caption}."
    matrix.under(axes, caption, title, (_WIDE, tall))
    return drawing, caption


def background(picture: str | Path | Pixels | None, size: Size) -> Pixels | None:
    """The square that the model saw, at least 224 pixels wide: read from a file, or pixels as they are."""
    if picture is None or isinstance(picture, np.ndarray):
        return picture
    return read_picture(picture, max(224, size.width))


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


def describe(table: Table, step: int | None, cells: Cells) -> str:
    """One sentence of where a word looked, for those who do not see the picture."""
    if not cells.size:
        return "Nothing was written."
    row, column = (int(at) for at in np.unravel_index(int(cells.argmax()), cells.shape))
    where = f"strongest at row {row}, column {column} (from 0), {cells[row, column]:.2f}"
    if step is None:
        return f"All {len(table.rows)} words together: {where}; {int((cells < 0.05).sum())} cells were hardly seen."
    few = min(_TOP, cells.size)
    share = float(np.sort(cells, axis=None)[-few:].sum())
    return f"'{label(table.rows[step].text)}': {where}; the top {few} cells hold {share:.2f}."


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


def _size(trace: Contents) -> Size:
    if trace.image is None:
        raise ConfigError("This trace has no picture; these views are for captions. Use view='matrix' for text.")
    return trace.image


def _map(table: Table, step: int | None, size: Size) -> Cells:
    if step is None:
        return np.asarray(table.weights.sum(axis=0).reshape(size.grid), dtype=np.float32)
    if not 0 <= step < len(table.rows):
        raise ConfigError(f"step must be a word from 0 to {len(table.rows) - 1}; got {step}.")
    return np.asarray(table.weights[step].reshape(size.grid), dtype=np.float32)


def _corners(cells: tuple[int, ...], grid: tuple[int, int]) -> tuple[int, int, int, int]:
    corners = (*cells, *cells) if len(cells) == 2 else tuple(cells)
    whole = len(corners) == 4 and all(isinstance(place, int) for place in corners)
    if not whole or not (0 <= corners[0] <= corners[2] < grid[0] and 0 <= corners[1] <= corners[3] < grid[1]):
        raise ConfigError(
            f"cells is (row, column) or (top, left, bottom, right) inside the grid of {grid[0]} x {grid[1]}, from 0; "
            f"got {tuple(cells)}."
        )
    return corners[0], corners[1], corners[2], corners[3]
