"""What a generator of a built-in corpus gives."""

from typing import NamedTuple

Link = tuple[int, int]  # (source word, target word), both counted from 0, words being what spaces separate


class Example(NamedTuple):
    """A sentence, its translation, and which words belong to each other."""

    source: str
    target: str
    alignment: tuple[Link, ...]
