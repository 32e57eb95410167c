"""Language modelling as a task: rows of text in, cross-entropy as the objective, perplexity on held-out text.

Every row starts from a fresh state; with `data.context` = 0 a row is one line. With `data.streams` a row continues from
the final state of the previous row, but gradients stop at its start: truncated back-propagation through time. Batches
are a pure function of the settings and the epoch; the task holds the states, and checkpoints save them.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.nested import device_of, leaves, map_nested
from regard.data.batching import EpochPlan
from regard.data.prepare import Data
from regard.data.text_corpus import StreamBatch, TextBatch, TextStreams
from regard.decode.search import search
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.evaluate.language import last_word_accuracy, text_loss
from regard.evaluate.scores import perplexity
from regard.runs.settings import TrainConfig
from regard.symbols import START
from regard.training.objectives import likelihood, output_likelihood
from regard.training.task import SHOWN, Loss, Task, Validation

LONGEST = 40  # tokens of such a text, at most


class Language(Task):
    """Rows of text."""

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        super().__init__(data, config, decode, run)
        self.decode = decode if decode.temperature else dataclasses.replace(decode, temperature=1.0, nbest=1)

        self.streams = self.alone = isinstance(data.train, TextStreams)
        self.carried: Any = None  # the states of the streams, from the first batch on

    def ready(self, model: nn.Module) -> None:
        """Refuse a model whose state would grow from row to row."""
        if not self.streams:
            return
        state = model.stream(1)  # type: ignore[operator]
        with torch.no_grad():
            _, after = model.read(torch.full((1, 1), START, device=device_of(state)), state)  # type: ignore[operator]
        if [part.shape for part in leaves(after)] != [part.shape for part in leaves(state)]:
            raise ConfigError(
                f"data.streams needs a state of fixed size, but the state of {type(model).__name__} grows in `read`; "
                f"define `cut`, or leave data.streams out."
            )

    def plan(self, epoch: int, even: bool = False) -> EpochPlan:
        return self.data.train.plan() if self.streams else super().plan(epoch, even)

    def even(self, batch: Any, world: int) -> Any:
        return batch if self.streams else super().even(batch, world)  # streams have one shape

    def count(self, batch: TextBatch | StreamBatch) -> tuple[int, int]:
        return int(batch.lengths.sum()), len(batch.target)

    def loss(self, model: nn.Module, batch: TextBatch | StreamBatch) -> Loss:
        """Cross-entropy of every token, including ends of lines."""
        smoothing = self.config.label_smoothing
        if isinstance(batch, TextBatch):
            return Loss(likelihood(model, batch.target, smoothing=smoothing)[0])
        if self.carried is None:
            self.carried = map_nested(model.stream(len(batch.target)), torch.clone)  # type: ignore[operator]

        def begin(part: Tensor) -> Tensor:
            return part.masked_fill(batch.fresh.view(-1, *[1] * (part.dim() - 1)), 0)

        hidden, after = model.read(batch.words, map_nested(self.carried, begin))  # type: ignore[operator]
        for kept, new in zip(leaves(self.carried), leaves(after), strict=True):
            kept.copy_(new.detach())  # in place, for captured updates
        return Loss(output_likelihood(model, hidden, batch.target, smoothing)[0])

    def carry(self, sums: Tensor, sound: Tensor) -> None:
        """After a skipped update, streams continue from zero states."""
        for kept in leaves(self.carried):
            kept.masked_fill_(~sound, 0)

    def tensors(self) -> dict[str, Tensor]:
        return {str(number): part for number, part in enumerate(leaves(self.carried))}

    def set_tensors(self, tensors: dict[str, Tensor], model: nn.Module) -> None:
        if not tensors:
            return
        found = iter([tensors[str(number)] for number in range(len(tensors))])
        self.carried = map_nested(model.stream(1), lambda part: next(found).to(part.device, part.dtype, copy=True))  # type: ignore[operator]

    def validate(self, model: nn.Module) -> Validation:
        """Loss and perplexity per token over all held-out text, and a few sampled texts.

        For tales also `last_word`, the accuracy of the last word, which only a model with memory can predict.
        """
        device = next(model.parameters()).device
        nll, tokens = text_loss(model, self.data.dev, device)  # type: ignore[arg-type]
        metrics = {"loss": nll / tokens, "perplexity": perplexity(nll, tokens)} if tokens else {}
        if tokens and self.data.encoding.recalls:
            metrics["last_word"] = last_word_accuracy(model, self.data.dev, device)  # type: ignore[arg-type]
        limits = torch.full((SHOWN,), LONGEST)
        written = search(model, model.start(SHOWN), limits, self.decode)  # type: ignore[arg-type, operator]
        return Validation(metrics, [self.data.vocabulary.decode(texts[0].ids) for texts in written])
