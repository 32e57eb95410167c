"""The one training loop. It knows updates, checkpoints and time; what is trained comes in as a `Task`.

Everything random is a pure function of (seed, step), and the order of batches of (seed, epoch). A checkpoint therefore
needs no generator state, and a run that was killed anywhere ends with the same bits as one that was not (on a CPU).
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data.batching import Prefetch
from regard.data.text import digest
from regard.decode.search import out_of_memory
from regard.errors import ConfigError, DataError, RunError, TrainingError
from regard.train.arithmetic import arithmetic
from regard.train.distributed import Ranks
from regard.train.journal import Finished, Journal, Observe, Resumed, Saved, Skipped, Stepped, Validated
from regard.train.optimisers import OPTIMISERS
from regard.train.origin import Origin
from regard.train.runs import (
    average_weights,
    check_belongs,
    checkpoints,
    is_finished,
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
from regard.train.stopping import BrokenOff, Stop
from regard.train.task import Batches, Carries, FromLines, Task
from regard.train.weights import optimiser_state, set_optimiser_state, set_weights, weights_of

PATIENCE_WITH_NAN = 10  # updates in a row that may be left out before training gives up
NOISE = 1.0  # of BLEU, in percent
LOWER_IS_BETTER = {"loss"}
ENDLESS = 10**9  # updates in all, where only the clock ends training

Group = list[tuple[Sequence[int], Any]]  # of the batches of an update: all example numbers, this rank's tensors


class Sums(NamedTuple):
    """What an update adds up over its batches."""

    loss: float
    tokens: float
    sentences: float
    out_of_memory: bool  # then there is no gradient


@dataclass
class Cursor:
    """Where training stands. These numbers, the weights and the optimiser's memory are all that a checkpoint holds."""

    step: int = 0  # updates made
    epoch: int = 0
    position: int = 0  # batches of this epoch that are done
    due: bool = False  # this step is to be validated, and has not been: training was stopped first
    best: float | None = None
    best_loss: float | None = None  # decides where the measure is as good as the best, as BLEU is at 0
    best_step: int | None = None
    waiting: int = 0  # validations since the best
    stalls: int = 0  # validations in all that brought no new best
    skipped: int = 0  # updates left out in a row
    seconds: float = 0.0  # spent in training so far
    kept: list[int] = field(default_factory=list)  # steps of the newest checkpoints, those of a stop not among them
    data: str = ""  # fingerprint of the corpus
    carried: dict[str, float] = field(default_factory=dict)  # what the task carries from batch to batch
    origin: dict[str, str] = field(default_factory=dict)  # the run whose weights came first, and their SHA-256


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
        self.parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimiser = OPTIMISERS[config.optimiser](self.parameters, config)
        self.schedule = SCHEDULES[config.schedule]
        self.batches_an_epoch = len(task.plan(0))
        if not self.batches_an_epoch:
            raise DataError("There is nothing to train on: an epoch has no batch.")
        self.total = config.steps or math.ceil(self.batches_an_epoch / config.accumulate) * config.epochs or ENDLESS
        self.cursor = Cursor(data=getattr(task, "fingerprint", ""))
        self.standing: int | None = None  # the step whose checkpoint was resumed from, whole on the disk
        self.journal: Journal | None = None
        self.stop = Stop()
        self.asked = self.time_is_up = False  # agreed by all ranks

    def run(self) -> str:
        """Train to the end, or until asked to stop; returns why it ended. The finished weights are published."""
        self.resume()
        reason = self.over()
        if reason and any(self.ranks.add(self.ranks.first and is_finished(self.run_folder))):
            self.observe(Finished(self.cursor.step, reason, self.cursor.seconds))
            return reason  # the same command again
        began = time.monotonic() - self.cursor.seconds
        if self.ranks.first:
            self.journal = Journal(self.run_folder, self.cursor.step, self.cursor.due)
        try:
            with self.stop.listening(), arithmetic(self.config.precision):
                reason = self.train(began)
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
        """Take up the newest whole checkpoint, if there is one."""
        folder = newest_checkpoint(self.run_folder)
        if folder is None:
            return
        check_belongs(self.run_folder, folder)
        cursor, data = Cursor(**read_about(folder)), self.cursor.data
        if cursor.data != data and cursor.data and data:
            raise RunError(f"The corpus is not the one that {self.run_folder} was begun with; use another --out.")
        self.cursor, self.cursor.data = cursor, data
        set_weights(self.model, read_tensors(folder / "weights.safetensors"), str(folder))
        set_optimiser_state(self.optimiser, read_tensors(folder / "state.safetensors"))
        if isinstance(self.task, Carries):
            self.task.restore(cursor.carried)
        self.standing = cursor.step
        self.time_is_up = bool(self.config.minutes) and cursor.seconds >= self.config.minutes * 60
        damaged = [path.name for path in checkpoints(self.run_folder) if int(path.name) > int(folder.name)]
        self.observe(Resumed(cursor.step, damaged))

    def train(self, began: float) -> str:
        """Epoch after epoch until an end is reached."""
        if self.ranks.first:
            withdraw(self.run_folder)  # a finished run that goes on is not finished
        if self.cursor.due:
            self.after_update()
        while not (reason := self.ended()):
            self.one_epoch(began)
        return reason

    def one_epoch(self, began: float) -> None:
        """From the cursor's position to the end of the epoch, or of training."""
        plan = self.task.plan(self.cursor.epoch)
        with Prefetch(self.load(plan, self.cursor.position, self.cursor.epoch)) as batches:
            for group in grouped(batches, self.config.accumulate):
                self.cursor.seconds = time.monotonic() - began
                self.update(group, last=self.cursor.position + len(group) == len(plan))
                self.after_update()
                if self.ended():
                    return

    def load(self, plan: Batches, start: int, epoch: int) -> Iterator[tuple[Sequence[int], Any]]:
        """Every batch of the plan from `start` on: its examples, and the tensors of this rank's part, if it has one."""
        for position in range(start, len(plan)):
            numbers = plan[position]
            mine = numbers[self.ranks.rank :: self.ranks.world]
            yield numbers, self.task.load(mine, epoch) if len(mine) else None

    def update(self, group: Group, last: bool) -> None:
        """One update from a group of batches, or none where it is not sound; `last` says that it ends the epoch."""
        started = time.monotonic()
        carried = self.task.state() if isinstance(self.task, Carries) else {}
        sums = self.agree(self.backward(group))
        count = max(1.0, sums.tokens if self.config.normalise == "tokens" else sums.sentences)
        norm = self.divide_gradients(count)
        rate = self.advance(len(group), last)
        speed = sums.tokens / max(1e-9, time.monotonic() - started)
        if math.isfinite(sums.loss) and math.isfinite(norm) and not sums.out_of_memory:
            self.apply_gradients(norm, rate)
            self.tell_step(sums.loss / count, rate, speed)
        else:
            if isinstance(self.task, Carries):
                self.task.restore(carried)
            self.skip(group, "out of memory" if sums.out_of_memory else "loss or gradient not finite")
        self.optimiser.zero_grad(set_to_none=True)

    def backward(self, group: Group) -> Sums:
        """Add up the gradients of a group, on this rank."""
        seed_everything(self.config.seed, self.cursor.step, self.ranks.rank)
        self.model.train()
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
                del loss  # and its graph, before the next batch makes its own
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self.optimiser.zero_grad(set_to_none=True)
            return Sums(0.0, 0.0, 0.0, out_of_memory=True)
        total = float(torch.stack(totals).double().sum()) if totals else 0.0
        return Sums(total, tokens, sentences, out_of_memory=False)

    def agree(self, own: Sums) -> Sums:
        """The sums of all ranks, and their gradients in each; by the way, whether to stop."""
        config = self.config
        over = self.ranks.first and bool(config.minutes) and self.cursor.seconds >= config.minutes * 60
        loss, tokens, sentences, lost, asked, up = self.ranks.add(*own, self.stop.asked, over)
        self.asked, self.time_is_up = bool(asked), bool(up)
        self.ranks.add_gradients(self.parameters)
        return Sums(loss, tokens, sentences, out_of_memory=bool(lost))

    def divide_gradients(self, count: float) -> float:
        """From sums to means; returns the norm of all gradients together."""
        gradients = self.gradients()
        if not gradients:  # memory ran out
            return 0.0
        torch._foreach_div_(gradients, count)
        return float(torch.nn.utils.get_total_norm(gradients))

    def advance(self, batches: int, last: bool) -> float:
        """Move the cursor over the batches of an update; returns the rate of it."""
        cursor = self.cursor
        cursor.step += 1
        cursor.position += batches
        epoch = cursor.epoch + (cursor.position - 1) / self.batches_an_epoch
        if last:
            cursor.epoch, cursor.position = cursor.epoch + 1, 0
        width = getattr(getattr(self.model, "config", None), "width", 1)
        return self.schedule(Progress(cursor.step, self.total, epoch, cursor.stalls, width), self.config)

    def apply_gradients(self, norm: float, rate: float) -> None:
        """Clip, and let the optimiser make its step."""
        clip(self.gradients(), norm, self.config.clip)
        for part in self.optimiser.param_groups:
            part["lr"] = rate
        self.optimiser.step()
        self.cursor.skipped = 0

    def gradients(self) -> list[Tensor]:
        """Those of the weights that have one."""
        return [weight.grad for weight in self.parameters if weight.grad is not None]

    def skip(self, group: Group, reason: str) -> None:
        """Leave an update out and say which examples were in it; give up when it happens again and again."""
        numbers = [int(number) for part, _ in group for number in part]
        lines = self.task.lines(numbers) if isinstance(self.task, FromLines) else []
        cursor = self.cursor
        cursor.skipped += 1
        self.observe(Skipped(cursor.step, reason, numbers, lines))
        if self.journal:
            self.journal.write(cursor.step, skipped=reason, examples=numbers, lines=lines)
        if cursor.skipped >= PATIENCE_WITH_NAN:
            advice = "a smaller train.batch_tokens" if reason == "out of memory" else "a lower train.rate"
            raise TrainingError(
                f"Training stopped at step {cursor.step}: {reason} in {cursor.skipped} updates in a row. The last "
                f"checkpoint is sound; try {advice} in a new run, or look at the lines that metrics.jsonl names."
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
        """Validate and save when it is time, and always at the end; who asks for a stop waits for the save alone.

        A validation that a stop prevents stays due: it comes first when training goes on, so that a run which was
        stopped is the same as one which was not.
        """
        cursor, config = self.cursor, self.config
        now = cursor.step % config.validate_every == 0 if config.validate_every else cursor.position == 0
        cursor.due = cursor.due or now or bool(self.over())
        best = cursor.due and not self.asked and self.validate()
        planned = best or cursor.step % config.save_every == 0 or bool(self.over() and not self.asked)
        if planned or self.asked:
            self.save(planned)

    def validate(self) -> bool:
        """Measure on rank 0; returns whether this is the best so far, the same on every rank."""
        cursor = self.cursor
        found = torch.zeros(5, dtype=torch.float64, device=self.ranks.device)
        if self.ranks.first:
            found = torch.tensor(self.measure(), dtype=torch.float64, device=self.ranks.device)
        value, loss, measured, better, asked = self.ranks.agree(found).tolist()
        if asked:
            self.asked = True
            return False
        cursor.due = False
        if better:
            cursor.best, cursor.best_step, cursor.waiting = value, cursor.step, 0
            cursor.best_loss = loss if math.isfinite(loss) else None
        elif measured:
            cursor.waiting, cursor.stalls = cursor.waiting + 1, cursor.stalls + 1
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
        by = self.config.best_by if self.config.best_by in metrics else "loss"
        value, loss = metrics.get(by, math.nan), metrics.get("loss", math.nan)
        if by == "bleu" and value < NOISE:
            value = 0.0  # a BLEU of next to nothing says nothing: the loss decides
        sign = -1 if by in LOWER_IS_BETTER else 1
        better = math.isfinite(value) and (cursor.best is None or sign * value > sign * cursor.best)
        if value == cursor.best and cursor.best_loss is not None:
            better = loss < cursor.best_loss
        self.observe(Validated(cursor.step, metrics, samples, better))
        if self.journal and metrics:
            self.journal.write(cursor.step, **{f"dev_{name}": number for name, number in metrics.items()})
        return value, loss, bool(metrics), better, False

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

        One that is not `planned` serves to go on from and nothing else, so that averages do not depend on stops.
        """
        cursor = self.cursor
        if planned and cursor.step not in cursor.kept:
            cursor.kept = [*cursor.kept, cursor.step][-self.config.keep :]
        if self.ranks.first:
            if cursor.step != self.standing:
                self.write_checkpoint()
            prune(self.run_folder, {cursor.step, *cursor.kept, *([cursor.best_step] if cursor.best_step else [])})
        self.ranks.wait()

    def write_checkpoint(self) -> None:
        """The weights, the optimiser's memory and the cursor, if all numbers are finite."""
        weights, state = weights_of(self.model), optimiser_state(self.optimiser)
        step = self.cursor.step
        self.cursor.carried = self.task.state() if isinstance(self.task, Carries) else {}
        if not all(bool(tensor.isfinite().all()) for tensor in (*weights.values(), *state.values())):
            raise TrainingError(
                f"The weights at step {step} are not finite, so they were not saved; the last checkpoint is sound. "
                f"Try a lower train.rate in a new run."
            )
        belongs = {path.name: digest(path) for path in self.task.files()}
        folder = save_checkpoint(self.run_folder, step, weights, state, asdict(self.cursor), belongs)
        self.observe(Saved(step, folder))

    def finish(self) -> None:
        """Publish the best checkpoint, or the average of the newest."""
        cursor, average = self.cursor, self.config.average
        chosen = cursor.kept[-average:] if average > 1 or cursor.best_step is None else [cursor.best_step]
        steps = {int(folder.name): folder for folder in checkpoints(self.run_folder)}
        folders = [steps[step] for step in chosen if step in steps] or [steps[cursor.step]]
        about = {"steps": [int(folder.name) for folder in folders], "best": cursor.best, "start_from": cursor.origin}
        publish(self.run_folder, average_weights(folders), [path.name for path in self.task.files()], about)


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


def clip(gradients: list[Tensor], norm: float, longest: float) -> None:
    """g <- g * longest / |g| where the norm |g| of all gradients together is above `longest`; 0 is no limit."""
    if longest and norm > longest:
        torch._foreach_mul_(gradients, longest / norm)


def to_device(part: Any, device: torch.device) -> Any:
    """A tensor on the device it is needed on; anything else as it is."""
    return part.to(device, non_blocking=True) if isinstance(part, Tensor) else part


def seed_everything(seed: int, step: int, rank: int) -> None:
    """All dropout of a step follows from these three numbers."""
    torch.manual_seed(((seed * 1_000_003 + step) * 65_537 + rank) % 2**63)
