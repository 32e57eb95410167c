"""Scores of document classifiers, and their baseline: TF-IDF of words and word pairs with logistic regression."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.documents import DocumentSet
from regard.errors import DataError, counted, need

Sentences = Sequence[NDArray[Any]]  # the word ids of each sentence of a document


class ClassScore(NamedTuple):
    """Accuracy and confusion matrix of a classifier."""

    accuracy: float
    documents: int
    confusion: dict[str, dict[str, int]]  # true class -> answer -> documents

    def __str__(self) -> str:
        names = list(self.confusion)
        width = max(8, *(len(name) for name in names))
        rows = [
            f"accuracy {self.accuracy:.3f}, {counted(self.documents, 'document')}",
            "",
            _row("true \\ answer", names, width),
        ]
        rows += [_row(name, list(self.confusion[name].values()), width) for name in names]
        return "\n".join(rows)


def score_classes(answers: NDArray[np.integer], gold: NDArray[np.integer], classes: Sequence[str]) -> ClassScore:
    """Score predicted against true class numbers, [D] each."""
    table = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(table, (gold, answers), 1)
    confusion = {name: dict(zip(classes, row.tolist(), strict=True)) for name, row in zip(classes, table, strict=True)}
    return ClassScore(float(np.trace(table)) / max(1, len(gold)), len(gold), confusion)


def _row(name: str, cells: Sequence[object], width: int) -> str:
    return f"{name:<{max(width, 13)}}" + "".join(f"  {cell!s:>{width}}" for cell in cells)


class BagOfWords:
    """TF-IDF of the words and of the neighbouring words in at least two documents, classified by a logistic regression
    with L2 regularisation of strength 0.1. Needs scikit-learn."""

    def __init__(self, documents: DocumentSet) -> None:
        missing = "The bag-of-words baseline needs scikit-learn; install it with: pip install 'regard[baseline]'."
        text, linear, pipeline = (
            need(f"sklearn.{name}", missing) for name in ("feature_extraction.text", "linear_model", "pipeline")
        )

        def features(sentences: Sentences) -> Iterator[str]:
            for words in sentences:
                yield from map(str, words)
                yield from (f"{a} {b}" for a, b in pairwise(words))

        vectors = text.TfidfVectorizer(analyzer=features, binary=True, min_df=2)
        self.model = pipeline.make_pipeline(vectors, linear.LogisticRegression(C=10.0, max_iter=1000))
        try:
            self.model.fit(_documents(documents), documents.labels)
        except ValueError as error:  # no documents, no feature that occurs often enough, or a single class
            raise DataError(f"The bag-of-words baseline cannot be fitted to these documents: {error}") from None

    def classify(self, documents: DocumentSet) -> NDArray[np.integer]:
        """The class of each document, [D]."""
        return np.asarray(self.model.predict(_documents(documents)))


def _documents(documents: DocumentSet) -> list[Sentences]:
    sentences = np.split(documents.words, np.cumsum(documents.lengths)[:-1])
    ends = np.cumsum(documents.counts)
    return [sentences[end - count : end] for end, count in zip(ends, documents.counts, strict=True)]
