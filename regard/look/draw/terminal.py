"""The matrix in a terminal: coloured blocks, or letters where there is no colour. Returns text; prints nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.errors import ConfigError
from regard.look.contents import Contents
from regard.look.draw.palette import ink_on, mix, parse
from regard.look.draw.palette import palette as find_palette
from regard.look.text import clusters, columns, label, wrap
from regard.look.words import Label, arrange, right_to_left

SHADES = " .:-=+*#%@"  # from 0 to 1, for terminals without colour
_LONGEST = 14


def matrix(
    trace: Contents, width: int = 100, colour: bool = True, palette: str = "blue", numbers: bool = True, **options: Any
) -> str:
    """The matrix as lines of at most `width` columns; a wide matrix is cut into several, one below another.

    With `colour` each weight is a block of its colour (24-bit), with its number in hundredths; without, a shade from
    SHADES and the same number. `options` are those of `regard.look.words.arrange`.
    """
    if width < 40:
        raise ConfigError(f"width must be at least 40 columns; got {width}.")
    hues = find_palette(palette)
    table = arrange(trace, **options)
    names = [label(each.text, _LONGEST) for each in table.rows]
    margin = max((columns(name) for name in names), default=0)
    cell = (3 if colour else 4) if numbers else 2
    across = max(1, (width - margin - 1) // cell)
    blocks = []
    for start in range(0, max(1, len(table.columns)), across):
        piece = slice(start, start + across)
        head = _head(table.columns[piece], start, margin, cell)
        body = [
            " " * (margin - columns(name)) + name + " " + _row(row[piece], hues if colour else None, numbers, cell)
            for name, row in zip(names, table.weights, strict=True)
        ]
        blocks.append("\n".join([*head, *body]))
    caption = wrap(table.caption.replace(", source runs right to left", ""), width)
    return "\n\n".join(blocks) + "\n" + _legend(hues if colour else None) + "\n" + caption + "\n"


def _row(row: np.ndarray, hues: tuple[str, ...] | None, numbers: bool, cell: int) -> str:
    parts = []
    for weight in row:
        hundredths = min(99, round(float(weight) * 100))  # 99 stands for 1 too: two places are all there is
        text = f"{hundredths:>2} " if numbers and hundredths >= 1 else " " * cell
        if hues is None:
            shade = SHADES[min(len(SHADES) - 1, int(float(weight) * len(SHADES) + 1e-5))]
            parts.append(f"{shade}{hundredths:>2} " if numbers and hundredths >= 1 else f"{shade:<{cell}}")
        else:
            back = mix(hues, float(weight))
            ink = parse(ink_on(back))
            parts.append(f"\x1b[48;2;{back[0]};{back[1]};{back[2]};38;2;{ink[0]};{ink[1]};{ink[2]}m{text}")
    return "".join(parts) + ("" if hues is None else "\x1b[0m")


def _head(labels: Sequence[Label], start: int, margin: int, cell: int) -> list[str]:
    """Column names written downwards; numbers and a list where letters cannot stand apart (joined or wide scripts)."""
    names = [clusters(label(each.text, _LONGEST)) for each in labels]
    if right_to_left([each.text for each in labels]) or any(columns(part) != 1 for name in names for part in name):
        numbered = " ".join(f"{start + at}={''.join(name)}" for at, name in enumerate(names))
        ruler = "".join(
            f"{start + at:>{cell - 1}} " if start + at < 10 ** (cell - 1) else "." * (cell - 1) + " "
            for at in range(len(names))
        )
        return [wrap(numbered, margin + 1 + cell * len(names) if len(names) > 8 else 60), " " * (margin + 1) + ruler]
    tall = max(map(len, names), default=0)
    lines = []
    for line in range(tall):
        letters = (name[line - tall + len(name)] if line >= tall - len(name) else " " for name in names)
        lines.append((" " * (margin + 1) + "".join(f"{letter:>{cell - 1}} " for letter in letters)).rstrip(" "))
    return lines


def _legend(hues: tuple[str, ...] | None) -> str:
    if hues is None:
        return f"weights: 0 [{SHADES}] 1, numbers are hundredths"
    blocks = "".join("\x1b[48;2;{};{};{}m ".format(*mix(hues, at / 19)) for at in range(20))
    return f"weights: 0 {blocks}\x1b[0m 1, numbers are hundredths"
