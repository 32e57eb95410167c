"""regard train"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from regard.cli.progress import Watcher, bar
from regard.cli.text import check_settings, is_setting
from regard.errors import ConfigError

NEXT = {  # task -> commands to try with a run
    "translate": 'regard translate RUN "..."   or: regard look RUN "..."',
    "caption": "regard caption RUN picture.png --out look.html",
    "classify": 'regard classify RUN "..."   or: regard look RUN "..."',
    "language": 'regard generate RUN "..."   or: regard perplexity RUN text.txt',
}


class WithSettings(TyperCommand):
    """A command whose help ends with all settings; they are imported only when the help is printed."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the settings, one per line."""
        from regard.config import describe
        from regard.data.settings import DataConfig
        from regard.decode.settings import DecodeConfig
        from regard.runs.settings import TrainConfig

        formatter.write("\nSettings for translation (for those of a model: `regard models NAME`):\n")
        for section, config in (("train", TrainConfig), ("data", DataConfig), ("decode", DecodeConfig)):
            formatter.write("\n")
            for key, value, meaning in describe(config):
                formatter.write(f"  {f'{section}.{key}={value}':<34} {meaning}\n")


@dataclass(frozen=True)
class CorpusFiles:
    """What a model is trained on."""

    source: Annotated[list[str] | None, Option(metavar="FILE", help="Source sentences, one per line.")] = None
    target: Annotated[list[str] | None, Option(metavar="FILE", help="Target sentences, line for line.")] = None
    tmx: Annotated[list[str] | None, Option(metavar="FILE", help="Translation memory (TMX, XLIFF, PO).")] = None
    corpus: Annotated[str | None, Option(help="Built-in corpus; see `regard corpora`.")] = None


@dataclass(frozen=True)
class Ranks:
    """Where training runs, if not in this process."""

    on: Annotated[str | None, Option(help="ray: a cluster whose nodes share --out and the corpus.")] = None
    workers: Annotated[int | None, Option(help="With --on ray: number of ranks, each with a GPU or a core.")] = None
    address: Annotated[str | None, Option(help="With --on ray: the cluster (default: this machine).")] = None


def train(
    arguments: Annotated[
        list[str] | None, Argument(metavar="[CONFIG.toml] [section.key=value ...]", help="Settings.")
    ] = None,
    *,
    files: CorpusFiles,
    model: Annotated[str | None, Option(help="Model; see `regard models`.")] = None,
    preset: Annotated[str | None, Option(help="Size: tiny, small, paper, ...")] = None,
    out: Annotated[Path | None, Option(help="Run folder.")] = None,
    minutes: Annotated[
        float | None, Option(help="Time limit in minutes; settings that you do not pass are chosen to fit.")
    ] = None,
    start_from: Annotated[str | None, Option(help="Run or model (such as en-fr) whose weights to start from.")] = None,
    ranks: Ranks,
) -> None:
    """Train a model into a run folder, or resume a run: repeat the command, or pass --out RUN alone.

    regard train configs/phrasebook.toml --out runs/first train.steps=500

    regard train --source a.en --target a.fr --model bahdanau --preset tiny --out runs/mine

    regard train --tmx memory.tmx --model bahdanau --preset small --out runs/memory

    regard train --source a.en --target a.fr --minutes 5 --out runs/quick

    regard train --source my.en --target my.fr --start-from en-fr --minutes 3 --out runs/tuned

    Settings are section.key=value, as in train.steps=500; all of them are listed below.

    On several GPUs or machines: torchrun --nproc-per-node N -m regard train ... or --on ray --workers N
    """
    # Before torch is loaded: threads that spin while they wait take cores from other threads, and on a busy machine an
    # update takes ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Torch for Arm returns memory to the system within an update; getting it again takes a twentieth of the time.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    from regard.api.training import plan
    from regard.cluster.ranks import starter
    from regard.training.events import BEFORE_THE_END

    since = time.monotonic() - age()
    begin = starter(**vars(ranks))
    settings = list(arguments or [])
    config = settings.pop(0) if settings and not is_setting(settings[0]) else None
    check_settings(settings)
    if out is None and config is None:
        raise ConfigError("Expected a run folder; pass --out FOLDER.")
    run = out or Path("runs") / Path(str(config)).stem
    settings += [f'train.start_from="{start_from}"'] if start_from else []
    with bar("choosing settings"):
        experiment, reasons = plan(run, config, model, preset, settings, minutes, **vars(files))
    for why in reasons:
        typer.echo(why, err=True)
    with Watcher() as watcher:
        reason = begin(experiment, run, watcher, watcher.stages, since if minutes is not None else None)
    if os.environ.get("RANK", "0") != "0":
        return  # only rank 0 gets the events, and prints
    if reason in BEFORE_THE_END:
        typer.echo(f"Saved. To resume: regard train --out {run}", err=True)
        raise KeyboardInterrupt if reason == "interrupted" else typer.Exit(0)
    if not watcher.stepped:
        limit = {"time": "minutes", "patience": "patience"}.get(reason, "steps" if experiment.train.steps else "epochs")
        value = getattr(experiment.train, limit)
        more = f"give it more --minutes than {value:g}" if reason == "time" else f"set train.{limit} above {value}"
        typer.echo(f"Nothing was trained: the run is finished already. To train it further, {more}.", err=True)
    if watcher.useful is False:
        advice = "train longer, on more examples, or from a trained model (--start-from; `regard models` lists them)"
        typer.echo(f"note: BLEU in validation stayed below 1, so the model is of no use yet: {advice}", err=True)
    typer.echo(f"The run is in {run}. Try: {NEXT[experiment.task].replace('RUN', str(run))}", err=True)


def age() -> float:
    """Seconds since this process started, on Linux: starting up counts as training time. Elsewhere 0."""
    if sys.platform != "linux":
        return 0.0
    try:
        began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
