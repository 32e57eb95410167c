"""Alignments: files there and back, the error rate of papers, directions joined, links out of weights."""

import itertools
import os
import random
from pathlib import Path

import numpy as np
import papers
import pytest

from regard.errors import DataError
from regard.evaluate.alignment import (
    SYMMETRISATIONS,
    argmax_links,
    mutual_argmax_links,
    read_gold,
    score_alignments,
    symmetrise,
    threshold_links,
    write_pharaoh,
)
from regard.text.lines import read_lines
from regard.text.pharaoh import Gold, format_pharaoh, parse_gold, parse_pharaoh

DATA = Path(os.environ.get("REGARD_DATA", Path(__file__).parent.parent / "data"))
HANSARDS = DATA / "hansards.en-fr" / "dev.gold.bz2"


def links(*pairs: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(pairs)


@pytest.mark.parametrize(
    ("method", "final"), [("grow-diag", ""), ("grow-diag-final", "or"), ("grow-diag-final-and", "and")]
)
def test_links_grow_in_the_order_that_was_published(method: str, final: str):
    draw = random.Random(1)
    for _ in range(300):
        n, m = draw.randint(2, 7), draw.randint(2, 6)
        forward = {(draw.randrange(m), target) for target in range(n)}
        backward = {(source, draw.randrange(n)) for source in range(m)}
        assert symmetrise(forward, backward, method) == papers.grow_diag_final(forward, backward, n, m, final)


def test_pharaoh_lines_there_and_back(tmp_path: Path) -> None:
    alignments = [links((0, 0), (10, 2), (2, 11)), links(), links((3, 1))]
    assert format_pharaoh(alignments[0]) == "0-0 2-11 10-2"
    write_pharaoh(alignments, tmp_path / "links.txt")
    assert (tmp_path / "links.txt").read_bytes() == b"0-0 2-11 10-2\n\n3-1\n"
    assert [parse_pharaoh(line, "") for line in read_lines(tmp_path / "links.txt")] == alignments


def test_gold_lines_count_from_one_and_tell_sure_from_possible() -> None:
    assert parse_gold("2-1 1p3") == Gold(links((1, 0)), links((1, 0), (0, 2)))
    assert parse_gold("0-0 1p3", first=0) == Gold(links((0, 0)), links((0, 0), (1, 3)))
    assert parse_gold("") == Gold(links(), links())


@pytest.mark.parametrize("wrong", ["1", "1-", "-1-2", "a-b", "1_2", "1-2-3", "1x2", "²-1", "1.5-2"])
def test_lines_of_another_form_are_refused(wrong: str) -> None:
    with pytest.raises(DataError, match="must hold links i-j with integers"):
        parse_pharaoh(f"0-0 {wrong}")
    with pytest.raises(DataError, match=r"links i-j \(sure\) and ipj \(possible\)"):
        parse_gold(f"1-1 {wrong}")


def test_errors_name_the_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_bytes(b"1-1 2p2\n0-0\n")
    with pytest.raises(DataError, match=r"line 2, must count words from 1; got '0-0'. Is the file counted from 0"):
        read_gold(path)


def test_the_error_rate_of_the_worked_example() -> None:
    sure = links((0, 0), (1, 1))
    found = score_alignments([links((0, 0), (1, 2), (2, 1))], [Gold(sure, sure | {(1, 2)})])
    assert found.aer == pytest.approx(0.4)
    assert (found.precision, found.recall) == pytest.approx((2 / 3, 1 / 2))
    assert str(found) == "AER 40.00  precision 66.67  recall 50.00  (3 links, 2 sure)"


def test_the_error_rate_is_zero_for_the_sure_links_and_stays_between_zero_and_one() -> None:
    chance = random.Random(0)
    for _ in range(200):
        every = [(i, j) for i in range(4) for j in range(5)]
        possible = frozenset(chance.sample(every, 8))
        sure = frozenset(chance.sample(sorted(possible), 3))
        assert score_alignments([sure], [Gold(sure, possible)]).aer == 0
        assert score_alignments([possible], [Gold(sure, possible)]).aer == 0
        found = score_alignments([chance.sample(every, 6)], [Gold(sure, possible)])
        assert 0 <= found.aer <= 1


def test_possible_holds_the_sure_links_even_where_it_was_not_said() -> None:
    assert score_alignments([links((0, 0))], [Gold(links((0, 0)), links())]).aer == 0


def test_counts_are_summed_over_the_corpus() -> None:
    short, long = links((0, 0)), links(*((i, i) for i in range(9)))
    gold = [Gold(short, short), Gold(long, long)]
    found = score_alignments([links((0, 1)), long], gold)
    assert found.aer == pytest.approx(1 - 18 / 20)  # the mean of sentences would be 0.5


def test_nothing_found_and_nothing_sure() -> None:
    empty = score_alignments([links()], [Gold(links((0, 0)), links((0, 0)))])
    assert (empty.aer, empty.precision, empty.recall) == (1, 0, 0)
    assert score_alignments([], []).aer == 0
    with pytest.raises(DataError, match="Each alignment needs its gold one; got 1 and 0"):
        score_alignments([links()], [])


FORWARD = links((0, 0), (1, 1), (2, 1), (3, 3), (5, 4), (8, 6))
BACKWARD = links((0, 0), (1, 1), (1, 2), (3, 3), (4, 4), (7, 8), (8, 8))


def test_ways_to_join_two_directions() -> None:
    both = links((0, 0), (1, 1), (3, 3))
    assert symmetrise(FORWARD, BACKWARD, "intersection") == both
    assert symmetrise(FORWARD, BACKWARD, "union") == FORWARD | BACKWARD
    # (4, 4) touches (3, 3), and (5, 4) then touches (4, 4); the far ones touch nothing.
    grown = both | {(2, 1), (1, 2), (4, 4), (5, 4)}
    assert symmetrise(FORWARD, BACKWARD, "grow-diag") == grown
    # (8, 6) comes first; (7, 8) has two free words; (8, 8) has none left.
    assert symmetrise(FORWARD, BACKWARD, "grow-diag-final") == grown | {(8, 6), (7, 8)}
    assert symmetrise(FORWARD, BACKWARD, "grow-diag-final-and") == grown | {(8, 6), (7, 8)}
    # A link with one free word tells final from final-and.
    near = links((0, 0), (0, 5))
    assert symmetrise(near, links((0, 0)), "grow-diag-final") == near
    assert symmetrise(near, links((0, 0)), "grow-diag-final-and") == links((0, 0))


def test_laws_of_joining() -> None:
    chance = random.Random(1)
    every = [(i, j) for i in range(7) for j in range(6)]
    for _ in range(100):
        one, other = frozenset(chance.sample(every, 9)), frozenset(chance.sample(every, 9))
        joined = {method: symmetrise(one, other, method) for method in SYMMETRISATIONS}
        order = ["intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final", "union"]
        for smaller, larger in itertools.pairwise(order):
            assert joined[smaller] <= joined[larger] or (smaller, larger) == (order[2], order[3])
        assert joined["grow-diag"] <= joined["grow-diag-final"]
        for method in SYMMETRISATIONS:
            assert symmetrise(one, one, method) == one
        for words in (0, 1):  # final leaves no word without a link that had one in either direction
            linked = {link[words] for link in joined["grow-diag-final"]}
            assert linked == {link[words] for link in one | other}
    with pytest.raises(DataError, match=r"There is no symmetrisation 'grow'.*intersection, union, grow-diag"):
        symmetrise(one, other, "grow")


WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.6, 0.4, 0.0], [0.0, 0.0, 0.0], [0.1, 0.3, 0.6]])  # [T, S]


def test_links_out_of_weights() -> None:
    assert argmax_links(WEIGHTS) == links((0, 0), (0, 1), (2, 3))
    assert mutual_argmax_links(WEIGHTS) == links((0, 0), (2, 3))
    assert threshold_links(WEIGHTS, 0.3) == links((0, 0), (0, 1), (1, 1), (1, 3), (2, 3))
    assert threshold_links(WEIGHTS, 0.0) == links(*((s, t) for t, s in zip(*np.nonzero(WEIGHTS), strict=True)))


def test_equal_weights_choose_the_first_word_and_no_words_have_no_links() -> None:
    assert argmax_links(np.full((2, 3), 1 / 3)) == links((0, 0), (0, 1))
    for shape in ((0, 3), (3, 0)):
        assert argmax_links(np.zeros(shape)) == mutual_argmax_links(np.zeros(shape)) == links()


def test_links_are_plain_whole_numbers() -> None:
    for found in (argmax_links(WEIGHTS), mutual_argmax_links(WEIGHTS), threshold_links(WEIGHTS, 0.1)):
        assert all(type(word) is int for link in found for word in link)


@pytest.mark.data
@pytest.mark.skipif(not HANSARDS.exists(), reason=f"{HANSARDS} is missing: python benchmarks/data.py hansards.en-fr")
def test_the_hansards_gold_file_is_read() -> None:
    gold = read_gold(HANSARDS)
    assert len(gold) == 200
    assert score_alignments([sure for sure, _ in gold], gold).aer == 0
    assert all(sure <= possible for sure, possible in gold)
    assert sum(len(possible - sure) for sure, possible in gold) > 1000
