"""The matrix in a terminal: coloured blocks, or characters without colour. Returns text; prints nothing."""

from collections.abc import Sequence

import numpy as np
import wcwidth

from regard.look.maps import map_of, size_of
from regard.look.palette import paint
from regard.look.palette import palette as find_palette
from regard.look.table import Label, Show, arrange, right_to_left
from regard.look.trace_data import Attended, TraceData
from regard.look.trace_file import fits
from regard.symbols import SYMBOLS, UNKNOWN
from regard.text.visible import columns, label, visible, wrap

SHADES = " .:-=+*#%@"  # from 0 to 1, for terminals without colour
_LONGEST = 14
_NEAR = 3  # tokens to either side whose mean weight is printed
NOWHERE = 0.5  # a row with less total weight has most likely reached the end without stopping


def matrix(trace: TraceData, show: Show) -> str:
    """The matrix as lines of at most `show.across` columns; a wide matrix is cut into several, one below another.

    With colours each weight is a block of its colour (24-bit), with its number in hundredths; without, a shade
    from SHADES and the same number.
    """
    width, colour, numbers = show.across, show.coloured, show.numbers
    hues, table = find_palette(show.palette or "blue"), arrange(trace, show)
    names = [label(each.text, _LONGEST) for each in table.rows]
    margin = max((columns(name) for name in names), default=0)
    cell = (3 if colour else 4) if numbers else 2
    across = max(1, (width - margin - 1) // cell)
    blocks = []
    for start in range(0, max(1, len(table.columns)), across):
        piece = slice(start, start + across)
        top = _head(table.columns[piece], start, margin, cell)
        body = [
            " " * (margin - columns(name)) + name + " " + _row(row[piece], hues if colour else None, numbers, cell)
            for name, row in zip(names, table.weights, strict=True)
        ]
        blocks.append("\n".join([*top, *body]))
    caption = wrap(table.caption.replace(", source runs right to left", ""), width)
    legend = _legend(hues if colour else None, "1, numbers are hundredths")
    return "\n".join(["\n\n".join(blocks), legend, caption, *_remarks(trace), ""])


def film(trace: TraceData, show: Show) -> str:
    """A caption's words, each over the map of its weights, as many side by side as fit into `show.across`."""
    width, size, table = show.across, size_of(trace), arrange(trace, show)
    rows, across = size.grid
    hues = find_palette(show.palette or "viridis") if show.coloured else None
    most = float(table.weights.max(initial=0)) or 1.0
    wide = max(2 * across, _LONGEST)
    beside = max(1, (width + 2) // (wide + 2))
    blocks = []
    for start in range(0, len(table.rows), beside):
        steps = range(start, min(start + beside, len(table.rows)))
        names = [label(table.rows[step].text, wide) for step in steps]
        maps = [map_of(table, step, size) / most for step in steps]
        gap = " " * (wide - 2 * across + 2)
        lines = ["  ".join(name + " " * (wide - columns(name)) for name in names).rstrip(" ")]
        lines += [gap.join(_row(one[line], hues, False, 2) for one in maps).rstrip(" ") for line in range(rows)]
        blocks.append("\n".join(lines))
    caption = wrap(f"{table.caption}, grid {rows} x {across}", width)
    return "\n".join(["\n\n".join(blocks), _legend(hues, f"{most:.2f}"), caption, ""])


def _row(row: np.ndarray, hues: tuple[str, ...] | None, numbers: bool, cell: int) -> str:
    parts = []
    for weight in row:
        hundredths = round(float(weight) * 100)
        text = f"{hundredths:>2} "[:3] if numbers and hundredths >= 1 else ""
        if hues is None:
            shade = SHADES[min(len(SHADES) - 1, int(float(weight) * len(SHADES) + 1e-5))]
            parts.append(f"{shade}{text}".ljust(cell))
        else:
            parts.append(paint(text.ljust(cell), hues, float(weight)))
    return "".join(parts)


def _head(labels: Sequence[Label], start: int, margin: int, cell: int) -> list[str]:
    """Column names written downwards, the only one across; numbers and a list where letters cannot be separated (joined
    or wide scripts)."""
    names = [list(wcwidth.iter_graphemes(label(each.text, _LONGEST))) for each in labels]
    if right_to_left([each.text for each in labels]) or any(columns(part) != 1 for name in names for part in name):
        numbered = " ".join(f"{start + at}={''.join(name)}" for at, name in enumerate(names))
        ruler = "".join(
            f"{start + at:>{cell - 1}} " if start + at < 10 ** (cell - 1) else "." * (cell - 1) + " "
            for at in range(len(names))
        )
        return [wrap(numbered, margin + 1 + cell * len(names) if len(names) > 8 else 60), " " * (margin + 1) + ruler]
    if len(names) == 1:
        return [" " * (margin + 1) + label(labels[0].text)]
    tall = max(map(len, names), default=0)
    lines = []
    for line in range(tall):
        letters = (name[line - tall + len(name)] if line >= tall - len(name) else " " for name in names)
        lines.append((" " * (margin + 1) + "".join(f"{letter:>{cell - 1}} " for letter in letters)).rstrip(" "))
    return lines


def _legend(hues: tuple[str, ...] | None, most: str) -> str:
    if hues is None:
        return f"weights: 0 [{SHADES}] {most}"
    return f"weights: 0 {''.join(paint(' ', hues, at / 19) for at in range(20))} {most}"


def _remarks(trace: TraceData) -> list[str]:
    """Model-specific values: the coverage of the source words, the positions where monotonic attention stopped, the
    probability that each target word was copied, weights by distance if scores depend on it, and heads that share keys.
    Most models have none."""
    lines = []
    for seen in (one for one in trace.attention.values() if one.kind == "cross"):
        if seen.score == "covered":
            pairs = zip(trace.source.tokens, seen.weights.mean(0).sum(0), strict=True)  # by all target tokens together
            lines.append("coverage: " + ", ".join(f"{token.text} {total:.2f}" for token, total in pairs))
        if seen.normalise == "monotonic":
            rows = zip(trace.target.tokens, seen.weights.mean(0), strict=True)
            places = ((word, row.argmax() if row.sum() > NOWHERE else None) for word, row in rows)
            stops = (f"{word.text} at {'nowhere' if s is None else trace.source.tokens[s].text}" for word, s in places)
            lines.append("stopped: " + ", ".join(stops))
        if "copy" in seen.step_values:
            words = (f"{_written(trace, seen, t)} {share:.2f}" for t, share in enumerate(seen.step_values["copy"]))
            lines.append("copied: " + ", ".join(words))
    for seen in (one for one in trace.attention.values() if one.method and "source" in one.step_values):
        pairs = zip(trace.target.tokens, seen.step_values["source"], strict=True)
        words = (f"{token.text} {share:.2f}" for token, share in pairs)
        lines.append(f"from the source, by {visible(str(seen.method))}: {', '.join(words)}")
    for kind in ("encoder", "decoder"):
        near = [one for one in trace.attention.values() if one.kind == kind and one.score in ("relative", "alibi")]
        if near:
            mean = np.mean([one.weights.mean(0) for one in near], axis=0)  # [T, T]
            diagonals = {at: mean.diagonal(at) for at in range(-_NEAR, _NEAR + 1)}  # -1 is the token before
            means = ", ".join(f"{at:+d} {values.mean():.2f}" for at, values in diagonals.items() if values.any())
            lines.append(f"weight by distance in the {kind} ({near[0].score}): {means}")
    heads = max((one.heads for one in trace.attention.values() if one.kind == "cross"), default=0)
    shared = trace.model.get("key_heads", 0)
    if fits(shared, int) and 0 < shared < heads:  # a trace may come from a file
        groups = np.array_split(np.arange(heads), shared)  # neighbours share, as in `MultiHead`
        lines.append("heads that share keys: " + ", ".join(" ".join(map(str, group)) for group in groups))
    return lines


def _written(trace: TraceData, seen: Attended, t: int) -> str:
    """A target token; an unknown one stands for the source word that it points at."""
    token, row = trace.target.tokens[t], seen.weights.mean(0)[t]  # [S]
    if token.piece != SYMBOLS[UNKNOWN] or not row.any():  # without any weight it points at nothing
        return token.text
    return f"{token.text} ({trace.source.tokens[row.argmax()].text})"


DRAWN = {"matrix": matrix, "film": film}
