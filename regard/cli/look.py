"""regard look"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


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
    layer: Annotated[int | None, typer.Option(help="Layer to draw, from 0 (several layers: the last but one).")] = None,
    head: Annotated[int | None, typer.Option(help="Head to draw, from 0 (none: the mean of all).")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show subword pieces instead of words.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Show the end of the sentence too.")] = False,
    beam: Annotated[int | None, typer.Option(help="Beam width.")] = None,
    silence: Annotated[
        list[str] | None, typer.Option(help="What if: LAYER.HEAD (or LAYER) sees nothing; may be given again.")
    ] = None,
    mask: Annotated[
        list[str] | None, typer.Option(help="What if: this source word cannot be looked at; may be given again.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="What if: scores are divided by this; below 1 attention is sharper.")
    ] = None,
    force: Annotated[str | None, typer.Option(help="What if: the translation begins with these words.")] = None,
) -> None:
    """Translate a sentence and show where the model looked, in the terminal or in a file."""
    from regard.api import inspecting
    from regard.api.translator import load_translator
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.errors import ConfigError, unknown
    from regard.look.change import Change, Temperature
    from regard.look.draw import VIEWS

    if view not in VIEWS:
        raise ConfigError(unknown("view", view, VIEWS))
    if view != "matrix" and out is None:
        raise ConfigError(f"--view {view} is drawn into a file; give --out, as in --out look.html.")
    check_out(out)
    with bar("looking"):
        translator = load_translator(run)
        changes: list[Change] = [inspecting.silence(translator, place) for place in silence or ()]
        for word in mask or ():
            changes += inspecting.mask_word(translator, text, word)
        changes += [Temperature(temperature)] if temperature is not None else []
        trace = translator.look(text, target, changes=changes, prefix=force, tree=view == "beam", beam=beam)
    given = {"layer": layer, "head": head, "words": False if pieces else None, "special": special or None}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if out is not None and out.name.endswith((".json", ".json.gz")):
        put(f"kept: {trace.save(out)}")
    elif out is not None:
        put(f"drawn: {trace.draw(out, view, **options)}")
    shown = trace.to_terminal(colour=sys.stdout.isatty(), **options) if out is None else None
    if trace.changes and target is None:
        put(f"unchanged: {translator.translate(text, beam=beam).text}")
    put(f"changed:   {trace.target.text}" if trace.changes and target is None else trace.target.text)
    if shown is not None:
        put(shown)
