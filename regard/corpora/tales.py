"""`tales`: who has what, with an end that can only be predicted by remembering the beginning.

    anna has drums , tom finds kites , so tom uses kites and anna likes drums

A tale says what two or three people have, and then what each of them does with it, in another order. The things of the
second half follow only from the first half: a model without a good memory can only guess among all things, so that
these words measure memory.

`summaries` are pairs of a tale and its second half without connectives, with people in the order of the first half:

    anna likes drums ; tom uses kites
"""

import random
from typing import NamedTuple

from regard.corpora import Example

_NAMES = ("anna", "tom", "mary", "paul", "nora", "carl")
_THINGS = ("kites", "drums", "balls", "boats", "books", "lamps", "dolls", "flutes")
_HAS = ("has", "finds")
_DOES = ("uses", "likes")
ROOM = 1_000_000  # far below the number of tales, so that distinct ones are found quickly


class Tale(NamedTuple):
    """A line of text, and (recalled, introduced) pairs of words, counted from 0: the first repeats the second."""

    text: str
    links: tuple[tuple[int, int], ...]


def generate(size: int, seed: int) -> list[Tale]:
    """Tales, possibly with repetitions; a pure function of its arguments."""
    draw = random.Random(f"tales:{seed}")
    return [_write(draw) for _ in range(size)]


def summarise(draw: random.Random) -> Example:
    """A tale and the clauses of its second half, in the order of the first; each word is linked to the word it
    repeats."""
    tale = _write(draw)
    words, summary, links = tale.text.split(" "), list[str](), list[tuple[int, int]]()
    for recalled, _ in sorted(tale.links, key=lambda link: link[1]):
        summary += [";"] if summary else []
        for place in range(recalled - 2, recalled + 1):  # person, verb, thing
            links.append((place, len(summary)))
            summary.append(words[place])
    return Example(tale.text, " ".join(summary), tuple(sorted(links)))


def _write(draw: random.Random) -> Tale:
    people = draw.sample(_NAMES, draw.randint(2, 3))
    things = draw.sample(_THINGS, len(people))
    words: list[str] = []
    introduced = {}
    for person, thing in zip(people, things, strict=True):
        words += [person, draw.choice(_HAS), thing, ","]
        introduced[person] = len(words) - 2
    links = []
    for place, person in enumerate(draw.sample(people, len(people))):
        words += ["and" if place else "so", person, draw.choice(_DOES), words[introduced[person]]]
        links.append((len(words) - 1, introduced[person]))
    return Tale(" ".join(words), tuple(links))
