"""Pictures of a trace: `draw` chooses by the ending of the file."""

from pathlib import Path
from typing import Any

from regard.errors import ConfigError, unknown
from regard.look.contents import Contents
from regard.look.draw import html, terminal
from regard.look.store import write_whole

VIEWS = ("matrix", "ribbons", "heads", "beam", "steps", "film", "picture", "region")
STILL = (".png", ".svg", ".pdf")

__all__ = ["STILL", "VIEWS", "draw", "html", "terminal"]


def draw(trace: Contents, path: str | Path, view: str = "matrix", **options: Any) -> Path:
    """Draw `view` of `trace` into `path`: .png, .svg and .pdf are still pictures, .html is a page to look around in."""
    path = Path(path)
    ending = path.suffix.lower()
    if view not in VIEWS:
        raise ConfigError(unknown("view", view, VIEWS))
    if ending == ".html":
        return write_whole(html.page(trace, view, **options).encode("utf-8"), path)
    if ending not in STILL:
        raise ConfigError(
            f"A picture's name must end in {', '.join(STILL)} or .html; got '{path.name}'. "
            f"Data goes to a .json file with Trace.save."
        )
    from regard.look.draw import still  # matplotlib comes in only when a still picture is drawn

    return write_whole(still.render(trace, ending, view, **options), path)
