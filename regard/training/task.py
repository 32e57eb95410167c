"""The interface between the training loop and a task. Each task is one file."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.data.batching import EpochPlan, Examples, ShardedPlan, make_even
from regard.data.prepare import Data
from regard.decode.settings import DecodeConfig
from regard.evaluate.scores import perplexity
from regard.runs.settings import TrainConfig
from regard.training.objectives import likelihood

SHOWN = 3  # held-out examples that a validation shows


class Loss(NamedTuple):
    """The loss of a batch, summed over its tokens or sentences."""

    total: Tensor  # a scalar with a gradient
    sums: Tensor | None = None  # [n], numbers that a task sums over the batches of an update


class Validation(NamedTuple):
    """The results on held-out examples: metrics by name, and a few sample lines to read."""

    metrics: dict[str, float]
    samples: list[str]


class Task:
    """The data, objective and validation of a task, with defaults that most tasks share."""

    recurs = True  # whether batches can be padded to recurring shapes, so that updates can be captured on a GPU
    on_host: tuple[str, ...] = ()  # parts of a batch that the model reads on the host, to avoid waiting
    sums = 0  # numbers in `Loss.sums`
    each = "tokens"  # what the reported loss is divided by, also in validation: "tokens" or "sentences"
    alone = False  # whether it supports one process only

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        self.data, self.config, self.run, self.fingerprint = data, config, run, data.fingerprint
        # A validation has its own beam and one output per example, without the sampling and ranking of [decode].
        plain, reset = DecodeConfig(), ("nbest", "temperature", "top_k", "top_p", "coverage_penalty")
        changes = {name: getattr(plain, name) for name in reset}
        self.decode = dataclasses.replace(decode, beam=config.validate_beam, **changes)

    def ready(self, model: nn.Module) -> None:
        """Initialise a new model with pretrained parts, or refuse one that does not fit the settings."""

    def plan(self, epoch: int, even: bool = False) -> EpochPlan:
        """The batches of an epoch as example indices: a pure function of the arguments and the settings.

        Batches have examples of similar length and at most `batch_tokens`. With `even`, they have few different shapes.
        """
        return self.batches(self.data.train, epoch, even)

    def batches(self, part: Examples, epoch: int = 0, even: bool = False) -> EpochPlan:
        """The batches of the training or validation part."""
        return ShardedPlan(*part.sides, self.config.batch_tokens, self.config.seed, epoch, even)

    def load(self, numbers: Sequence[int], epoch: int) -> Any:
        """A batch of these training examples, see `Examples.batch`."""
        return self.data.train.batch(numbers, epoch)

    def even(self, batch: Any, world: int) -> Any:
        """This rank's part of a batch, one of `world`, padded to a recurring shape; its loss does not change."""
        return make_even(batch, self.config.batch_tokens, world)

    def count(self, batch: Any) -> tuple[int, int]:
        """The number of tokens and sentences of a batch on the CPU, for normalising the loss."""
        return int(batch.target_lengths.sum()), len(batch.target)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss of a non-empty batch. On a GPU it must not wait for the device."""
        raise NotImplementedError

    def validate(self, model: nn.Module) -> Validation:
        """Measure the model on held-out examples."""
        raise NotImplementedError

    def losses(
        self, model: nn.Module, watch: Callable[[Sequence[int]], AbstractContextManager[Any]] = lambda _: nullcontext()
    ) -> dict[str, float]:
        """Loss and perplexity per token over all held-out pairs of a source and a text.

        `shuffled_loss` is the loss with the source of another example: it is much higher for a model that uses its
        source. `watch` is entered with the numbers of each batch while the model reads it.
        """
        device, nll, shuffled, tokens = next(model.parameters()).device, 0.0, 0.0, 0
        for numbers in (batch.tolist() for batch in self.batches(self.data.dev)):
            batch = self.data.dev.batch(numbers)
            source, lengths, target = (part.to(device) for part in (batch.source, batch.source_lengths, batch.target))
            with watch(numbers):
                nll += float(likelihood(model, source, lengths, target)[1])
            shuffled += float(likelihood(model, source.roll(1, 0), lengths.roll(1, 0), target)[1])
            tokens += int(batch.target_lengths.sum())
        metrics = {"loss": nll / max(1, tokens), "perplexity": perplexity(nll, max(1, tokens))}
        return metrics | ({"shuffled_loss": shuffled / max(1, tokens)} if len(self.data.dev) > 1 else {})

    def files(self) -> list[Path]:
        """The files in the run folder, besides config.toml, that the model needs."""
        encoding = self.data.encoding
        return sorted(path for name in (*encoding.names, *encoding.also) for path in self.run.glob(f"{name}.*"))

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The line numbers of these examples in the corpus, if examples are lines."""
        return []

    # --- state that is carried from update to update, such as a moving baseline; the same on every rank

    def carry(self, sums: Tensor, sound: Tensor) -> None:
        """Update the state with the sums over all ranks, unless `sound` is False. May run on a GPU."""

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, for a checkpoint."""
        return {}

    def set_tensors(self, tensors: dict[str, Tensor], model: nn.Module) -> None:
        """Continue with the tensors of a checkpoint."""
