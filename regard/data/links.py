"""Word links of a corpus: read beside its pairs, and projected to the pieces that a batch holds.

Links are kept between words, since the pieces of a word may change with every epoch. Pieces of linked words are linked.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.data.corpus import Pair
from regard.data.encoding import Corpus
from regard.data.files import Digests, read_lines
from regard.data.pharaoh import Alignment, parse_pharaoh
from regard.data.settings import READING, Reading
from regard.data.store import Array
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, counted

GOLD = "gold"  # the links that come with a built-in corpus


def with_links(corpus: Corpus[Pair], files: tuple[str, ...], reading: Reading = READING) -> Corpus[Pair]:
    """The pairs of a corpus with the links of files, line n of which belongs to pair n."""
    for path in files:
        if path == GOLD and not Path(path).exists():
            raise ConfigError("data.alignment = 'gold' needs a built-in corpus; name a file of links i-j instead.")
        if not Path(path).exists():
            raise DataError(f"There is no alignment file {path}; check data.alignment.")

    def read(digests: Digests) -> Iterator[Pair]:
        lines = ((path, *line) for path in files for line in enumerate(read_lines(path, reading), 1))
        both = zip_longest(corpus.read(digests), lines)
        for count, (pair, line) in enumerate(both):
            if pair is None or line is None:
                longer = count + 1 + sum(1 for _ in both)
                counts = (longer, count) if pair is None else (count, longer)
                raise DataError(
                    f"The alignment {', '.join(files)} has {counts[0]} lines and the corpus {counts[1]} pairs; line n "
                    f"must hold the links of pair n, an empty line where there are none."
                )
            where = f"{line[0]}, line {line[1]},"
            yield pair._replace(links=tuple(sorted(_inside(pair, parse_pharaoh(line[2], where), where))))

    return Corpus(read, corpus.files, corpus.parts, corpus.place)


def _inside(pair: Pair, links: Alignment, where: str) -> Alignment:
    """The links, which must be between words that a pair has."""
    sizes = len(pair.source.split()), len(pair.target.split())
    for link in sorted(links) if all(sizes) else ():
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            raise DataError(
                f"{where} links words {link[0]}-{link[1]}, but its pair has {counted(sizes[0], 'source word')} "
                f"and {counted(sizes[1], 'target word')}, counted from 0; is it the alignment of another corpus?"
            )
    return links


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
