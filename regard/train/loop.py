"""The one training loop. It knows updates, checkpoints and time; what is trained comes in as a `Task`.

Everything random is a pure function of (seed, step), and the order of batches of (seed, epoch). A checkpoint therefore
needs no generator state, and a run that was killed anywhere ends with the same bits as one that was not (on a CPU).
"""

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Prefetch
from regard.errors import ConfigError, TrainingError
from regard.train.distributed import Ranks
from regard.train.journal import Finished, Journal, Observe, Resumed, Saved, Skipped, Stepped, Validated
from regard.train.optimisers import OPTIMISERS
from regard.train.runs import (
    average_weights,
    checkpoints,
    newest_checkpoint,
    prune,
    publish,
    read_about,
    read_tensors,
    save_checkpoint,
    withdraw,
)
from regard.train.schedules import SCHEDULES, Progress
from regard.train.settings import TrainConfig
from regard.train.task import Batches, Carries, Task
from regard.train.weights import optimiser_state, set_optimiser_state, set_weights, weights_of

PATIENCE_WITH_NAN = 10  # updates in a row that may be left out before training gives up
LOWER_IS_BETTER = {"loss"}


@dataclass
class Cursor:
    """Where training stands. These numbers, the weights and the optimiser's memory are all that a checkpoint holds."""

    step: int = 0  # updates made
    epoch: int = 0
    position: int = 0  # batches of this epoch that are done
    best: float | None = None
    best_step: int | None = None
    waiting: int = 0  # validations since the best
    stalls: int = 0  # validations in all that brought no new best
    skipped: int = 0  # updates left out in a row
    seconds: float = 0.0  # spent in training so far
    carried: dict[str, float] = field(default_factory=dict)  # what the task carries from batch to batch


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
        if config.precision == "bf16" and ranks.device.type == "cpu":
            raise ConfigError("train.precision = 'bf16' needs a GPU; use float32 on a CPU.")
        self.model = model.to(ranks.device)
        self.parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimiser = OPTIMISERS[config.optimiser](self.parameters, config)
        self.schedule = SCHEDULES[config.schedule]
        self.cursor = Cursor()
        self.batches_an_epoch = len(task.plan(0))
        self.total = config.steps or math.ceil(self.batches_an_epoch / config.accumulate) * config.epochs or 10**9
        self.journal: Journal | None = None
        self.stop_asked = threading.Event()
        self.interrupted = ""  # "asked" or "time", agreed by all ranks in an update

    def run(self) -> str:
        """Train to the end, or until asked to stop; returns why it ended. The finished weights are published."""
        self.resume()
        began = time.monotonic() - self.cursor.seconds
        if self.ranks.first:
            self.journal = Journal(self.run_folder, self.cursor.step)
        with stop_on_signals(self.stop_asked):
            reason = self.train(began)
        if reason != "asked" and self.ranks.first:
            self.finish()
        self.ranks.wait()
        if self.journal:
            self.journal.close()
        self.observe(Finished(self.cursor.step, reason, self.cursor.seconds))
        return reason

    def resume(self) -> None:
        """Take up the newest whole checkpoint, if there is one."""
        folder = newest_checkpoint(self.run_folder)
        if folder is None:
            return
        set_weights(self.model, read_tensors(folder / "weights.safetensors"), str(folder))
        set_optimiser_state(self.optimiser, read_tensors(folder / "state.safetensors"))
        self.cursor = Cursor(**read_about(folder))
        if isinstance(self.task, Carries):
            self.task.restore(self.cursor.carried)
        self.observe(Resumed(self.cursor.step))

    def train(self, began: float) -> str:
        """Epoch after epoch until an end is reached."""
        if self.ranks.first and not self.ended():
            withdraw(self.run_folder)  # a finished run that goes on is not finished
        while True:
            if ended := self.ended():
                return ended
            plan = self.task.plan(self.cursor.epoch)
            with Prefetch(self.load(plan, self.cursor.position, self.cursor.epoch)) as batches:
                for group in grouped(batches, self.config.accumulate):
                    self.cursor.seconds = time.monotonic() - began
                    self.update(group, last=self.cursor.position + len(group) == len(plan))
                    self.after_update()
                    if ended := self.ended():
                        return ended

    def load(self, plan: Batches, start: int, epoch: int) -> Iterator[tuple[Sequence[int], Any]]:
        """This rank's part of every batch of the plan from `start` on; a part may be empty."""
        for position in range(start, len(plan)):
            numbers = plan[position][self.ranks.rank :: self.ranks.world]
            yield numbers, self.task.load(numbers, epoch) if len(numbers) else None

    def update(self, group: list[tuple[Sequence[int], Any]], last: bool) -> None:
        """One update from a group of batches; `last` says that it ends the epoch."""
        cursor, config = self.cursor, self.config
        started = time.monotonic()
        seed_everything(config.seed, cursor.step, self.ranks.rank)
        self.model.train()
        total, tokens, sentences, out_of_memory = self.backward(group)
        over = bool(config.minutes) and cursor.seconds >= config.minutes * 60
        sums = self.ranks.add(total, tokens, sentences, out_of_memory, self.stop_asked.is_set(), over)
        total, tokens, sentences, lost = sums[:4]
        self.interrupted = "asked" if sums[4] else "time" if sums[5] else ""
        self.ranks.add_gradients(self.parameters)
        count = max(1.0, tokens if config.normalise == "tokens" else sentences)
        gradients = [weight.grad for weight in self.parameters if weight.grad is not None]
        torch._foreach_div_(gradients, count)
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        cursor.step += 1
        cursor.position += len(group)
        epoch = cursor.epoch + (cursor.position - 1) / max(1, self.batches_an_epoch)
        if last:
            cursor.epoch, cursor.position = cursor.epoch + 1, 0
        width = getattr(getattr(self.model, "config", None), "width", 1)
        rate = self.schedule(Progress(cursor.step, self.total, epoch, cursor.stalls, width), config)
        if math.isfinite(total) and math.isfinite(norm) and not lost:
            if config.clip and norm > config.clip:
                torch._foreach_mul_(gradients, config.clip / norm)
            for part in self.optimiser.param_groups:
                part["lr"] = rate
            self.optimiser.step()
            cursor.skipped = 0
        else:
            self.skip(group, "out of memory" if lost else "loss or gradient not finite")
        self.optimiser.zero_grad(set_to_none=True)
        self.tell_step(total / count, rate, tokens / max(1e-9, time.monotonic() - started))

    def backward(self, group: list[tuple[Sequence[int], Any]]) -> tuple[float, float, float, bool]:
        """Add up the gradients of a group: the summed loss, tokens, sentences, and whether memory ran out."""
        totals: list[Tensor] = []
        tokens = sentences = 0
        kind = self.ranks.device.type
        try:
            for _, batch in group:
                if batch is None:
                    continue
                moved = type(batch)(*(to_device(part, self.ranks.device) for part in batch))
                with torch.autocast(kind, torch.bfloat16, enabled=self.config.precision == "bf16"):
                    loss = self.task.loss(self.model, moved)
                loss.total.backward()
                totals.append(loss.total.detach())
                tokens, sentences = tokens + loss.tokens, sentences + loss.sentences
        except torch.OutOfMemoryError:
            self.optimiser.zero_grad(set_to_none=True)
            return 0.0, 0.0, 0.0, True
        total = float(torch.stack(totals).double().sum()) if totals else 0.0
        return total, float(tokens), float(sentences), False

    def skip(self, group: list[tuple[Sequence[int], Any]], reason: str) -> None:
        """Leave an update out and say which examples were in it; give up when it happens again and again."""
        numbers = [int(number) for part, _ in group for number in part]
        self.cursor.skipped += 1
        self.observe(Skipped(self.cursor.step, reason, numbers))
        if self.journal:
            self.journal.write(self.cursor.step, skipped=reason, examples=numbers)
        if self.cursor.skipped >= PATIENCE_WITH_NAN:
            raise TrainingError(
                f"Training stopped at step {self.cursor.step}: {reason} in {self.cursor.skipped} updates in a row. "
                f"The last checkpoint is sound; try a lower train.rate, or look at the examples in metrics.jsonl."
            )

    def tell_step(self, loss: float, rate: float, speed: float) -> None:
        """Report an update."""
        cursor = self.cursor
        left = cursor.seconds / max(1, cursor.step - 1) * (self.total - cursor.step)
        if self.config.minutes:
            left = min(left, self.config.minutes * 60 - cursor.seconds)
        self.observe(Stepped(cursor.step, self.total, cursor.epoch, loss, rate, speed, max(0.0, left)))
        if self.journal:
            self.journal.write(cursor.step, loss=round(loss, 6), rate=rate, tokens_per_second=round(speed, 1))

    def after_update(self) -> None:
        """Validate and save when it is time, and always at the end; who asks for a stop waits for the save alone."""
        cursor, config = self.cursor, self.config
        due = cursor.step % config.validate_every == 0 if config.validate_every else cursor.position == 0
        best = self.validate() if (due or self.ended()) and self.interrupted != "asked" else False
        if best or cursor.step % config.save_every == 0 or self.ended():
            self.save()

    def validate(self) -> bool:
        """Measure on rank 0; returns whether this is the best so far, the same on every rank."""
        cursor, config = self.cursor, self.config
        found = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)  # the measure, and whether it is the best
        if self.ranks.first:
            self.model.eval()
            with torch.inference_mode():
                measured = self.task.validate(self.model)
            by = config.best_by if config.best_by in measured.metrics else "loss"
            value = measured.metrics[by]
            sign = -1 if by in LOWER_IS_BETTER else 1
            better = cursor.best is None or sign * value > sign * cursor.best
            found = torch.tensor([value, better], dtype=torch.float64, device=self.ranks.device)
            self.observe(Validated(cursor.step, measured.metrics, measured.samples, better))
            if self.journal:
                self.journal.write(cursor.step, **{f"dev_{name}": number for name, number in measured.metrics.items()})
        value, better = self.ranks.agree(found).tolist()
        if better:
            cursor.best, cursor.best_step, cursor.waiting = value, cursor.step, 0
        else:
            cursor.waiting, cursor.stalls = cursor.waiting + 1, cursor.stalls + 1
        return bool(better)

    def ended(self) -> str:
        """Why training is over, or nothing; the same on every rank."""
        cursor, config = self.cursor, self.config
        if cursor.step >= self.total or (not config.steps and config.epochs and cursor.epoch >= config.epochs):
            return "done"
        if config.patience and cursor.waiting >= config.patience:
            return "patience"
        return self.interrupted

    def save(self) -> None:
        """Commit a checkpoint, then delete the ones that are not needed any more."""
        if self.ranks.first:
            weights = weights_of(self.model)
            step = self.cursor.step
            self.cursor.carried = self.task.state() if isinstance(self.task, Carries) else {}
            if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
                raise TrainingError(
                    f"The weights at step {step} are not finite, so they were not saved; the last checkpoint is sound. "
                    f"Try a lower train.rate."
                )
            folder = save_checkpoint(
                self.run_folder, step, weights, optimiser_state(self.optimiser), asdict(self.cursor)
            )
            prune(self.run_folder, self.config.keep, self.cursor.best_step)
            self.observe(Saved(step, folder))
        self.ranks.wait()

    def finish(self) -> None:
        """Publish the best checkpoint, or the average of the newest."""
        saved = checkpoints(self.run_folder)
        best = [folder for folder in saved if int(folder.name) == self.cursor.best_step]
        chosen = saved[-self.config.average :] if self.config.average > 1 or not best else best
        about = {"steps": [int(folder.name) for folder in chosen], "best": self.cursor.best}
        publish(self.run_folder, average_weights(chosen), [path.name for path in self.task.files()], about)


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


def to_device(part: Any, device: torch.device) -> Any:
    """A tensor on the device it is needed on; anything else as it is."""
    return part.to(device, non_blocking=True) if isinstance(part, Tensor) else part


def seed_everything(seed: int, step: int, rank: int) -> None:
    """All dropout of a step follows from these three numbers."""
    torch.manual_seed((seed * 1_000_003 + step) * 65_537 + rank)


@contextmanager
def stop_on_signals(flag: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C raise a flag that the loop reads after each update; a second Ctrl-C breaks off at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if flag.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        flag.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
