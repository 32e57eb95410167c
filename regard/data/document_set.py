"""Documents as numbers: four arrays in which any document is a slice, kept on disk under a fingerprint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text import write_atomically

Numbers = NDArray[np.int32]
PARTS = ("words", "lengths", "counts", "labels")


class DocumentBatch(NamedTuple):
    """Documents as `models.document` reads them: no padding anywhere."""

    words: Tensor  # [M] ids of all words of all sentences of all documents
    lengths: Tensor  # [N] words of each sentence
    counts: Tensor  # [B] sentences of each document
    labels: Tensor  # [B] class of each document


class DocumentSet:
    """Documents one after the other: words [M], sentence lengths [N], sentence counts [D], labels [D]."""

    def __init__(self, words: Numbers, lengths: Numbers, counts: Numbers, labels: Numbers) -> None:
        self.words, self.lengths, self.counts, self.labels = words, lengths, counts, labels
        self._sentences = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])  # [D + 1] first sentence of each
        places = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])  # [N + 1] first word of each sentence
        self._words = places[self._sentences]  # [D + 1]
        self.sizes: NDArray[np.int64] = np.diff(self._words)  # [D] words of each document

    def __len__(self) -> int:
        return len(self.counts)

    def batch(self, numbers: Sequence[int]) -> DocumentBatch:
        """The documents of these numbers, in that order; no numbers give an empty batch."""
        chosen = [int(number) for number in numbers]
        words = [self.words[self._words[k] : self._words[k + 1]] for k in chosen]
        lengths = [self.lengths[self._sentences[k] : self._sentences[k + 1]] for k in chosen]
        parts = (_joined(words), _joined(lengths), self.counts[chosen], self.labels[chosen])
        return DocumentBatch(*(torch.from_numpy(part.astype(np.int64)) for part in parts))


def make_set(documents: Sequence[list[list[int]]], labels: Sequence[int]) -> DocumentSet:
    """Documents given as lists of sentences of word ids."""
    words = [np.array(sentence, np.int32) for document in documents for sentence in document]
    lengths = np.array([len(row) for row in words], np.int32)
    counts = np.array([len(document) for document in documents], np.int32)
    return DocumentSet(_joined(words), lengths, counts, np.array(labels, np.int32))


def _joined(parts: list[Any]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def save_sets(path: Path, fingerprint: str, sets: dict[str, DocumentSet]) -> None:
    """Write several sets into one file."""
    arrays = {f"{name}.{part}": getattr(each, part) for name, each in sets.items() for part in PARTS}
    write_atomically(path, safetensors.numpy.save(arrays, {"fingerprint": fingerprint}))


def load_sets(path: Path, fingerprint: str, names: Sequence[str]) -> dict[str, DocumentSet] | None:
    """What `save_sets` wrote, if it is there, whole, and has this fingerprint."""
    try:
        with safetensors.safe_open(path, framework="numpy") as stored:
            if (stored.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            return {name: DocumentSet(*(stored.get_tensor(f"{name}.{part}") for part in PARTS)) for name in names}
    except (OSError, ValueError, safetensors.SafetensorError):
        return None  # missing or damaged: it is made anew
