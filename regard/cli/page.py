"""regard page"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.errors import counted


def page(
    runs: Annotated[
        list[str] | None, Argument(metavar="[RUN ...]", help="Translators (default: the included models).")
    ] = None,
    out: Annotated[Path, Option(help="New folder for the page.")] = Path("site"),
    runtime: Annotated[
        Path | None, Option(help="Folder of the npm package onnxruntime-web (default: the one in node_modules).")
    ] = None,
) -> None:
    """Write the page as static files: any web host serves them, and the visitor's browser runs the models."""
    from regard.runs.included import shipped
    from regard.serve.site import build_site

    names = runs or [str(folder) for folder in shipped().values()]
    size = build_site(names, out, runtime, progress=lambda run: typer.echo(f"exporting {run} …", err=True))
    many = f"{counted(len(names), 'model')}, {size / 1e6:.1f} MB"
    typer.echo(f"{out}: {many}. Try it with: python -m http.server --directory {out}")
