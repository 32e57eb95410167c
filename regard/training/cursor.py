"""The progress of training, as a checkpoint keeps it, and what a validation changes of it."""

import math
from dataclasses import dataclass, field

NOISE = 1.0  # of BLEU, in percent
LOWER_IS_BETTER = {"loss"}
BLIND, NEAR = 3, 0.02  # validations in a row, nats per token: less than that is no difference


@dataclass
class Cursor:
    """A checkpoint holds these numbers, the weights and the optimiser's state."""

    step: int = 0  # updates made
    epoch: int = 0
    position: int = 0  # batches of this epoch that are done
    even: bool = False  # whether this epoch's batches are those of few shapes
    due: bool = False  # this step is to be validated, and has not been: training was stopped first
    best: float | None = None
    best_loss: float | None = None  # decides where the measure is as good as the best, as BLEU is at 0
    best_step: int | None = None
    waiting: int = 0  # validations since the best
    stalls: int = 0  # validations in all that brought no new best
    skipped: int = 0  # updates left out in a row
    seconds: float = 0.0  # spent in training so far
    kept: list[int] = field(default_factory=list)  # steps of the newest checkpoints, those of a stop not among them
    blind: int = 0  # validations in a row in which the model ignored its source
    data: str = ""  # fingerprint of the corpus
    carried: dict[str, float] = field(default_factory=dict)  # what the task carries from update to update
    origin: dict[str, str] = field(default_factory=dict)  # the run whose weights came first, and their SHA-256

    def judge(self, metrics: dict[str, float], best_by: str) -> tuple[float, float, bool]:
        """The measure that counts, the loss, and whether they are the best so far."""
        by = best_by if best_by in metrics else "loss"
        value, loss = metrics.get(by, math.nan), metrics.get("loss", math.nan)
        if by == "bleu" and value < NOISE:
            value = 0.0  # a BLEU of next to nothing says nothing: the loss decides
        sign = -1 if by in LOWER_IS_BETTER else 1
        better = math.isfinite(value) and (self.best is None or sign * value > sign * self.best)
        if value == self.best and self.best_loss is not None:
            better = loss < self.best_loss
        return value, loss, better

    def validated(self, value: float, loss: float, measured: bool, better: bool) -> None:
        """Keep what a validation found, if it `measured` anything."""
        self.due = False
        if better:
            self.best, self.best_step, self.waiting = value, self.step, 0
            self.best_loss = loss if math.isfinite(loss) else None
        elif measured:
            self.waiting, self.stalls = self.waiting + 1, self.stalls + 1

    def ignores_source(self, metrics: dict[str, float]) -> bool:
        """Whether the model has just been found to ignore its source, as a Transformer that started badly does."""
        loss, shuffled = metrics.get("loss", math.nan), metrics.get("shuffled_loss", math.nan)
        self.blind = self.blind + 1 if shuffled - loss < NEAR else 0
        return self.blind == BLIND
