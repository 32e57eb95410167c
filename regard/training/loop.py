"""The one training loop. It knows checkpoints, validations and time; what is trained comes in as a `Task`.

Everything random is a pure function of (seed, step), and the order of batches of (seed, epoch). A checkpoint therefore
needs no generator state, and a run that was killed anywhere ends with the same bits as one that was not (on a CPU).
"""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.data.batching import EpochPlan
from regard.data.files import digest, prefetch
from regard.errors import ConfigError, DataError, RunError, TrainingError
from regard.training import runs
from regard.training.clock import FEW, PACE, Clock
from regard.training.cursor import BLIND, Cursor
from regard.training.distributed import Ranks
from regard.training.events import (
    ENDLESS,
    Event,
    Finished,
    Journal,
    Noticed,
    Observe,
    Resumed,
    Saved,
    Skipped,
    Stepped,
    Validated,
)
from regard.training.precision import arithmetic
from regard.training.schedules import SCHEDULES, Moment
from regard.training.settings import TrainConfig
from regard.training.stopping import BrokenOff, Stop
from regard.training.task import Task
from regard.training.update import Late, MicroBatch, Numbers, Update
from regard.training.warm_start import Origin
from regard.training.weights import optimiser_state, set_optimiser_state, set_weights, weights_of

PATIENCE_WITH_NAN = 10  # updates in a row that may be left out before training gives up


class Made(NamedTuple):
    """An update whose numbers may not be known yet."""

    step: int
    epoch: int
    rate: float
    group: list[MicroBatch]


class Loop:
    """Trains `model` on `task` into the folder `run`, from the start or from the newest checkpoint there."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        config: TrainConfig,
        run: Path,
        ranks: Ranks,
        observe: Observe | None = None,
    ) -> None:
        self.task, self.config, self.run_folder, self.ranks = task, config, run, ranks
        self.observe = observe if observe and ranks.first else lambda event: None
        if config.precision != "float32" and ranks.device.type == "cpu":
            raise ConfigError(f"train.precision = '{config.precision}' needs a GPU; use float32 on a CPU.")
        self.model = model.to(ranks.device)
        self.on_gpu = ranks.device.type == "cuda"
        self.even = self.on_gpu and config.capture and task.recurs
        self.make_update = Update(self.model, config, ranks, capture=self.even)
        self.parameters, self.optimiser = self.make_update.weights, self.make_update.optimiser
        self.late: Late[Made] = Late(ranks.device)
        self.schedule = SCHEDULES[config.schedule]
        self.batches_an_epoch = len(task.plan(0, self.even))
        if not self.batches_an_epoch:
            raise DataError("There is nothing to train on: an epoch has no batch.")
        self.total = config.steps or math.ceil(self.batches_an_epoch / config.accumulate) * config.epochs or ENDLESS
        self.cursor = Cursor(data=task.fingerprint)
        self.clock = Clock(config.minutes)
        self.standing: int | None = None  # the step whose checkpoint was resumed from, whole on the disk
        self.refused = False  # whether it was reported that updates cannot be captured
        self.about: dict[str, Any] = {}  # more fields of the manifest
        self.journal: Journal | None = None
        self.stop = Stop()
        self.asked = self.time_is_up = False  # agreed by all ranks

    def run(self) -> str:
        """Train to the end, or until a stop is requested; returns why it ended. The finished weights are published."""
        self.resume()
        reason = self.over()
        if reason and any(self.ranks.add(self.ranks.first and runs.is_finished(self.run_folder))):
            self.observe(Finished(self.cursor.step, reason, self.cursor.seconds))
            return reason  # the same command again
        self.clock.start(self.cursor.seconds)
        if self.ranks.first:
            self.journal = Journal(self.run_folder, self.cursor.step, self.cursor.due)
        try:
            with self.stop.listening(), arithmetic(self.config.precision):
                reason = self.train()
                if reason != "asked" and self.ranks.first:
                    self.finish()
            self.ranks.wait()
        finally:
            if self.journal:
                self.journal.close()
        self.observe(Finished(self.cursor.step, reason, self.cursor.seconds))
        return reason

    def start_from(self, origin: Origin) -> None:
        """Make the weights of another run the checkpoint of step 0, which every rank resumes from."""
        set_weights(self.model, origin.weights, origin.name)
        self.cursor.origin = {"run": origin.name, "weights": origin.sha256}
        self.write_checkpoint()

    def resume(self) -> None:
        """Continue from the newest complete checkpoint, if there is one."""
        folder = runs.newest_checkpoint(self.run_folder)
        if folder is None:
            return
        runs.check_belongs(self.run_folder, folder)
        cursor, data = runs.read_cursor(folder), self.cursor.data
        if cursor.data != data and cursor.data and data:
            raise RunError(f"The corpus is not the one that {self.run_folder} was begun with; use another --out.")
        self.cursor, self.cursor.data = cursor, data
        set_weights(self.model, runs.read_tensors(folder / "weights.safetensors"), str(folder))
        set_optimiser_state(self.optimiser, runs.read_tensors(folder / "state.safetensors"))
        self.task.restore(cursor.carried)
        self.standing = cursor.step
        self.time_is_up = self.clock.is_over(cursor.seconds)
        damaged = [path.name for path in runs.checkpoints(self.run_folder) if int(path.name) > int(folder.name)]
        self.observe(Resumed(cursor.step, damaged))

    def train(self) -> str:
        """Epoch after epoch until an end is reached."""
        if self.ranks.first:
            runs.withdraw(self.run_folder)  # a finished run that continues is not finished
        if self.on_gpu and self.config.capture and not self.even:
            self.refuse("the batches of this task have no shape that recurs")
        if self.cursor.due:
            self.after_update()
        self.clock.start_updates()
        while not (reason := self.ended()):
            self.one_epoch()
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

    def load(self, plan: EpochPlan, start: int, epoch: int) -> Iterator[MicroBatch]:
        """Every batch of the plan from `start` on, with the tensors of this rank's rows, if it has any."""
        if self.on_gpu and self.ranks.device.index is not None:
            torch.cuda.set_device(self.ranks.device)  # of the thread that this runs in, which pins memory
        for numbers in (batch.tolist() for batch in plan[start:]):
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
        """One update from a group of batches, or none where it is not sound; `last` says that it ends the epoch."""
        cursor, config = self.cursor, self.config
        seed_everything(config.seed, cursor.step, self.ranks.rank)
        rate = self.advance(len(group), last)
        over = self.ranks.first and self.clock.is_over(cursor.seconds)
        numbers = self.make_update(self.task, group, rate, lambda: (self.stop.asked, over))
        for made, found in self.late(Made(cursor.step, cursor.epoch, rate, group), numbers):
            self.report(made, found)
        if self.make_update.refusal and not self.refused:
            self.refuse(self.make_update.refusal)

    def advance(self, batches: int, last: bool) -> float:
        """Move the cursor over the batches of an update; returns its learning rate."""
        cursor = self.cursor
        cursor.step += 1
        cursor.position += batches
        epoch = cursor.epoch + (cursor.position - 1) / self.batches_an_epoch
        if last:
            cursor.epoch, cursor.position = cursor.epoch + 1, 0
        width = getattr(getattr(self.model, "config", None), "width", 1)
        # Clocks of several ranks differ, and their rates must not.
        share = self.clock.share(cursor.seconds) if self.ranks.world == 1 else 0.0
        return self.schedule(Moment(cursor.step, self.total, epoch, cursor.stalls, width, share), self.config)

    def report(self, made: Made, numbers: Numbers) -> None:
        """Say what became of an update, once its numbers are known; all ranks agree on them."""
        self.asked = bool(numbers.asked) or (self.ranks.world == 1 and self.stop.asked)
        self.time_is_up = bool(numbers.time_is_up)
        seconds = self.clock.lap()
        if numbers.problem:
            self.skip(made, numbers.problem)
            return
        self.cursor.skipped = 0
        tokens = max(1.0, numbers.tokens)
        self.tell_step(made, numbers.loss / tokens, tokens / seconds)

    def refuse(self, reason: str) -> None:
        """Report once why updates are not captured."""
        self.refused = True
        self.notice(f"updates run without CUDA graphs, which are faster: {reason}")

    def settle(self) -> None:
        """Wait for the numbers of all updates so far."""
        for made, numbers in self.late.read():
            self.report(made, numbers)

    def skip(self, made: Made, reason: str) -> None:
        """Say which examples were in an update that was left out; stop when it happens repeatedly."""
        numbers = [int(number) for part in made.group for number in part.numbers]
        cursor = self.cursor
        cursor.skipped += 1
        self.tell(Skipped(made.step, reason, numbers, self.task.lines(numbers)))
        if cursor.skipped >= PATIENCE_WITH_NAN:
            advice = "a smaller train.batch_tokens" if reason == "out of memory" else "a lower train.rate"
            raise TrainingError(
                f"Training stopped at step {made.step}: {reason} in {cursor.skipped} updates in a row. The last "
                f"checkpoint is sound; try {advice} in a new run, or look at the lines that metrics.jsonl names."
            )

    def tell_step(self, made: Made, loss: float, speed: float) -> None:
        """Report an update that was made."""
        if made.step == PACE and self.clock.limit:
            self.watch_clock()
        left = self.clock.left(self.cursor.seconds, made.step, self.total)
        self.tell(Stepped(made.step, self.total, made.epoch, loss, made.rate, speed, left))

    def watch_clock(self) -> None:
        """Notice a training that the clock will end before much can have been learned."""
        fit, smaller = self.clock.fit(self.cursor.seconds), max(1, self.config.batch_tokens // 8)
        if fit < min(FEW, self.total):
            self.notice(
                f"about {fit} updates fit into {self.config.minutes:g} minutes at this pace, which teach little: use a "
                f"smaller model (--preset tiny), smaller batches (train.batch_tokens={smaller}) or more minutes"
            )

    def notice(self, text: str) -> None:
        """Report something that a person should know."""
        self.tell(Noticed(self.cursor.step, text))

    def tell(self, event: Event) -> None:
        """Report an event to the observer and to the journal."""
        self.observe(event)
        if self.journal:
            self.journal.keep(event)

    def after_update(self) -> None:
        """Validate and save when it is time, and always at the end; a requested stop waits for the save alone.

        A validation that a stop prevents stays due: it comes first when training resumes, so that a run which was
        stopped is the same as one which was not.
        """
        cursor, config = self.cursor, self.config
        now = cursor.step % config.validate_every == 0 if config.validate_every else cursor.position == 0
        cursor.due = cursor.due or now or bool(self.over())
        saves = cursor.step % config.save_every == 0
        if not (cursor.due or saves or self.asked):
            return
        self.settle()
        cursor.due = cursor.due or bool(self.over())
        if self.time_is_up:
            cursor.seconds = max(cursor.seconds, self.clock.limit)  # the validation that follows is part of the time
        best = cursor.due and not self.asked and self.validate()
        planned = best or saves or bool(self.over() and not self.asked)
        if planned or self.asked:
            self.save(planned)
        self.clock.rest()  # the speed is that of training alone

    def validate(self) -> bool:
        """Measure on rank 0; returns whether this is the best so far, the same on every rank."""
        began = self.clock.spent()
        found = torch.zeros(5, dtype=torch.float64, device=self.ranks.device)
        if self.ranks.first:
            found = torch.tensor(self.measure(), dtype=torch.float64, device=self.ranks.device)
        value, loss, measured, better, asked = self.ranks.agree(found).tolist()
        if asked:
            self.asked = True
            return False
        self.clock.validating = self.clock.spent() - began
        self.cursor.validated(value, loss, bool(measured), bool(better))
        return bool(better)

    def measure(self) -> tuple[float, float, bool, bool, bool]:
        """The measure that counts, the loss, whether there was anything to measure, whether it is the best so far,
        and whether a stop broke it off."""
        cursor = self.cursor
        self.model.eval()
        try:
            with self.stop.breakable(), torch.inference_mode():
                metrics, samples = self.task.validate(self.model)
        except BrokenOff:
            return 0.0, 0.0, False, False, True
        value, loss, better = cursor.judge(metrics, self.config.best_by)
        self.tell(Validated(cursor.step, metrics, samples, better))
        if cursor.ignores_source(metrics):
            self.warn_of_blindness(metrics)
        return value, loss, bool(metrics), better, False

    def warn_of_blindness(self, metrics: dict[str, float]) -> None:
        """Report a model that ignores its source, and what may help."""
        loss, shuffled = metrics["loss"], metrics["shuffled_loss"]
        gain = getattr(getattr(self.model, "config", None), "gain", 0.0)
        advice = "model.gain=0.5, " if gain > 0.5 else ""
        self.notice(
            f"the model ignores its source: in the last {BLIND} validations the loss was the same with the sources "
            f"shuffled between sentences (now {loss:.3f}, shuffled {shuffled:.3f}); in a new run, try {advice}a lower "
            f"train.rate or a longer train.warmup"
        )

    def over(self) -> str:
        """Why training is finished, or nothing; the same on every rank."""
        cursor, config = self.cursor, self.config
        if config.steps or config.epochs:
            done = cursor.step >= config.steps if config.steps else cursor.epoch >= config.epochs
            if done:
                return "done"
        if config.patience and cursor.waiting >= config.patience:
            return "patience"
        return "time" if self.time_is_up else ""

    def ended(self) -> str:
        """Why the loop ends here, finished or not; the same on every rank."""
        return "asked" if self.asked else self.over()

    def save(self, planned: bool) -> None:
        """Commit a checkpoint, then delete the ones that are not needed any more.

        One that is not `planned` serves only to resume from, so that averages do not depend on stops.
        """
        cursor = self.cursor
        if planned and cursor.step not in cursor.kept:
            cursor.kept = [*cursor.kept, cursor.step][-self.config.keep :]
        if self.ranks.first:
            if cursor.step != self.standing:
                self.write_checkpoint()
            runs.prune(self.run_folder, {cursor.step, *cursor.kept, *([cursor.best_step] if cursor.best_step else [])})
        self.ranks.wait()

    def write_checkpoint(self) -> None:
        """The weights, the optimiser's memory and the cursor, if all numbers are finite."""
        weights, state = weights_of(self.model), optimiser_state(self.optimiser)
        step = self.cursor.step
        self.cursor.carried = self.task.state()
        if not all(bool(tensor.isfinite().all()) for tensor in (*weights.values(), *state.values())):
            raise TrainingError(
                f"The weights at step {step} are not finite, so they were not saved; the last checkpoint is sound. "
                f"Try a lower train.rate in a new run."
            )
        belongs = {path.name: digest(path) for path in self.task.files()}
        folder = runs.save_checkpoint(self.run_folder, step, weights, state, asdict(self.cursor), belongs)
        self.observe(Saved(step, folder))

    def finish(self) -> None:
        """Publish the best checkpoint, or the average of the newest."""
        cursor, average = self.cursor, self.config.average
        chosen = cursor.kept[-average:] if average > 1 or cursor.best_step is None else [cursor.best_step]
        steps = {int(folder.name): folder for folder in runs.checkpoints(self.run_folder)}
        folders = [steps[step] for step in chosen if step in steps] or [steps[cursor.step]]
        about = {"steps": [int(folder.name) for folder in folders], "best": cursor.best, "start_from": cursor.origin}
        about |= {"seconds": round(cursor.seconds, 1), **self.about}
        runs.publish(self.run_folder, runs.average_weights(folders), [path.name for path in self.task.files()], about)


def grouped(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, the last one possibly shorter."""
    group = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def pinned(batch: Any) -> Any:
    """A batch in memory that a GPU copies from while the host continues."""
    return type(batch)(*(part.pin_memory() for part in batch))


def seed_everything(seed: int, step: int, rank: int) -> None:
    """All dropout of a step follows from these three numbers."""
    number = ((seed * 1_000_003 + step) * 65_537 + rank) % 2**63
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed would keep a traceback for each kind of device that is not
        torch.cuda.manual_seed_all(number)
