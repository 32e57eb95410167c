"""What the training loop knows about the task it trains. Each task is one file beside this."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from regard.data.files import Progress


class Batches(Protocol):
    """The batches of an epoch: batch k is a sequence of example numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Any: ...


class Loss(NamedTuple):
    """The loss of a batch, summed over its tokens or sentences."""

    total: Tensor  # a scalar with a gradient
    sums: Tensor | None = None  # [n], what a task that carries numbers sums over the batches of an update


class Validation(NamedTuple):
    """How the model does on held-out examples: numbers by name, and a few lines for a person to read."""

    metrics: dict[str, float]
    samples: list[str]


class Task(Protocol):
    """Data, objective and validation of one kind of work."""

    @property
    def fingerprint(self) -> str:
        """Of the corpus, its vocabularies and settings: a run is resumed with the same or not at all."""
        ...

    def ready(self, model: nn.Module) -> None:
        """Give a fresh model what is not learned here, or refuse one that does not fit the settings."""

    def plan(self, epoch: int, even: bool = False) -> Batches:
        """The batches of an epoch as example numbers: a pure function of the arguments and the settings.

        With `even`, batches of few different shapes, where the task can make them (`Even`).
        """
        ...

    def load(self, numbers: Sequence[int], epoch: int) -> Any:
        """A batch of these examples, as a NamedTuple of tensors on the CPU; there may be none."""
        ...

    def count(self, batch: Any) -> tuple[int, int]:
        """Tokens and sentences of a batch on the CPU, which the loop divides by."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a batch that holds at least one example. On a GPU it must not wait for the device."""
        ...

    def validate(self, model: nn.Module, tell: Progress | None = None) -> Validation:
        """Measure the model on held-out examples."""
        ...

    def files(self) -> list[Path]:
        """The files in the run folder, besides config.toml, that the model cannot be used without."""
        ...


@runtime_checkable
class Even(Protocol):
    """A task whose batches can be padded to shapes that recur, so that their updates can be captured on a GPU."""

    def even(self, batch: Any, world: int) -> Any:
        """This rank's part of a batch, one of `world` parts, padded; its loss stays the same."""
        ...


@runtime_checkable
class OnHost(Protocol):
    """A task whose model reads some parts of a batch on the host, so that it need not wait for the device."""

    on_host: tuple[str, ...]  # names of these parts


@runtime_checkable
class Carries(Protocol):
    """A task that carries numbers from update to update, such as a moving baseline; a checkpoint keeps them.

    They are the same on every rank: they move by sums over all ranks.
    """

    sums: int  # numbers in `Loss.sums`

    def carry(self, sums: Tensor, sound: Tensor) -> None:
        """Move on after an update, by its sums; nothing moves where `sound` is False. It may run on a GPU."""
        ...

    def state(self) -> dict[str, float]:
        """The numbers by name."""
        ...

    def restore(self, state: dict[str, float]) -> None:
        """Continue with the numbers of a checkpoint."""
        ...


@runtime_checkable
class FromLines(Protocol):
    """A task whose examples are lines of a corpus, so that a message can name them."""

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The lines, from 1, over all files together, that these examples were."""
        ...
