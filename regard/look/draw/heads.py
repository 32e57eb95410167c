"""All heads at once: a row for each layer, a thumbnail for each head, with the numbers that tell them apart."""

import numpy as np
from matplotlib.figure import Figure

from regard.look.contents import Contents
from regard.look.draw import matrix
from regard.look.draw.palette import FAINT, INK
from regard.look.measure import head as measures
from regard.look.words import arrange, leading_modules


def figure(
    trace: Contents,
    *,
    words: bool = True,
    special: bool = False,
    renormalise: bool = False,
    shift: int | None = None,
    palette: str = "blue",
    title: str | None = None,
) -> tuple[Figure, str]:
    """Thumbnails of every head of the modules that join target and source, on one scale from 0 to 1."""
    modules = leading_modules(trace)
    most = max((seen.heads for seen in modules), default=1)
    first = arrange(trace, modules[0].name if modules else None, 0, words, special, renormalise, shift)
    rows, across = (max(1, size) for size in first.weights.shape)
    wide = float(np.clip(9.6 / most, 1.0, 2.2))
    tall = float(np.clip(wide * rows / across, wide * 0.5, wide * 1.6))
    gap, head_room, left = 0.14, 0.34, 0.55
    width = left + most * (wide + gap)
    height = max(1, len(modules)) * (tall + head_room + gap)
    drawing = Figure(figsize=(width, height))
    last = None
    for down, seen in enumerate(modules):
        bottom = height - (down + 1) * (tall + head_room + gap)
        drawing.text(
            0.1 / width, (bottom + tall / 2) / height, f"layer {seen.layer}", rotation=90, va="center", fontsize=9
        )
        for head in range(seen.heads):
            table = arrange(trace, seen.name, head, words, special, renormalise, shift)
            axes = drawing.add_axes(
                ((left + head * (wide + gap)) / width, bottom / height, wide / width, tall / height)
            )
            matrix.paint(axes, table, palette, max(1, -(-max(table.weights.shape) // 600)))
            numbers = measures(table.weights)
            axes.annotate(
                f"head {head}", (0, 1), xycoords="axes fraction", xytext=(0, 12), textcoords="offset points",
                fontsize=8, color=INK, fontweight="bold",
            )  # fmt: skip
            axes.annotate(
                f"entropy {numbers['entropy']:.1f}  diagonal {numbers['diagonality']:.2f}", (0, 1), color=FAINT,
                xycoords="axes fraction", xytext=(0, 3), textcoords="offset points", fontsize=min(6.5, wide * 4.4),
            )  # fmt: skip
            last = axes if down == 0 else last
    if last is not None:
        matrix.legend(last, palette, wide, tall)
        matrix.under(
            drawing.add_axes((left / width, 0, 1 - left / width, 1), frameon=False, xticks=[], yticks=[]),
            _caption(first.caption, most),
            title,
            (width, height),
        )
    return drawing, f"{sum(seen.heads for seen in modules)} heads of attention. {first.caption}."


def _caption(caption: str, heads: int) -> str:
    parts = [part for part in caption.split(", ") if not part.startswith(("layer ", "head "))]
    return ", ".join(
        [f"every head, source across, target down; entropy in nats, mean over rows ({heads} heads a layer)", *parts]
    )
