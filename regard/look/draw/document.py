"""A document: the weight of each sentence at its left, the shade of each word behind it (Yang 2016, figure 5).

Letters have one width, so that words can be placed without measuring them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.draw import still
from regard.look.draw.matrix import canvas, note
from regard.look.palette import FAINT, INK, Colour, ink_on
from regard.text.visible import columns, wrap

SIZE, LETTER, LINE = 10.0, 0.602, 1.75  # points; width of a letter and height of a line, in parts of the size
WIDTH, BAR = 78, 5  # letters of a line, and of the weight before it
MONOSPACE: dict[Any, Any] = {"font.monospace": ["DejaVu Sans Mono"]}  # comes with matplotlib; browsers have others


class Word(NamedTuple):
    """A word, the text before it, and its colour."""

    gap: str
    text: str
    back: Colour


class Row(NamedTuple):
    """A sentence: its weight as text, the background colour of that text, and its words in lines."""

    weight: str
    back: Colour
    lines: Sequence[Sequence[Word]]


def render(heading: str, rows: Sequence[Row], under: str, ending: str, dpi: int | None) -> bytes:
    """The bytes of the picture; `ending` is .png, .svg or .pdf."""
    sentences = ["".join(word.gap + word.text for line in row.lines for word in line) for row in rows]
    texts = [heading, under, *sentences]
    summary = " ".join([f"{heading}.", *(f"{row.weight}: {text}" for row, text in zip(rows, sentences, strict=True))])
    with matplotlib.rc_context(MONOSPACE):
        return still.save(lambda: (_figure(heading, rows, under), summary), texts, ending, dpi)


def _figure(heading: str, rows: Sequence[Row], under: str) -> Figure:
    height = 2 + sum(len(row.lines) for row in rows) + 0.4 * len(rows)
    across = (WIDTH + BAR) * LETTER * SIZE / 72
    drawing, axes = canvas(across, height * LINE * SIZE / 72)
    axes.set(xlim=(0, WIDTH + BAR), ylim=(height, 0))
    axes.set_axis_off()
    _write(axes, 0, 0.5, heading, INK)
    top = 1.6
    for row in rows:
        _box(axes, 0, top, BAR - 1.5, row.back)
        _write(axes, BAR - 2 - columns(row.weight), top + 0.5, row.weight, ink_on(row.back))
        for line in row.lines:
            at = BAR
            for number, word in enumerate(line):
                at += columns(word.gap) if number else 0
                _box(axes, at - 0.15, top, columns(word.text) + 0.3, word.back)
                _write(axes, at, top + 0.5, word.text, ink_on(word.back))
                at += columns(word.text)
            top += 1
        top += 0.4
    note(axes, wrap(under, WIDTH + BAR), (0, top), (0, -4), 8, color=FAINT, va="top")
    return drawing


def _write(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    family = ["monospace", *matplotlib.rcParams["font.family"]]
    note(axes, text, (x, y), (0, 0), SIZE, va="center_baseline", color=colour, family=family)


def _box(axes: Axes, x: float, y: float, width: float, back: Colour) -> None:
    axes.add_patch(Rectangle((x, y + 0.08), width, 0.84, color=[part / 255 for part in back], linewidth=0))
