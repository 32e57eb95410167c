"""Translation as a task: pairs of sentences in, cross-entropy as the objective, BLEU on held-out text."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from regard.data.batching import Batch, Plan, make_batch, plan_epoch
from regard.data.prepare import Prepared
from regard.data.store import Resampled
from regard.decode.many import decode_many
from regard.decode.settings import DecodeConfig
from regard.evaluate.scores import perplexity, score
from regard.train.objectives import cross_entropy
from regard.train.settings import TrainConfig
from regard.train.task import Loss, Tell, Validation

SHOWN = 3  # held-out sentences shown in each validation


class Translation:
    """What the loop needs to train a translator."""

    def __init__(self, data: Prepared, config: TrainConfig, decode: DecodeConfig, run: Path) -> None:
        self.data, self.config, self.run = data, config, run
        plain = {"nbest": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "coverage_penalty": 0.0}
        self.decode = dataclasses.replace(decode, beam=config.validate_beam, **plain)  # type: ignore[arg-type]

    def plan(self, epoch: int) -> Plan:
        """Batches of like length, of at most `batch_tokens`."""
        return self._plan(self.data.train, epoch)

    def load(self, numbers: Sequence[int], epoch: int) -> Batch:
        """The pairs of these numbers."""
        return make_batch(self.data.train, numbers, epoch)  # type: ignore[arg-type]

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Cross-entropy of the target, smoothed if so set."""
        logits = model(batch.source, batch.source_lengths, batch.target)  # [B, T, V]
        total, plain = cross_entropy(logits, batch.target, self.config.label_smoothing)
        tokens = int(batch.target_lengths.sum())
        return Loss(total, tokens, len(batch.target), {"nll": float(plain)})

    def validate(self, model: nn.Module, tell: Tell | None = None) -> Validation:
        """Loss and perplexity a token over all held-out pairs; BLEU of the first `validate_sentences`."""
        device = next(model.parameters()).device
        if not len(self.data.dev):
            return Validation({}, [])
        nll, tokens = 0.0, 0
        plan = self._plan(self.data.dev, epoch=0)
        for position in range(len(plan)):
            batch = Batch(*(part.to(device) for part in make_batch(self.data.dev, plan[position].tolist())))
            logits = model(batch.source, batch.source_lengths, batch.target)  # [B, T, V]
            nll += float(cross_entropy(logits, batch.target)[1])
            tokens += int(batch.target_lengths.sum())
        metrics = {"loss": nll / max(1, tokens), "perplexity": perplexity(nll, max(1, tokens))}
        count = min(self.config.validate_sentences, len(self.data.dev_source))
        if not count:
            return Validation(metrics, [])
        rows = [self.data.dev.pair(index)[0][:-1] for index in range(count)]
        found = decode_many(model, rows, self.decode, device, tell=tell)  # type: ignore[arg-type]
        written = [self.data.target_vocabulary.decode(hypotheses[0].ids) for hypotheses in found]
        metrics["bleu"] = score(written, self.data.dev_target[:count], metrics=["bleu"])["bleu"]
        return Validation(metrics, [self._sample(index, written[index]) for index in range(min(SHOWN, count))])

    @property
    def fingerprint(self) -> str:
        """Of the corpus and the vocabularies; a run that goes on must find the same."""
        return self.data.fingerprint

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """The lines of the corpus that these pairs were."""
        store = self.data.train.store if isinstance(self.data.train, Resampled) else self.data.train
        return [int(store.lines[number]) for number in numbers]

    def files(self) -> list[Path]:
        """The vocabularies."""
        return sorted(path for side in ("source", "target") for path in self.run.glob(f"{side}.*"))

    def _plan(self, pairs: object, epoch: int) -> Plan:
        lengths = pairs.source_lengths, pairs.target_lengths  # type: ignore[attr-defined]
        return plan_epoch(*lengths, self.config.batch_tokens, self.config.seed, epoch)

    def _sample(self, index: int, written: str) -> str:
        return f"{self.data.dev_source[index]} → {written}"


def vocabulary_sizes(data: Prepared) -> dict[str, int]:
    """The settings of a model that its data decides."""
    return {"source_vocabulary": len(data.source_vocabulary), "target_vocabulary": len(data.target_vocabulary)}
