"""Still pictures: a view as a matplotlib figure, and the figure as the bytes of a PNG, SVG or PDF.

No pyplot and no global state: figures are made and forgotten. The bytes depend on the trace and the options only: no
date, no random ids; in SVG and PDF text stays text.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.figure import Figure

from regard.errors import ConfigError
from regard.look.draw import beam, fonts, heads, matrix, picture, ribbons, steps
from regard.look.palette import FAINT, INK
from regard.look.table import Show
from regard.look.trace_data import TraceData
from regard.text.visible import visible

_VIEWS: dict[str, Callable[[TraceData, Show], tuple[Figure, str]]] = {
    "matrix": matrix.figure,
    "ribbons": ribbons.figure,
    "heads": heads.figure,
    "beam": beam.figure,
    "steps": steps.figure,
    "film": picture.film,
    "picture": picture.one,
    "region": picture.region,
}
_NO_DATES: dict[str, dict[str, None]] = {
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    ".png": {"Software": None},
}
_MANY_PIXELS, _MOST_PIXELS = 4_000, 12_000  # along one side of a PNG: by default, and with a dpi


def render(trace: TraceData, ending: str, view: str = "matrix", show: Show | None = None) -> bytes:
    """The bytes of one view; `ending` is .png, .svg or .pdf."""
    wanted = show or Show()
    dpi = wanted.dpi
    if dpi is not None and (not isinstance(dpi, int) or not 10 <= dpi <= 2400):
        raise ConfigError(f"dpi must be a whole number from 10 to 2400; got {dpi}.")
    return save(lambda: _VIEWS[view](trace, wanted), _words(trace), ending, dpi)


def save(make: Callable[[], tuple[Figure, str]], words: Iterable[str], ending: str, dpi: int | None = None) -> bytes:
    """Call `make` for a figure and its summary under one style, and turn the figure into bytes."""
    style: dict[Any, Any] = {
        "font.family": fonts.families(words, warn=ending != ".svg"),
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "svg.fonttype": "none",
        "svg.hashsalt": "regard",
        "pdf.fonttype": 42,
        "path.simplify": False,
        "text.usetex": False,  # matplotlib reads settings from the current folder, and TeX would run what they say
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # fonts.families warns once
        figure, summary = make()
        inches = max(figure.get_size_inches()) + 4
        quick: dict[str, Any] = {"pil_kwargs": {"compress_level": 4}} if ending == ".png" else {}
        figure.savefig(
            buffer,
            format=ending[1:],
            dpi=min(200, int(_MANY_PIXELS / inches)) if dpi is None else min(dpi, int(_MOST_PIXELS / inches)),
            bbox_inches="tight",
            pad_inches=0.15,
            facecolor="white",
            metadata=_NO_DATES[ending],
            **quick,
        )
    if ending != ".svg":
        return buffer.getvalue()
    # A title that a screen reader reads, fonts found elsewhere, and no address of anything.
    text = re.sub(r"<!DOCTYPE[^>]*>\n", "", buffer.getvalue().decode("utf-8"), count=1)
    text = re.sub(r"(font-family: [^;\"]*)", r"\1, sans-serif", text)
    title = f"<title>{escape(visible(summary))}</title>"
    return re.sub(r"(<svg [^>]*)>", lambda found: f'{found[1]} role="img">\n {title}', text, count=1).encode("utf-8")


def _words(trace: TraceData) -> list[str]:
    tokens = [*trace.source.tokens, *trace.target.tokens]
    found = [visible(token.text) for token in tokens] + [visible(trace.source.text), visible(trace.target.text)]
    found += [visible(text) for token in tokens for text, _ in token.topk]
    return found + ([visible(node.token) for node in trace.beam.nodes] if trace.beam is not None else [])
