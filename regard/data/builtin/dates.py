"""`dates`: dates as people write them, to ISO 8601 (2024-03-09), one of the first tasks attention was shown on."""

import datetime
import random

from regard.data.builtin import WORDS, Example
from regard.errors import DataError

_FIRST = datetime.date(1900, 1, 1)
_DAYS = (datetime.date(2100, 1, 1) - _FIRST).days
_MONTHS, _WEEKDAYS, _FORMATS = (WORDS["dates"][name] for name in ("months", "weekdays", "formats"))


def generate(size: int, seed: int, min_words: int, max_words: int) -> list[Example]:
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
