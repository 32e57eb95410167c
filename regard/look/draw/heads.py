"""All heads at once: a row for each layer, a thumbnail for each head, with measures of each."""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.errors import counted
from regard.look.draw import matrix
from regard.look.measure import measure
from regard.look.palette import FAINT, INK
from regard.look.table import Label, Show, Table, arrange, leading_modules
from regard.look.trace_data import TraceData
from regard.text.visible import columns, label

_LONGEST = 16  # letters of a name
_ORDINALS = {2: "second", 3: "third"}
_ROOM = 0.075  # inches that a word's name needs; thumbnails grow for it
_WIDEST = 24.0  # inches of all thumbnails of a layer at most


def figure(trace: TraceData, show: Show) -> tuple[Figure, str]:
    """Thumbnails of every head of the modules that join target and source, on one scale from 0 to 1.

    Words are on the outside: those of the target left of each layer, those of the source below the last one.
    """
    modules, palette = leading_modules(trace), show.palette or "blue"
    measures = {(row.name, row.head): row.values for row in measure(trace)}
    most = max((seen.heads for seen in modules), default=1)
    first = arrange(trace, replace(show, layer=modules[0].name if modules else None, head="mean"))
    rows, across = (max(1, size) for size in first.weights.shape)
    wide = max(float(np.clip(9.6 / most, 1.0, 2.2)), min(_ROOM * across, _WIDEST / most))
    tall = float(np.clip(wide * rows / across, wide * 0.5, wide * 1.6))
    names = _Names(first, wide / across, tall / rows)
    gap, head_room, left = 0.14, 0.34, 0.4 + names.left
    width = left + most * (wide + gap)
    height = max(1, len(modules)) * (tall + head_room + gap) + names.below
    drawing = Figure(figsize=(width, height))
    last = None
    for down, seen in enumerate(modules):
        bottom = height - (down + 1) * (tall + head_room + gap)
        drawing.text(
            0.1 / width, (bottom + tall / 2) / height, f"layer {seen.layer}", rotation=90, va="center", fontsize=9
        )
        for head in range(seen.heads):
            shift = seen.shift if show.shift is None else show.shift  # thumbnails share their rows
            table = arrange(trace, replace(show, layer=seen.name, head=head, shift=shift))
            axes = drawing.add_axes(
                ((left + head * (wide + gap)) / width, bottom / height, wide / width, tall / height)
            )
            matrix.paint(axes, table, palette, max(1, -(-max(table.weights.shape) // 600)))
            if head == 0:
                names.write(axes, table.rows, trace.changed()[0])
            if down == len(modules) - 1:
                names.write(axes, table.columns, trace.changed()[1], len(table.rows) or 1)
            numbers = measures[seen.name, head]
            above = {"xycoords": "axes fraction"}
            matrix.note(axes, f"head {head}", (0, 1), (0, 12), 8, color=INK, fontweight="bold", **above)
            text = f"entropy {numbers['entropy']:.1f}  diagonal {numbers['diagonality']:.2f}"
            matrix.note(axes, text, (0, 1), (0, 3), min(6.5, wide * 4.4), color=FAINT, **above)
            last = axes if down == 0 else last
    about = f"every head, source across, target down; entropy in nats, mean over rows ({counted(most, 'head')} a layer)"
    parts = [part for part in first.caption.split(", ") if not part.startswith(("layer ", "head "))]
    if last is not None:
        matrix.legend(last, palette, wide, tall)
        matrix.under(
            drawing.add_axes((left / width, 0, 1 - left / width, 1), frameon=False, xticks=[], yticks=[]),
            ", ".join(part for part in (about, *parts, names.left_out) if part),
            show.title,
            (width, height),
        )
    return drawing, f"{counted(sum(seen.heads for seen in modules), 'head')} of attention. {first.caption}."


class _Names:
    """The words beside the outer thumbnails, and their space; if there is too little for all, every n-th word."""

    def __init__(self, table: Table, wide: float, tall: float) -> None:
        """`wide` and `tall` are the inches of a square."""
        self.sizes = [float(np.clip(72 * room * 0.85, 4.5, 7.5)) for room in (tall, wide)]  # points: rows, columns
        self.every = [
            int(np.ceil(size * 1.05 / (72 * room))) for size, room in zip(self.sizes, (tall, wide), strict=True)
        ]
        used = [
            max((columns(label(one.text, _LONGEST)) for one in side), default=0) for side in (table.rows, table.columns)
        ]
        self.left, self.below = (0.08 + 0.6 * size / 72 * most for size, most in zip(self.sizes, used, strict=True))
        shares = [
            f"every {_ORDINALS.get(n, f'{n}th')} {side} word"
            for n, side in zip(self.every, ("target", "source"), strict=True)
            if n > 1
        ]
        self.left_out = f"only {' and '.join(shares)} named, as there is no room for more" if shares else ""

    def write(self, axes: Axes, labels: tuple[Label, ...], changed: set[int], bottom: int | None = None) -> None:
        """The words of one side: left of a thumbnail, or upright below its row `bottom`."""
        side = 0 if bottom is None else 1
        offset = (-3, 0) if bottom is None else (0, -3)
        place: dict[str, Any] = {"ha": "right", "va": "center_baseline"}
        if bottom is not None:
            place = {"ha": "center", "va": "top", "rotation": 90}
        every, size = self.every[side], self.sizes[side]
        matrix.write_words(axes, labels, changed, bottom, every, size, offset, _LONGEST, **place)
