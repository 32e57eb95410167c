"""regard sweep"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from regard.cli.options import AsJson
from regard.cli.progress import bar, console
from regard.cli.text import check_settings, put_note, put_result
from regard.errors import RunError


def sweep(
    arguments: Annotated[
        list[str], Argument(metavar="SWEEP.toml [section.key=value ...]", help="Sweep file, and settings for all runs.")
    ],
    out: Annotated[Path, Option(help="Folder of the sweep.")],
    on: Annotated[str, Option(help="local, or ray: a cluster whose nodes share --out and the corpus.")] = "local",
    workers: Annotated[int | None, Option(help="Runs at a time (default: one per GPU or two cores).")] = None,
    address: Annotated[str | None, Option(help="With --on ray: the cluster (default: this machine).")] = None,
    minutes: Annotated[float | None, Option(help="Time limit in minutes; the same command continues.")] = None,
    halving: Annotated[
        int, Option(metavar="N", help="Stop all but the best 1/N of the runs early, after 1, N, N*N, ... validations.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a grid of settings with several seeds, and compare the groups: mean, spread, significance, time, size.

    regard sweep configs/sweeps/phrasebook.toml --out sweeps/phrasebook --workers 2

    Every run is an ordinary run folder in OUT/runs. The same command continues a sweep that was stopped or killed;
    finished runs are kept. A run that fails three times is set aside, and the exit code is 2.
    """
    from regard.api.sweeping import sweep as run_sweep

    file, *settings = arguments
    check_settings(settings)
    trained = 0
    try:
        with bar("training") as shown:

            def stages(stage: str, done: int, total: int | None) -> None:
                nonlocal trained
                shown(done, total, stage)
                if stage == "training" and done > trained:
                    trained = done
                    if not console().is_terminal:
                        typer.echo(f"{done} of {total} runs are done", err=True)

            how: dict[str, Any] = {"on": on, "workers": workers, "address": address, "halving": halving}
            found = run_sweep(file, out, settings=settings, **how, minutes=minutes, stages=stages)
    except KeyboardInterrupt:
        typer.echo(f"stopped; the runs in {out} are kept, and the same command continues", err=True)
        raise
    report: dict[str, Any] = {name: getattr(found, name) for name in ("runs", "finished", "failed", "stopped")}
    if as_json or found.table:
        put_result(found.table, {**report, **(asdict(found.table) if found.table else {"groups": []})}, as_json)
    if found.table:
        put_note(f"drawn: {out / 'results.svg'}", as_json)
    for name, place in found.stopped.items():
        put_note(f"stopped early: {name}, {place}", as_json)
    for name, reason in found.failed.items():
        typer.echo(f"{name}: {reason}", err=True)
    if found.failed:
        raise RunError(
            f"{len(found.failed)} of {found.runs} runs failed and were set aside; the others are kept, and the same "
            f"command tries again."
        )
    if found.finished < found.runs:
        typer.echo(f"{found.finished} of {found.runs} runs are finished; the same command continues.", err=True)
