"""A trained classifier of documents: the class of a text, and the sentences and words that decided it."""

from dataclasses import dataclass
from pathlib import Path

import torch

from regard.api.opening import open_model, read_experiment
from regard.data.document_set import make_set
from regard.data.documents import load_words, spell, split_document
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.look.documents import DocumentTrace, look_at
from regard.models.document import Document
from regard.train.experiment import Experiment


@dataclass(frozen=True)
class Classified:
    """The likeliest class of a document, and the probability of each."""

    label: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label


class Classifier:
    """A document model with its vocabulary and classes, ready to use."""

    def __init__(
        self, model: Document, vocabulary: Vocabulary, classes: list[str], experiment: Experiment, name: str
    ) -> None:
        self.model, self.vocabulary, self.classes = model, vocabulary, classes
        self.experiment, self.name = experiment, name

    def classify(self, text: str) -> Classified:
        """The class of a document."""
        with torch.inference_mode():
            chances = self._chances(self.model(*self._read(text)[1])[0])
        return Classified(max(chances, key=lambda name: chances[name]), chances)

    def look(self, text: str) -> DocumentTrace:
        """What was looked at in a document, sentence by sentence and word by word."""
        spans, batch = self._read(text)
        seen = look_at(self.model, *batch)
        return DocumentTrace.of(text, spans, seen.weights[0], self._chances(seen.logits[0]))

    def _chances(self, logits: torch.Tensor) -> dict[str, float]:
        return dict(zip(self.classes, logits.softmax(-1).tolist(), strict=True))

    def _read(self, text: str) -> tuple[list[list[tuple[int, int]]], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        spans = split_document(text, self.experiment.data.max_sentence)
        if not spans:
            raise DataError("An empty document has no class; give a text with at least one word.")
        rows = self.vocabulary.encode_many(spell(text, spans))
        batch = make_set([rows], [0]).batch([0])
        device = next(self.model.parameters()).device
        return spans, (batch.words.to(device), batch.lengths.to(device), batch.counts.to(device))


def load_classifier(run: str | Path, device: str = "auto") -> Classifier:
    """The classifier of a run folder."""
    folder = Path(run)
    experiment = read_experiment(folder, "classify")
    vocabulary, classes = load_words(folder)
    model = open_model(folder, experiment, device, vocabulary=len(vocabulary), classes=len(classes))
    return Classifier(model, vocabulary, classes, experiment, folder.resolve().name)  # type: ignore[arg-type]
