"""Pictures of a trace: `draw` chooses by the ending of the file, `page` and `in_terminal` give text."""

from pathlib import Path
from typing import Any

from regard.errors import ConfigError, unknown
from regard.look import html
from regard.look.draw import terminal
from regard.look.show import CAPTION_VIEWS, PAGE, TERMINAL, VIEWS, Show, chosen
from regard.look.trace_data import Contents
from regard.look.trace_file import write_whole

STILL = (".png", ".svg", ".pdf")

__all__ = ["STILL", "VIEWS", "draw", "in_terminal", "page"]


def draw(trace: Contents, path: str | Path, view: str | None = None, show: Show | None = None, **options: Any) -> Path:
    """Draw `view` of `trace` into `path`: .png, .svg and .pdf are still pictures, .html is an interactive page."""
    path = Path(path)
    ending = path.suffix.lower()
    view = _view(trace, view)
    if ending == ".html":
        return write_whole(page(trace, view, show, **options).encode("utf-8"), path)
    if ending not in STILL:
        raise ConfigError(
            f"A picture's name must end in {', '.join(STILL)} or .html; got '{path.name}'. "
            f"Data goes to a .json file with Trace.save."
        )
    from regard.look.draw import still  # matplotlib is imported only when a still picture is drawn

    wanted = chosen(show, options, (*VIEWS[view], "dpi"), f"the {view} view")
    return write_whole(still.render(trace, ending, view, wanted), path)


def page(trace: Contents, view: str | None = None, show: Show | None = None, **options: Any) -> str:
    """One self-contained page that opens at `view`."""
    view = _view(trace, view)
    known = VIEWS[view] if view in CAPTION_VIEWS else dict.fromkeys((*VIEWS[view], *PAGE))
    return html.page(trace, view, chosen(show, options, known, f"the {view} page"))


def in_terminal(trace: Contents, show: Show | None = None, **options: Any) -> str:
    """The matrix of a sentence or the maps of a caption, for a terminal."""
    view = "matrix" if trace.image is None else "film"
    wanted = chosen(show, options, TERMINAL[view], "a trace in a terminal")
    return terminal.matrix(trace, wanted) if trace.image is None else terminal.film(trace, wanted)


def _view(trace: Contents, view: str | None) -> str:
    if view is None:
        return "matrix" if trace.image is None else "film"
    if view not in VIEWS:
        raise ConfigError(unknown("view", view, VIEWS))
    return view
