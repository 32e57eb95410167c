"""A trained classifier of documents: the class of a text, and the sentences and words that decided it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.api.opening import open_model, read_experiment
from regard.data.batching import plan_epoch
from regard.data.document_set import DocumentBatch, DocumentSet, make_set
from regard.data.documents import (
    Labelled,
    find_documents,
    hold_out,
    load_words,
    number_documents,
    read_documents,
    spell,
    split_document,
)
from regard.data.text import is_blank
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.evaluate.bag_of_words import fit_bag_of_words
from regard.evaluate.classes import ClassScore, score_classes
from regard.look.documents import DocumentTrace, look_at
from regard.models.document import Document
from regard.train.experiment import Experiment

Tell = Callable[[int, int | None], None]
_WORDS = 16_384  # read together when a whole file is classified


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

    def score(self, *files: str | Path, progress: Tell | None = None) -> ClassScore:
        """Classify every document of labelled files and count how often the class is right."""
        documents = self._labelled(files)
        plan = plan_epoch(documents.sizes, documents.sizes, _WORDS, seed=1, epoch=0)
        answers = torch.zeros(len(documents), dtype=torch.long)
        done = 0
        for position in range(len(plan)):
            numbers = plan[position].tolist()
            with torch.inference_mode():
                answers[numbers] = self.model(*self._moved(documents.batch(numbers))).argmax(1).cpu()
            done += len(numbers)
            if progress:
                progress(done, len(documents))
        return score_classes(answers.numpy(), documents.labels, self.classes)

    def score_bag_of_words(self, *files: str | Path) -> ClassScore:
        """What a linear classifier of words and word pairs reaches, fitted on the documents this run was trained on."""
        data = self.experiment.data
        train, _ = hold_out(data, [one for one in find_documents(data) if not is_blank(one.text)])
        fitted = fit_bag_of_words(self._numbered(train), len(self.classes))
        documents = self._labelled(files)
        return score_classes(fitted.classify(documents).numpy(), documents.labels, self.classes)

    def _labelled(self, files: Sequence[str | Path]) -> DocumentSet:
        found = [
            one
            for one in read_documents(self.experiment.data, tuple(str(path) for path in files))
            if not is_blank(one.text)
        ]
        if not found:
            raise DataError(
                f"{', '.join(str(path) for path in files)} holds no document with a word; nothing to score."
            )
        return self._numbered(found)

    def _numbered(self, documents: Sequence[Labelled]) -> DocumentSet:
        return number_documents(documents, self.vocabulary, self.classes, self.experiment.data)

    def _chances(self, logits: torch.Tensor) -> dict[str, float]:
        return dict(zip(self.classes, logits.softmax(-1).tolist(), strict=True))

    def _read(self, text: str) -> tuple[list[list[tuple[int, int]]], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        if not isinstance(text, str):
            raise DataError(f"A document is text; got {type(text).__name__}.")
        spans = split_document(text, self.experiment.data.max_sentence)
        if not spans:
            raise DataError("An empty document has no class; give a text with at least one word.")
        rows = self.vocabulary.encode_many(spell(text, spans))
        return spans, self._moved(make_set([rows], [0]).batch([0]))

    def _moved(self, batch: DocumentBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        device = next(self.model.parameters()).device
        return batch.words.to(device), batch.lengths.to(device), batch.counts.to(device)


def load_classifier(run: str | Path, device: str = "auto") -> Classifier:
    """The classifier of a run folder."""
    folder = Path(run)
    experiment = read_experiment(folder, "classify")
    vocabulary, classes = load_words(folder)
    model = open_model(folder, experiment, device, vocabulary=len(vocabulary), classes=len(classes))
    return Classifier(model, vocabulary, classes, experiment, folder.resolve().name)  # type: ignore[arg-type]
