"""Sentences and clauses: where they end, where they do not, and that no character is lost."""

import random

import pytest

from regard.text.sentences import split_clauses, split_sentences


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    "written",
    [
        "Mr. Smith paid 3.5 million. | He left at 5 p.m. on Monday.",
        "M. Dupont et Mme. Curie sont là. | Oui.",
        "« Il dort. » | Puis il part.",
        "“Go!” he said. | “Now.” | She went.",
        "No. 5 is alive. | No. | I am not.",
        "See p. 12. | Then art. 3 applies.",
        "1. The first item. | 2. The second.",
        "Am 3. Oktober 1990 kam er. | Dann ging er.",
        "It was 1992. | He left.",
        "It was I. | He ran.",
        "He lives in the U.S. and works.",
        "the dog sleeps . | the cat eats .",
        "Wait... | What? | yes!",
        "Quoi ? | Rien.",
        "أين المحطة؟ | هنا.",
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(written: str):
    expected = written.split(" | ")
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize("expected", [["你好。", "我们走吧！", "好"], ["「行くよ。」と言った。", "彼は去った。"]])
def test_scripts_without_spaces(expected: list[str]):
    assert sentences("".join(expected)) == expected


def test_what_is_between_sentences_is_white_space():
    draw = random.Random(3)
    pieces = ["Ba da", ".", "!", "?", " ", "\n\n", "Mr", "5", "。", "»", '"', "…", "a", "I", "\u00a0", "3"]
    for _ in range(2000):
        text = "".join(draw.choices(pieces, k=draw.randint(0, 15)))
        spans = split_sentences(text)
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        assert edges == sorted(edges)
        assert all(not text[a:b].strip() for a, b in zip(edges[::2], edges[1::2], strict=True))


def words(text: str) -> list[int]:
    return [
        place for place, letter in enumerate(text) if not letter.isspace() and (not place or text[place - 1] == " ")
    ]


def test_a_long_sentence_is_cut_at_its_strongest_marks():
    text = "one two, three four; five six seven eight, nine ten eleven twelve"
    cut = lambda most: [text[a:b] for a, b in split_clauses(text, (0, len(text)), words(text), most)]  # noqa: E731
    assert cut(12) == [text]
    assert cut(8) == ["one two, three four;", "five six seven eight, nine ten eleven twelve"]
    assert cut(5) == ["one two, three four;", "five six seven eight,", "nine ten eleven twelve"]
    assert max(part.count(" ") + 1 for part in cut(2)) <= 2


def test_a_sentence_without_marks_is_cut_between_words_and_a_word_between_tokens():
    text = "ba da fo lu me ko"
    assert [text[a:b] for a, b in split_clauses(text, (0, len(text)), words(text), 3)] == ["ba da fo", "lu me ko"]
    whole = "x" * 50
    parts = split_clauses(whole, (0, 50), list(range(50)), 20)
    assert "".join(whole[a:b] for a, b in parts) == whole
    assert max(b - a for a, b in parts) <= 20
