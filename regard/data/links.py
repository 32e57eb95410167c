"""Word links of a corpus: read beside its pairs, and projected to the pieces that a batch holds.

Links are kept between words, since pieces may be drawn anew in every epoch. Pieces of linked words are linked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.data.corpus import Corpus, InMemory
from regard.data.pharaoh import Link, parse_pharaoh
from regard.data.store import Store
from regard.data.text import digest, read_lines
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError

GOLD = "gold"  # the links that a built-in corpus brings


class LinkReader:
    """The links of a corpus, asked for line by line in order; nothing is held in memory."""

    def __init__(self, files: tuple[str, ...], corpus: Corpus) -> None:
        self.files = files
        self.made = corpus.links if isinstance(corpus, InMemory) else []
        self.gold = files == (GOLD,) and bool(self.made)
        for path in () if self.gold else files:
            if path == GOLD and not Path(path).exists():
                raise ConfigError("data.alignment = 'gold' needs a built-in corpus; name a file of links i-j instead.")
            if not Path(path).exists():
                raise DataError(f"There is no alignment file {path}; check data.alignment.")

    def fingerprint(self) -> list[str]:
        """What the links depend on: the content of the files, or the corpus itself."""
        return [GOLD] if self.gold else [digest(path) for path in self.files]

    def __iter__(self) -> Iterator[tuple[str, tuple[Link, ...]]]:
        """(where it stands, links) of each line."""
        if self.gold:
            yield from (("the built-in corpus", links) for links in self.made)
            return
        for path in self.files:
            for number, line in enumerate(read_lines(path), 1):
                where = f"{path}, line {number},"
                yield where, tuple(sorted(parse_pharaoh(line, where)))

    def reading(self, pairs: int) -> "Reading":
        """Begin to read, beside a corpus of so many pairs."""
        return Reading(self, pairs)


class Reading:
    """One passage through the links, line after line."""

    def __init__(self, reader: LinkReader, pairs: int) -> None:
        self.lines = iter(reader)
        self.names = ", ".join(reader.files)
        self.pairs = pairs
        self.read = 0

    def of(self, line: int, source: str, target: str) -> tuple[Link, ...]:
        """The links of line `line` (from 1; lines may be left out, none may come twice) of these two sentences."""
        where = ""
        links: tuple[Link, ...] = ()
        while self.read < line:
            try:
                where, links = next(self.lines)
            except StopIteration:
                raise self._miscounted(self.read) from None
            self.read += 1
        sizes = len(source.split()), len(target.split())
        for link in links:
            if link[0] >= sizes[0] or link[1] >= sizes[1]:
                raise DataError(
                    f"{where} links words {link[0]}-{link[1]}, but its pair has {sizes[0]} source words and {sizes[1]} "
                    f"target words, counted from 0; is it the alignment of another corpus?"
                )
        return links

    def finish(self) -> None:
        """Refuse links that have no pair."""
        found = self.read + sum(1 for _ in self.lines)
        if found != self.pairs:
            raise self._miscounted(found)

    def _miscounted(self, found: int) -> DataError:
        return DataError(
            f"The alignment {self.names} has {found} lines and the corpus {self.pairs} pairs; line n must hold the "
            f"links of pair n, an empty line where there are none."
        )


class LinkedBatch(NamedTuple):
    """A `Batch`, and which of its pieces belong together."""

    indices: Tensor  # [B]
    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target: Tensor  # [B, T]
    target_lengths: Tensor  # [B]
    links: Tensor  # [B, T, S], True where two pieces belong to linked words


class Links:
    """The links of a store's pairs, between the pieces of a batch."""

    def __init__(self, store: Store, vocabularies: tuple[Vocabulary, Vocabulary]) -> None:
        self.store = store
        self.vocabularies = vocabularies

    def of(self, batch: Batch) -> Tensor:
        """[B, T, S]: True where target piece t and source piece s belong to linked words. END is linked to nothing."""
        B, S, T = len(batch.indices), batch.source.shape[1], batch.target.shape[1]
        found = np.zeros((B, T, S), dtype=bool)
        for row, index in enumerate(batch.indices.tolist()):
            links = self.store.links(index).astype(np.int64)  # [L, 2]
            if not len(links):
                continue
            source, target = (
                np.array(vocabulary.words_of(ids[row, : int(lengths[row]) - 1].tolist()), dtype=np.int64)
                for vocabulary, ids, lengths in (
                    (self.vocabularies[0], batch.source, batch.source_lengths),
                    (self.vocabularies[1], batch.target, batch.target_lengths),
                )
            )  # [S'], [T']: the word of each piece
            words = np.zeros((target.max(initial=0) + 1, source.max(initial=0) + 1), dtype=bool)
            inside = (links[:, 0] < words.shape[1]) & (links[:, 1] < words.shape[0])
            words[links[inside, 1], links[inside, 0]] = True
            found[row, : len(target), : len(source)] = words[target[:, None], source[None, :]]
        return torch.from_numpy(found)


def same_words(vocabulary: Vocabulary, ids: list[int], text: str) -> bool:
    """Whether the words of `text` can be told from its ids alone; an unknown character that is a space hides one."""
    words = vocabulary.words_of(ids)
    return bool(words) and max(words) + 1 == len(text.split())
