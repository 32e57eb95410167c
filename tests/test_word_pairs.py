"""Links learned from parallel text alone: exact probabilities of a small chain, and words that go together."""

import itertools
import random

import numpy as np
import pytest

from regard.corpora.phrasebook import generate
from regard.errors import DataError
from regard.evaluate import word_pairs
from regard.evaluate.alignment import mutual_argmax_links, score_alignments
from regard.evaluate.word_pairs import Text, expect_links, forward_backward
from regard.text.pharaoh import Gold


def every_path(linked: np.ndarray, unlinked: np.ndarray, jumps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `forward_backward` gives for one pair, by the sum over all links of all words."""
    T, S = linked.shape
    links, moved, total = np.zeros((T, S)), np.zeros((S, S)), 0.0
    for start, path in itertools.product(range(S), itertools.product((None, *range(S)), repeat=T)):
        # A chain starts at each place alike. Its first link, where the first word has one, is at that place.
        if path[0] not in (None, start):
            continue
        probability, last, steps = 1 / S, start, []
        for t, place in enumerate(path):
            probability *= unlinked[t] if place is None else linked[t, place]
            if place is not None:
                if t:
                    probability *= jumps[last, place]
                    steps.append((last, place))
                last = place
        total += probability
        for t, place in enumerate(path):
            if place is not None:
                links[t, place] += probability
        for step in steps:
            moved[step] += probability
    return links / total, moved / total


@pytest.mark.parametrize(("words", "places"), [(1, 1), (1, 3), (4, 1), (4, 3)])
def test_the_probabilities_are_those_of_the_sum_over_all_paths(words: int, places: int) -> None:
    chance = np.random.default_rng(words * 10 + places)
    linked, unlinked = chance.random((3, words, places)), chance.random((3, words))
    jumps = chance.random((places, places))
    jumps /= jumps.sum(1, keepdims=True)
    links, moved = forward_backward(linked, unlinked, jumps)
    expected = [every_path(one, two, jumps) for one, two in zip(linked, unlinked, strict=True)]
    np.testing.assert_allclose(links, [one for one, _ in expected], rtol=1e-4)
    np.testing.assert_allclose(moved, sum(one for _, one in expected), rtol=1e-4, atol=1e-6)
    assert np.all(links.sum(2) <= 1 + 1e-5), "a word has one link or none"


def test_words_that_go_together_are_linked_wherever_they_stand() -> None:
    draw = random.Random(3)
    sources = [" ".join(draw.sample("abcdefgh", 4)) for _ in range(300)]
    order = [draw.choice(((0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2))) for _ in sources]
    targets = [
        " ".join(line.split()[at].upper() * 2 for at in places) for line, places in zip(sources, order, strict=True)
    ]
    for weights, places in zip(expect_links(sources, targets, 50), order[-50:], strict=True):
        assert weights.argmax(1).tolist() == list(places)
        assert np.all((weights >= 0) & (weights <= 1 + 1e-5))


def test_the_phrasebook_is_aligned_better_with_more_text() -> None:
    made = generate(1500, 5, 3, 9)
    sources, targets = [one.source for one in made], [one.target for one in made]
    gold = [Gold(frozenset(one.alignment), frozenset(one.alignment)) for one in made[-100:]]
    little, much = (
        score_alignments(
            [mutual_argmax_links(one) for one in expect_links(sources[-size:], targets[-size:], 100)], gold
        )
        for size in (100, 1500)
    )
    assert much.aer < little.aer
    assert much.precision > 0.85


def test_turned_text_gives_turned_links() -> None:
    made = generate(200, 6, 3, 9)
    sources, targets = [one.source for one in made], [one.target for one in made]
    ahead, behind = expect_links(sources, targets, 20), expect_links(targets, sources, 20)
    for one, two in zip(ahead, behind, strict=True):
        np.testing.assert_allclose(one, two.T, atol=1e-4)


def test_case_does_not_count_and_an_empty_side_has_no_links() -> None:
    sources, targets = ["The cat", "the dog", "", "THE CAT"], ["le chat", "le chien", "rien", "LE CHAT"]
    assert len(Text(sources, targets).source_shares) == 3
    found = expect_links(sources, targets, 4)
    assert [one.shape for one in found] == [(2, 2), (2, 2), (1, 0), (2, 2)]
    np.testing.assert_allclose(found[0], found[3], atol=1e-6)


def test_text_without_pairs_is_refused() -> None:
    with pytest.raises(DataError, match="Each source needs its target; got 1 and 2"):
        expect_links(["a"], ["b", "c"], 1)
    with pytest.raises(DataError, match="No pair of the text has words on both sides"):
        expect_links(["a", ""], ["", "b"], 1)


def test_a_text_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(word_pairs, "_MOST", 5)
    with pytest.raises(DataError, match="has 6 places for links, more than the 5"):
        expect_links(["a b"], ["x y z"], 1)
