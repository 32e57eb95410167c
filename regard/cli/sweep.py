"""regard sweep"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from regard.cli.options import AsJson
from regard.cli.progress import bar, console
from regard.cli.text import is_setting, put_note, put_result
from regard.errors import ConfigError, RunError


def sweep(
    arguments: Annotated[
        list[str], Argument(metavar="SWEEP.toml [section.key=value ...]", help="Sweep file, and settings for all runs.")
    ],
    out: Annotated[Path, Option(help="Folder of the sweep.")],
    workers: Annotated[int | None, Option(help="Runs at a time (default: one per GPU or two cores).")] = None,
    minutes: Annotated[float | None, Option(help="Stop after this time, saved; the same command continues.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a grid of settings with several seeds, and compare the groups: mean, spread, significance, time, size.

    regard sweep configs/sweeps/phrasebook.toml --out sweeps/phrasebook --workers 2

    Every run is an ordinary run folder in OUT/runs. The same command continues a sweep that was stopped or killed;
    finished runs are kept. A run that fails three times is set aside, and the exit code is 2.
    """
    from regard.api.sweeping import sweep as run_sweep

    file, *settings = arguments
    for stray in (one for one in settings if not is_setting(one)):
        raise ConfigError(f"Settings on the command line are section.key=value; got {stray!r}.")
    try:
        with bar("training") as shown:
            stage = "training"
            last = 0

            def change_stage(name: str) -> None:
                nonlocal stage
                stage = name

            def progress(done: int, total: int | None) -> None:
                nonlocal last
                shown(done, total, stage)
                if stage == "training" and done > last and not console().is_terminal:
                    typer.echo(f"{done} of {total} runs are trained", err=True)
                last = done

            found = run_sweep(
                file, out, settings=settings, workers=workers, minutes=minutes, progress=progress, stage=change_stage
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; the runs in {out} are kept, and the same command continues", err=True)
        raise
    report: dict[str, Any] = {"runs": found.runs, "finished": found.finished, "failed": found.failed}
    if as_json or found.table:
        put_result(found.table, {**report, **(found.table.as_data() if found.table else {"groups": []})}, as_json)
    if found.table:
        put_note(f"drawn: {out / 'results.svg'}", as_json)
    for name, reason in found.failed.items():
        typer.echo(f"{name}: {reason}", err=True)
    if found.failed:
        raise RunError(
            f"{len(found.failed)} of {found.runs} runs failed and were set aside; the others are kept, and the same "
            f"command tries again."
        )
    if found.finished < found.runs:
        typer.echo(f"{found.finished} of {found.runs} runs are finished; the same command continues.", err=True)
