"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


def run_folder(name: str) -> Path:
    """The folder of a run, or of a model that ships under this name."""
    from regard.training.known import find_run

    return find_run(name)


Run = Annotated[
    Path,
    typer.Argument(metavar="RUN", parser=run_folder, help="Run folder, or a model of `regard models` such as en-fr."),
]
TextFile = Annotated[Path | None, typer.Argument(help="Text, one sentence or paragraph per line (default: stdin).")]
SourceFile = Annotated[Path | None, typer.Option(help="Source sentences, one per line.")]
TargetFile = Annotated[Path | None, typer.Option(help="Reference translations, line for line.")]
Tsv = Annotated[Path | None, typer.Option(help="Instead of both: source, tab, target on each line.")]
Tmx = Annotated[Path | None, typer.Option(help="Instead of both: a translation memory with the languages of the run.")]
Gold = Annotated[Path | None, typer.Option(help="Gold links (from 1; i-j sure, ipj possible): report AER.")]
With = Annotated[list[Path] | None, typer.Option("--with", help="Another run for an ensemble; repeatable.")]
Beam = Annotated[int | None, typer.Option(help="Beam width, 1 (greedy) to 1000.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: unrounded numbers, with signatures.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, with all probabilities.")]
Engine = Annotated[
    str, typer.Option(help="What translates: regard, or ctranslate2 (int8; Transformers; needs regard[fast]).")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
CaptionView = Annotated[
    str | None, typer.Option(help="film (every word), picture (--word, or all) or region (--cell).")
]
Word = Annotated[int | None, typer.Option(help="Captions: draw the weights of this word, from 0 (--view picture).")]
Cell = Annotated[
    str | None,
    typer.Option(help="Captions: words that attend to ROW,COLUMN or TOP,LEFT,BOTTOM,RIGHT, from 0 (--view region)."),
]
Smooth = Annotated[bool, typer.Option("--smooth", help="Captions: interpolate between cells; the drawing says so.")]
