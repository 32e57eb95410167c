"""Where training runs: `starter` returns `regard.training.start.train`, or the same on a Ray cluster.

Ray Train starts the ranks that torchrun would, and starts all of them again if one dies.

The ranks send their events to an actor on the driver's node, which answers whether to stop. Checkpoints are those of
the run folder, so that a group of ranks that is started again resumes as the same command would.
"""

import os
import platform
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from regard.cluster.local import check_workers
from regard.cluster.ray import connect
from regard.data.prepare import Stages
from regard.errors import ConfigError, RegardError, RunError, TrainingError, brief, check_known, counted
from regard.models.registry import IMPORTED
from regard.runs.experiment import Experiment, resolve
from regard.sealed import make_folder
from regard.training.events import DataReady, Event, Finished, Noticed, Observe, Stepped, wants_stop
from regard.training.start import train
from regard.training.stopping import Stop

RESTARTS = 10  # of all ranks, before training fails
EVERY = 0.2  # seconds between two looks at what the ranks have reported
LOST = "a rank or its node was lost; all ranks were started again"


class Stage(NamedTuple):
    """Progress of the data preparation: the arguments of a `Stages` callback."""

    name: str
    done: int
    total: int | None


class Job(NamedTuple):
    """The arguments of every rank."""

    tables: dict[str, Any]
    run: Path
    folder: str  # the working directory of the command: the paths of a corpus may be relative to it
    spent: float | None  # seconds that count as training before the ranks begin
    imported: str  # the packages of --import
    mark: Path  # a file beside the run while the command runs: a rank that does not see it has other storage


def starter(on: str | None, workers: int | None, address: str | None) -> Callable[..., str]:
    """The training function: `regard.training.start.train`, or the same on `workers` ranks of a Ray cluster."""
    if on is None:
        if workers is not None or address is not None:
            raise ConfigError("--workers and --address are for training on a cluster; add --on ray, or leave them out.")
        return train
    check_known("cluster", on, ["ray"], " to train on")
    check_workers(workers)
    if workers is None:
        raise ConfigError("--on ray needs --workers N, the number of ranks; got none.")
    return partial(train_on_ray, workers=workers, address=address)


class Head:
    """The actor between the driver and the ranks. Its methods run in threads."""

    def __init__(self) -> None:
        self.events: deque[Event | Stage] = deque()
        self.starts = self.step = 0
        self.stop = False
        self.refusal: RegardError | None = None

    def fit(self, job: Job, workers: int, gpu: bool, me: Any) -> None:
        """Run the ranks to their end; `me` is the handle of this actor."""
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")  # the default only since 2.51
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        environment = {IMPORTED: job.imported} | ({} if gpu else {"CUDA_VISIBLE_DEVICES": ""})
        with tempfile.TemporaryDirectory(prefix="regard-") as storage:  # Ray Train needs one, and puts nothing there
            TorchTrainer(
                run_rank,
                train_loop_config={"job": job, "head": me},
                scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
                run_config=RunConfig(
                    storage_path=storage,
                    failure_config=FailureConfig(max_failures=RESTARTS),
                    worker_runtime_env={"env_vars": environment},
                ),
            ).fit()

    def begin(self, rank: int) -> int:
        """A rank begins; returns how often rank 0 has, or 0 where there is nothing to do since one has refused."""
        if rank == 0:
            self.starts += 1
            if self.starts > 1:
                self.events.append(Noticed(self.step, LOST))
        return 0 if self.refusal else max(1, self.starts)

    def report(self, events: Sequence[Event | Stage]) -> bool:
        """Rank 0 reports; returns whether to stop."""
        self.step = next((event.step for event in reversed(events) if isinstance(event, Stepped)), self.step)
        self.events.extend(events)
        return self.stop

    def refuse(self, error: RegardError) -> None:
        """A rank cannot work, and would not if it were started again."""
        self.refusal = self.refusal or error

    def poll(self, stop: bool) -> tuple[list[Event | Stage], RegardError | None]:
        """New events for the driver; `stop` is whether the ranks should stop."""
        self.stop = stop
        return [self.events.popleft() for _ in range(len(self.events))], self.refusal


class Reporter:
    """Rank 0's observer: sends events without waiting for an answer, and returns the last one, whether to stop."""

    def __init__(self, ray: Any, head: Any) -> None:
        self.ray, self.head = ray, head
        self.waiting: list[Event | Stage] = []
        self.answer: Any = None
        self.stop = False

    def __call__(self, event: Event | Stage) -> bool:
        self.waiting.append(event)
        if self.answer is None or self.ray.wait([self.answer], timeout=0)[0]:
            self.stop = self.answer is not None and self.ray.get(self.answer)
            self.send()
        return self.stop

    def send(self) -> None:
        """Send the waiting events after the earlier ones have arrived: the actor's threads do not keep their order."""
        if self.answer is not None:
            self.ray.wait([self.answer])
        self.answer, self.waiting = self.head.report.remote(self.waiting), []

    def stages(self, name: str, done: int, total: int | None) -> None:
        self(Stage(name, done, total))


def run_rank(given: dict[str, Any]) -> None:
    """One rank, as torchrun would start it: Ray Train has set the same variables, and made the process group."""
    import ray

    job, head, rank = given["job"], given["head"], int(os.environ["RANK"])
    starts = ray.get(head.begin.remote(rank))
    if not starts:
        return
    report, where = Reporter(ray, head), f"Rank {rank} on {platform.node()}"
    try:
        if not job.mark.exists():
            raise RunError(
                f"{where} does not see {job.run.parent} as the command does; the run folder and the corpus must be on "
                f"storage that all nodes share."
            )
        with suppress(OSError):  # reported below, by the file that cannot be read
            os.chdir(job.folder)
        if job.imported:
            sys.path.append(job.folder)  # as in the command
        since = None if job.spent is None or starts > 1 else time.monotonic() - job.spent
        train(resolve(job.tables), job.run, report, report.stages, since)
        report.send()
        ray.get(report.answer)
    except RegardError as error:
        if rank and where not in str(error):
            error = RunError(f"{where}: {error}")
        if starts == 1 or not isinstance(error, RunError):  # a lost rank may still hold the run for a moment
            ray.get(head.refuse.remote(error))
        raise


def train_on_ray(
    experiment: Experiment, run: Path, observe: Observe | None = None, stages: Stages | None = None,
    since: float | None = None, *, workers: int = 1, address: str | None = None,
) -> str:  # fmt: skip
    """Train as `regard.training.start.train` does, on `workers` ranks of a Ray cluster, each with a GPU or a core.

    The run folder and the corpus must be on storage that all nodes share. `observe` and `stages` are called here.
    """
    ray = connect(address)
    has, device = ray.cluster_resources(), experiment.train.device
    gpu = device.startswith("cuda") or (device == "auto" and has.get("GPU", 0) > 0)
    kind = "GPU" if gpu else "CPU"
    if has.get(kind, 0) < workers:
        short = f"Ray has {counted(has.get(kind, 0), kind, 'g')} for {counted(workers, 'worker')}"
        if address is None:
            raise ConfigError(f"{short}; pass fewer --workers, or the --address of a larger cluster.")
        if observe:
            observe(Noticed(0, f"{short}; training begins when the cluster has more"))
    spent = None if since is None else time.monotonic() - since
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    with mark_beside(run.absolute()) as mark:
        job = Job(experiment.tables(), run.absolute(), os.getcwd(), spent, os.environ.get(IMPORTED, ""), mark)
        head = ray.remote(num_cpus=0, max_concurrency=4, scheduling_strategy=here)(Head).remote()
        try:
            return follow(ray, head, head.fit.remote(job, workers, gpu, head), observe, stages)
        finally:
            ray.kill(head)  # and with it the ranks, where they still run


@contextmanager
def mark_beside(run: Path) -> Iterator[Path]:
    """A file beside the run folder, for the block."""
    make_folder(run.parent)
    try:
        file = tempfile.NamedTemporaryFile(prefix=f".{run.name}.", suffix=".tmp", dir=run.parent)  # noqa: SIM115
    except OSError as error:
        raise RunError(
            f"The folder {run.parent} is not writable: {error.strerror or error}; choose another --out."
        ) from None
    with file:
        yield Path(file.name)


def follow(ray: Any, head: Any, fit: Any, observe: Observe | None, stages: Stages | None) -> str:
    """Pass on the events of the ranks until they end; returns why. After Ctrl-C and SIGTERM they save and stop."""
    stop, begun, reason = Stop(), False, ""
    done: list[Any] = []
    try:
        with stop.listening():
            while not done:
                done, _ = ray.wait([fit], timeout=EVERY)
                reported, refusal = ray.get(head.poll.remote(stop.requested))
                for event in reported:
                    if isinstance(event, Stage):
                        if stages:
                            stages(*event)
                        continue
                    begun = begun or isinstance(event, DataReady)
                    reason = event.reason if isinstance(event, Finished) else reason
                    if observe and wants_stop(observe(event)):
                        stop.requested = True
                if refusal:
                    raise refusal
                if stop.requested and not begun:
                    raise KeyboardInterrupt  # there is nothing to save
        ray.get(fit)
    except ray.exceptions.RayError as error:  # of a rank, or the actor itself was killed
        last = str(error).strip().rpartition("\n")[2]
        raise TrainingError(f"Training on Ray failed: {brief(last)}. To resume, repeat the command.") from None
    return stop.reason if reason == "stopped" else reason
