"""The built-in corpora by name."""

from collections.abc import Callable
from typing import NamedTuple

from regard.data.builtin import Example, dates, phrasebook, sequences
from regard.errors import DataError, unknown


class Builtin(NamedTuple):
    """A corpus that is generated: `generate(size, seed, min_words, max_words)`."""

    name: str
    meaning: str
    source_language: str
    target_language: str
    generate: Callable[[int, int, int, int], list[Example]]


BUILTIN: dict[str, Builtin] = {
    entry.name: entry
    for entry in (
        Builtin(
            "phrasebook",
            "English to French by a small grammar: words change place and agree; with gold word alignments",
            "en",
            "fr",
            phrasebook.generate,
        ),
        Builtin("dates", "dates as people write them, to ISO 8601", "en", "iso", dates.generate),
        Builtin("copy", "random syllables, to the same again", "", "", sequences.generate_copy),
        Builtin("reverse", "random syllables, to the same from last to first", "", "", sequences.generate_reverse),
    )
}


def find_builtin(name: str) -> Builtin:
    """The built-in corpus of that name, or a sentence that says which there are."""
    if name not in BUILTIN:
        raise DataError(unknown("built-in corpus", name, BUILTIN))
    return BUILTIN[name]
