"""Language modelling as a task: rows of text in, cross-entropy as the objective, perplexity on held-out text.

Every row is read from the start: with `data.context` = 0 that is a line by itself. Batches are then a pure function of
the settings and the epoch, as the loop needs, and no state goes from one batch to the next.
"""

import dataclasses
from pathlib import Path

import torch
from torch import nn

from regard.data.batching import Lengths
from regard.data.prepare import Data
from regard.data.text_corpus import TextBatch, TextRows
from regard.decode.search import search
from regard.decode.settings import DecodeConfig
from regard.evaluate.language import last_word_accuracy, text_loss
from regard.evaluate.scores import perplexity
from regard.training.objectives import likelihood
from regard.training.settings import TrainConfig
from regard.training.task import Loss, Task, Validation

SHOWN = 3  # texts written in each validation
LONGEST = 40  # tokens of such a text


class Language(Task):
    """Rows of text."""

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        super().__init__(data, config, decode, run)
        self.decode = decode if decode.temperature else dataclasses.replace(decode, temperature=1.0, nbest=1)

    def lengths(self, part: TextRows) -> tuple[Lengths, Lengths]:
        return part.lengths, part.lengths

    def count(self, batch: TextBatch) -> tuple[int, int]:
        return int(batch.lengths.sum()), len(batch.target)

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """Cross-entropy of every token, ends of lines among them."""
        return Loss(likelihood(model, batch.target, smoothing=self.config.label_smoothing)[0])

    def validate(self, model: nn.Module) -> Validation:
        """Loss and perplexity a token over all held-out text, and a few texts that the model writes.

        Of tales also `last_word`, how often the last word is right: only a model that remembers can know it.
        """
        device = next(model.parameters()).device
        nll, tokens = text_loss(model, self.data.dev, device)  # type: ignore[arg-type]
        metrics = {"loss": nll / tokens, "perplexity": perplexity(nll, tokens)} if tokens else {}
        if tokens and self.data.encoding.recalls:
            metrics["last_word"] = last_word_accuracy(model, self.data.dev, device)  # type: ignore[arg-type]
        limits = torch.full((SHOWN,), LONGEST, device=device)
        written = search(model, model.start(SHOWN), limits, self.decode)  # type: ignore[arg-type, operator]
        return Validation(metrics, [self.data.vocabulary.decode(texts[0].ids) for texts in written])
