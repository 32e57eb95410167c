"""Corpora that regard generates itself, so that everything works with nothing downloaded."""

import random
import tomllib
from collections.abc import Callable
from importlib import resources
from itertools import product
from typing import NamedTuple

from regard.data.pharaoh import Link
from regard.errors import DataError

WORDS = tomllib.loads(resources.files(__name__).joinpath("words.toml").read_text("utf-8"))
SYLLABLES = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]  # 70, that mean nothing


class Example(NamedTuple):
    """A sentence, its translation, and which words belong to each other."""

    source: str
    target: str
    alignment: tuple[Link, ...]


def distinct(
    name: str, size: int, seed: int, most: int, write: Callable[[random.Random], Example], fix: str = "data.size lower"
) -> list[Example]:
    """`size` examples of the corpus `name` with different sources, of about `most` that there are.

    They are drawn one after the other and repetitions left out, so `most` is well below what could be drawn.
    """
    if size > most:
        raise DataError(f"There are about {most} different {name}, too few for {size} distinct ones; set {fix}.")
    draw = random.Random(f"{name}:{seed}")
    examples: dict[str, Example] = {}
    while len(examples) < size:
        made = write(draw)
        examples.setdefault(made.source, made)
    return list(examples.values())
