"""regard train"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class WithSettings(TyperCommand):
    """A command whose help ends with all settings; they are looked up only when the help is asked for."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the settings, a line each."""
        from regard.config import describe
        from regard.data.settings import DataConfig
        from regard.decode.settings import DecodeConfig
        from regard.train.settings import TrainConfig

        formatter.write("\nSettings of translation (those of a model: `regard models NAME`):\n")
        for section, config in (("train", TrainConfig), ("data", DataConfig), ("decode", DecodeConfig)):
            formatter.write("\n")
            for key, value, meaning in describe(config):
                formatter.write(f"  {f'{section}.{key}={value}':<34} {meaning}\n")


NEXT = {  # task -> what a run of it can do
    "translate": 'regard translate RUN   or: regard look RUN "..."',
    "caption": "regard caption RUN picture.png --out looked.html",
    "classify": 'regard classify RUN documents.txt   or: regard look RUN "..."',
    "language": 'regard generate RUN "..."   or: regard perplexity RUN text.txt',
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train", help=HELP, cls=WithSettings)(train)


HELP = """Train a model into a run folder, or go on with one: the same command again resumes.

    regard train configs/phrasebook.toml --out runs/first train.steps=500

    regard train --source a.en --target a.fr --model bahdanau --preset tiny --out runs/mine

    regard train --tmx memory.tmx --model bahdanau --preset small --out runs/memory

    regard train --source my.en --target my.fr --out runs/tuned train.start_from=runs/first

Settings are section.key=value, as in train.steps=500; all of them are listed below.

On several GPUs or machines: torchrun --nproc-per-node N -m regard train ...
"""


def train(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[CONFIG.toml] [section.key=value ...]", help="Settings.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Source sentences, one a line; may be given again.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(metavar="FILE", help="Target sentences, line for line.")] = None,
    tmx: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="A translation memory in TMX; may be given again.")
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="A built-in corpus; see `regard corpora`.")] = None,
    model: Annotated[str | None, typer.Option(help="A model; see `regard models`.")] = None,
    preset: Annotated[str | None, typer.Option(help="Its size: tiny, small, paper, ...")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
) -> None:
    from regard.api.training import gather
    from regard.cli.progress import Watcher, bar
    from regard.errors import ConfigError
    from regard.train.begin import train as begin
    from regard.train.experiment import resolve
    from regard.train.origin import inherit

    given = list(arguments or [])
    config = given.pop(0) if given and "=" not in given[0] else None
    for stray in given:
        if "=" not in stray:
            raise ConfigError(f"Settings on the command line are section.key=value; got {stray!r}.")
    if out is None:
        name = Path(config).stem if config else None
        if name is None:
            raise ConfigError("Where should the run go? Give --out FOLDER.")
        out = Path("runs") / name
    with bar("looking for the languages"):
        tables = gather(config, model, preset, given, source=source, target=target, tmx=tmx, corpus=corpus)
    experiment = resolve(inherit(tables, out))
    with Watcher() as watcher:
        reason = begin(experiment, out, watcher, watcher.stages)
    if reason == "asked":
        typer.echo(f"Saved. The same command goes on from here: {out}", err=True)
        raise typer.Exit(0)
    typer.echo(f"The run is in {out}. Try: {NEXT[experiment.task].replace('RUN', str(out))}", err=True)
