"""The matrix: source across the top, target down, one square for each weight (Bahdanau 2015, figure 3)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.look.palette import CHANGED, FAINT, INK, SHADES, ink_on, mix
from regard.look.palette import palette as find_palette
from regard.look.table import Label, Show, Table, arrange, summary
from regard.look.trace_data import TraceData
from regard.text.visible import columns, label, visible, wrap

_SLANTED = {"ha": "left", "va": "center_baseline", "rotation_mode": "anchor"}
_MOST_SQUARES = 60  # beyond, squares become one image: viewers cannot open an SVG of a hundred thousand shapes
_MOST_CELLS = 1200  # beyond, neighbouring cells share a dot


def figure(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """The matrix of one module; `show.links` outlines the strongest source word of each target word."""
    table, palette = arrange(trace, show), show.palette or "blue"
    count = max(1, *table.weights.shape)
    cell = float(np.clip(16 / count, 0.075, 0.42)) if count <= 400 else 30 / count  # inches
    rows, across = (max(1, size) for size in table.weights.shape)
    drawing, axes = canvas(across * cell, rows * cell)
    caption = table.caption
    step = max(1, -(-count // _MOST_CELLS))
    if step > 1:
        caption += f", each dot shows the largest of {step} x {step} weights"
    paint(axes, table, palette, step)
    size = float(np.clip(cell * 72 * 0.8, 2.5, 10.5))
    name(axes, table, size, cell, trace.changed())
    if show.numbers and cell >= 0.27:
        _write_numbers(axes, table, palette, cell)
    for t, row in enumerate(table.weights):
        if show.links and row.max(initial=0) > 0:
            s = int(row.argmax())
            axes.plot([s, s + 1, s + 1, s, s], [t, t, t + 1, t + 1, t], color=CHANGED, linewidth=1.4, clip_on=False)
    below = legend(axes, palette, across * cell, rows * cell)
    under(axes, caption, show.title, (across * cell, rows * cell), below)
    return drawing, f"{summary(table)} {table.caption}."


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of this size in inches, and axes that fill it."""
    drawing = Figure(figsize=(width, height))
    return drawing, drawing.add_axes((0, 0, 1, 1))


def frame(axes: Axes) -> None:
    """A faint line around the axes."""
    for spine in axes.spines.values():
        spine.set(color="#c3cad3", linewidth=0.6)


def colours(name: str) -> LinearSegmentedColormap:
    """A palette as matplotlib knows it."""
    return LinearSegmentedColormap.from_list(name, find_palette(name), N=SHADES)


def paint(axes: Axes, table: Table, name: str, step: int = 1) -> None:
    """The squares, on a fixed scale from 0 to 1."""
    weights = table.weights
    if step > 1 and weights.size:  # the largest weight of each `step` x `step` block
        for axis, size in enumerate(weights.shape):
            weights = np.maximum.reduceat(weights, range(0, size, step), axis)
    rows, across = (max(1, size) for size in table.weights.shape)
    settings: dict[str, Any] = {"cmap": colours(name), "vmin": 0, "vmax": 1}
    if not table.weights.size:
        pass
    elif max(table.weights.shape) <= _MOST_SQUARES:
        edges: dict[str, Any] = {"edgecolors": "white", "linewidth": 0.6} if max(table.weights.shape) <= 30 else {}
        axes.pcolormesh(np.arange(across + 1), np.arange(rows + 1), weights, **settings, **edges)
    else:
        dots = colours(name)(weights, bytes=True)  # coloured here: cheaper than colouring every pixel
        axes.imshow(dots, extent=(0, across, rows, 0), interpolation="nearest", aspect="auto")
    axes.set_xlim((across, 0) if table.right_to_left else (0, across))
    axes.set_ylim(rows, 0)
    axes.set(xticks=[], yticks=[])
    frame(axes)


def name(axes: Axes, table: Table, size: float, cell: float, changed: tuple[set[int], set[int]]) -> None:
    """Source words above their columns, target words left of their rows; some are left out where they would overlap."""
    every = max(1, int(np.ceil(size * 1.05 / (cell * 72))))
    longest = 24 if len(table.columns) <= _MOST_SQUARES else 16
    flat = all(columns(label(each.text, longest)) <= cell * 72 / (size * 0.62) for each in table.columns)
    slant = 90 if cell * 72 < size * 1.7 else 50  # slanted words read better where there is room
    above = {"ha": "center", "va": "bottom"} if flat else {"rotation": slant, **_SLANTED}
    write_words(axes, table.columns, changed[1], 0, every, size, (0, 4), longest, **above)
    write_words(axes, table.rows, changed[0], None, every, size, (-4, 0), longest, ha="right", va="center")


def write_words(
    axes: Axes,
    labels: Sequence[Label],
    changed: set[int],
    y: float | None,
    every: int,
    size: float,
    offset: tuple[float, float],
    longest: int,
    **style: Any,
) -> None:
    """Every n-th word of a side: at height `y` of its column, or without a height left of its row."""
    left = axes.get_xlim()[0]  # also where columns run right to left
    for at in range(0, len(labels), every):
        place = (left, at + 0.5) if y is None else (at + 0.5, y)
        text = label(labels[at].text, longest)
        note(axes, text, place, offset, size, **style, **style_of(labels[at], changed))


def style_of(each: Label, changed: set[int]) -> dict[str, Any]:
    """The style of a word: bold if a what-if changed it, italic if it is a special token."""
    if changed & set(each.tokens):
        return {"color": CHANGED, "fontweight": "bold"}
    return {"color": FAINT, "fontstyle": "italic"} if each.special else {"color": INK}


def note(
    axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], size: float, **style: Any
) -> None:
    """A text `offset` points away from a place; `xycoords="axes fraction"` counts the place in parts of the axes."""
    still: dict[str, Any] = {"textcoords": "offset points", "parse_math": False, "annotation_clip": False}
    axes.annotate(text, place, xytext=offset, fontsize=size, **still, **style)


def _write_numbers(axes: Axes, table: Table, name: str, cell: float) -> None:
    hues = find_palette(name)
    for t, s in np.argwhere(table.weights >= 0.005):
        value = float(table.weights[t, s])
        text = f"{value:.2f}".lstrip("0") if value < 0.995 else "1"
        axes.text(
            s + 0.5, t + 0.5, text, fontsize=cell * 72 * (0.29 if value >= 0.05 else 0.23), ha="center", va="center",
            color=ink_on(mix(hues, value)) if value >= 0.05 or name != "blue" else "#6b7480",
        )  # fmt: skip


def legend(axes: Axes, name: str, width: float, height: float) -> float:
    """The scale, right of the squares; returns how many inches it ends below them, where there is one row."""
    tall = float(np.clip(height - 0.3, 0.6, 1.6))
    bar = axes.inset_axes((1 + 0.18 / width, 1 - (tall + 0.26) / height, 0.11 / width, tall / height))
    bar.imshow(np.linspace(1, 0, 128)[:, None], aspect="auto", cmap=colours(name), vmin=0, vmax=1, extent=(0, 1, 0, 1))
    bar.set_xticks([])
    bar.yaxis.tick_right()
    bar.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    bar.tick_params(labelsize=8, length=2, width=0.6, colors=FAINT, pad=2)
    bar.set_title("weight", fontsize=8, color=FAINT, pad=7, loc="left")
    frame(bar)
    return max(0.0, tall + 0.26 - height)


def under(axes: Axes, caption: str, title: str | None, size: tuple[float, float], below: float = 0) -> None:
    """The caption below, `below` inches further down, and a title at its left."""
    width = int(max(46, size[0] * 72 / 4.1))
    lines = ([wrap(visible(title), width)] if title else []) + [wrap(caption, width)]
    for number, text in enumerate(lines):
        strong = bool(title) and number == 0
        down = -8 - 72 * below - (lines[0].count("\n") + 1) * 14 * number
        note(
            axes, text, (0, 0), (0, down), 10 if strong else 8, xycoords="axes fraction", ha="left", va="top",
            color=INK if strong else FAINT, fontweight="bold" if strong else "normal", linespacing=1.4,
        )  # fmt: skip
