"""Which words of parallel text belong together, learned from the text alone: a dictionary and the jumps between links.

A hidden Markov model in each direction (Vogel et al. 1996): a word is written from the source word that it is linked
to, or from none, and the distance to the next link is a jump. Links are counted by the geometric mean of their
probabilities in the two directions, so that these agree (after Liang et al. 2006). No gold links, no network.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

Floats = NDArray[Any]  # numpy's types let bincount return whole numbers only
Whole = NDArray[np.integer[Any]]
_MOST = 200_000_000  # places of links, all pairs together: about 13 GB
_TINY = 1e-30  # keeps a row that no link explains from a division by zero
# How links are learned.
ROUNDS = 3  # of counting; the first prefers links near the diagonal
STEEPNESS = 8.0  # exp(-STEEPNESS |i/S - j/T|) in the first round
UNLINKED = 0.2  # probability that a word has no link
SMOOTHING = 5.0  # links by chance that are added to those of every word


@dataclass(frozen=True)
class Block:
    """Pairs of equal lengths."""

    places: Whole  # [B] of the pairs
    targets: Whole  # [B, T] words
    sources: Whole  # [B, S]
    cells: slice  # their B * T * S places in `Text.cells`


class Text:
    """Parallel text as numbers. Words are compared in lower case; a pair with an empty side is left out."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        if len(sources) != len(targets):
            raise DataError(f"Each source needs its target; got {len(sources)} and {len(targets)}.")
        (source, self.source_shares), (target, self.target_shares) = _number(sources), _number(targets)
        shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place, (read, written) in enumerate(zip(source, target, strict=True)):
            if read and written:
                shapes[len(written), len(read)].append(place)
        if not shapes:
            raise DataError("No pair of the text has words on both sides, so that no links can be learned from it.")
        size = sum(len(places) * T * S for (T, S), places in shapes.items())
        if size > _MOST:
            raise DataError(
                f"The text has {size:,} places for links, more than the {_MOST:,} that are kept in memory; pass fewer "
                f"or shorter pairs."
            )
        self.farthest = max(map(max, shapes)) - 1  # jump
        self.blocks: list[Block] = []
        end = 0
        for (T, S), places in shapes.items():
            start, end = end, end + len(places) * T * S
            words = [np.array([side[place] for place in places]) for side in (target, source)]
            self.blocks.append(Block(np.array(places), words[0], words[1], slice(start, end)))
        known = len(self.source_shares)
        keys = [(block.targets[:, :, None] * known + block.sources[:, None, :]).ravel() for block in self.blocks]
        together, cells = np.unique(np.concatenate(keys), return_inverse=True)
        self.cells: Whole = cells.astype(np.int32)  # the number of the word pair at each place
        self.target_of, self.source_of = together // known, together % known  # of each word pair


def _number(lines: Sequence[str]) -> tuple[list[list[int]], Floats]:
    """The words of each line by number, and the share of each in the text."""
    known: dict[str, int] = {}
    numbers = [[known.setdefault(word, len(known)) for word in line.lower().split()] for line in lines]
    counts = np.bincount([number for line in numbers for number in line], minlength=len(known))
    return numbers, (counts / max(1, counts.sum())).astype(np.float32)


@dataclass(frozen=True)
class Known:
    """What was learned."""

    ahead: Floats  # p(target word | source word) of each word pair
    behind: Floats  # p(source word | target word)
    jumps: tuple[Floats, Floats]  # counts by distance from the previous link, in source (target) words


def expect_links(sources: Sequence[str], targets: Sequence[str], wanted: int) -> list[Floats]:
    """Learn from all pairs, and return for the last `wanted` of them [target words, source words], the mean probability
    of each link in the two directions. Zeros if a side is empty."""
    text = Text(sources, targets)
    known: Known | None = None
    for _ in range(ROUNDS):
        known = learn(text, known)
    first = len(sources) - wanted
    sizes = ((len(target.split()), len(source.split())) for target, source in zip(targets, sources, strict=True))
    found: list[Floats] = [np.zeros(size, np.float32) for size in islice(sizes, first, None)]
    for block in text.blocks:
        if block.places[-1] >= first:
            ahead, behind, _ = link_probabilities(text, block, known)
            for place, one, two in zip(block.places.tolist(), ahead, behind, strict=True):
                if place >= first:
                    found[place - first] = (one + two) / 2
    return found


def learn(text: Text, known: Known | None) -> Known:
    """One round: the expected links, counted by word pair and by jump."""
    linked = np.empty(len(text.cells), np.float32)
    steps = np.arange(-text.farthest, text.farthest + 1)
    jumps = [np.ones(len(steps)), np.ones(len(steps))]  # one of each by chance
    for block in text.blocks:
        ahead, behind, moved = link_probabilities(text, block, known)
        linked[block.cells] = np.sqrt(ahead * behind).ravel()
        jumps = [total + new for total, new in zip(jumps, moved, strict=True)]
    if known is None:  # the diagonal knows no jumps: to the next word, or near it
        jumps = [1 / (1 + np.abs(steps - 1))] * 2
    counts = np.bincount(text.cells, linked, len(text.target_of))
    return Known(
        _shares(counts, text.source_of, text.target_shares[text.target_of]),
        _shares(counts, text.target_of, text.source_shares[text.source_of]),
        (jumps[0], jumps[1]),
    )


def _shares(counts: Floats, given: Whole, share: Floats) -> Floats:
    """p(one word | the given one) of each word pair, drawn towards the word's share of the text."""
    return ((counts + SMOOTHING * share) / (np.bincount(given, counts) + SMOOTHING)[given]).astype(np.float32)


def link_probabilities(text: Text, block: Block, known: Known | None) -> tuple[Floats, Floats, list[Floats]]:
    """The probability of each link in both directions, [B, T, S], and the expected jumps; in the first round by the
    diagonal alone."""
    B, T, S = len(block.places), block.targets.shape[1], block.sources.shape[1]
    if known is None:
        near = np.exp(-STEEPNESS * np.abs(np.arange(S) / S - np.arange(T)[:, None] / T)).astype(np.float32)
        both = (np.broadcast_to(near / near.sum(axis, keepdims=True), (B, T, S)) for axis in (1, 0))
        return next(both), next(both), [np.zeros(1), np.zeros(1)]
    cells = text.cells[block.cells].reshape(B, T, S)
    found: list[Floats] = []
    moved: list[Floats] = []
    for words, alone, jumps in (
        (known.ahead[cells], text.target_shares[block.targets], known.jumps[0]),
        (known.behind[cells].transpose(0, 2, 1), text.source_shares[block.sources], known.jumps[1]),
    ):
        places = np.arange(words.shape[2])
        steps = places - places[:, None] + text.farthest  # [from, to]
        table = jumps[steps] / jumps[steps].sum(1, keepdims=True)
        links, made = forward_backward(words * (1 - UNLINKED), alone * UNLINKED, table.astype(np.float32))
        found.append(links)
        moved.append(np.bincount(steps.ravel(), made.ravel(), len(jumps)))
    return found[0], found[1].transpose(0, 2, 1), moved


def forward_backward(linked: Floats, unlinked: Floats, jumps: Floats) -> tuple[Floats, Floats]:
    """The probability of each link [B, T, S] and the expected jumps [S, S] of a hidden Markov model.

    `linked` [B, T, S] is the probability that a place of the source writes word t, `unlinked` [B, T] that no place
    does: a jump then counts from the last linked place. `jumps` [S, S] are p(next place | place); the first is uniform.
    """
    B, T, S = linked.shape
    at, after = np.empty((B, T, S), np.float32), np.empty((B, T, S), np.float32)  # linked there; last link there
    scale = np.empty((B, T, 1), np.float32)
    last: Floats = np.full((B, S), 1 / S, np.float32)
    for t in range(T):
        here, stay = (last @ jumps if t else last) * linked[:, t], last * unlinked[:, t, None]
        scale[:, t] = (here + stay).sum(1, keepdims=True) + _TINY
        at[:, t] = here / scale[:, t]
        after[:, t] = last = (here + stay) / scale[:, t]
    moved = np.zeros((S, S))
    rest: Floats = np.ones((B, S), np.float32)  # probability of the words to come, by the last linked place
    for t in reversed(range(T)):
        at[:, t] *= rest
        if t:
            come = linked[:, t] * rest / scale[:, t]
            moved += (after[:, t - 1].T @ come) * jumps
            rest = come @ jumps.T + rest * unlinked[:, t, None] / scale[:, t]
    return at, moved
