"""What the page draws, computed here: the tables of a trace with their labels, captions, measures and sentences.

The page chooses among these numbers and draws them; it computes none of them again. A file and the server send the
same tree, beside the trace itself, whose weights are the tables of single tokens.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from regard.look import table as tables
from regard.look.maps import describe, map_of, shares_of
from regard.look.measure import measure
from regard.look.palette import DARK, DIVERGING, PALETTES, ramp
from regard.look.show import Show
from regard.look.text import label
from regard.look.trace_data import Attended, Contents, half
from regard.look.trace_file import plain

# Numbers of a trace; a larger one is shown in half precision, and only the modules that connect target and source.
PRECISE = 500_000
_LONGEST = 60


def page_tree(trace: Contents, show: Show | None = None) -> dict[str, Any]:
    """The tree of a trace with everything that the page draws of it under "views"."""
    return {**plain(trace), "views": views(trace, show or Show())}


def views(trace: Contents, show: Show) -> dict[str, Any]:
    """The tables of every module, the colours, the changed words, and the sentences of a caption's maps."""
    leading = tables.leading_modules(trace)
    large = sum(seen.weights.size for seen in trace.attention.values()) > PRECISE
    modules = leading if large else [*leading, *(one for one in trace.attention.values() if one not in leading)]
    measures = {(row.name, row.head): row.values for row in measure(trace)}
    rows, columns = trace.changed()
    return {
        "modules": [
            {
                "name": seen.name,
                "leading": seen in leading,
                "text": tables.module_words(trace, seen),
                "heads": tables.head_words(seen),
                "combined": _combined(seen.weights, large),
                "measures": [
                    {key: round(measures[seen.name, head][key], 6) for key in ("entropy", "diagonality", "special")}
                    for head in range(seen.heads)
                ],
                "words": _tables(trace, seen, show, large),
                "pieces": _tables(trace, seen, replace(show, words=False), large),
            }
            for seen in modules
        ],
        "summaries": tables.SUMMARIES,
        "default": tables.choose(trace).name if leading else None,
        "changed": {"rows": sorted(rows), "columns": sorted(columns)},
        # Of the target; each table says it of the source.
        "right_to_left": tables.right_to_left([token.text for token in trace.target.tokens]),
        "maps": None if trace.image is None or not leading else _maps(trace, show),
        "ramps": _ramps(),
    }


@lru_cache(maxsize=1)
def _ramps() -> dict[str, Any]:
    """The colours of every palette on a light and on a dark page, with the ink on each."""
    light = {**PALETTES, "diverging": DIVERGING}
    return {name: {key: ramp(some) for key, some in kind.items()} for name, kind in (("light", light), ("dark", DARK))}


def _combined(weights: tables.Array, large: bool) -> tables.Array | None:
    """The mean of the heads and the largest of them, [2, T, S]; a single head needs neither."""
    if len(weights) == 1:
        return None
    stacked = np.stack([weights.mean(0), weights.max(0)])
    return half(stacked) if large else stacked


def _tables(trace: Contents, seen: Attended, show: Show, large: bool) -> list[dict[str, Any]] | None:
    """The table with shift 0, and with shift 1 where the words of the target are rows; special tokens included.

    The weights of single tokens are the trace's own and are left out; None where words are no other than tokens.
    """
    found = []
    for shift in (0, 1) if seen.kind == "cross" else (0,):
        rows, columns = tables.frame(trace, seen, show, shift)
        if show.words and not any(len(one.tokens) > 1 for one in (*rows, *columns)):
            return None
        whole = seen.weights[:, shift:]  # [H, T, S]
        combined = _combined(seen.weights, large)
        stacked = whole if combined is None else np.concatenate([whole, combined[:, shift:]])
        merged = tables.merge(stacked, rows, columns) if show.words else stacked  # [heads, rows, columns]
        head = "{head}" if seen.heads > 1 else ""
        captions = {
            name: tables.caption(trace, seen, changed, (rows, columns), head=head, lost="{lost}", shift=shift)
            for name, changed in {
                "hidden": replace(show, special=False, renormalise=False),
                "renormalised": replace(show, special=False, renormalise=True),
                "shown": replace(show, special=True),
            }.items()
        }
        found.append(
            {
                "rows": _plain(rows),
                "columns": _plain(columns),
                "weights": None if not show.words else half(merged) if large else merged,
                "hidden": np.round(tables.hidden_mass(merged, rows, columns).astype(float), 4).tolist(),
                "captions": captions,
                "right_to_left": tables.right_to_left([one.text for one in columns]),
            }
        )
    return found


def _plain(side: tuple[tables.Label, ...]) -> list[dict[str, Any]]:
    return [
        {"text": label(one.text, _LONGEST), "tokens": list(one.tokens), **({"special": True} if one.special else {})}
        for one in side
    ]


def _maps(trace: Contents, show: Show) -> dict[str, Any]:
    """Sentences of a caption's maps, for every choice of words and special tokens."""
    assert trace.image is not None
    size, found = trace.image, {}
    for words in (True, False):
        for special in (True, False):
            table = tables.arrange(trace, replace(show, layer=None, head=None, words=words, special=special))
            steps: list[int | None] = [None, *range(len(table.rows))]
            cells = [(row, column) for row in range(size.grid[0]) for column in range(size.grid[1])]
            found[f"{'words' if words else 'pieces'} {'shown' if special else 'hidden'}"] = {
                "maps": [describe(table, step, map_of(table, step, size)) for step in steps],
                "cells": [shares_of(table, (*cell, *cell), size)[1] for cell in cells],
            }
    return found
