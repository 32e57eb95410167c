"""`reviews`: film reviews by a small grammar, in which a few sentences decide and the others only tell.

    The story begins in a small town. The hero is not a good man. The music was never dull. ...

A review is positive or negative. One to three of its sentences judge the film (its acting, its music ...), all to the
same end; the rest tell the plot or the evening. The same words of praise and blame, and the same negations, occur in
both kinds: a deciding sentence is known by what it speaks of, and its verdict by adjective and negation together. So
no word decides alone, and it is known which sentences must be looked at.
"""

import random
from typing import NamedTuple

from regard.errors import DataError

LABELS = ("negative", "positive")

_GOOD = ("good", "great", "brilliant", "charming", "wonderful", "clever", "beautiful", "moving")
_BAD = ("bad", "dreadful", "dull", "clumsy", "boring", "grim", "weak", "terrible")
_ASPECTS = ("acting", "music", "script", "camera work", "dialogue", "ending", "editing", "direction", "pace", "sound")
_PEOPLE = ("hero", "mother", "doctor", "king", "neighbour", "teacher", "captain", "stranger", "sister", "painter")
_PLACES = ("a small town", "an old house", "the harbour", "a quiet village", "the mountains", "a hotel", "the station")
_THINGS = ("letter", "map", "knife", "garden", "horse", "ring", "boat", "diary", "song", "coat")
_TIMES = ("one day", "in the summer", "late at night", "years ago", "on a Sunday", "after the war", "before dawn")
_NOT = ("not", "never")

# A deciding sentence: {verdict} is an adjective, or a negation and the opposite one.
_VERDICTS = (
    "The {aspect} was {verdict}.",
    "I found the {aspect} {verdict}.",
    "For me the {aspect} is {verdict}.",
    "The {aspect} and the {other} are {verdict}.",
    "Its {aspect} seemed {verdict} to all of us!",
)
# A neutral sentence: {word} is any adjective, of either kind, and {negation} a negation or nothing.
_TELLINGS = (
    "The story begins in {place} {time}.",
    "The {person} is {negation} a {word} man.",
    "{Time} the {person} finds a {word} {thing}.",
    "A {person} and a {other_person} meet in {place}.",
    "Nobody knows where the {thing} comes from.",
    "The {person} was {negation} {word} to the {other_person}.",
    "Then the {person} says that the {thing} is {negation} {word}.",
    "We saw it {time} in {place}.",
    "They look for the {thing} until the {person} leaves.",
    "Does the {person} want the {word} {thing}?",
)


class Review(NamedTuple):
    """A review, what it says in the end, and which of its sentences say so (counted from 0)."""

    sentences: tuple[str, ...]
    label: str
    deciding: tuple[int, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def generate(size: int, seed: int, min_sentences: int = 6, max_sentences: int = 14) -> list[Review]:
    """Distinct reviews, half of them positive on average; a pure function of its arguments."""
    if not 4 <= min_sentences <= max_sentences:
        raise DataError(
            f"A review has at least 4 sentences, and at most no fewer than at least; got {min_sentences} to "
            f"{max_sentences}."
        )
    draw = random.Random(f"reviews:{seed}")
    found: dict[tuple[str, ...], Review] = {}
    while len(found) < size:
        review = _write(draw, draw.randint(min_sentences, max_sentences))
        found.setdefault(review.sentences, review)
    return list(found.values())


def _write(draw: random.Random, length: int) -> Review:
    label = draw.choice(LABELS)
    deciding = tuple(sorted(draw.sample(range(length), draw.randint(1, 3))))
    sentences = tuple(_judge(draw, label) if place in deciding else _tell(draw) for place in range(length))
    return Review(sentences, label, deciding)


def _judge(draw: random.Random, label: str) -> str:
    kind, opposite = (_GOOD, _BAD) if label == "positive" else (_BAD, _GOOD)
    negated = draw.random() < 0.5
    verdict = f"{draw.choice(_NOT)} {draw.choice(opposite)}" if negated else draw.choice(kind)
    aspect, other = draw.sample(_ASPECTS, 2)
    return draw.choice(_VERDICTS).format(aspect=aspect, other=other, verdict=verdict)


def _tell(draw: random.Random) -> str:
    person, other = draw.sample(_PEOPLE, 2)
    time = draw.choice(_TIMES)
    sentence = draw.choice(_TELLINGS).format(
        person=person,
        other_person=other,
        place=draw.choice(_PLACES),
        time=time,
        Time=time[0].upper() + time[1:],
        thing=draw.choice(_THINGS),
        word=draw.choice(_GOOD + _BAD),
        negation=draw.choice((*_NOT, "")),
    )
    return sentence.replace("  ", " ")
