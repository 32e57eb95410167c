"""regard look"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from regard.cli.options import Beam, OnPicture, Overwrite
from regard.cli.progress import bar
from regard.cli.text import check_out, load, note_pivot, put
from regard.errors import ConfigError, check_known

DEFAULT = "en-fr/bahdanau"  # one attention, which shows alignments best
OPTIONS = {  # task -> the options of `regard look` that apply to it
    "translate": "target terms view step layer head pieces special beam silence mask temperature force by against",
    "caption": "target view step pieces special beam word cell smooth mask temperature",
    "language": "view step layer head pieces special",
    "classify": "",
    "pivot": "view step layer head pieces special beam by",
}


@dataclass(frozen=True)
class Drawing:
    """What is drawn."""

    view: Annotated[str | None, Option(help="matrix, ribbons, heads, beam, steps, film, picture or region.")] = None
    step: Annotated[int | None, Option(help="Show the numbers of this step, from 0 (--view steps).")] = None
    layer: Annotated[
        str | None,
        Option(
            help="Layer to draw, from 0 (default: that of the head that aligns words, if the run names one; else the "
            "last but one), or the name of any attention module, as in encoder.0.self_attention.attention."
        ),
    ] = None
    head: Annotated[
        str | None,
        Option(help="Head to draw, from 0, or mean or max (default: the one that aligns words, else the mean)."),
    ] = None
    pieces: Annotated[bool, Option("--pieces", help="Show subword pieces instead of words.")] = False
    by: Annotated[
        str | None,
        Option(
            help="Show which source words each word came from, by a method: attention (or attention:LAYER.HEAD), "
            "attention-norm, rollout, alti, value-zeroing, gradient, integrated-gradients, occlusion-masked, "
            "occlusion-unknown or occlusion-removed."
        ),
    ] = None
    against: Annotated[
        str | None, Option(help="With --by gradient or occlusion: why a word was written and not this one.")
    ] = None
    special: Annotated[bool, Option("--special", help="Show special tokens (a language model: always).")] = False


@dataclass(frozen=True)
class WhatIf:
    """What is changed."""

    silence: Annotated[list[str] | None, Option(help="What if: remove LAYER.HEAD or a LAYER; repeatable.")] = None
    mask: Annotated[list[str] | None, Option(help="What if: hide a word or cell ROW,COLUMN; repeatable.")] = None
    temperature: Annotated[float | None, Option(help="What if: divide the scores; below 1 is sharper.")] = None
    force: Annotated[list[str] | None, Option(help="What if: begin with these words or STEP=WORD; repeatable.")] = None


def look(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="[RUN] TEXT",
            help="Run folder or model (default: en-fr/bahdanau), and a sentence, a text or a document; for a captioner "
            "a picture.",
        ),
    ],
    *,
    target: Annotated[str | None, Option(help="Force this translation or caption instead of a search.")] = None,
    terms: Annotated[Path | None, Option(help="Source words, tab, the words that they must become.")] = None,
    out: Annotated[Path | None, Option(help="Draw to .png, .svg, .pdf or .html; .json saves the trace.")] = None,
    overwrite: Overwrite = False,
    drawing: Drawing,
    beam: Beam = None,
    picture: OnPicture,
    what_if: WhatIf,
) -> None:
    """Show the attention of a model, in the terminal or in a file: over the sentence it translates, the picture it
    describes, the text it reads, or the document it classifies."""
    from regard.api.aligning import check_attends
    from regard.api.loading import read_experiment

    options: dict[str, Any] = {"target": target, "terms": terms, "beam": beam}
    options |= vars(drawing) | vars(picture) | vars(what_if)
    # Those that were passed.
    given = {name: value for name, value in options.items() if value is not None and value is not False and value != []}
    for name in ("layer", "head"):
        if given.get(name, "").removeprefix("-").isdecimal():
            given[name] = int(given[name])
    runs, text = run_and_text(arguments)
    task = "pivot" if runs[1:] else read_experiment(runs[0]).task
    check_options(task, given, out)
    outs = [out]
    if task == "pivot" and out is not None:  # one file for each half
        name, _, ending = out.name.partition(".")
        outs = [out.with_name(f"{name}.{run.resolve().name}.{ending}") for run in runs]
    for one in outs:
        check_out(one, overwrite, text, terms)
    if task == "translate" and given.keys() & {"silence", "mask", "temperature"}:  # which change attention
        check_attends(runs[0])
    if task != "caption" and os.path.isfile(text):
        typer.echo(f"note: {text} is read as the text itself, not as a file; pass a sentence of it", err=True)
    if task != "pivot":
        show(runs[0], task, text, given, out, picture)
        return
    note_pivot(arguments[0], runs)
    for number, run in enumerate(runs):  # the second reads what the first has written
        text = show(run, "translate", text, given, out and outs[number], picture)


def show(run: Path, task: str, text: str, given: dict[str, Any], out: Path | None, picture: OnPicture) -> str:
    """Draw the attention of a run in a file, or print it, with the result; returns the result."""
    from regard.look.table import VIEWS

    with bar("looking"):
        model = load(run)
        trace, unchanged = LOOKS[task](model, text, given)
    shown: dict[str, Any] = {"words": False} if "pieces" in given else {}
    shown |= {name: given[name] for name in ("layer", "head", "special") if name in given}
    shown |= {"layer": [*trace.attention][-1]} if "by" in given else {}
    if out is not None:
        view = "steps" if "step" in given else given.get("view")
        shown |= {name: value for name, value in (("view", view), ("step", given.get("step"))) if value is not None}
        shown |= on_picture(text, view, picture) if task == "caption" else {}
    if task == "language" and "special" in VIEWS[shown.get("view", "matrix")]:
        shown["special"] = True  # the first rows of a text have little else
    if out is None:
        drawn = trace.to_terminal(**shown)  # before anything is printed: it may refuse an option
    elif out.name.endswith((".json", ".json.gz")):
        put(f"saved: {trace.save(out)}")
    else:
        put(f"drawn: {trace.draw(out, **shown)}")
    for note in getattr(trace, "notes", ()):
        words = f": {', '.join(note['words'][:5])}" if "words" in note else ""
        typer.echo(f"note: {note['text']}{words}", err=True)
    if unchanged is not None:
        put(f"unchanged: {unchanged}\nchanged:   {trace.target.text}")
    elif task in ("translate", "caption"):
        put(trace.target.text)
    if out is None:
        put(str(drawn))
    return str(trace.target.text) if task == "translate" else ""


def check_options(task: str, given: dict[str, Any], out: Path | None) -> None:
    """Refuse options that do not apply to the task or cannot be combined, before anything is loaded."""
    from regard.look.table import VIEWS

    view = given.get("view")
    if view is not None:
        check_known("view", view, VIEWS)
    for name in given:
        if name not in OPTIONS[task].split():
            raise ConfigError(f"--{name} does not apply to a run of the task {task!r}; leave it out.")
    if "target" in given and "beam" in given:
        raise ConfigError("--beam searches for a translation, and --target names one; pass one of them.")
    if "by" in given and given.keys() & {"layer", "head", "step"}:
        raise ConfigError("--by draws an attribution; --layer, --head and --step draw attention. Pass one of them.")
    if "by" in given and view not in (None, "matrix", "ribbons"):
        raise ConfigError(f"--by draws a matrix or ribbons; got --view {view}.")
    if "step" in given and view not in (None, "steps"):
        raise ConfigError(f"--step is for --view steps; got --view {view}.")
    for name in ("view", "step", "word", "cell", "smooth"):
        if name in given and given[name] != "matrix" and out is None:
            option = name if given[name] is True else f"{name} {given[name]}"
            raise ConfigError(f"--{option} needs a file to draw to; pass --out, as in --out look.html.")


def run_and_text(arguments: list[str]) -> tuple[tuple[Path, ...], str]:
    """The run, or the two of a pair that is translated through English, and what to show; without a run, the model that
    ships."""
    from regard.runs.included import FOLDERS, find_pivot, find_run

    name, *rest = arguments if len(arguments) > 1 else [DEFAULT, *arguments]
    if len(rest) != 1:
        raise ConfigError(f"look takes a run and one text; got {len(arguments)} arguments. Put the text in quotes.")
    if len(arguments) == 1 and (os.path.isdir(rest[0]) or rest[0] in FOLDERS):
        example = f'regard look {rest[0]} "Where is the station?"'
        raise ConfigError(f"look needs a text as well, or a picture for a captioner, as in: {example}")
    return find_pivot(name) or (find_run(name),), rest[0]


def _translation(translator: Any, text: str, given: dict[str, Any]) -> tuple[Any, str | None]:
    """The trace of a translation and, with what-ifs, the translation without them."""
    from regard.api.terms import read_terms
    from regard.look.change import Change, Force, Mask, Silence, Temperature
    from regard.text.visible import label

    changes: list[Change] = [*map(Silence, given.get("silence", ())), *map(Mask, given.get("mask", ()))]
    changes += [Temperature(given["temperature"])] if "temperature" in given else []
    beginnings: list[str] = []
    for forced in given.get("force", ()):
        step = re.fullmatch(r"([0-9]{1,6})=(.*)", forced, re.DOTALL)
        if step is None and re.match(r"[^\s=]*=", forced):
            raise ConfigError(
                f"--force takes STEP=WORD, where STEP is a number from 0, or the words that the translation begins "
                f"with; got {label(forced)!r}."
            )
        if step is None:
            beginnings.append(forced)
        else:
            changes.append(Force(int(step[1]), step[2]))
    if len(beginnings) > 1:
        raise ConfigError(f"Pass at most one --force without STEP=; got {len(beginnings)}.")
    target, beam = given.get("target"), given.get("beam")
    prefix, tree = beginnings[0] if beginnings else None, given.get("view") == "beam"
    terms = read_terms(given["terms"]) if "terms" in given else None
    explained = {"by": given.get("by", ()), "against": given.get("against")}
    options: dict[str, Any] = {"prefix": prefix, "terms": terms, "tree": tree, "beam": beam, **explained}
    trace = translator.look(text, target, changes=changes, **options)
    compare = trace.changes and target is None
    return trace, translator.translate(text, beam=beam, split=False).text if compare else None


def _caption(writer: Any, path: str, given: dict[str, Any]) -> tuple[Any, str | None]:
    from regard.look.change import Change, Mask, Temperature

    grid = writer.model.config.grid
    changes: list[Change] = []
    for cell in given.get("mask", ()):
        row, column, *more = cells_of(cell)
        if more or row >= grid or column >= grid:
            raise ConfigError(f"A cell is ROW,COLUMN inside the grid of {grid} x {grid}, from 0; got {cell!r}.")
        changes.append(Mask(row * grid + column, word=f"row {row}, column {column}"))
    changes += [Temperature(given["temperature"])] if "temperature" in given else []
    target, beam = given.get("target"), given.get("beam")
    trace = writer.look(Path(path), target, changes=changes, beam=beam)
    compare = trace.changes and target is None
    return trace, writer.caption(Path(path), beam=beam).text if compare else None


LOOKS: dict[str, Callable[[Any, str, dict[str, Any]], tuple[Any, str | None]]] = {
    "translate": _translation,
    "caption": _caption,
    "language": lambda writer, text, given: (writer.look(text), None),
    "classify": lambda classifier, text, given: (classifier.look(text), None),
}


def on_picture(picture: str | Path, view: str | None, on: OnPicture) -> dict[str, Any]:
    """The drawing options of a caption: the chosen view, or the one that the other options imply, and its picture."""
    chosen = view or ("region" if on.cell is not None else "picture" if on.word is not None else "film")
    wanted: dict[str, Any] = vars(on) | {"smooth": on.smooth or None}
    for name, fits in (("word", ("picture",)), ("cell", ("region",)), ("smooth", ("film", "picture"))):
        if wanted[name] is not None and chosen not in fits:
            raise ConfigError(f"--{name} is for --view {' or '.join(fits)}; got --view {chosen}.")
    drawn = {"step": on.word, "cells": None if on.cell is None else cells_of(on.cell), "smooth": wanted["smooth"]}
    drawn |= {"view": chosen, "picture": Path(picture) if chosen in ("film", "picture", "region") else None}
    return {name: value for name, value in drawn.items() if value is not None}


def cells_of(text: str) -> tuple[int, ...]:
    """ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT as numbers."""
    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4}){1,3}", text):
        raise ConfigError(f"Cells are ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0; got {text!r}.")
    return tuple(int(number) for number in text.split(","))
