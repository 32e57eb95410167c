"""The progress of training in a checkpoint, and how a validation updates it."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

NOISE = 1.0  # of BLEU, in percent
LOWER_IS_BETTER = {"loss"}
BLIND, NEAR = 3, 0.02  # validations in a row; nats per token that count as no difference
EARLY = 100  # updates before a model is expected to use its source


class Verdict(NamedTuple):
    """The result of a validation."""

    value: float  # of the deciding metric
    loss: float
    measured: bool  # whether there was anything to measure
    better: bool  # than all validations before


@dataclass
class Cursor:
    """The progress of training; a checkpoint also holds the weights and the optimiser's state."""

    step: int = 0  # updates made
    epoch: int = 0
    position: int = 0  # batches of this epoch that are done
    even: bool = False  # whether this epoch's batches have few shapes
    due: bool = False  # whether the validation of this step is still to be done: training was stopped first
    best: float | None = None
    best_loss: float | None = None  # breaks ties of the metric, such as BLEU 0
    best_step: int | None = None
    waiting: int = 0  # validations since the best
    stalls: int = 0  # total validations without a new best
    skipped: int = 0  # skipped updates in a row
    seconds: float = 0.0  # of training so far
    kept: list[int] = field(default_factory=list)  # steps of the newest checkpoints, without those of a stop
    blind: int = 0  # validations in a row in which the model ignored its source
    data: str = ""  # fingerprint of the corpus
    carried: dict[str, float] = field(default_factory=dict)  # the task's state
    origin: dict[str, str] = field(default_factory=dict)  # the run whose weights came first, and their SHA-256

    def advance(self, batches: int, last: bool) -> None:
        """Move over the batches of an update; `last` says that it ends the epoch."""
        self.step += 1
        self.position += batches
        if last:
            self.epoch, self.position = self.epoch + 1, 0

    def judge(self, metrics: dict[str, float], best_by: str) -> tuple[Verdict, str]:
        """Compare a validation with the best so far; also returns the deciding metric."""
        by = best_by if best_by in metrics else "loss"
        value, loss = metrics.get(by, math.nan), metrics.get("loss", math.nan)
        noise = by == "bleu" and value < NOISE  # not significant, so the loss decides
        value = 0.0 if noise else value
        sign = -1 if by in LOWER_IS_BETTER else 1
        better = math.isfinite(value) and (self.best is None or sign * value > sign * self.best)
        equal = value == self.best and self.best_loss is not None
        if equal:
            better = loss < self.best_loss  # type: ignore[operator]
        return Verdict(value, loss, bool(metrics), better), "loss" if noise or equal else by

    def validated(self, verdict: Verdict) -> None:
        """Record a validation."""
        self.due = False
        if verdict.better:
            self.best, self.best_step, self.waiting = verdict.value, self.step, 0
            self.best_loss = verdict.loss if math.isfinite(verdict.loss) else None
        elif verdict.measured:
            self.waiting, self.stalls = self.waiting + 1, self.stalls + 1

    def ignores_source(self, metrics: dict[str, float]) -> bool:
        """Whether the model is now known to ignore its source, as a badly initialised Transformer does."""
        loss, shuffled = metrics.get("loss", math.nan), metrics.get("shuffled_loss", math.nan)
        self.blind = self.blind + 1 if self.step >= EARLY and shuffled - loss < NEAR else 0
        return self.blind == BLIND
