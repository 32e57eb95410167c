"""regard look"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import regard


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("look")(look)


def look(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str, typer.Argument(help="The sentence to translate and look into.")],
    target: Annotated[str | None, typer.Option(help="Read this translation instead of searching for one.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Draw into a file: .png, .svg, .pdf, .html; .json keeps the trace.")
    ] = None,
    view: Annotated[str, typer.Option(help="matrix, ribbons, heads, beam or steps.")] = "matrix",
    layer: Annotated[int | None, typer.Option(help="Layer to draw, from 0 (several layers: the last).")] = None,
    head: Annotated[int | None, typer.Option(help="Head to draw, from 0 (none: the mean of all).")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show subword pieces instead of words.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Show the end of the sentence too.")] = False,
    beam: Annotated[int | None, typer.Option(help="Beam width.")] = None,
) -> None:
    """Translate a sentence and show where the model looked, in the terminal or in a file."""
    from regard.cli.text import put

    trace = regard.load(run).look(text, target, tree=view == "beam", beam=beam)
    options: dict[str, Any] = {"words": not pieces, "special": special}
    options |= {name: value for name, value in (("layer", layer), ("head", head)) if value is not None}
    if out is not None and out.suffix == ".json":
        put(f"kept: {trace.save(out)}")
    elif out is not None:
        put(f"drawn: {trace.draw(out, view, **({} if view == 'beam' else options))}")
    put(trace.target.text)
    if out is None:
        put(trace.to_terminal(colour=sys.stdout.isatty(), **options))
