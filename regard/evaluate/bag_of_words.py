"""A linear classifier of words and word pairs: what a document model must beat.

Each document is its set of words (and of pairs of neighbouring words), each with the weight log(documents / documents
that hold it), scaled to length one; a softmax regression with an L2 penalty is fitted by L-BFGS, which has no rate to
tune. No order, no sentences, no attention.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.document_set import DocumentSet
from regard.errors import DataError

STEPS = 200  # L-BFGS iterations at most; it ends by itself before


@dataclass(frozen=True)
class BagOfWords:
    """A fitted classifier. `features` are the words and pairs it knows, in order."""

    features: NDArray[np.int64]  # [F] sorted
    rarity: Tensor  # [F] log(documents / documents with it)
    weights: Tensor  # [F, C]
    bias: Tensor  # [C]

    def classify(self, documents: DocumentSet) -> Tensor:
        """The class of each document, [D]."""
        return _bags(documents, self.features, self.rarity).logits(self.weights, self.bias).argmax(1)

    def accuracy(self, documents: DocumentSet) -> float:
        """The share of documents whose class is right."""
        right = self.classify(documents) == torch.from_numpy(documents.labels.astype(np.int64))
        return float(right.double().mean()) if len(documents) else 0.0


def fit_bag_of_words(
    documents: DocumentSet, classes: int, pairs: bool = True, at_least: int = 2, penalty: float = 1e-5
) -> BagOfWords:
    """Fit on the training documents; words and pairs in fewer than `at_least` documents are left out."""
    if not len(documents):
        raise DataError("A bag of words needs documents to learn from; there are none.")
    _, found = _occurrences(documents, pairs)
    features, counts = np.unique(found, return_counts=True)
    kept = counts >= at_least
    features = features[kept]
    rarity = torch.from_numpy(np.log(len(documents) / counts[kept])).float()
    bags = _bags(documents, features, rarity)
    gold = torch.from_numpy(documents.labels.astype(np.int64))
    weights = torch.zeros(len(features), classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(bags.logits(weights, bias), gold) + penalty * weights.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return BagOfWords(features, rarity, weights.detach(), bias.detach())


def _occurrences(documents: DocumentSet, pairs: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every different (document, feature), by document: a word is its id, a pair of neighbours a number above all."""
    words = documents.words.astype(np.int64)
    sentence = np.repeat(np.arange(len(documents.lengths)), documents.lengths)  # [M]
    owner = np.repeat(np.arange(len(documents)), documents.counts)[sentence]  # [M]
    if pairs:
        beside = sentence[1:] == sentence[:-1]
        owner = np.concatenate([owner, owner[1:][beside]])
        words = np.concatenate([words, (words[:-1][beside] + 1 << 32) + words[1:][beside]])
    features, number = np.unique(words, return_inverse=True)
    both = np.unique(owner * max(1, len(features)) + number)  # one number for both sorts quicker than two
    return both // max(1, len(features)), features[both % max(1, len(features))]


class _Bags(NamedTuple):
    """Documents by features, sparse: the places and values of the features of each document, one after the other."""

    places: Tensor  # [K]
    values: Tensor  # [K]; those of a document have length one together
    starts: Tensor  # [D]

    def logits(self, weights: Tensor, bias: Tensor) -> Tensor:
        """[D, C]; a document of which nothing is known has the bias alone."""
        return F.embedding_bag(self.places, weights, self.starts, mode="sum", per_sample_weights=self.values) + bias


def _bags(documents: DocumentSet, features: NDArray[np.int64], rarity: Tensor) -> _Bags:
    owner, found = _occurrences(documents, pairs=bool(len(features)) and int(features[-1]) >= 1 << 32)
    places = np.searchsorted(features, found).clip(max=max(0, len(features) - 1))
    known = features[places] == found if len(features) else np.zeros(len(found), bool)
    rows, columns = torch.from_numpy(owner[known]), torch.from_numpy(places[known])
    values = rarity[columns]
    norms = torch.zeros(len(documents)).index_add_(0, rows, values.square()).sqrt()
    starts = torch.from_numpy(np.searchsorted(owner[known], np.arange(len(documents))))
    return _Bags(columns, values / norms[rows].clamp(min=1e-12), starts)
