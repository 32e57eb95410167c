"""What a picture shows, and how: one `Show` for every drawing."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.data.images import Pixels
from regard.errors import check_known

HeadChoice = int | str | Sequence[int] | None
LayerChoice = int | str | None


@dataclass(frozen=True)
class Show:
    """The options of every drawing. A view that has no use for an option refuses it: see `VIEWS`.

    What is drawn: `layer` is a number among the modules that connect target and source, or a module's name (default:
    the last but one, or the only one); `head` is a number, several numbers (their mean), "mean" or "max" (default:
    the mean). `words` merges the pieces of a word, and `punctuation` keeps words and punctuation in separate cells
    ("1992" and "."); with punctuation=False a cell is the text between two spaces. `special` shows tokens such as
    </s>. `renormalise` divides each row by its sum. `shift` overrides the trace's own (see `Attended`).
    """

    layer: LayerChoice = None
    head: HeadChoice = None
    words: bool = True
    punctuation: bool = True
    special: bool = False
    renormalise: bool = False
    shift: int | None = None

    palette: str | None = None  # blue for tables, viridis for pictures
    numbers: bool = True  # weights written into the cells
    links: bool = False  # the strongest source word of each target word outlined
    mass: float = 0.75  # ribbons: the share of each row that the drawn links hold
    each_head: bool = False  # ribbons: the heads side by side
    pruned: bool = True  # beam: candidates that were not kept
    step: int | None = None  # the target token of the view steps, the word of the view picture
    picture: str | Path | Pixels | None = None  # behind the maps of a caption
    smooth: bool = False  # the cells of a map blended for display
    cells: tuple[int, ...] = (0, 0)  # region: (row, column) or (top, left, bottom, right), the last ones included
    title: str | None = None
    dpi: int | None = None
    width: int = 100  # columns of a terminal
    colour: bool | None = None  # in a terminal; None: if standard output is one, and NO_COLOR is not set

    @property
    def coloured(self) -> bool:
        """Whether text for a terminal has colours."""
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") if self.colour is None else self.colour


_TABLE = ("layer", "head", "words", "punctuation", "special")
_WEIGHTS = (*_TABLE, "renormalise", "shift")
_MAP = (*_TABLE, "picture", "title")
VIEWS: Mapping[str, tuple[str, ...]] = {  # view -> the options that it takes
    "matrix": (*_WEIGHTS, "palette", "numbers", "links", "title"),
    "ribbons": (*_WEIGHTS, "mass", "each_head", "title"),
    "heads": ("words", "punctuation", "special", "renormalise", "shift", "palette", "title"),
    "beam": ("pruned", "title"),
    "steps": ("step", "layer", "head", "title"),
    "film": (*_MAP, "smooth", "palette"),
    "picture": (*_MAP, "smooth", "palette", "step"),
    "region": (*_MAP, "cells"),
}
STILL = (".png", ".svg", ".pdf")  # endings of still pictures
CAPTION_VIEWS = ("film", "picture", "region")
PAGE = (*_WEIGHTS, "palette", "title", "step", "mass", "numbers", "pruned")  # where the page of a text may open
TERMINAL = {
    "matrix": (*_WEIGHTS, "palette", "numbers", "width", "colour"),
    "film": (*_TABLE, "palette", "width", "colour"),
}


def chosen(show: Show | None, options: Mapping[str, Any], known: Iterable[str], what: str) -> Show:
    """`show` with `options` replaced; an option that is not among `known` gets a sentence."""
    for name in options:
        check_known("option", name, sorted(known), f" of {what}")
    return replace(show or Show(), **options)
