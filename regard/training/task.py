"""What the training loop knows about the task it trains. Each task is one file beside this."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.data.batching import EpochPlan, Lengths, ShardedPlan, make_even
from regard.data.prepare import Data
from regard.decode.settings import DecodeConfig
from regard.training.settings import TrainConfig


class Loss(NamedTuple):
    """The loss of a batch, summed over its tokens or sentences."""

    total: Tensor  # a scalar with a gradient
    sums: Tensor | None = None  # [n], what a task that carries numbers sums over the batches of an update


class Validation(NamedTuple):
    """How the model does on held-out examples: numbers by name, and a few lines for a person to read."""

    metrics: dict[str, float]
    samples: list[str]


class Task:
    """Data, objective and validation of one kind of work, and what most kinds share."""

    recurs = True  # whether batches can be padded to shapes that recur, so that updates can be captured on a GPU
    on_host: tuple[str, ...] = ()  # parts of a batch that the model reads on the host, so that it need not wait
    sums = 0  # numbers in `Loss.sums`
    each = "tokens"  # what a shown loss is divided by, here and in validation: "tokens" or "sentences"
    alone = False  # whether it is trained by one process only

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        self.data, self.config, self.run, self.fingerprint = data, config, run, data.fingerprint
        # A validation has its own beam, and one translation of each example, whatever [decode] samples or ranks.
        plain, reset = DecodeConfig(), ("nbest", "temperature", "top_k", "top_p", "coverage_penalty")
        changes = {name: getattr(plain, name) for name in reset}
        self.decode = dataclasses.replace(decode, beam=config.validate_beam, **changes)

    def ready(self, model: nn.Module) -> None:
        """Give a fresh model what is not learned here, or refuse one that does not fit the settings."""

    def lengths(self, part: Any) -> tuple[Lengths, Lengths]:
        """The lengths [N] of both sides of all examples of the training or the validation part."""
        raise NotImplementedError

    def plan(self, epoch: int, even: bool = False) -> EpochPlan:
        """The batches of an epoch as example numbers: a pure function of the arguments and the settings.

        Examples of like length are together, at most `batch_tokens`. With `even`, batches have few different shapes.
        """
        return self.batches(self.data.train, epoch, even)

    def batches(self, part: Any, epoch: int = 0, even: bool = False) -> EpochPlan:
        """The batches of the training or the validation part."""
        return ShardedPlan(*self.lengths(part), self.config.batch_tokens, self.config.seed, epoch, even)

    def load(self, numbers: Sequence[int], epoch: int) -> Any:
        """A batch of these examples, as a NamedTuple of tensors on the CPU; there may be none."""
        return self.data.train.batch(numbers)

    def even(self, batch: Any, world: int) -> Any:
        """This rank's part of a batch, one of `world` parts, padded to a shape that recurs; its loss stays the same."""
        return make_even(batch, self.config.batch_tokens, world)

    def count(self, batch: Any) -> tuple[int, int]:
        """Tokens and sentences of a batch on the CPU, which the loop divides by."""
        return int(batch.target_lengths.sum()), len(batch.target)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a batch that holds at least one example. On a GPU it must not wait for the device."""
        raise NotImplementedError

    def validate(self, model: nn.Module) -> Validation:
        """Measure the model on held-out examples."""
        raise NotImplementedError

    def files(self) -> list[Path]:
        """The files in the run folder, besides config.toml, that the model cannot be used without."""
        encoding = self.data.encoding
        return sorted(path for name in (*encoding.names, *encoding.also) for path in self.run.glob(f"{name}.*"))

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The lines of the corpus, from 1 over all files, that these examples were, where examples are lines."""
        return []

    # --- numbers that are carried from update to update, such as a moving baseline: the same on every rank

    def carry(self, sums: Tensor, sound: Tensor) -> None:
        """Move on by the sums of an update over all ranks, unless `sound` is False. It may run on a GPU."""

    def state(self) -> dict[str, float]:
        """The numbers by name, for a checkpoint."""
        return {}

    def restore(self, state: dict[str, float]) -> None:
        """Continue with the numbers of a checkpoint."""

    def tensors(self) -> dict[str, Tensor]:
        """The same for tensors, such as the states of a text that is read on; only where one process trains."""
        return {}

    def set_tensors(self, tensors: dict[str, Tensor], model: nn.Module) -> None:
        """Continue with the tensors of a checkpoint."""
