"""regard look"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

OPTIONS = {  # task -> the options of `regard look` that mean something for it
    "translate": "target view step layer head pieces special beam silence mask temperature force",
    "caption": "target view step pieces special beam word cell smooth mask temperature",
    "language": "view step layer head pieces special",
    "classify": "",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("look")(look)


def look(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    text: Annotated[str, typer.Argument(help="A sentence, text or document, or for a captioner a picture.")],
    target: Annotated[
        str | None, typer.Option(help="Read this translation or caption instead of searching for one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Draw into a file: .png, .svg, .pdf, .html; .json keeps the trace.")
    ] = None,
    view: Annotated[
        str | None, typer.Option(help="matrix, ribbons, heads, beam or steps; of captions film, picture or region.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="Show this step in detail, from 0: scores, weights, context (--view steps).")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to draw, from 0 (several layers: the last but one).")] = None,
    head: Annotated[int | None, typer.Option(help="Head to draw, from 0 (none: the mean of all).")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show subword pieces instead of words.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Show the end of the sentence too.")] = False,
    beam: Annotated[int | None, typer.Option(help="Beam width, 1 (greedy) to 1000.")] = None,
    word: Annotated[int | None, typer.Option(help="Captions: where this word looked, from 0 (--view picture).")] = None,
    cell: Annotated[
        str | None,
        typer.Option(help="Captions: who looked at ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0 (--view region)."),
    ] = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Captions: blend the cells for display; the picture says so.")
    ] = False,
    silence: Annotated[
        list[str] | None, typer.Option(help="What if: LAYER.HEAD (or LAYER) sees nothing; may be given again.")
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            help="What if: this source word (or cell ROW,COLUMN, from 0) cannot be looked at; may be given again."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="What if: scores are divided by this; below 1 attention is sharper.")
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(help="What if: the translation begins with these words; or STEP=WORD, which may be given again."),
    ] = None,
) -> None:
    """Show where a model looked, in the terminal or in a file: in the sentence it translates, the picture it describes,
    the text it reads, the document it classifies."""
    from regard.api.loading import load
    from regard.api.opening import read_experiment
    from regard.cli.progress import bar
    from regard.cli.text import check_out, put
    from regard.errors import ConfigError, unknown
    from regard.look.draw import VIEWS

    asked: dict[str, Any] = {
        "target": target, "view": view, "step": step, "layer": layer, "head": head, "pieces": pieces,
        "special": special, "beam": beam, "word": word, "cell": cell, "smooth": smooth, "silence": silence,
        "mask": mask, "temperature": temperature, "force": force,
    }  # fmt: skip
    asked = {name: value for name, value in asked.items() if value is not None and value is not False and value != []}
    if view is not None and view not in VIEWS:
        raise ConfigError(unknown("view", view, VIEWS))
    task = read_experiment(run).task
    for name in asked:
        if name not in OPTIONS[task].split():
            raise ConfigError(f"--{name} is not for a run of the task {task!r}; leave it out.")
    if step is not None and view not in (None, "steps"):
        raise ConfigError(f"--step is for --view steps; got --view {view}.")
    view = "steps" if step is not None else view
    for name in ("view", "step", "word", "cell", "smooth"):
        if name in asked and asked[name] != "matrix" and out is None:
            said = name if asked[name] is True else f"{name} {asked[name]}"
            raise ConfigError(f"--{said} is drawn into a file; give --out, as in --out look.html.")
    check_out(out)
    with bar("looking"):
        model = load(run)
        trace, unchanged = LOOKS[task](model, text, asked)
    options: dict[str, Any] = {"words": False} if pieces else {}
    options |= {name: asked[name] for name in ("layer", "head", "special") if name in asked}
    shown = trace.to_terminal(colour=sys.stdout.isatty(), **options) if out is None else None
    if out is not None and out.name.endswith((".json", ".json.gz")):
        put(f"kept: {trace.save(out)}")
    elif out is not None:
        options |= {"view": view} if view else {}
        options |= {"step": step} if step is not None else {}
        options |= on_picture(text, view, word, cell, smooth) if task == "caption" else {}
        put(f"drawn: {trace.draw(out, **options)}")
    if unchanged is not None:
        put(f"unchanged: {unchanged}\nchanged:   {trace.target.text}")
    elif task in ("translate", "caption"):
        put(trace.target.text)
    if shown is not None:
        put(shown)


def _translation(translator: Any, text: str, asked: dict[str, Any]) -> tuple[Any, str | None]:
    """The trace of a translation and, where something was changed, what it was without the change."""
    from regard.api import inspecting
    from regard.errors import ConfigError
    from regard.look.change import Change, Force, Temperature

    changes: list[Change] = [inspecting.silence(translator, place) for place in asked.get("silence", ())]
    for word in asked.get("mask", ()):
        changes += inspecting.mask_word(translator, text, word)
    changes += [Temperature(asked["temperature"])] if "temperature" in asked else []
    beginnings: list[str] = []
    for wish in asked.get("force", ()):
        step = re.fullmatch(r"([0-9]{1,6})=(.*)", wish, re.DOTALL)
        if step is None:
            beginnings.append(wish)
        else:
            changes.append(Force(int(step[1]), step[2]))
    if len(beginnings) > 1:
        raise ConfigError(f"A translation has one beginning; got --force {len(beginnings)} times without STEP=.")
    target, beam = asked.get("target"), asked.get("beam")
    prefix, tree = beginnings[0] if beginnings else None, asked.get("view") == "beam"
    trace = translator.look(text, target, changes=changes, prefix=prefix, tree=tree, beam=beam)
    compare = trace.changes and target is None
    return trace, translator.translate(text, beam=beam).text if compare else None


def _caption(writer: Any, path: str, asked: dict[str, Any]) -> tuple[Any, str | None]:
    from regard.errors import ConfigError
    from regard.look.change import Change, Mask, Temperature

    grid = writer.model.config.grid
    changes: list[Change] = []
    for wish in asked.get("mask", ()):
        row, column, *more = cells_of(wish)
        if more or row >= grid or column >= grid:
            raise ConfigError(f"A cell is ROW,COLUMN inside the grid of {grid} x {grid}, from 0; got {wish!r}.")
        changes.append(Mask(row * grid + column, word=f"row {row}, column {column}"))
    changes += [Temperature(asked["temperature"])] if "temperature" in asked else []
    target, beam = asked.get("target"), asked.get("beam")
    trace = writer.look(Path(path), target, changes=changes, beam=beam)
    compare = trace.changes and target is None
    return trace, writer.caption(Path(path), beam=beam).text if compare else None


LOOKS: dict[str, Callable[[Any, str, dict[str, Any]], tuple[Any, str | None]]] = {
    "translate": _translation,
    "caption": _caption,
    "language": lambda writer, text, asked: (writer.look(text), None),
    "classify": lambda classifier, text, asked: (classifier.look(text), None),
}


def on_picture(
    picture: str | Path, view: str | None, word: int | None, cell: str | None, smooth: bool
) -> dict[str, Any]:
    """The options of a caption's drawing: the view that was asked for or is meant by the others, and its picture."""
    from regard.errors import ConfigError

    chosen = view or ("region" if cell is not None else "picture" if word is not None else "film")
    given = {"word": word, "cell": cell, "smooth": smooth or None}
    for name, fits in (("word", ("picture",)), ("cell", ("region",)), ("smooth", ("film", "picture"))):
        if given[name] is not None and chosen not in fits:
            raise ConfigError(f"--{name} is for --view {' or '.join(fits)}; got --view {chosen}.")
    drawn: dict[str, Any] = {"step": word, "cells": None if cell is None else cells_of(cell), "smooth": smooth or None}
    drawn |= {"view": chosen, "picture": Path(picture) if chosen in ("film", "picture", "region") else None}
    return {name: value for name, value in drawn.items() if value is not None}


def cells_of(text: str) -> tuple[int, ...]:
    """ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT as numbers."""
    from regard.errors import ConfigError

    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4}){1,3}", text):
        raise ConfigError(f"Cells are ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0; got {text!r}.")
    return tuple(int(number) for number in text.split(","))
