"""Corpora that regard generates itself, so that everything works with nothing downloaded."""

import tomllib
from importlib import resources
from typing import NamedTuple

from regard.data.pharaoh import Link

WORDS = tomllib.loads(resources.files(__name__).joinpath("words.toml").read_text("utf-8"))


class Example(NamedTuple):
    """A sentence, its translation, and which words belong to each other."""

    source: str
    target: str
    alignment: tuple[Link, ...]
