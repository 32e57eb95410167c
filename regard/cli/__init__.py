"""The commands. Each is thin: it reads arguments, calls the library, and prints."""

import os
import sys
from typing import Annotated

import typer
from typer import Option

from regard.cli import (
    align,
    calibrate,
    corpora,
    demo,
    look,
    measure,
    models,
    page,
    predict,
    score,
    serve,
    sweep,
    train,
    translate,
)
from regard.cli.options import ungrouped
from regard.version import __version__

app = typer.Typer(
    name="regard",
    help="Train, run and look inside attention sequence-to-sequence models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    demo.demo, train.train, translate.translate, score.score, score.compare, look.look, measure.heads, measure.faithful,
    measure.flow, align.align, calibrate.calibrate, predict.caption, predict.classify, predict.generate,
    score.perplexity, measure.reach, serve.serve, page.page, models.models, corpora.corpora, models.export, sweep.sweep,
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=train.WithSettings if command is train.train else None)(ungrouped(command))
app.command("import")(models.import_model)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: bool = Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    packages: Annotated[
        list[str] | None, Option("--import", metavar="PACKAGE", help="Package with models, scores or normalisers.")
    ] = None,
) -> None:
    if packages:
        from regard.models.registry import IMPORTED, import_package

        os.environ[IMPORTED] = ",".join(packages)
        sys.path.append(os.getcwd())  # a package beside you is found, but replaces no other
        for package in packages:
            import_package(package)
