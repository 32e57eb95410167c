"""The baseline of document models: a linear classifier of words and word pairs (TF-IDF and logistic regression)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.documents import DocumentSet
from regard.errors import ConfigError, DataError

Sentences = Sequence[NDArray[Any]]  # the word ids of each sentence of a document


class BagOfWords:
    """TF-IDF of the words (and, with `pairs`, of the neighbouring words) in at least `at_least` documents, classified
    by a logistic regression with L2 regularisation of strength 1 / `c`. Needs scikit-learn."""

    def __init__(self, documents: DocumentSet, pairs: bool = True, at_least: int = 2, c: float = 10.0) -> None:
        try:
            from sklearn.feature_extraction.text import TfidfVectorizer
            from sklearn.linear_model import LogisticRegression
            from sklearn.pipeline import make_pipeline
        except ImportError:
            raise ConfigError(
                "The bag-of-words baseline needs scikit-learn; install it with: pip install 'regard[baseline]'."
            ) from None

        def features(sentences: Sentences) -> Iterator[str]:
            for words in sentences:
                yield from map(str, words)
                yield from (f"{a} {b}" for a, b in pairwise(words) if pairs)

        vectors = TfidfVectorizer(analyzer=features, binary=True, min_df=at_least)
        self.model = make_pipeline(vectors, LogisticRegression(C=c, max_iter=1000))
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
