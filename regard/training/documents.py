"""Document classification as a task: labelled documents in, cross-entropy, accuracy on held-out data."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.documents import DocumentBatch
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.look.documents import look_at
from regard.models.document import DocumentClassifier
from regard.symbols import UNKNOWN
from regard.text.lines import READING, Reading, is_blank, read_lines
from regard.training.objectives import divergence
from regard.training.task import SHOWN, Loss, Task, Validation


def read_vectors(
    path: str, vocabulary: Vocabulary, width: int, reading: Reading = READING
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ids [N] and vectors [N, width] of the words of a vocabulary that a file of word vectors contains.

    The file has word2vec's text format: a word and its numbers on each line, separated by spaces. A first line with the
    count and the width is skipped, and so are blank lines and words with spaces (in GloVe). If a word occurs twice, its
    first vector is used.
    """
    found: dict[int, list[float]] = {}
    fits = False  # whether the previous vector had the right width
    for number, line in enumerate(read_lines(path, reading), start=1):
        word, *texts = line.rstrip(" \r").split(" ")
        if is_blank(line) or (number == 1 and len(texts) == 1):
            continue
        if fits and len(texts) > width:
            continue
        fits = len(texts) == width
        if not fits:
            raise DataError(
                f"{path}, line {number}: expected a vector of model.embedding = {width} numbers; got {len(texts)}."
            )
        ids = vocabulary.encode(word).ids
        if len(ids) != 1 or ids[0] == UNKNOWN or ids[0] in found:
            continue
        try:
            found[ids[0]] = [float(text) for text in texts]
        except ValueError:
            raise DataError(f"{path}, line {number}: expected numbers after {word[:40]!r}.") from None
    if not found:
        raise DataError(f"{path} has no vector for any word of the vocabulary; check its language and case.")
    vectors = np.array([*found.values()], np.float32)  # [N, width]
    if not np.isfinite(vectors).all():
        raise DataError(f"{path} has vectors with non-finite numbers; train them again.")
    return np.array([*found], np.int64), vectors


class Documents(Task):
    """Labelled documents. `batch_tokens` counts words; nothing is padded."""

    recurs = False
    on_host = ("lengths", "counts")  # the model groups its rows by them
    each = "sentences"  # a document has one class

    def ready(self, model: nn.Module) -> None:
        """Load the word vectors of the settings; a word without one keeps its random vector."""
        settings = self.data.encoding.config
        if settings.vectors:
            table: Tensor = model.embed.weight  # type: ignore[union-attr, assignment]
            ids, vectors = read_vectors(settings.vectors, self.data.vocabulary, table.shape[1], settings)
            with torch.no_grad():
                table[torch.from_numpy(ids)] = torch.from_numpy(vectors)

    def count(self, batch: DocumentBatch) -> tuple[int, int]:
        """Words and documents."""
        return len(batch.words), len(batch.labels)

    def loss(self, model: nn.Module, batch: DocumentBatch) -> Loss:
        """Cross-entropy of the class of each document; with `consistency`, R-Drop over two passes."""
        inputs, labels = (batch.words, batch.lengths, batch.counts), batch.labels
        smoothing, weight = self.config.label_smoothing, self.config.consistency
        if not weight:
            return Loss(F.cross_entropy(model(*inputs), labels, reduction="sum", label_smoothing=smoothing))
        logits = model(*(part.repeat(2) for part in inputs))  # [2B, C]
        total = F.cross_entropy(logits, labels.repeat(2), reduction="sum", label_smoothing=smoothing)
        apart = divergence(*logits.log_softmax(dim=-1).chunk(2))  # [B]
        return Loss(total / 2 + weight / 4 * apart.sum())

    def validate(self, model: nn.Module) -> Validation:
        """Loss and accuracy on held-out documents, and the weight of the deciding sentences if they are known."""
        device = next(model.parameters()).device
        dev, answers = self.data.dev, np.zeros(len(self.data.dev), np.int64)
        if not len(dev):
            return Validation({}, [])
        nll, shares = 0.0, []
        records = isinstance(model, DocumentClassifier) and model.config.pooling != "maximum"  # has attention
        watched = records and any(deciding for _, deciding in self.data.shown)
        for numbers in self.batches(dev):
            batch = dev.batch(numbers.tolist())
            batch = batch._replace(words=batch.words.to(device), labels=batch.labels.to(device))
            if watched:
                logits, weights = look_at(model, batch.words, batch.lengths, batch.counts)  # type: ignore[arg-type]
                for number, seen in zip(numbers.tolist(), weights, strict=True):
                    shares.append(sum(seen.sentences[k] for k in self.data.shown[number][1]))
            else:
                logits = model(batch.words, batch.lengths, batch.counts)  # [B, C]
            nll += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            answers[numbers] = logits.argmax(1).cpu().numpy()
        metrics = {"loss": nll / len(dev), "accuracy": float((answers == dev.labels).mean())}
        if shares:
            metrics["deciding"] = float(np.mean(shares))
        return Validation(metrics, [self._sample(k, int(answers[k])) for k in range(min(SHOWN, len(dev)))])

    def _sample(self, number: int, answer: int) -> str:
        text, classes = self.data.shown[number][0], self.data.encoding.classes
        right = classes[int(self.data.dev.labels[number])]
        return f"{text} → {classes[answer]}" + ("" if classes[answer] == right else f" (it is {right})")
