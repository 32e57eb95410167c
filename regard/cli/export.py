"""regard export and regard import"""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="New folder to write into.")],
    to: Annotated[
        str, typer.Option(help="small (int8 weights, no corpus and checkpoints), ctranslate2 or onnx.")
    ] = "small",
    numbers: Annotated[str, typer.Option(help="ctranslate2: int8 or float32.")] = "int8",
) -> None:
    """Write a run in another form: `--to small` makes a folder of a few MiB that any regard command can use, the others
    serve other engines."""
    from regard.api.exporting import export as write
    from regard.cli.progress import bar

    with bar("exporting"):
        size = write(run, out, to, numbers)
    use = f"Use it like any run: regard models {out}" if to == "small" else "docs/interop.md shows how to use it"
    typer.echo(f"{out}: {size / 2**20:.1f} MiB. {use}", err=True)


def import_model(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a MarianMT model of transformers, or of Marian or Bergamot.")
    ],
    out: Annotated[Path, typer.Option(help="New run folder to write.")],
    source_language: Annotated[str, typer.Option(help="Code of the source language, as en.")] = "",
    target_language: Annotated[str, typer.Option(help="Code of the target language, as pt.")] = "",
) -> None:
    """Make a run of a translator that was trained elsewhere: OPUS-MT, Marian, or one of Firefox."""
    from regard.api.importing import import_model as read
    from regard.cli.progress import bar

    with bar("importing"):
        size = read(folder, out, source_language, target_language)
    typer.echo(f"{out}: {size / 2**20:.1f} MiB. Use it like any run: regard translate {out}", err=True)
