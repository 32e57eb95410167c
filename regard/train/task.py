"""What the training loop knows of the work it trains for. Each task is one file beside this."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

Tell = Callable[[int, int | None], None]  # (done, total or None)


class Batches(Protocol):
    """The batches of an epoch: batch k is a sequence of example numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Any: ...


class Loss(NamedTuple):
    """The loss of a batch, summed; `tokens` and `sentences` are what the loop divides by."""

    total: Tensor  # a scalar with a gradient
    tokens: int
    sentences: int
    parts: dict[str, float]  # sums worth logging, "nll" among them


class Validation(NamedTuple):
    """How the model does on held-out examples: numbers by name, and a few lines for a person to read."""

    metrics: dict[str, float]
    samples: list[str]


class Task(Protocol):
    """Data, objective and validation of one kind of work."""

    def plan(self, epoch: int) -> Batches:
        """The batches of an epoch as example numbers: a pure function of the settings and the epoch."""
        ...

    def load(self, numbers: Sequence[int], epoch: int) -> Any:
        """A batch of these examples, as a NamedTuple of tensors on the CPU; there may be none."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a batch that holds at least one example."""
        ...

    def validate(self, model: nn.Module, tell: Tell | None = None) -> Validation:
        """Measure the model on held-out examples."""
        ...

    def files(self) -> list[Path]:
        """The files in the run folder, besides config.toml, that the model cannot be used without."""
        ...


@runtime_checkable
class Carries(Protocol):
    """A task that carries numbers from batch to batch, such as a moving baseline; a checkpoint keeps them."""

    def state(self) -> dict[str, float]:
        """The numbers by name."""
        ...

    def restore(self, state: dict[str, float]) -> None:
        """Take up the numbers of a checkpoint."""
        ...


@runtime_checkable
class FromLines(Protocol):
    """A task whose examples are lines of a corpus, so that a person can be told where to look."""

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The lines, from 1, over all files together, that these examples were."""
        ...
