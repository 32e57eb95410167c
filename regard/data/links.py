"""Word links of a corpus: read beside its pairs, and projected to the pieces that a batch holds.

Links are kept between words, since the pieces of a word may change with every epoch. Pieces of linked words are linked.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.data.files import digest, read_lines
from regard.data.pharaoh import Link, parse_pharaoh
from regard.data.settings import READING, Reading
from regard.data.store import Array
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError

GOLD = "gold"  # the links that come with a built-in corpus


class LinkReader:
    """The links of a corpus, read line after line beside its pairs; nothing is held in memory."""

    def __init__(self, files: tuple[str, ...], made: Sequence[tuple[Link, ...]], reading: Reading = READING) -> None:
        self.files, self.made, self.reading = files, made, reading  # `made`: the links of a built-in corpus
        self.gold = files == (GOLD,) and bool(made)
        for path in () if self.gold else files:
            if path == GOLD and not Path(path).exists():
                raise ConfigError("data.alignment = 'gold' needs a built-in corpus; name a file of links i-j instead.")
            if not Path(path).exists():
                raise DataError(f"There is no alignment file {path}; check data.alignment.")
        self.lines = self._lines()
        self.read = 0

    def fingerprint(self) -> list[str]:
        """What the links depend on: the content of the files, or the corpus itself."""
        return [GOLD] if self.gold else [digest(path) for path in self.files]

    def _lines(self) -> Iterator[tuple[str, tuple[Link, ...]]]:
        """(where it is, links) of each line."""
        if self.gold:
            yield from (("the built-in corpus", links) for links in self.made)
            return
        for path in self.files:
            for number, line in enumerate(read_lines(path, self.reading), 1):
                where = f"{path}, line {number},"
                yield where, tuple(sorted(parse_pharaoh(line, where)))

    def of(self, line: int, source: str, target: str) -> tuple[Link, ...]:
        """The links of line `line` (from 1; lines may be left out, none may come twice) of these two sentences."""
        where, links = "", tuple[Link, ...]()
        while self.read < line:
            where, links = next(self.lines, ("", ()))
            if not where:
                return ()  # after the last line; `finish` compares the counts
            self.read += 1
        sizes = len(source.split()), len(target.split())
        for link in links:
            if link[0] >= sizes[0] or link[1] >= sizes[1]:
                raise DataError(
                    f"{where} links words {link[0]}-{link[1]}, but its pair has {sizes[0]} source words and {sizes[1]} "
                    f"target words, counted from 0; is it the alignment of another corpus?"
                )
        return links

    def finish(self, pairs: int) -> None:
        """Refuse an alignment that does not have one line for each pair. Later pairs have no links."""
        found = self.read + sum(1 for _ in self.lines)
        if found != pairs:
            raise DataError(
                f"The alignment {', '.join(self.files)} has {found} lines and the corpus {pairs} pairs; line n must "
                f"hold the links of pair n, an empty line where there are none."
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
    """Word links between the pieces of a batch; `links(index)` are those of a pair: [L, 2], (source, target) words."""

    def __init__(self, links: Callable[[int], Array], vocabularies: Sequence[Vocabulary]) -> None:
        self.links = links
        self.vocabularies = vocabularies

    def of(self, batch: Batch) -> Tensor:
        """[B, T, S]: True where target piece t and source piece s belong to linked words. END is linked to nothing."""
        B, S, T = len(batch.indices), batch.source.shape[1], batch.target.shape[1]
        found = np.zeros((B, T, S), dtype=bool)
        for row, index in enumerate(batch.indices.tolist()):
            links = self.links(index).astype(np.int64)  # [L, 2]
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
    """Whether the ids of `text` show where its words are; an unknown character that is a space hides one."""
    words = vocabulary.words_of(ids)
    return bool(words) and max(words) + 1 == len(text.split())
