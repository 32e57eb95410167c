"""The sentence splitter: where sentences end, that no word is lost, that offsets are right, and that time is linear."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.sentences import split_sentences, split_words


def shown(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Smith met Dr. J. R. Jones. He left.", ["Mr. Smith met Dr. J. R. Jones.", "He left."]),
        ("It cost $3.50 in the U.S. Army. So it goes.", ["It cost $3.50 in the U.S. Army.", "So it goes."]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ('"Well!" he said. (Really?) Yes.', ['"Well!" he said.', "(Really?)", "Yes."]),
        ("Wait... what? no way! ok", ["Wait... what?", "no way!", "ok"]),
        ("It was I. Then we ran.", ["It was I.", "Then we ran."]),
        ("good.<br /><br />But long.<BR>End", ["good.", "But long.", "End"]),
        ("a line\nthat goes on. New\n \nparagraph", ["a line\nthat goes on.", "New", "paragraph"]),
        ("今日は。元気？はい！Yes. No", ["今日は。", "元気？", "はい！", "Yes.", "No"]),
        ("e.g. this, i.e. that, etc. and on", ["e.g. this, i.e. that, etc. and on"]),
        ("\u00a0 \n\t ", []),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]):
    assert shown(text) == expected


def test_words_keep_their_place():
    text = "Don't stop!!! It's 3.5, naïve — 東京"
    spans = split_words(text, (0, len(text)))
    assert [text[a:b] for a, b in spans] == ["Don't", "stop", "!!!", "It's", "3", ".", "5", ",", "naïve", "—", "東京"]
    assert split_words(text, (6, 13)) == [(6, 10), (10, 13)]


hostile = st.text(
    st.sampled_from(list("a.!?…。\"')] \n\t\u00a0\u2028\u2029\x85\x00<br />Mr'’B\u0301\ud800")), max_size=60
)


@given(st.one_of(hostile, st.text(max_size=60)))
def test_every_character_that_is_not_space_is_in_exactly_one_sentence(text: str):
    sentences = split_sentences(text)
    place = 0
    for start, end in sentences:
        assert place <= start < end <= len(text)
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        place = end
    covered = "".join(text[start:end] for start, end in sentences)
    without = re.sub(r"(?i)<br {0,4}/?>", "", text)
    assert re.sub(r"\s", "", covered) == re.sub(r"\s", "", without)
    words = [word for sentence in sentences for word in split_words(text, sentence)]
    assert "".join(text[a:b] for a, b in words) == re.sub(r"\s", "", covered)


PATTERNS = (".", ". ", '."', "\n ", "\n", "<br ", " ", "a'", "A. ", "。", "!?", ".\u00a0", "x.y")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_time_grows_with_the_text_and_no_faster(pattern: str):
    """Each takes well under a second; if the time grew with the square it would take many minutes."""
    text = pattern * 100_000
    words = [word for sentence in split_sentences(text) for word in split_words(text, sentence)]
    assert sum(end - start for start, end in words) == len(re.sub(r"\s", "", text))
