"""regard export"""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="New folder to write into.")],
    to: Annotated[str, typer.Option(help="small: int8 weights, without corpus and checkpoints.")] = "small",
) -> None:
    """Write a run in another form: `--to small` makes a folder of a few MiB that any regard command can use."""
    from regard.api.exporting import export as write
    from regard.cli.progress import bar

    with bar("exporting"):
        size = write(run, out, to)
    typer.echo(f"{out}: {size / 2**20:.1f} MiB. Use it like any run: regard models {out}", err=True)
