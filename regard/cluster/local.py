"""Shards on worker processes of this machine. A worker that dies is replaced; Ctrl-C leaves whole shards only."""

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from regard.cluster.shards import TRIES, Plan, Shard, ShardReader, Start, missing, set_aside, write_results
from regard.errors import ConfigError, RegardError, RunError, counted
from regard.work import Progress, usable_cores

_SPAWN = multiprocessing.get_context("spawn")  # a fork would copy threads and CUDA
USED = 0.9  # of a GPU's memory at most, by all the workers that share it
GRACE = 60.0  # seconds that a worker has to save what it can, once it is stopped


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


def visible_gpus() -> list[str]:
    """The GPUs of this machine that CUDA may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch  # takes seconds, so it is imported only where it is needed

    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    count = torch.cuda.device_count()
    return names[:count] if any(names) else [str(number) for number in range(count)]


def gpus_for(*devices: str) -> list[str]:
    """The GPUs that workers on these devices take in turn; none if a device has a number (cuda:1): all must see it."""
    return [] if any(":" in device for device in devices) else visible_gpus()


@dataclass
class LocalWorker:
    """A process, our end of its pipe, and what it works on."""

    place: int  # among the workers
    process: SpawnProcess
    pipe: Connection
    shard: Shard | None = None  # None: it is still loading
    rows: int = 0  # rows of its shard that are done
    last: float = 0.0  # time of its last message, by `time.monotonic`
    stuck: bool = False  # whether it was killed because it sent no message


def run_local(
    start: Start, plan: Plan, out: Path, workers: int, progress: Progress | None = None, until: float = math.inf,
    silent: float = math.inf, gpus: Sequence[str] = (),
) -> int:  # fmt: skip
    """Process the missing shards with `workers` processes; returns how many were set aside after failing three times.

    Each worker sees one of the `gpus`, in turn; without any, it sees what this process sees. At the time `until`, by
    `time.monotonic`, the workers are stopped and the rest is left undone. A worker that sends no message about its
    shard for `silent` seconds counts as stuck: it is killed and replaced, and its shard has failed.
    """
    sharing = math.ceil(workers / len(gpus)) if gpus else 1
    pool = Pool(partial(_begin, start, plan, out, gpus, sharing), out, missing(plan, out), workers, silent)
    try:
        while pool.waiting or pool.working:
            now = time.monotonic()
            if now >= until:
                break
            pool.fill()
            next_time = min(until, pool.end_stuck(now))
            for pipe in wait(list(pool.workers), None if next_time == math.inf else next_time - now):
                pool.receive(pool.workers[pipe])  # type: ignore[index]
                if progress:
                    progress(pool.done + sum(worker.rows for worker in pool.workers.values()), pool.total)
    finally:
        pool.end()
    return pool.failed


class Pool:
    """The workers of a plan, and the shards that wait for them."""

    def __init__(
        self,
        begin: Callable[[int], LocalWorker],
        out: Path,
        shards: Sequence[Shard],
        most: int,
        silent: float = math.inf,
    ) -> None:
        self.begin, self.out, self.most, self.silent = begin, out, most, silent
        self.waiting, self.total, self.done = list(reversed(shards)), sum(shard.lines for shard in shards), 0
        self.workers: dict[Connection, LocalWorker] = {}
        self.tries: Counter[int] = Counter()
        self.failed = self.deaths = 0  # shards that were set aside; workers that died before they had one

    @property
    def working(self) -> int:
        return sum(worker.shard is not None for worker in self.workers.values())

    def fill(self) -> None:
        """Start workers while there are shards for them."""
        while self.waiting and len(self.workers) < min(self.most, len(self.waiting) + self.working):
            taken = {worker.place for worker in self.workers.values()}
            worker = self.begin(min(set(range(self.most)) - taken))
            self.workers[worker.pipe] = worker

    def end_stuck(self, now: float) -> float:
        """Kill the workers that sent no message for too long; returns when the next check is due."""
        for worker in self.workers.values():
            if worker.shard and now - worker.last >= self.silent and not worker.stuck:
                worker.stuck = True
                worker.process.kill()
        working = (worker for worker in self.workers.values() if worker.shard and not worker.stuck)
        return min((worker.last + self.silent for worker in working), default=math.inf)

    def receive(self, worker: LocalWorker) -> None:
        """Handle a message of a worker, or its death, and give it the next shard."""
        worker.last = time.monotonic()
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError):
            return self._remove_dead(worker)
        if kind == "rows":
            worker.rows += value
            return
        if kind == "broken":
            raise RunError(value)
        if kind == "failed" and worker.shard:
            self._fail(worker.shard, value)
        elif worker.shard:
            self.done += worker.shard.lines
        worker.shard, worker.rows = self.waiting.pop() if self.waiting else None, 0
        with suppress(OSError):  # it has died: the next receive finds the end of its pipe
            worker.pipe.send(worker.shard)
        if worker.shard is None:
            del self.workers[worker.pipe]

    def _remove_dead(self, worker: LocalWorker) -> None:
        worker.process.join()
        del self.workers[worker.pipe]
        if worker.shard:
            ended = f"its worker ended with exit code {worker.process.exitcode}"
            silent = f"nothing was done for {counted(self.silent, 'second', 'g')}"
            self._fail(worker.shard, silent if worker.stuck else ended)
            return
        self.deaths += 1
        if self.deaths >= TRIES:
            raise RunError(f"The workers do not start: exit code {worker.process.exitcode}.")

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
            worker.process.terminate()
            worker.pipe.close()
        for worker in self.workers.values():
            worker.process.join(GRACE)
            worker.process.kill()
            worker.process.join()


def _begin(start: Start, plan: Plan, out: Path, gpus: Sequence[str], sharing: int, place: int) -> LocalWorker:
    ours, theirs = _SPAWN.Pipe()
    gpu = gpus[place % len(gpus)] if gpus else None
    process = _SPAWN.Process(target=_serve, args=(theirs, start, plan, out, gpu, sharing), daemon=True)
    process.start()
    theirs.close()
    return LocalWorker(place, process, ours)


def _serve(pipe: Connection, start: Start, plan: Plan, out: Path, gpu: str | None, sharing: int) -> None:
    """One worker: loads once, then processes shards until there are no more, or until the driver is gone."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before CUDA is used for the first time
        share_gpu(sharing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with suppress(EOFError, OSError):  # the driver is gone: nobody needs this worker
        try:
            work = start()
        except RegardError as error:
            pipe.send(("broken", str(error)))
            return
        read = ShardReader(plan)
        message: tuple[str, Any] = ("ready", None)
        while True:
            pipe.send(message)
            shard = pipe.recv()
            if shard is None:
                return
            try:
                write_results(out, shard, work(read(shard), lambda rows: pipe.send(("rows", rows))))
                message = ("done", None)
            except ConnectionError:
                return
            except Exception as error:  # any failure of one shard is reported and retried, and ends nothing else
                read = ShardReader(plan)
                message = ("failed", f"{type(error).__name__}: {error}")


def share_gpu(workers: int) -> None:
    """Limit this process to its share of a GPU's memory: torch caches what it frees, which other workers need."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(USED / workers)


def _end_with_driver() -> None:
    """End this worker when the driver is gone, even in the middle of its work: the next driver needs the folder."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
