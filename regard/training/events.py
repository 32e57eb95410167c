"""Events of training for an observer, and metrics.jsonl (and TensorBoard, if it is installed)."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import RunError
from regard.sealed import write_atomically


class DataReady(NamedTuple):
    """The data is ready and the model built."""

    examples: int
    weights: int
    device: str
    notes: list[str]


class Resumed(NamedTuple):
    """Training resumes from a checkpoint; newer checkpoints of the steps `damaged` could not be used."""

    step: int
    damaged: list[str]


ENDLESS = 10**9  # total updates if only the clock ends training


class Stepped(NamedTuple):
    """An update was made."""

    step: int
    total: int
    epoch: int
    loss: float  # per token
    rate: float
    tokens_per_second: float  # real target tokens by the wall clock, including the wait for data
    seconds_left: float | None  # None if the pace is not known, as after the first update


class Skipped(NamedTuple):
    """An update was skipped because its loss or gradient was not finite, or it did not fit into memory."""

    step: int
    reason: str
    examples: list[int]
    lines: list[int]  # of the corpus, if the examples are lines


class Noticed(NamedTuple):
    """A message for the user."""

    step: int
    text: str


class Validated(NamedTuple):
    """The model was measured on held-out examples."""

    step: int
    metrics: dict[str, float]
    samples: list[str]
    best: bool
    by: str = "loss"  # the metric that decides which is the best


class Saved(NamedTuple):
    """A checkpoint was committed."""

    step: int
    path: Path


BEFORE_THE_END = ("stopped", "interrupted")  # by SIGTERM or an observer, and by Ctrl-C; the run can be resumed


class Finished(NamedTuple):
    """Training ended; `reason` is "done", "patience", "time", or one of `BEFORE_THE_END`."""

    step: int
    reason: str
    seconds: float


Event = DataReady | Resumed | Stepped | Skipped | Noticed | Validated | Saved | Finished
Observe = Callable[[Event], Any]  # returns True to save and stop after the next update


def wants_stop(answer: Any) -> bool:
    """Whether an observer has returned True, Python's or numpy's; other values are ignored.

    >>> import numpy
    >>> wants_stop(True), wants_stop(numpy.mean([3.0]) > 2), wants_stop(None), wants_stop(1)
    (True, True, False, False)
    """
    # By name, so that numpy is not imported for a command's help.
    return type(answer).__name__ in ("bool", "bool_") and bool(answer)


class Journal:
    """Writes metrics.jsonl. On resuming, lines after the resumed step are dropped, since they will be written again.

    So is the validation of that step if it is still `due`. A number that is not finite is written as null.
    """

    def __init__(self, run: Path, resumed_at: int, due: bool = False) -> None:
        self.path = run / "metrics.jsonl"
        self.board: Any = None
        with suppress(ImportError):  # TensorBoard is optional
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(run / "tensorboard"), purge_step=resumed_at + 1)
        kept = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8", errors="replace").split("\n"):
                try:
                    step, again = json.loads(line)["step"], due and '"dev_' in line
                    if step < resumed_at or (step == resumed_at and not again):
                        kept.append(line + "\n")
                except (ValueError, KeyError, TypeError):
                    continue  # the empty line at the end, or one cut off by a crash
        write_atomically(self.path, "".join(kept).encode())

    def write_event(self, event: Event) -> None:
        """Write an event, if it is of a kind to keep."""
        if isinstance(event, Stepped):
            numbers = {"rate": event.rate, "tokens_per_second": round(event.tokens_per_second, 1)}
            self.write(event.step, loss=round(event.loss, 6), **numbers)
        elif isinstance(event, Skipped):
            self.write(event.step, skipped=event.reason, examples=event.examples, lines=event.lines)
        elif isinstance(event, Noticed):
            self.write(event.step, notice=event.text)
        elif isinstance(event, Validated) and event.metrics:
            self.write(event.step, **{f"dev_{name}": number for name, number in event.metrics.items()})

    def write(self, step: int, **numbers: Any) -> None:
        """Append one line."""
        odd = {name for name, number in numbers.items() if isinstance(number, float) and not math.isfinite(number)}
        finite = {**numbers, **dict.fromkeys(odd)}
        try:
            with open(self.path, "a", encoding="utf-8", newline="\n") as stream:
                stream.write(json.dumps({"step": step, **finite}) + "\n")
        except OSError as error:
            raise RunError(
                f"{self.path} could not be written: {error.strerror or error}; the last checkpoint is valid."
            ) from error
        if self.board is not None:
            for name, number in numbers.items():
                if isinstance(number, int | float):
                    self.board.add_scalar(name, number, step)

    def close(self) -> None:
        """Close the TensorBoard writer."""
        if self.board is not None:
            self.board.close()
