"""Pictures of a trace: `draw` chooses by the ending of the file, `page` and `in_terminal` give text."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, unknown
from regard.look.contents import Contents
from regard.look.draw import captions, html, terminal
from regard.look.draw.options import check
from regard.look.store import write_whole

_PAGES: dict[str, Callable[..., str]] = {
    **{view: partial(html.page, view=view) for view in ("matrix", "ribbons", "heads", "beam", "steps")},
    "film": captions.film,
    "picture": captions.one,
    "region": captions.region,
}
VIEWS = tuple(_PAGES)
STILL = (".png", ".svg", ".pdf")

__all__ = ["STILL", "VIEWS", "draw", "in_terminal", "page"]


def draw(trace: Contents, path: str | Path, view: str | None = None, **options: Any) -> Path:
    """Draw `view` of `trace` into `path`: .png, .svg and .pdf are still pictures, .html is a page to look around in."""
    path = Path(path)
    ending = path.suffix.lower()
    chosen = _view(trace, view)
    if ending == ".html":
        return write_whole(page(trace, chosen, **options).encode("utf-8"), path)
    if ending not in STILL:
        raise ConfigError(
            f"A picture's name must end in {', '.join(STILL)} or .html; got '{path.name}'. "
            f"Data goes to a .json file with Trace.save."
        )
    from regard.look.draw import still  # matplotlib comes in only when a still picture is drawn

    return write_whole(still.render(trace, ending, chosen, **options), path)


def page(trace: Contents, view: str | None = None, **options: Any) -> str:
    """One self-contained page of `view`."""
    chosen = _view(trace, view)
    make = _PAGES[chosen]
    check(make, options, f"the {chosen} page")
    return make(trace, **options)


def in_terminal(trace: Contents, **options: Any) -> str:
    """The matrix of a sentence or the maps of a caption, for a terminal."""
    make = terminal.matrix if trace.image is None else terminal.film
    check(make, options, "a trace in a terminal")
    return make(trace, **options)


def _view(trace: Contents, view: str | None) -> str:
    if view is None:
        return "matrix" if trace.image is None else "film"
    if view not in VIEWS:
        raise ConfigError(unknown("view", view, VIEWS))
    return view
