"""Language modelling as a task: rows of text in, cross-entropy as the objective, perplexity on held-out text.

Every row is read from the start: with `data.context` = 0 that is a line by itself. Batches are then a pure function of
the settings and the epoch, as the loop needs, and no state goes from one batch to the next.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from regard.data.batching import EpochPlan, make_even, plan_epoch
from regard.data.files import Progress
from regard.data.text_corpus import TextBatch, TextData
from regard.decode.search import search
from regard.decode.settings import DecodeConfig
from regard.evaluate.language import last_word_accuracy, text_loss
from regard.evaluate.scores import perplexity
from regard.training.objectives import likelihood
from regard.training.settings import TrainConfig
from regard.training.task import Loss, Validation

SHOWN = 3  # texts written in each validation
LONGEST = 40  # tokens of such a text


class Language:
    """What the loop needs to train a language model."""

    def __init__(self, data: TextData, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        self.data, self.config, self.run, self.fingerprint = data, config, run, data.fingerprint
        self.decode = decode if decode.temperature else dataclasses.replace(decode, temperature=1.0, nbest=1)

    def ready(self, model: nn.Module) -> None:
        """A fresh model needs nothing more."""

    def plan(self, epoch: int, even: bool = False) -> EpochPlan:
        """Rows of like length, of at most `batch_tokens`."""
        lengths = self.data.train.lengths
        return plan_epoch(lengths, lengths, self.config.batch_tokens, self.config.seed, epoch, even)

    def load(self, numbers: Sequence[int], epoch: int) -> TextBatch:
        """The rows of these numbers."""
        return self.data.train.batch(numbers)

    def count(self, batch: TextBatch) -> tuple[int, int]:
        """Tokens and rows."""
        return int(batch.lengths.sum()), len(batch.target)

    def even(self, batch: TextBatch, world: int) -> TextBatch:
        """The batch padded to one of few shapes."""
        return make_even(batch, self.config.batch_tokens, world)

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """Cross-entropy of every token, ends of lines among them."""
        return Loss(likelihood(model, batch.target, smoothing=self.config.label_smoothing)[0])

    def validate(self, model: nn.Module, tell: Progress | None = None) -> Validation:
        """Loss and perplexity a token over all held-out text, and a few texts that the model writes.

        Of tales also `last_word`, how often the last word is right: only a model that remembers can know it.
        """
        device = next(model.parameters()).device
        nll, tokens = text_loss(model, self.data.dev, device, progress=tell)  # type: ignore[arg-type]
        metrics = {"loss": nll / tokens, "perplexity": perplexity(nll, tokens)} if tokens else {}
        if tokens and self.data.recalls:
            metrics["last_word"] = last_word_accuracy(model, self.data.dev, device)  # type: ignore[arg-type]
        limits = torch.full((SHOWN,), LONGEST, device=device)
        written = search(model, model.start(SHOWN), limits, self.decode)  # type: ignore[arg-type, operator]
        return Validation(metrics, [self.data.vocabulary.decode(texts[0].ids) for texts in written])

    def files(self) -> list[Path]:
        """The vocabulary."""
        return sorted(self.run.glob("text.*"))
