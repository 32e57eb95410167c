"""A trained document classifier: the class of a text, and the attention over its sentences and words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.api.trained import Trained
from regard.data import documents as corpus
from regard.data.batching import ShardedPlan
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.evaluate.classification import BagOfWords, ClassScore, score_classes
from regard.look.documents import DocumentTrace, look_at
from regard.models.document import DocumentClassifier
from regard.runs.experiment import Experiment
from regard.text.lines import is_blank
from regard.work import Progress, reporting

_WORDS = 16_384  # in a batch


@dataclass(frozen=True)
class Classified:
    """The most likely class of a document, and the probability of every class."""

    label: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label


class Classifier(Trained):
    """A document model with its vocabulary and classes; `regard.load` makes one from a run folder.

    >>> settings = ["data.size=20", "data.held_out=0", "train.steps=2"]  # leave these out to get a model that works
    >>> classifier = regard.train(corpus="reviews", model="document", preset="tiny", out="reviews", settings=settings)
    >>> classifier.classes
    ['negative', 'positive']
    """

    def __init__(
        self, model: DocumentClassifier, vocabulary: Vocabulary, classes: list[str], experiment: Experiment, name: str
    ) -> None:
        super().__init__(model, experiment, name)
        self.vocabulary, self.classes = vocabulary, classes

    def classify(self, text: str) -> Classified:
        """The class of a document.

        >>> found = classifier.classify("The plot is not bad. Then the captain leaves.")
        >>> found.label in classifier.classes, round(sum(found.probabilities.values()), 4)
        (True, 1.0)
        """
        with torch.inference_mode():
            chances = self._chances(self.model(*self._read(text)[1])[0])
        return Classified(max(chances, key=lambda name: chances[name]), chances)

    def look(self, text: str) -> DocumentTrace:
        """The attention weights over the sentences of a document and their words.

        >>> trace = classifier.look("The plot is not bad. Then the captain leaves.")
        >>> [(trace.text[one.start : one.end], len(one.words)) for one in trace.sentences]
        [('The plot is not bad.', 6), ('Then the captain leaves.', 5)]
        >>> round(sum(one.weight for one in trace.sentences), 4)
        1.0
        """
        spans, batch = self._read(text)
        logits, weights = look_at(self.model, *batch)
        return DocumentTrace.of(text, spans, weights[0], self._chances(logits[0]))

    def score(self, *files: str | Path, progress: Progress | None = None) -> ClassScore:
        """Classify every document of labelled files: accuracy and confusion matrix."""
        documents = self._labelled(files)
        answers = torch.zeros(len(documents), dtype=torch.long)
        plan = ShardedPlan(documents.sizes, documents.sizes, _WORDS, seed=1, epoch=0)
        for numbers in reporting(plan, progress, len(documents), len):
            with torch.inference_mode():
                answers[numbers] = self.model(*self._moved(documents.batch(numbers.tolist()))).argmax(1).cpu()
        return score_classes(answers.numpy(), documents.labels, self.classes)

    def score_bag_of_words(self, *files: str | Path) -> ClassScore:
        """The score of a linear classifier of words and word pairs, fitted on the training documents of this run."""
        data = self.experiment.data
        train = self._numbered(corpus.training_documents(data))
        documents = self._labelled(files)
        return score_classes(BagOfWords(train).classify(documents), documents.labels, self.classes)

    def _labelled(self, files: Sequence[str | Path]) -> corpus.DocumentSet:
        data = self.experiment.data
        documents = corpus.document_files(data, tuple(str(path) for path in files))
        worded = [document for document in documents if not is_blank(document.text)]
        if not worded:
            raise DataError(f"{', '.join(map(str, files))} has no document with a word; there is nothing to score.")
        return self._numbered(worded)

    def _numbered(self, documents: Iterable[corpus.Labelled]) -> corpus.DocumentSet:
        """A dataset of documents in memory; an unknown label is refused."""
        found, data = list(documents), self.experiment.data
        groups = corpus.group_labels(data)
        rows = [corpus.number_document(one.text, self.vocabulary, data.max_sentence) for one in found]
        return corpus.make_set(rows, [corpus.class_of(one.label, self.classes, groups) for one in found])

    def _chances(self, logits: torch.Tensor) -> dict[str, float]:
        return dict(zip(self.classes, logits.softmax(-1).tolist(), strict=True))

    def _read(self, text: str) -> tuple[list[list[tuple[int, int]]], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        if not isinstance(text, str):
            raise DataError(f"A document is text; got {type(text).__name__}.")
        spans = corpus.split_document(text, self.experiment.data.max_sentence)
        if not spans:
            raise DataError("An empty document has no class; pass a text with at least one word.")
        rows = self.vocabulary.encode_many(corpus.spell(text, spans))
        return spans, self._moved(corpus.make_set([rows], [0]).batch([0]))

    def _moved(self, batch: corpus.DocumentBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        words, lengths, counts = (part.to(self.device) for part in batch[:3])
        return words, lengths, counts
