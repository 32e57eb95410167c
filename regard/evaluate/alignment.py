"""Word alignments: Pharaoh and gold files, error rate, symmetrisation, links from attention weights.

A link is (source word, target word), from 0. The alignment of a sentence is a set of links.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.errors import DataError, check_known, counted
from regard.sealed import write_atomically
from regard.text.lines import read_lines
from regard.text.pharaoh import Alignment, Gold, Link, format_pharaoh, parse_gold

Weights = npt.NDArray[np.floating[Any]]  # [T, S] words


def read_gold(path: str | Path) -> list[Gold]:
    """A gold file in the format of the Hansards: `i-j` sure, `ipj` possible, counted from 1."""
    return [parse_gold(line, f"{path}, line {number},") for number, line in enumerate(read_lines(path), 1)]


def write_pharaoh(alignments: Iterable[Iterable[Link]], path: str | Path) -> None:
    """Write one sentence pair per line; an empty line has no links."""
    lines = [format_pharaoh(links) + "\n" for links in alignments]
    write_atomically(Path(path), "".join(lines).encode())


@dataclass(frozen=True)
class AlignmentScore:
    """Counts summed over a corpus, and scores derived from them. A: found links, S: sure, P: possible."""

    found: int  # |A|
    sure: int  # |S|
    found_sure: int  # |A and S|
    found_possible: int  # |A and P|

    @property
    def precision(self) -> float:
        """|A and P| / |A|; 0 if A is empty."""
        return self.found_possible / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """|A and S| / |S|; 1 if S is empty."""
        return self.found_sure / self.sure if self.sure else 1.0

    @property
    def aer(self) -> float:
        """Alignment error rate, 1 - (|A and S| + |A and P|) / (|A| + |S|); 0 is perfect."""
        total = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / total if total else 0.0

    def __str__(self) -> str:
        return (
            f"AER {100 * self.aer:.2f}  precision {100 * self.precision:.2f}  recall {100 * self.recall:.2f}"
            f"  ({counted(self.found, 'link')}, {self.sure} sure)"
        )


def score_alignments(found: Sequence[Iterable[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """Score alignments against gold ones; counts are summed over the corpus, not averaged."""
    if len(found) != len(gold):
        raise DataError(f"Each alignment needs its gold one; got {len(found)} and {len(gold)}.")
    counts = [0, 0, 0, 0]
    for links, (sure, possible) in zip(found, gold, strict=True):
        chosen = set(links)
        sizes = (len(chosen), len(sure), len(chosen & sure), len(chosen & (possible | sure)))
        counts = [total + size for total, size in zip(counts, sizes, strict=True)]
    return AlignmentScore(*counts)


# Steps to the neighbours of a link, (target words, source words), in Koehn's order.
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(forward: Iterable[Link], backward: Iterable[Link], method: str) -> Alignment:
    """Combine the alignments of two directions, both as (source, target) links, by one of `SYMMETRISATIONS`."""
    check_known("symmetrisation", method, SYMMETRISATIONS, error=DataError)
    return SYMMETRISATIONS[method](frozenset(forward), frozenset(backward))


def grow_diag(forward: Alignment, backward: Alignment) -> Alignment:
    """Start from the intersection and add neighbouring links of the union (also diagonal) whose source or target word
    is still unaligned, until none is left.

    The order is that of Koehn et al. (2005) and of Moses: all links are visited by target word, then by source word,
    and again as long as links are added.
    """
    return frozenset(_grow(forward, backward)[0])


def _grow(forward: Alignment, backward: Alignment) -> tuple[set[Link], set[int], set[int]]:
    """The links of grow-diag, and their source and target words."""
    links, union = set(forward & backward), forward | backward
    sources, targets = {source for source, _ in links}, {target for _, target in links}
    before = -1
    while before < len(links):
        before = len(links)
        for source, target in _by_target(union):
            if (source, target) not in links:
                continue
            for down, right in _AROUND:
                link = (source + right, target + down)
                if link in union and (link[0] not in sources or link[1] not in targets):
                    links.add(link)
                    sources.add(link[0])
                    targets.add(link[1])
    return links, sources, targets


def _final(forward: Alignment, backward: Alignment, both: bool) -> Alignment:
    """grow-diag, then every link of either direction with an unaligned word (`both`: two unaligned words)."""
    links, sources, targets = _grow(forward, backward)
    for source, target in (*_by_target(forward), *_by_target(backward)):
        free = (source not in sources, target not in targets)
        if all(free) if both else any(free):
            links.add((source, target))
            sources.add(source)
            targets.add(target)
    return frozenset(links)


def _by_target(links: Alignment) -> list[Link]:
    return sorted(links, key=lambda link: (link[1], link[0]))


SYMMETRISATIONS: dict[str, Callable[[Alignment, Alignment], Alignment]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": grow_diag,
    "grow-diag-final": lambda forward, backward: _final(forward, backward, both=False),
    "grow-diag-final-and": lambda forward, backward: _final(forward, backward, both=True),
}


def argmax_links(weights: Weights) -> Alignment:
    """Link each target word to the source word with the largest weight, the first of equal ones. weights [T, S]

    A row of zeros has no link.
    """
    if not weights.size:
        return frozenset()
    best = weights.argmax(1)  # [T]
    attends = weights.max(1) > 0  # [T]
    return frozenset((int(source), target) for target, source in enumerate(best) if attends[target])


def mutual_argmax_links(weights: Weights) -> Alignment:
    """The links of `argmax_links` that are also the argmax of their column. weights [T, S]"""
    return argmax_links(weights) & frozenset((source, target) for target, source in argmax_links(weights.T))


def threshold_links(weights: Weights, least: float) -> Alignment:
    """All pairs of words with a weight of at least `least` and above 0. weights [T, S]"""
    targets, sources = np.nonzero((weights >= least) & (weights > 0))
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))
