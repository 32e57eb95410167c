"""Loops, empty output and copies are flagged, ordinary sentences are not."""

import random

import pytest

from regard.api.flags import wrong_with

ENGLISH = [
    *("the", "a", "one", "this", "small", "old", "red", "house", "man", "woman"),
    *("dog", "sees", "finds", "likes", "and", "with", "near", "under", "every", "river"),
]
FRENCH = [
    *("le", "la", "un", "ce", "petit", "vieux", "rouge", "maison", "homme", "femme"),
    *("chien", "voit", "trouve", "aime", "et", "avec", "près", "sous", "chaque", "rivière"),
]


def flags(source: list[str], output: list[str]) -> list[str]:
    return wrong_with(" ".join(source), " ".join(output), "end", same_language=False)


def sentence(words: list[str], chance: random.Random) -> list[str]:
    """Words drawn with repeats now and then, as sentences have them."""
    return [*chance.choices(words, k=chance.randint(4, 40)), "."]


def plant(kind: str, source: list[str], output: list[str], chance: random.Random) -> list[str]:
    if kind == "empty":
        return []
    if kind == "copy":
        copied = [word.capitalize() if chance.random() < 0.3 else word for word in source]
        for _ in range(len(copied) // 10):
            copied[chance.randrange(len(copied))] = chance.choice(FRENCH)
        return copied
    period = chance.randint(1, 8)
    phrase = chance.sample(FRENCH, period)
    times = chance.randint(4, 20)
    tail = chance.randint(0, period)
    return [*output[: chance.randint(0, len(output))], *phrase * times, *phrase[:tail]]


def test_planted_faults_are_found_and_ordinary_sentences_are_not() -> None:
    chance = random.Random(7)
    found = alarms = 0
    for number in range(10_000):
        source, output = sentence(ENGLISH, chance), sentence(FRENCH, chance)
        if number % 5:
            alarms += bool(flags(source, output))
        else:
            kind = ("empty", "loop", "copy")[number // 5 % 3]
            found += kind in flags(source, plant(kind, source, output, chance))
    assert found >= 0.99 * 2000
    assert alarms <= 0.01 * 8000


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [
        ("", "", []),
        ("a house", "", ["empty"]),
        ("he said no", "il a dit non non non", []),
        ("he said no", "il a dit non non non non", ["loop"]),
        ("no no no no no", "non non non non non", []),
        ("the man and the man", "le homme et le homme et", []),
        ("the man and the man", "le homme et le homme et le homme et", ["loop"]),
        ("the dog sees a cat", "The dog sees a cat", ["copy"]),
        ("the dog sees a cat", "The dog sees a chat", ["copy"]),
        ("Paris", "Paris", []),
        ("10 - 20 : 30 / 40", "10 - 20 : 30 / 40", []),
    ],
)
def test_cases(source: str, output: str, expected: list[str]) -> None:
    assert flags(source.split(), output.split()) == expected


def test_a_very_long_output_is_looked_at_quickly() -> None:
    words = [f"w{number}" for number in range(20_000)]
    assert flags(words[:50], words) == []
    assert flags(words[:50], words + ["x"] * 4) == ["loop"]
