"""`tales`: a few short statements, and an end that only somebody who remembers them can tell.

    anna has a kite , tom has a red drum , in the evening tom plays with the drum

Each tale says what two to four people have; then one of them is named, and the last word is what that person has. A
model without a good memory can only guess among the things named, so that the last word measures looking back.
"""

import random
from typing import NamedTuple

_NAMES = ("anna", "tom", "mary", "paul", "nora", "carl", "ella", "hugo", "lena", "oscar", "rosa", "felix")
_THINGS = (
    "kite", "drum", "ball", "boat", "book", "lamp", "doll", "flute", "sword", "clock", "horn", "rope", "ring", "knife",
    "basket", "mirror",
)  # fmt: skip
_COLOURS = ("red", "blue", "green", "tiny", "small", "new")
_WHEN = ("in the evening", "the next day", "after lunch", "later", "at last")
_GAINS = ("has", "finds", "buys", "gets")
_USES = ("plays with", "looks at", "dreams of", "shows us")


class Tale(NamedTuple):
    """A line of text, and the word, counted from 0, that tells beforehand what its last word is."""

    text: str
    told: int


def generate(size: int, seed: int) -> list[Tale]:
    """Tales, some of which may be the same; a pure function of its arguments."""
    draw = random.Random(f"tales:{seed}")
    return [_write(draw) for _ in range(size)]


def _write(draw: random.Random) -> Tale:
    people = draw.sample(_NAMES, draw.randint(2, 4))
    things = draw.sample(_THINGS, len(people))
    words: list[str] = []
    places = []
    for person, thing in zip(people, things, strict=True):
        colour = [draw.choice(_COLOURS)] if draw.random() < 0.4 else []
        words += [person, draw.choice(_GAINS), "a", *colour, thing, ","]
        places.append(len(words) - 2)
    chosen = draw.randrange(len(people))
    words += [*draw.choice(_WHEN).split(" "), people[chosen], *draw.choice(_USES).split(" "), "the", things[chosen]]
    return Tale(" ".join(words), places[chosen])
