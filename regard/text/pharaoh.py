"""Word alignments as text: Pharaoh format, and gold alignments with sure and possible links.

A link is (source word, target word), counted from 0; words are separated by white space.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from regard.errors import DataError

Link = tuple[int, int]
Alignment = frozenset[Link]

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})", re.ASCII)


class Gold(NamedTuple):
    """A gold alignment: `sure` links, and `possible` ones, which include the sure ones."""

    sure: Alignment
    possible: Alignment


def parse_pharaoh(line: str, where: str = "the line") -> Alignment:
    """ "0-0 1-2" -> {(0, 0), (1, 2)}: source-target, counted from 0. `where` begins the error message."""
    return parse_gold(line, where, first=0, marks="-").sure


def parse_gold(line: str, where: str = "the line", *, first: int = 1, marks: str = "-p") -> Gold:
    """ "1-1 2p3" -> sure {(0, 0)}, possible {(0, 0), (1, 2)}: `i-j` is sure, `ipj` possible, counted from `first`."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None or match[2] not in marks:
            forms = "links i-j" if marks == "-" else "links i-j (sure) and ipj (possible)"
            raise DataError(f"{where} must hold {forms} with integers, such as 1-2; got {word!r}.")
        link = (int(match[1]) - first, int(match[3]) - first)
        if min(link) < 0:
            raise DataError(f"{where} must count words from {first}; got {word!r}. Is the file counted from 0?")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def format_pharaoh(links: Iterable[Link]) -> str:
    """{(1, 2), (0, 0)} -> "0-0 1-2", in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
