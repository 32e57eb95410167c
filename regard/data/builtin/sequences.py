"""`copy` and `reverse`: the two tasks in which everybody sees at a glance where a model must look."""

import random
from itertools import product

from regard.data.builtin import Example
from regard.errors import DataError

_SYLLABLES = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]  # 70 tokens


def generate_copy(size: int, seed: int, min_words: int, max_words: int) -> list[Example]:
    """Random syllables, and the same again."""
    return [
        Example(" ".join(row), " ".join(row), tuple((place, place) for place in range(len(row))))
        for row in _rows(size, seed, min_words, max_words)
    ]


def generate_reverse(size: int, seed: int, min_words: int, max_words: int) -> list[Example]:
    """Random syllables, and the same from last to first."""
    return [
        Example(" ".join(row), " ".join(row[::-1]), tuple((place, len(row) - 1 - place) for place in range(len(row))))
        for row in _rows(size, seed, min_words, max_words)
    ]


def _rows(size: int, seed: int, min_words: int, max_words: int) -> list[list[str]]:
    room = sum(len(_SYLLABLES) ** length for length in range(min_words, max_words + 1))
    if size > room // 2:
        raise DataError(
            f"There are {room} such sequences only, too few for {size} distinct ones; set data.max_words higher."
        )
    draw = random.Random(f"sequences:{seed}")
    rows: dict[tuple[str, ...], None] = {}
    while len(rows) < size:
        length = draw.randint(min_words, max_words)
        rows[tuple(draw.choices(_SYLLABLES, k=length))] = None
    return [list(row) for row in rows]
