"""A caption's attention: the picture once for each word, with the grid of what was looked at."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.data.images import Pixels
from regard.look.contents import Contents
from regard.look.draw import matrix
from regard.look.draw.cells import background, size_of
from regard.look.draw.picture import paint
from regard.look.text import label
from regard.look.words import Head, Layer, arrange


def figure(
    trace: Contents,
    *,
    picture: str | Path | Pixels | None = None,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    smooth: bool = False,
    palette: str = "viridis",
    title: str | None = None,
) -> tuple[Figure, str]:
    """A film strip: one frame a word. The true grid by default; `smooth` blends its cells, and the caption says so."""
    image = size_of(trace)
    table = arrange(trace, layer, head, words, special)
    behind = background(picture, image)
    rows, across = image.grid
    count = max(1, len(table.rows))
    per_line = min(count, 6)
    lines = -(-count // per_line)
    wide = 1.7
    tall = wide * image.height / max(1, image.width)
    gap, room = 0.12, 0.3
    size = (per_line * (wide + gap), lines * (tall + room))
    drawing = Figure(figsize=size)
    most = float(table.weights.max(initial=0)) or 1.0
    first = None
    for number, each in enumerate(table.rows):
        line, place = divmod(number, per_line)
        bottom = size[1] - (line + 1) * (tall + room)
        axes = drawing.add_axes((place * (wide + gap) / size[0], bottom / size[1], wide / size[0], tall / size[1]))
        first = axes if line == lines - 1 and place == 0 else first
        cells = table.weights[number].reshape(rows, across)
        paint(axes, cells, behind, image, palette=palette, smooth=smooth, most=most)
        at = np.unravel_index(int(cells.argmax()), cells.shape)
        axes.set_title(label(each.text, 18), fontsize=10, pad=3, parse_math=False)
        axes.set_xlabel(f"strongest: row {at[0]}, column {at[1]}, {cells.max():.2f}", fontsize=6.5, labelpad=2)
    blended = " (smoothed for display)" if smooth else ""
    caption = f"{table.caption}, grid {rows} x {across} (counted from 0){blended}, colours from 0 to {most:.2f}"
    if first is not None:
        matrix.under(first, "\n" + caption, title, size)
    return drawing, f"Attention of {count} words over a picture. {caption}."
