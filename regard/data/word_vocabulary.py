"""Vocabularies without learned subwords: white-space words or single characters."""

import json
import re
from collections import Counter
from collections.abc import Iterable

from regard.errors import DataError
from regard.symbols import END, SYMBOLS, UNKNOWN

_PATTERNS = {"word": re.compile(r"\S+"), "char": re.compile(r".", re.DOTALL)}
_GLUE = {"word": " ", "char": ""}


class Plain:
    """A list of words or characters. Words are joined with single spaces; joining characters restores the text."""

    def __init__(self, kind: str, tokens: list[str]) -> None:
        self.kind = kind
        self.pieces = tokens
        self.lookup = {token: index for index, token in enumerate(tokens) if index >= len(SYMBOLS)}
        if tuple(tokens[: len(SYMBOLS)]) != SYMBOLS or len(self.lookup) != len(tokens) - len(SYMBOLS):
            raise DataError(f"A vocabulary must begin with {SYMBOLS} and have no duplicate tokens.")

    @property
    def content(self) -> bytes:
        return json.dumps(self.pieces, ensure_ascii=True).encode()

    def __len__(self) -> int:
        return len(self.pieces)

    def ids(self, text: str) -> list[int]:
        return [self.lookup.get(token, UNKNOWN) for token in _PATTERNS[self.kind].findall(text)]

    def many(self, texts: list[str], end: bool) -> list[list[int]]:
        return [self.ids(text) + [END] * end for text in texts]

    def split(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        """Ids, pieces, and the characters [start, end) of `text` that each piece covers."""
        found = list(_PATTERNS[self.kind].finditer(text))
        pieces = [match[0] for match in found]
        return [self.lookup.get(piece, UNKNOWN) for piece in pieces], pieces, [match.span() for match in found]

    def join(self, ids: list[int]) -> str:
        return _GLUE[self.kind].join(self.pieces[index] for index in ids)

    def surfaces(self, ids: list[int]) -> list[bytes]:
        """What each id adds to the text, as UTF-8."""
        before = _GLUE[self.kind]
        return [(before + self.pieces[index]).encode() for index in ids]


def count_plain(lines: Iterable[str], kind: str, size: int, min_count: int) -> Plain:
    """The most frequent words or characters; ties are broken by code-point order."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_PATTERNS[kind].findall(line))
    if not counts:
        raise DataError("There is no text to make a vocabulary from; the corpus is empty.")
    if max(counts.values()) < min_count:
        raise DataError(f"No word occurs {min_count} times in the corpus; set data.min_count lower.")
    often = (token for token in counts if counts[token] >= min_count and token not in SYMBOLS)
    ranked = sorted(often, key=lambda token: (-counts[token], token))
    return Plain(kind, [*SYMBOLS, *ranked[: size - len(SYMBOLS)]])
