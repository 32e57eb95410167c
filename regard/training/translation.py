"""Translation as a task: pairs of sentences in, cross-entropy as the objective, BLEU on held-out text.

If the corpus is aligned, attention can be guided: one head is trained towards the word links (Chen 2016, Garg 2019).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.data.batching import Batch, PackedBatch, make_even, pack, round_up
from regard.data.pairs import LinkedBatch, Resampled, link_pieces
from regard.data.prepare import Data
from regard.decode.search import decode_many
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, numbered
from regard.evaluate.scores import score
from regard.look.record import record
from regard.models.contract import guided_head, guided_module
from regard.runs.settings import TrainConfig
from regard.symbols import END, PAD, UNKNOWN
from regard.training import objectives
from regard.training.task import SHOWN, Loss, Task, Validation


class TranslationTask(Task):
    """Pairs of sentences, with their links if attention is guided."""

    packs = False  # whether batches on a GPU are packed; depends on the model

    def __init__(self, data: Data, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        super().__init__(data, config, decode, run)
        precision = "bf16" if config.precision == "bf16" else "float32"
        self.decode = dataclasses.replace(self.decode, precision=precision)
        self.linked = bool(config.guided and data.encoding.aligned)

    def load(self, numbers: Sequence[int], epoch: int) -> Batch | LinkedBatch:
        batch: Batch = super().load(numbers, epoch)
        if not self.linked:
            return batch
        return LinkedBatch(*batch, links=link_pieces(self.data.train.links, self.data.vocabularies, batch))

    def ready(self, model: nn.Module) -> None:
        """Refuse a model whose attention cannot be guided as the settings require."""
        if not self.config.guided and not self.config.coverage:
            # The kernel for packed sentences has 16-bit products only; otherwise they would be padded again.
            self.packs = self.config.precision == "bf16" and objectives.can_pack(model)
            return
        wanted = "train.guided" if self.config.guided else "train.coverage"
        if self.config.consistency:
            raise ConfigError(f"{wanted} and train.consistency cannot be combined; set one of them to 0.")
        name = guided_module(model, self.config.guided_layer)
        source, target = torch.tensor([[UNKNOWN, UNKNOWN, END]]), torch.tensor([[UNKNOWN, END]])
        with torch.no_grad(), record(model.eval(), [name]) as seen:
            model(source, torch.tensor([3]), target)
        weights = seen[name].weights  # [1, (H), 2, 3] if the model attends to words
        if weights.shape[-2:] != (2, 3):
            raise ConfigError(
                f"{wanted} needs attention over the source words; {type(model).__name__} sees the source as one "
                f"vector, so choose a model that attends, or set {wanted}=0."
            )
        heads = weights.shape[1] if weights.dim() == 4 else 1
        if self.config.guided_head >= heads:
            have = numbered("head", heads)
            raise ConfigError(f"train.guided_head is {self.config.guided_head}, but '{name}' has {have}.")

    def even(self, batch: Batch | LinkedBatch, world: int) -> Batch | LinkedBatch | PackedBatch:
        tokens, train = self.config.batch_tokens, self.data.train
        if isinstance(train, Resampled):  # shapes depend on the planned lengths, not on the samples
            planned = np.array([side[batch.indices.numpy()].max() for side in train.sides])
            widths = train.room(planned)
            tokens = tokens // int(round_up(planned).max()) * int(widths.max())  # room for the planned rows
            batch = widened(batch, *widths.tolist())
        if self.packs and isinstance(batch, Batch):
            return pack(batch, tokens, world)
        return make_even(batch, tokens, world)

    def loss(self, model: nn.Module, batch: Batch | LinkedBatch | PackedBatch) -> Loss:
        """Cross-entropy of the target with label smoothing; with links, plus `guided` times the alignment loss; plus
        `coverage` times the coverage loss. With `consistency`, R-Drop over two passes."""
        smoothing, agreement = self.config.label_smoothing, self.config.consistency
        inputs: tuple[Any, ...] = (batch,)
        if not isinstance(batch, PackedBatch):
            inputs = batch.source, batch.source_lengths, batch.target
        if agreement:
            return Loss(objectives.consistent_likelihood(model, *inputs, weight=agreement, smoothing=smoothing))
        if isinstance(batch, PackedBatch) or not (isinstance(batch, LinkedBatch) or self.config.coverage):
            return Loss(objectives.likelihood(model, *inputs, smoothing=smoothing)[0])
        name = guided_module(model, self.config.guided_layer)
        with record(model, [name], detach=False) as seen:
            total, _ = objectives.likelihood(model, *inputs, smoothing=smoothing)
        weights = guided_head(seen[name].weights, self.config.guided_head)  # [B, T, S]
        if isinstance(batch, LinkedBatch):
            shift, T = self.config.guided_shift, weights.shape[1]
            guide = objectives.guided_alignment(weights[:, shift:], batch.links[:, : T - shift])
            total = total + self.config.guided * guide
        if self.config.coverage:
            total = total + self.config.coverage * objectives.coverage_loss(weights, batch.target != PAD)
        return Loss(total)

    def validate(self, model: nn.Module) -> Validation:
        """The losses of all held-out pairs; BLEU of the first `validate_sentences`."""
        if not len(self.data.dev):
            return Validation({}, [])
        metrics, shown = self.losses(model), self.data.shown[: self.config.validate_sentences]
        if not shown:
            return Validation(metrics, [])
        rows = [row[:-1].tolist() for row in self.data.dev.take(range(len(shown)))[0]]
        found = decode_many(model, rows, self.decode, next(model.parameters()).device)  # type: ignore[arg-type]
        vocabulary = self.data.vocabularies[1]
        written = [vocabulary.decode(hypotheses[0].ids) for hypotheses in found]
        # Score in the form of the vocabulary: the model cannot write other capitals or punctuation.
        references = [vocabulary.in_form(target).text for _, target in shown]
        metrics["bleu"] = score(written, references, metrics=["bleu"], lowercase=vocabulary.lowercase)["bleu"]
        samples = zip(shown[:SHOWN], written, strict=False)
        return Validation(metrics, [f"{source} → {text}" for (source, _), text in samples])

    def lines(self, numbers: Sequence[int]) -> list[int]:
        return [int(self.data.train.lines[number]) for number in numbers]


def widened(batch: Batch | LinkedBatch, source: int, target: int) -> Batch | LinkedBatch:
    """The batch padded to at least these widths."""
    S, T = max(0, source - batch.source.shape[1]), max(0, target - batch.target.shape[1])
    more = {"links": F.pad(batch.links, (0, S, 0, T))} if isinstance(batch, LinkedBatch) else {}
    return batch._replace(
        source=F.pad(batch.source, (0, S), value=PAD), target=F.pad(batch.target, (0, T), value=PAD), **more
    )
