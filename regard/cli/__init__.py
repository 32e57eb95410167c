"""The commands. Each is thin: it reads arguments, calls the library, and prints."""

import typer

from regard.cli import align, demo, flow, heads, look, others, score, serve, show, train, translate
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


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


for module in (demo, train, translate, score, look, heads, flow, align, others, serve, show):
    module.register(app)
