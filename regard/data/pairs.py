"""Sentence pairs as ids: the tokenised corpus of translation, with its vocabularies and word links.

Links are stored between words, since the pieces of a word may change with every epoch. Pieces of linked words are
linked.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from operator import attrgetter
from pathlib import Path
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Batch, pad, round_up
from regard.data.corpus import GOLD, SIDES, Pair, every_nth, find_corpus, note_files, open_corpus, with_links
from regard.data.encoding import Encoding, Rows, Tally, have_text, train_vocabulary
from regard.data.segmentations import seeds_for
from regard.data.settings import DataConfig, as_files
from regard.data.store import Array, Column, ColumnType, id_type
from regard.data.tokenisers import Tokenise
from regard.data.vocabulary import Vocabulary
from regard.sealed import digest

_MEASURED = 1_000  # pairs on which to measure how much longer sampling makes sentences


class LinkedBatch(NamedTuple):
    """A `Batch` with the links between its pieces."""

    indices: Tensor  # [B]
    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target: Tensor  # [B, T]
    target_lengths: Tensor  # [B]
    links: Tensor  # [B, T, S], True for pieces of linked words


def link_pieces(links_of: Callable[[int], Array], vocabularies: Sequence[Vocabulary], batch: Batch) -> Tensor:
    """[B, T, S]: True if target piece t and source piece s belong to linked words. END has no links.

    `links_of(index)` are the links of a pair: [L, 2], (source, target) words.
    """
    B, S, T = len(batch.indices), batch.source.shape[1], batch.target.shape[1]
    found = np.zeros((B, T, S), dtype=bool)
    sides = (batch.source, batch.source_lengths), (batch.target, batch.target_lengths)
    for row, index in enumerate(batch.indices.tolist()):
        links = links_of(index).astype(np.int64)  # [L, 2]
        if not len(links):
            continue
        source, target = (
            np.array(vocabulary.words_of(ids[row, : int(lengths[row]) - 1].tolist()), dtype=np.int64)
            for vocabulary, (ids, lengths) in zip(vocabularies, sides, strict=True)
        )  # [S'], [T']: the word of each piece
        words = np.zeros((target.max(initial=0) + 1, source.max(initial=0) + 1), dtype=bool)
        inside = (links[:, 0] < words.shape[1]) & (links[:, 1] < words.shape[0])
        words[links[inside, 1], links[inside, 0]] = True
        found[row, : len(target), : len(source)] = words[target[:, None], source[None, :]]
    return torch.from_numpy(found)


class PairSet:
    """Pairs of id rows with END. `lines` are their line numbers in the corpus, `links` their word links."""

    def __init__(self, source: Column, target: Column, line: Array, links: Column | None = None) -> None:
        self.columns, self.lines, self.aligned = (source, target), line, links
        self.sides = source.lengths, target.lengths  # [N] each, END counted

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, numbers: Sequence[int], epoch: int = 0) -> list[list[Array]]:
        """The sources and the targets of the pairs `numbers`, each ending with END."""
        return [column.take(numbers) for column in self.columns]

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> Batch:
        """These pairs, in that order."""
        (source, source_lengths), (target, target_lengths) = map(pad, self.take(numbers, epoch))
        return Batch(torch.tensor(numbers, dtype=torch.int64), source, source_lengths, target, target_lengths)

    def links(self, index: int) -> Array:
        """The links [L, 2] of pair `index`, (source word, target word); none if the corpus is not aligned."""
        return self.aligned.row(index).reshape(-1, 2) if self.aligned else np.zeros((0, 2), np.uint32)


class Resampled(PairSet):
    """Pairs whose segmentation changes with every epoch: subword regularisation.

    The segmentation of a pair is a pure function of seed, epoch and index. Batches are planned with the lengths of the
    best segmentation. A sampled one may be longer, up to `room` and at most `most`; a still longer sample is replaced
    by the best segmentation. So a GPU sees few batch shapes: those of `room`.
    """

    def __init__(
        self, columns: dict[str, Any], vocabularies: Sequence[Vocabulary], amount: float, seed: int, most: int
    ) -> None:
        super().__init__(**columns)
        self.seed, self.most = seed, most
        source, target = vocabularies
        first = source.sampler(amount)
        self.samplers = first, first if target is source else target.sampler(amount)
        some = np.unique(np.linspace(0, max(0, len(self) - 1), min(len(self), _MEASURED)).astype(np.int64)).tolist()
        best, drawn = (sum(map(len, chain(*sides))) for sides in (super().take(some), self.draw(some, 0)))
        self.stretch = max(1.0, 2 * drawn / max(1, best) - 1)  # 1 + twice the average relative growth

    def room(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The maximum sampled lengths for these best lengths, on the scale of `round_up`."""
        room = np.ceil(round_up(lengths) * self.stretch).astype(np.int64)
        return round_up(np.minimum(room, self.most + 1))

    def take(self, numbers: Sequence[int], epoch: int = 0) -> list[list[Array]]:
        """The sources and the targets of the pairs `numbers`; faster for many at once."""
        sides = []
        for best, drawn in zip(super().take(numbers), self.draw(numbers, epoch), strict=True):
            lengths = np.fromiter(map(len, best), np.int64, len(best))
            most = np.minimum(self.room(lengths), self.most + 1).tolist()
            sides.append([b if len(d) > m else d for b, d, m in zip(best, drawn, most, strict=True)])
        return sides

    def draw(self, numbers: Sequence[int], epoch: int) -> Iterator[list[Array]]:
        """The sampled sources and then targets of the pairs `numbers`, whatever their length."""
        for side, (rows, sampler) in enumerate(zip(super().take(numbers), self.samplers, strict=True)):
            yield sampler.draw(rows, seeds_for(numbers, f"{self.seed}:{epoch}:{side}")) if sampler else rows


class PairEncoding(Encoding[Pair]):
    """Pairs into ids with END, and into word links if the corpus is aligned."""

    noun, names = "pairs", SIDES

    def __init__(self, config: DataConfig) -> None:
        corpus, self.aligned = find_corpus(config), as_files(config.alignment)  # files of links
        self.gold = bool(config.corpus) and self.aligned == (GOLD,)
        if self.aligned and not self.gold:
            corpus = with_links(corpus, self.aligned, config)
        if config.every > 1:
            corpus = every_nth(corpus, config.every)
        super().__init__(config, corpus, open_corpus(config, "dev_"))

    texts = staticmethod(attrgetter(*SIDES))  # type: ignore[assignment] # faster than a method

    def size(self, items: Sequence[Pair]) -> int:
        return super().size(items) + sum(getsizeof(link) for item in items for link in item.links)

    def make(self, sample: Sequence[Pair]) -> None:
        config = self.config
        if config.joint:
            super().make(sample)
            self.vocabularies *= 2
        else:
            with ThreadPoolExecutor(2) as pool:  # SentencePiece releases the GIL
                sides = pool.map(train_vocabulary, zip(*map(self.texts, sample), strict=True), (config, config))
                self.vocabularies = list(sides)

    def load(self, folder: Path) -> None:
        super().load(folder)
        source, target = self.vocabularies
        self.vocabularies = [source, source if source.fingerprint == target.fingerprint else target]

    def depends(self) -> list[str]:
        return [GOLD] if self.gold else [digest(path) for path in self.aligned]

    def column_types(self) -> dict[str, ColumnType]:
        kind = id_type(max(map(len, self.vocabularies)))
        columns = {"source": kind, "target": kind, "line": ColumnType("int64", ragged=False)}
        return {**columns, "links": ColumnType("uint32")} if self.aligned else columns

    def encode(self, items: Sequence[Pair], tally: Tally, tokenise: Tokenise) -> Rows[Pair]:
        texts = self.columns(items)
        sides = [tokenise(which, column) for which, column in enumerate(texts)]
        lengths, ratio = [side.lengths[:] - 1 for side in sides], self.config.max_ratio  # tokens, [N]
        shorter, longer = np.minimum(*lengths), np.maximum(*lengths)
        cases = {
            "empty": ~np.array(have_text(texts)) | (shorter == 0),
            "too long": longer > self.config.max_length,
            "ratio": bool(ratio) & (longer > ratio * shorter),
        }
        chosen = np.select(list(cases.values()), list(cases), "").tolist()
        reasons = [pair.unfit or reason for pair, reason in zip(items, chosen, strict=True)]  # empty: the pair is kept
        for pair, reason in zip(items, reasons, strict=True):
            if reason:
                tally.drop(reason, pair.line)
        fit = Rows(items, dict(zip(SIDES, sides, strict=True))).where(~np.array(reasons, bool))
        columns = {**fit.columns, "line": [pair.line for pair in fit.items]}
        return fit._replace(columns={**columns, "links": self._links(fit)} if self.aligned else columns)

    def _links(self, rows: Rows[Pair]) -> list[list[int]]:
        """The links of each pair; none if its words cannot be recovered from its pieces: an unknown space character
        hides a word."""
        found = []
        for number, pair in enumerate(rows.items):
            pieces = (rows.columns[side].row(number)[:-1].tolist() for side in SIDES)
            words = (one.words_of(ids) for one, ids in zip(self.vocabularies, pieces, strict=True))
            known = [max(some, default=-1) + 1 for some in words] == [len(text.split()) for text in self.texts(pair)]
            found.append([word for link in pair.links if known for word in link])
        return found

    def shown(self, item: Pair) -> Sequence[Any]:
        return [(item.source, item.target)]

    def sizes(self) -> dict[str, int]:
        return {f"{side}_vocabulary": len(one) for side, one in zip(SIDES, self.vocabularies, strict=True)}

    def open(self, columns: dict[str, Any], training: bool) -> PairSet:
        config = self.config
        if not training or not config.sampling:
            return PairSet(**columns)
        return Resampled(columns, self.vocabularies, config.sampling, config.seed, config.max_length)

    def describe(self, train: Any, dev: Any) -> list[str]:
        source, target = self.vocabularies
        shared = f"{len(source)}, shared by both sides"
        sizes = shared if source is target else f"{len(source)} source, {len(target)} target"
        return [f"vocabulary: {sizes}", *note_files(self.config)]
