"""Work on a corpus in shards: its progress, and what became of it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.options import Pairs
from regard.cli.progress import bar
from regard.data.files import Progress
from regard.errors import ConfigError, RunError, counted

if TYPE_CHECKING:
    from regard.api.corpus import CorpusResult


def pair_files(pairs: Pairs, out: Path | None) -> tuple[list[Path], Path]:
    """The files of pairs for work on shards, and the folder of the results."""
    files = [pairs.source, pairs.target] if pairs.tsv is None else [pairs.tsv]
    if pairs.tmx or out is None or not all(files) or (pairs.tsv and (pairs.source or pairs.target)):
        raise ConfigError("--on takes --source and --target, or --tsv, and a folder for the results, --out DIR.")
    return [file for file in files if file], out


def watch(doing: str, out: Path, work: Callable[[Progress], "CorpusResult"]) -> "CorpusResult":
    """Show the progress of work on shards and say what became of it; shards that were set aside are an error."""
    try:
        with bar(doing) as progress:
            found = work(progress)
    except KeyboardInterrupt:
        typer.echo(f"stopped; the shards in {out} are kept, and the same command continues", err=True)
        raise
    if found.failed:
        raise RunError(
            f"{counted(found.failed, 'shard')} failed three times; {out / 'failed'} says why. The others are kept: the "
            f"same command tries again."
        )
    typer.echo(f"{counted(found.lines, 'line')} into {', '.join(str(path) for path in found.outputs)}", err=True)
    return found
