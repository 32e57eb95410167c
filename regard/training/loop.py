"""The training loop, the same for every `Task`.

Its parts are the update (update.py), the progress in a checkpoint (cursor.py), the checkpoints (checkpoints.py), and
messages for the user (notices.py).

Randomness is a pure function of (seed, step), and the order of batches of (seed, epoch). So a checkpoint needs no
generator state, and on a CPU a run that was killed and resumed ends with the same bits as an uninterrupted one.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data.batching import EpochPlan
from regard.errors import ConfigError, DataError, TrainingError
from regard.runs.cursor import Cursor, Verdict
from regard.runs.folder import is_finished, withdraw
from regard.runs.weights import set_weights
from regard.training import events, notices
from regard.training.checkpoints import Checkpoints, writer
from regard.training.clock import TOO_FEW, Clock
from regard.training.distributed import Ranks
from regard.training.schedules import SCHEDULES, Moment
from regard.training.stopping import BrokenOff, Stop
from regard.training.task import Task
from regard.training.update import DelayedNumbers, MicroBatch, Numbers, Update, arithmetic, host_threads
from regard.work import prefetch

RECENT = 32  # updates over which the speed is measured on a GPU, where numbers arrive late, several at a time
PATIENCE_WITH_NAN = 10  # skipped updates in a row before training gives up


class PendingUpdate(NamedTuple):
    """An update whose numbers may not be known yet."""

    step: int
    epoch: int
    rate: float
    group: list[MicroBatch]


class Loop:
    """Trains `model` on `task` into its run folder, from the start or from the newest checkpoint there."""

    def __init__(self, task: Task, model: nn.Module, ranks: Ranks, observe: events.Observe | None = None) -> None:
        config, run = task.config, task.run
        if config.precision != "float32" and ranks.device.type == "cpu":
            raise ConfigError(f"train.precision = '{config.precision}' needs a GPU; use float32 on a CPU.")
        if task.alone and ranks.world > 1:
            raise ConfigError("data.streams needs a single process; start it without torchrun, or with --workers 1.")
        self.task, self.config, self.run_folder, self.ranks = task, config, run, ranks
        self.observe = observe if observe and ranks.first else lambda event: None
        self.model = model.to(ranks.device)
        self.on_gpu = ranks.device.type == "cuda"
        self.even = self.on_gpu and config.capture and task.recurs  # batches of few shapes, for CUDA graphs
        self.make_update = Update(self.model, config, ranks, capture=self.even)
        self.parameters, self.optimiser = self.make_update.weights, self.make_update.optimiser
        self.checkpoints = Checkpoints(run, self.model, self.optimiser, self.report_saved, writer(ranks.device))
        self.delayed: DelayedNumbers[PendingUpdate] = DelayedNumbers(ranks.device)
        self.schedule = SCHEDULES[config.schedule]
        self.batches_an_epoch = len(task.plan(0, self.even))
        if not self.batches_an_epoch:
            raise DataError("There is nothing to train on: an epoch has no batch.")
        updates = math.ceil(self.batches_an_epoch / config.accumulate) * config.epochs
        self.total = config.steps or updates or events.ENDLESS
        self.cursor = Cursor(data=task.fingerprint)
        self.clock = Clock(config.minutes)
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT if self.on_gpu else 1)  # tokens, seconds
        self.about: dict[str, Any] = {}  # more fields of the manifest
        self.journal: events.Journal | None = None
        self.stop = Stop()
        self.stopped = self.time_is_up = False  # agreed by all ranks
        self.uncaptured = False  # whether it was reported that updates cannot be captured

    # --- from start to end

    def run(self) -> str:
        """Train to the end and publish the weights, or until a stop is requested; returns why it ended."""
        self.resume()
        reason = self.over()
        if reason and any(self.ranks.add(self.ranks.first and is_finished(self.run_folder))):
            self.observe(events.Finished(self.cursor.step, reason, self.cursor.seconds))
            return reason  # the command was repeated
        self.clock.start(self.cursor.seconds)
        if self.ranks.first:
            self.journal = events.Journal(self.run_folder, self.cursor.step, self.cursor.due)
        try:
            with self.stop.listening(), arithmetic(self.config.precision), host_threads(self.ranks.device):
                reason = self.train()
                if not self.stopped and self.ranks.first:  # publish the best checkpoint, or the average of the newest
                    self.checkpoints.publish(self.task, self.cursor, self.config.average, self.about)
            self.ranks.wait()
        finally:
            if self.journal:
                self.journal.close()
        self.observe(events.Finished(self.cursor.step, reason, self.cursor.seconds))
        return reason

    def start_from(self, name: str, sha256: str, weights: dict[str, Tensor]) -> None:
        """Save the weights of the run `name` as the checkpoint of step 0, from which every rank resumes."""
        set_weights(self.model, weights, name)
        self.cursor.origin = {"run": name, "weights": sha256}
        self.checkpoints.write(self.task, self.cursor)
        self.checkpoints.settle()

    def resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one."""
        cursor, damaged = self.checkpoints.resume(self.task)
        if cursor:
            self.cursor = cursor
            self.time_is_up = self.clock.is_over(cursor.seconds)
            self.observe(events.Resumed(cursor.step, damaged))

    def train(self) -> str:
        """Epoch after epoch until an end is reached."""
        if self.ranks.first:
            withdraw(self.run_folder)  # a finished run that continues is not finished
        if self.on_gpu and self.config.capture and not self.even:
            self.report_uncaptured("the batches of this task have no recurring shapes")
        try:
            if self.cursor.due:
                self.after_update()
            self.clock.rest()
            while not (reason := self.ended()):
                self.one_epoch()
        finally:
            self.checkpoints.settle()
        return reason

    def one_epoch(self) -> None:
        """From the cursor's position to the end of the epoch, or of training."""
        cursor = self.cursor
        if not cursor.position:
            cursor.even = self.even
        plan = self.task.plan(cursor.epoch, cursor.even)
        with prefetch(self.load(plan, cursor.position, cursor.epoch)) as parts:
            for group in grouped(parts, self.config.accumulate):
                cursor.seconds = self.clock.spent()
                self.update(group, last=cursor.position + len(group) == len(plan))
                self.after_update()
                if self.ended():
                    return

    def over(self) -> str:
        """Why training is finished, or nothing; the same on every rank."""
        cursor, config = self.cursor, self.config
        if cursor.step >= config.steps if config.steps else 0 < config.epochs <= cursor.epoch:
            return "done"
        if config.patience and cursor.waiting >= config.patience:
            return "patience"
        return "time" if self.time_is_up else ""

    def ended(self) -> str:
        """Why the loop ends here, finished or stopped."""
        return self.stop.reason if self.stopped else self.over()

    # --- one update

    def load(self, plan: EpochPlan, start: int, epoch: int) -> Iterator[MicroBatch]:
        """Every batch of the plan from `start` on, with the tensors of this rank's rows, if it has any."""
        if self.on_gpu and self.ranks.device.index is not None:
            torch.cuda.set_device(self.ranks.device)  # of this thread, which pins memory
        for numbers in (plan[place].tolist() for place in range(start, len(plan))):
            mine = numbers[self.ranks.rank :: self.ranks.world]
            if not len(mine):
                yield MicroBatch(numbers, None, 0, 0)
                continue
            batch = self.task.load(mine, epoch)
            counts = self.task.count(batch)
            if self.even:
                batch = self.task.even(batch, self.ranks.world)
            yield MicroBatch(numbers, pinned(batch) if self.on_gpu else batch, *counts)

    def update(self, group: list[MicroBatch], last: bool) -> None:
        """One update from a group of batches, skipped if it is not sound; `last` says that it ends the epoch."""
        cursor = self.cursor
        seed_everything(self.config.seed, cursor.step, self.ranks.rank)
        epoch = cursor.epoch + (cursor.position + len(group) - 1) / self.batches_an_epoch
        cursor.advance(len(group), last)
        rate = self.rate(epoch)
        over = self.ranks.first and self.clock.is_over(cursor.seconds)
        numbers = self.make_update(self.task, group, rate, lambda: (self.stop.requested, over))
        for pending, found in self.delayed(PendingUpdate(cursor.step, cursor.epoch, rate, group), numbers):
            self.report(pending, found)
        if self.make_update.refusal and not self.uncaptured:
            self.report_uncaptured(self.make_update.refusal)

    def rate(self, epoch: float) -> float:
        """The learning rate of an update after `epoch` epochs."""
        width = getattr(getattr(self.model, "config", None), "width", 1)
        # Clocks of several ranks differ, and their rates must not.
        share = self.clock.share(self.cursor.seconds) if self.ranks.world == 1 else 0.0
        moment = Moment(self.cursor.step, self.total, epoch, self.cursor.stalls, width, share)
        return self.schedule(moment, self.config)

    # --- validations and checkpoints

    def after_update(self) -> None:
        """Validate and save when due, and always at the end; a requested stop waits only for the save.

        A validation that a stop prevents stays due: it runs first when training resumes, so that a stopped run equals
        an uninterrupted one.
        """
        cursor, config = self.cursor, self.config
        now = cursor.step % config.validate_every == 0 if config.validate_every else cursor.position == 0
        cursor.due = cursor.due or now or bool(self.over())
        saves = cursor.step % config.save_every == 0
        if not (cursor.due or saves or self.stopped):
            return
        for pending, numbers in self.delayed.read():  # all pending numbers
            self.report(pending, numbers)
        cursor.due = cursor.due or bool(self.over())
        if self.time_is_up:
            cursor.seconds = max(cursor.seconds, self.clock.limit)  # includes the last validation
        best = cursor.due and not self.stopped and self.validate()
        planned = best or saves or bool(self.over() and not self.stopped)
        if planned or self.stopped:
            self.save(planned)
        self.clock.rest()  # the speed counts training only

    def validate(self) -> bool:
        """Validate on rank 0; returns on every rank whether this is the best so far."""
        began = self.clock.spent()
        found = torch.zeros(len(Verdict._fields) + 1, dtype=torch.float64, device=self.ranks.device)
        if self.ranks.first:
            verdict = self.measure()
            found = found.new_tensor([*verdict, False] if verdict else [0, 0, 0, 0, True])
        value, loss, measured, better, stopped = self.ranks.agree(found).tolist()
        if stopped:
            self.stopped = True
            return False
        self.clock.validating = self.clock.spent() - began
        self.cursor.validated(Verdict(value, loss, bool(measured), bool(better)))
        return bool(better)

    def measure(self) -> Verdict | None:
        """The verdict on held-out examples; None if a stop was requested meanwhile."""
        self.model.eval()
        try:
            with self.stop.breakable(), torch.inference_mode():
                metrics, samples = self.task.validate(self.model)
        except BrokenOff:
            return None
        verdict, by = self.cursor.judge(metrics, self.config.best_by)
        self.emit(events.Validated(self.cursor.step, metrics, samples, verdict.better, by))
        if self.cursor.ignores_source(metrics):
            self.notice(notices.source_ignored(metrics, self.model))
        return verdict

    def save(self, planned: bool) -> None:
        """Commit a checkpoint, then delete those that are no longer needed.

        An unplanned one is used only for resuming, so that averages do not depend on stops.
        """
        cursor = self.cursor
        if planned and cursor.step not in cursor.kept:
            cursor.kept = [*cursor.kept, cursor.step][-self.config.keep :]
        if self.ranks.first:
            if cursor.step != self.checkpoints.resumed:
                self.checkpoints.write(self.task, self.cursor)
            else:
                self.checkpoints.prune(cursor)
        self.ranks.wait()

    # --- reports

    def report_saved(self, folder: Path) -> None:
        """Report a checkpoint that is on the disk."""
        self.observe(events.Saved(int(folder.name), folder))

    def report(self, pending: PendingUpdate, numbers: Numbers) -> None:
        """Report an update once its numbers are known; they are the same on all ranks."""
        self.stopped = bool(numbers.stop) or (self.ranks.world == 1 and self.stop.requested)
        self.time_is_up = bool(numbers.time_is_up)
        seconds = self.clock.lap()
        if numbers.problem:
            self.skip(pending, numbers.problem)
            return
        self.cursor.skipped = 0
        fit = self.clock.fit(self.cursor.seconds, pending.step)
        if fit is not None and fit < min(TOO_FEW, self.total):
            self.notice(notices.few_in_time(fit, self.config, getattr(self.model, "config", None)))
        for text in notices.long_warmup(fit, self.config) if fit is not None and fit < self.total else []:
            self.notice(text)
        tokens = max(1.0, numbers.tokens)
        self.recent.append((tokens, seconds))
        speed = sum(some for some, _ in self.recent) / sum(took for _, took in self.recent)
        left = self.clock.left(self.cursor.seconds, pending.step, self.total)
        loss = numbers.loss / max(1.0, getattr(numbers, self.task.each))
        measured = loss, pending.rate, speed, left
        self.emit(events.Stepped(pending.step, self.total, pending.epoch, *measured))

    def skip(self, pending: PendingUpdate, reason: str) -> None:
        """Report the examples of a skipped update; stop after too many in a row."""
        numbers = [int(number) for part in pending.group for number in part.numbers]
        self.cursor.skipped += 1
        self.emit(events.Skipped(pending.step, reason, numbers, self.task.lines(numbers)))
        if self.cursor.skipped >= PATIENCE_WITH_NAN:
            raise TrainingError(notices.gave_up(pending.step, reason, self.cursor.skipped))

    def report_uncaptured(self, reason: str) -> None:
        """Report once why updates are not captured."""
        self.uncaptured = True
        self.notice(f"updates run without CUDA graphs, which are faster: {reason}")

    def notice(self, text: str) -> None:
        """Report a message for the user."""
        self.emit(events.Noticed(self.cursor.step, text))

    def emit(self, event: events.Event) -> None:
        """Report an event to the observer, which may request a stop, and to the journal."""
        if events.wants_stop(self.observe(event)):
            self.stop.requested = True
        if self.journal:
            self.journal.write_event(event)


def grouped(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, the last one possibly shorter."""
    while group := list(islice(batches, size)):
        yield group


def pinned(batch: Any) -> Any:
    """A batch in pinned memory, which a GPU copies asynchronously."""
    return type(batch)(*(part.pin_memory() for part in batch))


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Seed all dropout of a step."""
    number = ((seed * 1_000_003 + step) * 65_537 + rank) % 2**63
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed keeps a traceback for each uninitialised device
        torch.cuda.manual_seed_all(number)
