"""The built-in corpora of text pairs by name, and the smallest of them: `copy`, `reverse` and `dates`."""

import datetime
import random
from collections.abc import Callable
from typing import NamedTuple

from regard.data.builtin import WORDS, Example, names, phrasebook, questions, tales
from regard.data.builtin.syllables import SYLLABLES
from regard.errors import DataError, unknown

_FIRST = datetime.date(1900, 1, 1)
_DAYS = (datetime.date(2100, 1, 1) - _FIRST).days
_MONTHS, _WEEKDAYS, _FORMATS = (WORDS["dates"][name] for name in ("months", "weekdays", "formats"))


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
    room = sum(len(SYLLABLES) ** length for length in range(min_words, max_words + 1))
    if size > room // 2:
        raise DataError(
            f"There are {room} such sequences only, too few for {size} distinct ones; set data.max_words higher."
        )
    draw = random.Random(f"sequences:{seed}")
    rows: dict[tuple[str, ...], None] = {}
    while len(rows) < size:
        length = draw.randint(min_words, max_words)
        rows[tuple(draw.choices(SYLLABLES, k=length))] = None
    return [list(row) for row in rows]


def generate_dates(size: int, seed: int, min_words: int, max_words: int) -> list[Example]:
    """Distinct written dates between 1900 and 2099. Their lengths are what they are: the limits are not used.

    The target is one word, to which the words that hold year, month or day belong.
    """
    room = _DAYS * len(_FORMATS)
    if size > room // 2:
        raise DataError(f"There are about {room} written dates, too few for {size} distinct ones; set data.size lower.")
    draw = random.Random(f"dates:{seed}")
    examples: dict[str, Example] = {}
    while len(examples) < size:
        date = _FIRST + datetime.timedelta(days=draw.randrange(_DAYS))
        source = _write(date, draw.choice(_FORMATS))
        if draw.random() < 0.2:
            source = source.lower()
        spoken = ("the", "of", "in", "year", *(f"{day.lower()}," for day in _WEEKDAYS), *map(str.lower, _WEEKDAYS))
        links = tuple((place, 0) for place, word in enumerate(source.split(" ")) if word.lower() not in spoken)
        examples.setdefault(source, Example(source, date.isoformat(), links))
    return list(examples.values())


def _write(date: datetime.date, form: str) -> str:
    month = _MONTHS[date.month - 1]
    return form.format(
        day=date.day,
        ordinal=_ordinal(date.day),
        number=date.month,
        month=month,
        short=month[:3],
        weekday=_WEEKDAYS[date.weekday()],
        year=date.year,
    )


def _ordinal(day: int) -> str:
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


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
        Builtin("dates", "dates as people write them, to ISO 8601", "en", "iso", generate_dates),
        Builtin("copy", "random syllables, to the same again", "", "", generate_copy),
        Builtin("reverse", "random syllables, to the same from last to first", "", "", generate_reverse),
        Builtin("names", "English to French with invented names, which must be copied", "en", "fr", names.generate),
        Builtin(
            "questions",
            "a short story and a question about it, to the word that answers it",
            "en",
            "en",
            questions.generate,
        ),
        Builtin("summaries", "a tale of who has what, to what each of them does with it", "en", "en", tales.summaries),
    )
}


def find_builtin(name: str) -> Builtin:
    """The built-in corpus of that name, or a sentence that says which there are."""
    if name not in BUILTIN:
        raise DataError(unknown("built-in corpus", name, BUILTIN))
    return BUILTIN[name]
