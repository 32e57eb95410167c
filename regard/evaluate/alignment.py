"""Word alignments: Pharaoh and gold files, error rate, symmetrisation, links from attention weights.

A link is (source word, target word), from 0. The alignment of a sentence is a set of links.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.errors import DataError, check_known, counted
from regard.sealed import write_output
from regard.text.lines import read_lines
from regard.text.pharaoh import Alignment, Gold, Link, format_pharaoh, parse_gold

Weights = npt.NDArray[np.floating[Any]]  # [T, S] words


def read_gold(path: str | Path) -> list[Gold]:
    """A gold file in the format of the Hansards: `i-j` sure, `ipj` possible, counted from 1."""
    return [parse_gold(line, f"{path}, line {number},") for number, line in enumerate(read_lines(path), 1)]


def write_pharaoh(alignments: Iterable[Iterable[Link]], path: str | Path) -> None:
    """Write one sentence pair per line; an empty line has no links."""
    lines = [format_pharaoh(links) + "\n" for links in alignments]
    write_output(Path(path), "".join(lines).encode())


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


def _grow_diag(
    forward: Alignment, backward: Alignment, final: Callable[[Iterable[bool]], bool] | None = None
) -> Alignment:
    """Start from the intersection and add neighbouring links of the union (also diagonal) whose source or target word
    is still unaligned, until none is left; then, with `final`, links of either direction of which any (all) of the two
    words are unaligned.

    The order is that of Koehn et al. (2005) and of Moses: all links are visited by target word, then by source word,
    and again as long as links are added.
    """
    links, union = set(forward & backward), forward | backward
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def add(link: Link, fits: Callable[[Iterable[bool]], bool]) -> None:
        if fits((link[0] not in sources, link[1] not in targets)):
            links.add(link)
            sources.add(link[0])
            targets.add(link[1])

    def by_target(some: Alignment) -> list[Link]:
        return sorted(some, key=lambda link: (link[1], link[0]))

    before = -1
    while before < len(links):
        before = len(links)
        for source, target in by_target(union):
            for down, right in _AROUND if (source, target) in links else ():
                if (source + right, target + down) in union:
                    add((source + right, target + down), any)
    if final:
        for link in (*by_target(forward), *by_target(backward)):
            add(link, final)
    return frozenset(links)


SYMMETRISATIONS: dict[str, Callable[[Alignment, Alignment], Alignment]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": _grow_diag,
    "grow-diag-final": partial(_grow_diag, final=any),
    "grow-diag-final-and": partial(_grow_diag, final=all),
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
