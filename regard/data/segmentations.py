"""Subword regularisation: reproducible random segmentations of sentences.

SentencePiece's own sampling cannot be seeded per sentence, which exact resuming needs. No subword crosses a space, so
words are sampled independently, and their segmentations are cached.
"""

import hashlib
import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.subwords import SPACE, Subwords
from regard.symbols import SYMBOLS, UNKNOWN

_CANDIDATES = 16  # n-best segmentations of a word for unigram sampling
_REMEMBERED = 1 << 19  # cached segmentations, about 60 MiB
_MANY = 64  # merges; a word with more is always looked up
_ID = np.dtype(np.uint32)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Word(NamedTuple):
    """A word and its segmentations, each as ids in bytes; a number in [0, 1) selects one.

    The borders split [0, 1) into intervals as wide as the probability of each option; None is an option not computed
    yet.
    """

    text: str  # with SPACE for a space
    borders: list[float]
    options: list[bytes | None]


class Segmentations:
    """The segmentations of words: BPE-dropout (Provilkov et al. 2020), or for unigram n-best sampling (Kudo 2018).

    `amount` is the dropout probability of a merge, or for unigram the exponent of the probabilities. Words are keyed by
    their best ids, as bytes.
    """

    def __init__(self, tokens: Subwords, amount: float) -> None:
        self.tokens, self.amount = tokens, amount
        pieces = list(enumerate(tokens.pieces))
        self.begins = np.array([index < UNKNOWN or piece.startswith(SPACE) for index, piece in pieces])  # [V] a word
        some = [index for index in range(len(SYMBOLS), len(tokens)) if not tokens.processor.is_byte(index)]
        self.ids = {tokens.pieces[index]: index for index in some}
        # BPE scores are minus the rank of the merge, integers; unigram scores are log-probabilities.
        self.ranks = {tokens.pieces[index]: -float(tokens.processor.get_score(index)) for index in some}
        self.unigram = any(rank % 1 for rank in self.ranks.values())
        letters = [len(piece) if piece in self.ids else 1 if index < UNKNOWN else _MANY for index, piece in pieces]
        self.letters = np.array(letters)  # [V] of each id
        # A word of n merges keeps its best segmentation for draws below the nth of these, computed as in `merge`.
        less = accumulate(range(_MANY), lambda high, _: max(0.0, high - high * amount), initial=1.0)
        self.unchanged = np.array([0.0] if self.unigram else [*less, 0.0])
        self.words: dict[bytes, Word] = {}
        self.remembered = 0

    def draw(self, rows: Sequence[Any], seeds: NDArray[np.uint64]) -> list[NDArray[np.uint32]]:
        """A sampled segmentation of each row of ids, a pure function of the row and its seed [B].

        A word with UNKNOWN stays unchanged, since its text is lost.
        """
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # [B]
        if not lengths.sum():
            return [np.zeros(0, _ID) for _ in rows]
        if self.remembered > _REMEMBERED:
            self.words, self.remembered = {}, 0
        ids = np.concatenate(rows).astype(_ID)  # [N]
        starts = np.cumsum(lengths) - lengths  # [B]
        begins = self.begins[ids]  # [N]
        begins[starts[lengths > 0]] = True
        heads = np.flatnonzero(begins)  # [W]
        row = np.searchsorted(starts, heads, side="right") - 1  # [W]
        place = np.arange(len(heads)) - np.searchsorted(heads, starts)[row]  # [W] of the word in its row
        chances = (_mix(seeds[row] + _GOLDEN * place.astype(np.uint64)) >> np.uint64(11)) * 2.0**-53  # [W]
        sizes = np.diff(heads, append=len(ids))  # [W]
        merges = np.add.reduceat(self.letters[ids], heads) - sizes  # [W]
        changed = np.flatnonzero(chances >= self.unchanged[np.minimum(merges, len(self.unchanged) - 1)])
        content, size = ids.tobytes(), _ID.itemsize
        firsts, ends = (heads[changed] * size).tolist(), ((heads + sizes)[changed] * size).tolist()
        words = [content[start:end] for start, end in zip(firsts, ends, strict=True)]
        drawn = self.choose(words, chances[changed].tolist())
        sizes[changed] = np.fromiter(map(len, drawn), np.int64, len(drawn)) // size
        between = [content[end:start] for end, start in zip([0, *ends], [*firsts, len(content)], strict=True)]
        written = b"".join(chain.from_iterable(zip(between, [*drawn, b""], strict=True)))
        cuts = np.cumsum(np.bincount(row, sizes, len(rows)).astype(np.int64))[:-1]
        return np.split(np.frombuffer(written, _ID), cuts)

    def choose(self, words: list[bytes], chances: list[float]) -> list[bytes]:
        """The segmentation of each word for its number in [0, 1)."""
        chosen, known = [], self.words
        for ids, chance in zip(words, chances, strict=True):
            word = known.get(ids) or self.learn(ids)
            chosen.append(word.options[bisect_right(word.borders, chance)] or self.find(word, chance))
        return chosen

    def learn(self, best: bytes) -> Word:
        """The cache entry of a new word; a word without known text keeps its best ids."""
        ids = np.frombuffer(best, _ID).tolist()
        text = b"".join(self.tokens.surfaces(ids)).decode("utf-8", "replace").replace(" ", SPACE)
        word = Word(text, [], [best])
        if min(ids) > UNKNOWN and not self.unigram and "\N{REPLACEMENT CHARACTER}" not in text:
            word.options[:] = [None]
        elif min(ids) > UNKNOWN and self.unigram and text.startswith(SPACE):
            nbest = self.tokens.processor.nbest_encode
            found = nbest(text.removeprefix(SPACE), nbest_size=_CANDIDATES, out_type=int) or [ids]
            scores = [sum(map(self.tokens.processor.get_score, option)) for option in found]
            odds = list(accumulate(math.exp(self.amount * (score - scores[0])) for score in scores))
            word = Word(text, [odd / odds[-1] for odd in odds[:-1]], [_packed(option) for option in found])
        self.words[best] = word
        self.remembered += len(word.options)
        return word

    def find(self, word: Word, chance: float) -> bytes:
        """Compute and cache a segmentation of a word that has not been selected before."""
        low, high, parts = self.merge(list(word.text), chance)
        found = _packed([index for part in parts for index in self.spell(part)])
        borders, options = word.borders, word.options
        place = bisect_right(borders, chance)
        left, right = borders[place - 1] if place else 0.0, borders[place] if place < len(borders) else 1.0
        options[place : place + 1] = [None] * (left < low) + [found] + [None] * (high < right)
        borders[place:place] = [low] * (left < low) + [high] * (high < right)
        self.remembered += 1
        return found

    def merge(self, parts: list[str], chance: float) -> tuple[float, float, list[str]]:
        """Merge characters, each time the best pair that is not dropped.

        The best pair is merged with probability 1 - amount, the second best with amount * (1 - amount), and so on.
        Returns the interval [low, high) of numbers that lead to the same merges, and the result.
        """
        low, high, none, rank_of = 0.0, 1.0, math.inf, self.ranks.get
        ranks = [rank_of(one + other, none) for one, other in pairwise(parts)]  # of the merge with the next part
        while ranks:
            last, rest, left = high, high - low, ranks  # `rest` is the part of [0, 1) that drops all merges so far
            while (best := min(left)) < none:
                place = left.index(best)
                rest *= self.amount
                border = max(low, last - rest)
                if chance < border:
                    high = border
                    break
                low = border
                left = left[:]
                left[place] = none
            else:
                break
            parts[place : place + 2] = [joined := parts[place] + parts[place + 1]]
            del ranks[place]
            if place:
                ranks[place - 1] = rank_of(parts[place - 1] + joined, none)
            if place < len(ranks):
                ranks[place] = rank_of(joined + parts[place + 1], none)
        return low, high, parts

    def spell(self, part: str) -> list[int]:
        """The id of a piece, or those of the bytes of a character outside the vocabulary."""
        if part in self.ids:
            return [self.ids[part]]
        spelled = [int(self.tokens.processor.piece_to_id(f"<0x{byte:02X}>")) for byte in part.encode("utf-8")]
        return spelled if all(map(self.tokens.processor.is_byte, spelled)) else [UNKNOWN]


def _packed(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()


def seeds_for(numbers: Sequence[int], purpose: str) -> NDArray[np.uint64]:
    """A seed for each of `numbers`, a function of the number and `purpose` only. [B]"""
    first = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return _mix(np.uint64(first) + _GOLDEN * np.array(numbers, np.uint64))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), which decorrelates similar numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
