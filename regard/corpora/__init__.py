"""Generated corpora, so that everything works without downloads."""

import random
import tomllib
from collections.abc import Callable
from importlib import resources
from itertools import product
from typing import NamedTuple

from regard.errors import DataError
from regard.text.pharaoh import Link

WORDS = tomllib.loads(resources.files(__name__).joinpath("words.toml").read_text("utf-8"))
SYLLABLES = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]  # 70, without meaning


class Example(NamedTuple):
    """A sentence, its translation, and their word links."""

    source: str
    target: str
    alignment: tuple[Link, ...]


def distinct(
    name: str, size: int, seed: int, most: int, write: Callable[[random.Random], Example], fix: str = "data.size lower"
) -> list[Example]:
    """`size` examples of the corpus `name` with different sources.

    Examples are drawn until enough are distinct, so `most` is well below the number of possible ones.
    """
    if size > most:
        raise DataError(f"There are about {most} different {name}, too few for {size} distinct ones; set {fix}.")
    draw = random.Random(f"{name}:{seed}")
    examples: dict[str, Example] = {}
    while len(examples) < size:
        made = write(draw)
        examples.setdefault(made.source, made)
    return list(examples.values())
