"""Shards on worker processes of this machine. A worker that dies is replaced; Ctrl-C leaves whole shards only."""

import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from regard.cluster.shards import TRIES, Plan, Shard, ShardReader, Start, missing, set_aside, write_results
from regard.errors import ConfigError, RegardError, RunError, counted
from regard.processes import Answer, ChildProcess, DiedError, Running
from regard.work import Progress, usable_cores

USED = 0.9  # of a GPU's memory at most, by all the workers that share it
GRACE = 60.0  # seconds that a worker has to save what it can, once it is stopped
EVERY = 0.1  # seconds between two reports of progress


def check_workers(workers: int | None) -> None:
    """Refuse a number of workers below one; None stands for the default."""
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1; got {workers}.")


def share_cores(workers: int | None, gpus: int, per_gpu: int = 1) -> tuple[int, int]:
    """How many workers, by default `per_gpu` for each GPU or one for two cores, and how many threads each has.

    Workers that share a GPU have two cores each.
    """
    check_workers(workers)
    cores = usable_cores()
    number = workers or max(gpus, min(gpus * per_gpu, cores // 2)) or max(1, cores // 2)
    return number, max(1, cores // number)


def gpus_for(*devices: str) -> list[str]:
    """The GPUs that workers on these devices take in turn, as CUDA_VISIBLE_DEVICES names them; none if a device has a
    number (cuda:1): all must see it."""
    if any(":" in device for device in devices):
        return []
    import torch  # takes seconds, so it is imported only where it is needed

    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    count = torch.cuda.device_count()
    return names[:count] if any(names) else [str(number) for number in range(count)]


class Worker:
    """A process that works on one shard after another."""

    def __init__(self, load: Callable[[], Answer], preload: Sequence[str]) -> None:
        self.process = ChildProcess(load, preload=preload)
        self.shard: Shard | None = None  # None: it is loading
        self.task: Future[Any] = self.process.loaded  # what it does now
        self.rows = 0  # rows of its shard that are done
        self.stuck = False  # whether it was killed because it was silent

    def begin(self, shard: Shard) -> None:
        """Start to work on a shard."""
        self.shard, self.rows = shard, 0
        self.task = self.process.call(shard, part=self._count).result

    def _count(self, rows: int) -> None:
        self.rows += rows

    def kill_if_silent(self, seconds: float) -> None:
        """Kill a process that shows no progress for so long."""
        if not self.stuck and self.process.silence > seconds:
            self.stuck = True
            self.process.kill()


class Pool:
    """The workers of a plan, and the shards that wait for them."""

    def __init__(self, start: Callable[[int], Worker], out: Path, shards: Sequence[Shard], most: int) -> None:
        self.start, self.out, self.most = start, out, most
        self.waiting, self.total, self.done = list(reversed(shards)), sum(shard.lines for shard in shards), 0
        self.workers: dict[int, Worker] = {}  # by place: workers take the GPUs in turn
        self.tries: Counter[int] = Counter()
        self.failed = self.deaths = 0  # shards that were set aside; workers that died before they had one

    @property
    def working(self) -> int:
        return sum(worker.shard is not None for worker in self.workers.values())

    @property
    def rows(self) -> int:
        """Rows that are done, those of unfinished shards too."""
        return self.done + sum(worker.rows for worker in self.workers.values())

    def fill(self) -> None:
        """Start workers while there are shards for them."""
        free = [place for place in range(self.most) if place not in self.workers]
        for place in free[: max(0, len(self.waiting) + self.working - len(self.workers))]:
            self.workers[place] = self.start(place)

    def follow(self, place: int, silent: float) -> None:
        """Take the result of a worker that has finished its shard or died, and give it the next shard."""
        worker = self.workers[place]
        error = worker.task.exception()
        if isinstance(error, DiedError):
            del self.workers[place]
            worker.process.join()
            ended = f"ended with exit code {worker.process.exitcode}"
            if worker.shard:
                silence = f"nothing was done for {counted(silent, 'second', 'g')}"
                self._fail(worker.shard, silence if worker.stuck else f"its worker {ended}")
                return
            self.deaths += 1
            if self.deaths >= TRIES:
                raise RunError(f"The workers do not start: the last one {ended}.")
            return
        if worker.shard is None and error:
            raise error if isinstance(error, RegardError) else RunError(f"The work cannot start: {error}")
        if worker.shard and error:
            self._fail(
                worker.shard, f"{type(error).__name__}: {error}" if isinstance(error, RegardError) else str(error)
            )
        elif worker.shard:
            self.done += worker.shard.lines
        if self.waiting:
            worker.begin(self.waiting.pop())
        else:
            del self.workers[place]
            worker.process.end()

    def _fail(self, shard: Shard, reason: str) -> None:
        self.tries[shard.number] += 1
        if self.tries[shard.number] < TRIES:
            self.waiting.append(shard)
        else:
            self.failed += 1
            set_aside(self.out, shard, reason)

    def end(self) -> None:
        """Stop all workers: training saves a checkpoint, other work that is not committed is lost."""
        for worker in self.workers.values():
            worker.process.finish()
            if sys.platform != "win32":  # there, it would end a training before it saves
                worker.process.signal(signal.SIGTERM)
        until = time.monotonic() + GRACE
        for worker in self.workers.values():
            worker.process.join(max(0.0, until - time.monotonic()))


def run_local(
    start: Start, plan: Plan, out: Path, workers: int, progress: Progress | None = None, until: float = math.inf,
    silent: float = math.inf, gpus: Sequence[str] = (),
) -> int:  # fmt: skip
    """Process the missing shards with `workers` processes; returns how many were set aside after failing three times.

    Each worker sees one of the `gpus`, in turn; without any, it sees what this process sees. At the time `until`, by
    `time.monotonic`, the workers are stopped and the rest is left undone. A worker that makes no progress on its
    shard for `silent` seconds counts as stuck: it is killed and replaced, and its shard has failed.
    """
    sharing = math.ceil(workers / len(gpus)) if gpus else 1
    module = str(getattr(getattr(start, "func", start), "__module__", ""))
    preload = [module] if module.startswith("regard.") else []

    def start_worker(place: int) -> Worker:
        gpu = gpus[place % len(gpus)] if gpus else None
        return Worker(partial(_load, start, plan, out, gpu, sharing), preload)

    pool, shown = Pool(start_worker, out, missing(plan, out), workers), 0
    try:
        while (pool.waiting or pool.working) and time.monotonic() < until:
            pool.fill()
            wait([worker.task for worker in pool.workers.values()], EVERY, FIRST_COMPLETED)
            for place, worker in list(pool.workers.items()):
                worker.kill_if_silent(silent)
                if worker.task.done():
                    pool.follow(place, silent)
            if progress and pool.rows != shown:
                shown = pool.rows
                progress(shown, pool.total)
    finally:
        pool.end()
    return pool.failed


def _load(start: Start, plan: Plan, out: Path, gpu: str | None, sharing: int) -> Answer:
    """In a worker: load what the work needs; returns the function that processes a shard."""
    if gpu is not None:
        import torch

        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before CUDA is used for the first time
        if torch.cuda.is_available():  # torch caches what it frees, which other workers need
            torch.cuda.set_per_process_memory_fraction(USED / sharing)
    work, read = start(), ShardReader(plan)

    def process(running: Running, shard: Shard) -> None:
        nonlocal read
        try:
            write_results(out, shard, work(read(shard), running.send))
        except Exception:
            read = ShardReader(plan)  # it may have stopped anywhere in the file
            raise

    return process
