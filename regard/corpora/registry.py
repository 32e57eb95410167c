"""The built-in corpora of text pairs by name, and the smallest of them: `copy`, `reverse` and `dates`."""

import datetime
import random
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from regard.corpora import SYLLABLES, WORDS, Example, distinct, names, phrasebook, questions, tales
from regard.errors import DataError, check_known

_FIRST = datetime.date(1900, 1, 1)
_DAYS = (datetime.date(2100, 1, 1) - _FIRST).days
_ENDINGS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}  # of the days of a month
_MONTHS, _WEEKDAYS, _FORMATS = (WORDS["dates"][name] for name in ("months", "weekdays", "formats"))


def _sequences(order: Callable[[range], range], size: int, seed: int, fewest: int, most: int) -> list[Example]:
    """Sequences of random syllables, and the same in another order."""

    def write(draw: random.Random) -> Example:
        words = draw.choices(SYLLABLES, k=draw.randint(fewest, most))
        places = order(range(len(words)))
        links = tuple(sorted((source, target) for target, source in enumerate(places)))
        return Example(" ".join(words), " ".join(words[place] for place in places), links)

    room = sum(len(SYLLABLES) ** length for length in range(fewest, most + 1))
    return distinct("sequences", size, seed, room // 2, write, "data.max_words higher")


generate_copy = partial(_sequences, lambda places: places)
generate_reverse = partial(_sequences, lambda places: places[::-1])


def _write_date(draw: random.Random) -> Example:
    """A date between 1900 and 2099 as people write it. The target is one word, linked to the words with year, month or
    day."""
    date = _FIRST + datetime.timedelta(days=draw.randrange(_DAYS))
    month = _MONTHS[date.month - 1]
    source = draw.choice(_FORMATS).format(
        day=date.day,
        ordinal=f"{date.day}{_ENDINGS.get(date.day, 'th')}",
        number=date.month,
        month=month,
        short=month[:3],
        weekday=_WEEKDAYS[date.weekday()],
        year=date.year,
    )
    if draw.random() < 0.2:
        source = source.lower()
    spoken = ("the", "of", "in", "year", *(f"{day.lower()}," for day in _WEEKDAYS), *map(str.lower, _WEEKDAYS))
    links = tuple((place, 0) for place, word in enumerate(source.split(" ")) if word.lower() not in spoken)
    return Example(source, date.isoformat(), links)


Generate = Callable[[int, int, int, int], list[Example]]  # (size, seed, min_words, max_words)


def _drawn(name: str, most: int, write: Callable[[random.Random], Example]) -> Generate:
    """Distinct examples; the limits on their length are not used."""
    return lambda size, seed, min_words, max_words: distinct(name, size, seed, most, write)


class Builtin(NamedTuple):
    """A generated corpus."""

    name: str
    meaning: str
    source_language: str
    target_language: str
    generate: Generate


BUILTIN: dict[str, Builtin] = {
    entry.name: entry
    for entry in (
        Builtin("phrasebook",
                "English to French by a small grammar: words change place and agree; with gold word alignments",
                "en", "fr", phrasebook.generate),
        Builtin("dates", "dates as people write them, to ISO 8601", "en", "iso",
                _drawn("dates", _DAYS * len(_FORMATS) // 2, _write_date)),
        Builtin("copy", "random syllables, to the same sequence", "", "", generate_copy),
        Builtin("reverse", "random syllables, to the reversed sequence", "", "", generate_reverse),
        Builtin("names", "English to French with invented names, which must be copied", "en", "fr",
                _drawn("names", names.MOST, names.write)),
        Builtin("questions", "a short story and a question about it, to the word that answers it", "en", "en",
                _drawn("questions", questions.ROOM, questions.write)),
        Builtin("summaries", "a tale of who has what, to what each person does with it", "en", "en",
                _drawn("summaries", tales.ROOM, tales.summarise)),
    )
}  # fmt: skip


OTHERS = {"tales": "lines of text", "reviews": "documents", "shapes": "pictures"}  # the other corpora and their content


def find_builtin(name: str) -> Builtin:
    """The built-in corpus of this name; the error for an unknown name lists all of them."""
    check_kind(name, BUILTIN)
    return BUILTIN[name]


def check_kind(name: str, known: Collection[str]) -> None:
    """Refuse a built-in corpus that is not among those `known` to a task."""
    holds = "pairs of texts" if name in BUILTIN else OTHERS.get(name)
    if holds and name not in known:
        raise DataError(
            f"The built-in corpus {name!r} holds {holds}, which this model does not read. It reads: {', '.join(known)}."
        )
    check_known("built-in corpus", name, known, error=DataError)
