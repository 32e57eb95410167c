"""Shards on worker processes of this machine. A worker that dies is replaced; Ctrl-C leaves whole shards only."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

from regard.cluster.shards import TRIES, Plan, Shard, ShardReader, Start, set_aside, write_results
from regard.data.files import Progress
from regard.errors import RegardError, RunError

_SPAWN = multiprocessing.get_context("spawn")  # a fork would copy threads and CUDA
GRACE = 60.0  # seconds that a worker has to save what it can, once it is stopped


class LocalWorker(NamedTuple):
    """A process, and our end of its pipe."""

    process: SpawnProcess
    pipe: Connection


def run_local(
    start: Start, plan: Plan, out: Path, shards: Sequence[Shard], workers: int, progress: Progress | None = None,
    until: float | None = None,
) -> int:  # fmt: skip
    """Work on `shards` with `workers` processes; returns how many were set aside after failing three times.

    At the time `until`, on the clock of `time.monotonic`, the workers are stopped and the rest is left undone.
    """
    waiting, total, done = list(reversed(shards)), sum(shard.lines for shard in shards), 0
    tries: Counter[int] = Counter()
    busy: dict[
        Connection, tuple[LocalWorker, Shard | None, int]
    ] = {}  # None: it is still loading; rows of its shard done
    failed = idle_deaths = 0

    def fail(shard: Shard, reason: str) -> None:
        nonlocal failed
        tries[shard.number] += 1
        if tries[shard.number] < TRIES:
            waiting.append(shard)
        else:
            failed += 1
            set_aside(out, shard, reason)

    try:
        while waiting or any(shard for _, shard, _ in busy.values()):
            left = None if until is None else max(0.0, until - time.monotonic())
            if left == 0.0:
                break
            while waiting and len(busy) < min(workers, len(waiting) + sum(1 for _, one, _ in busy.values() if one)):
                worker = _begin(start, plan, out)
                busy[worker.pipe] = worker, None, 0
            for pipe in wait(list(busy), left):
                worker, shard, rows = busy[pipe]  # type: ignore[index]
                try:
                    said, value = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    del busy[worker.pipe]
                    done -= rows
                    if shard:
                        fail(shard, f"its worker ended with exit code {worker.process.exitcode}")
                    elif (idle_deaths := idle_deaths + 1) >= TRIES:
                        raise RunError(f"The workers do not start: exit code {worker.process.exitcode}.") from None
                    continue
                if said == "rows":
                    done, rows = done + value, rows + value
                    busy[worker.pipe] = worker, shard, rows
                    if progress:
                        progress(done, total)
                    continue
                if said == "broken":
                    raise RunError(value)
                if said == "failed" and shard:
                    done -= rows
                    fail(shard, value)
                elif shard:
                    done += shard.lines - rows
                following = waiting.pop() if waiting else None
                worker.pipe.send(following)
                if following:
                    busy[worker.pipe] = worker, following, 0
                else:
                    del busy[worker.pipe]
                if progress:
                    progress(done, total)
    finally:
        for worker, *_ in busy.values():
            worker.process.terminate()  # training saves a checkpoint; other work that is not committed does not exist
            worker.pipe.close()
        for worker, *_ in busy.values():
            worker.process.join(GRACE)
            worker.process.kill()
            worker.process.join()
    return failed


def _begin(start: Start, plan: Plan, out: Path) -> LocalWorker:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(theirs, start, plan, out), daemon=True)
    process.start()
    theirs.close()
    return LocalWorker(process, ours)


def _serve(pipe: Connection, start: Start, plan: Plan, out: Path) -> None:
    """One worker: loads once, then takes shards until there are no more, or until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with suppress(EOFError, OSError):  # the driver is gone: nobody needs this worker
        try:
            work = start()
        except RegardError as error:
            pipe.send(("broken", str(error)))
            return
        read = ShardReader(plan)
        said: tuple[str, Any] = ("ready", None)
        while True:
            pipe.send(said)
            shard = pipe.recv()
            if shard is None:
                return
            try:
                write_results(out, shard, work(read(shard), lambda rows: pipe.send(("rows", rows))))
                said = ("done", None)
            except ConnectionError:
                return
            except Exception as error:  # any failure of one shard is reported and retried, and ends nothing else
                read = ShardReader(plan)
                said = ("failed", f"{type(error).__name__}: {error}")


def _end_with_driver() -> None:
    """End this worker when the driver is gone, however long its work would take: the next driver needs the folder."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
