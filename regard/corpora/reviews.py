"""`reviews`: film reviews by a small grammar, in which a few sentences decide and the others only narrate.

    The story begins in a small town. The hero is not a good man. The music was never dull. ...

A review is positive or negative. One to three of its sentences judge the film (its acting, its music ...), all with the
same verdict; the rest narrate the plot or the evening. The same adjectives and negations occur in both kinds: a
deciding sentence is recognised by its subject, and its verdict by adjective and negation together. So no single word
decides, and the relevant sentences are known.
"""

import random
from typing import NamedTuple

from regard.corpora import WORDS

LABELS = ("negative", "positive")

_WORDS = WORDS["reviews"]
_GOOD, _BAD, _ASPECTS = _WORDS["good"], _WORDS["bad"], _WORDS["aspects"]
_NOT = ("not", "never")
_SENTENCES = 6, 14  # in a review: fewest and most


class Review(NamedTuple):
    """A review, its label, and the sentences that decide it, counted from 0."""

    sentences: tuple[str, ...]
    label: str
    deciding: tuple[int, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def generate(size: int, seed: int) -> list[Review]:
    """Distinct reviews, half of them positive on average; a pure function of its arguments."""
    draw = random.Random(f"reviews:{seed}")
    found: dict[tuple[str, ...], Review] = {}
    while len(found) < size:
        review = _write(draw, draw.randint(*_SENTENCES))
        found.setdefault(review.sentences, review)
    return list(found.values())


def _write(draw: random.Random, length: int) -> Review:
    label = draw.choice(LABELS)
    deciding = tuple(sorted(draw.sample(range(length), draw.randint(1, 3))))
    sentences = tuple(_judge(draw, label) if place in deciding else _narrate(draw) for place in range(length))
    return Review(sentences, label, deciding)


def _judge(draw: random.Random, label: str) -> str:
    kind, opposite = (_GOOD, _BAD) if label == "positive" else (_BAD, _GOOD)
    negated = draw.random() < 0.5
    verdict = f"{draw.choice(_NOT)} {draw.choice(opposite)}" if negated else draw.choice(kind)
    aspect, other = draw.sample(_ASPECTS, 2)
    return draw.choice(_WORDS["verdicts"]).format(aspect=aspect, other=other, verdict=verdict)


def _narrate(draw: random.Random) -> str:
    person, other = draw.sample(_WORDS["people"], 2)
    time = draw.choice(_WORDS["times"])
    sentence = draw.choice(_WORDS["tellings"]).format(
        person=person,
        other_person=other,
        place=draw.choice(_WORDS["places"]),
        time=time,
        Time=time[0].upper() + time[1:],
        thing=draw.choice(_WORDS["things"]),
        word=draw.choice(_GOOD + _BAD),
        negation=draw.choice((*_NOT, "")),
    )
    return sentence.replace("  ", " ")
