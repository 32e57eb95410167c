"""What happened, and when: events for whoever watches, and metrics.jsonl (TensorBoard too, where it is installed)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Prepared(NamedTuple):
    """The data is ready and the model built."""

    examples: int
    weights: int
    device: str
    notes: list[str]


class Resumed(NamedTuple):
    """Training goes on from a checkpoint."""

    step: int


class Stepped(NamedTuple):
    """An update was made."""

    step: int
    total: int
    epoch: int
    loss: float  # a token (or a sentence)
    rate: float
    tokens_per_second: float
    seconds_left: float


class Skipped(NamedTuple):
    """An update was left out, since its loss or gradient was not finite or it did not fit into memory."""

    step: int
    reason: str
    examples: list[int]


class Validated(NamedTuple):
    """The model was measured on held-out examples."""

    step: int
    metrics: dict[str, float]
    samples: list[str]
    best: bool


class Saved(NamedTuple):
    """A checkpoint was committed."""

    step: int
    path: Path


class Finished(NamedTuple):
    """Training ended; `reason` is "done", "patience", "time" or "asked"."""

    step: int
    reason: str
    seconds: float


Event = Prepared | Resumed | Stepped | Skipped | Validated | Saved | Finished
Observe = Callable[[Event], None]


class Journal:
    """Writes metrics.jsonl. On resuming, lines after the step gone back to are dropped: they will be written again."""

    def __init__(self, run: Path, resumed_at: int) -> None:
        self.path = run / "metrics.jsonl"
        self.board = _tensorboard(run)
        kept = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").split("\n"):
                try:
                    if line and json.loads(line)["step"] <= resumed_at:
                        kept.append(line + "\n")
                except (ValueError, KeyError):
                    continue  # a line cut off by a crash
        self.path.write_text("".join(kept), encoding="utf-8")

    def write(self, step: int, **numbers: Any) -> None:
        """Append one line."""
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **numbers}) + "\n")
        if self.board is not None:
            for name, number in numbers.items():
                if isinstance(number, int | float):
                    self.board.add_scalar(name, number, step)

    def close(self) -> None:
        """Finish what is being written."""
        if self.board is not None:
            self.board.close()


def _tensorboard(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"))
