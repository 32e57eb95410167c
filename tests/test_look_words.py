"""What is drawn is what is said: words, hidden tokens, shift, and the numbers that tell heads apart."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_look_html import held

from regard.api.aligning import mark_aligning
from regard.api.heads import Heads
from regard.api.tracing import tokens_of
from regard.data.vocabulary import Tokenised
from regard.errors import ConfigError, DataError
from regard.look import Attended, Mask, Picture, Side, Token, Trace, measure, report
from regard.look import measure as measure_function
from regard.look.measure import confidence, coverage, coverage_penalty, covered, diagonality, entropy, special_mass
from regard.look.table import arrange, step_head, step_module

SOURCE = ["▁Das", "▁Haus", "▁ist", "▁gr", "oß", "</s>"]
TARGET = ["▁the", "▁hou", "se", "▁is", "▁big", "</s>"]


def some_weights(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1]).astype(np.float32)


WEIGHTS = some_weights(2, 3, 6, 6)
TRACE = Trace.from_arrays(SOURCE, TARGET, WEIGHTS)


def test_words_sum_over_source_pieces_and_average_over_target_pieces():
    table = arrange(TRACE, layer=0, head=1, special=True)
    assert [label.text for label in table.columns] == ["Das", "Haus", "ist", "groß", "</s>"]
    assert [label.text for label in table.rows] == ["the", "house", "is", "big", "</s>"]
    weights = WEIGHTS[0, 1]
    assert table.weights[1, 3] == pytest.approx(weights[1:3, 3:5].sum(-1).mean())
    assert table.weights[0, 0] == pytest.approx(weights[0, 0])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.booleans(), min_size=2, max_size=9),
    st.lists(st.booleans(), min_size=2, max_size=7),
)
def test_merged_words_keep_the_mass_of_every_row(seed, begins, rows):
    source = [("▁" if new else "") + f"s{at}" for at, new in enumerate(begins)]
    target = [("▁" if new else "") + f"t{at}" for at, new in enumerate(rows)]
    weights = some_weights(len(target), len(source), seed=seed) * 0.7
    merged = arrange(Trace.from_arrays(source, target, weights)).weights
    assert merged.sum(-1) == pytest.approx(np.full(len(merged), 0.7), abs=1e-5)


def test_hidden_mass_is_stated_and_may_be_shared_out():
    table = arrange(TRACE, layer=0, head=0)
    lost = WEIGHTS[0, 0, :5, 5].mean()
    assert table.hidden == pytest.approx(lost, abs=1e-6)
    assert f"</s> hidden ({lost:.2f} of the mass)" in table.caption
    assert table.weights.sum(-1).max() < 1
    again = arrange(TRACE, layer=0, head=0, renormalise=True)
    assert again.weights.sum(-1) == pytest.approx(np.ones(4), abs=1e-6)
    assert "the rest renormalised" in again.caption
    nothing = arrange(Trace.from_arrays(["a", "</s>"], ["b"], [[0.0, 1.0]]), renormalise=True)
    assert nothing.weights.tolist() == [[0.0]], "a row that gave all to a hidden token stays zero, never NaN"


def test_a_hidden_mass_is_never_below_zero():
    weights = np.array([[1 / 3, 1 / 3, 1 / 3, 0.0]] * 3, dtype=np.float32) * 1.0000001
    table = arrange(Trace.from_arrays(["a", "b", "c", "</s>"], ["x", "y", "z"], weights))
    assert "</s> hidden (0.00 of the mass)" in table.caption


def test_the_shift_moves_rows_and_is_named():
    trace = Trace.from_arrays(["a", "b", "c"], ["x", "y", "</s>"], np.eye(3)[[2, 0, 1]], shift=1)
    table = arrange(trace)
    assert [label.text for label in table.rows] == ["x", "y"]
    assert table.weights.tolist() == [[1, 0, 0], [0, 1, 0]], "row t + 1 was computed after word t was read"
    assert "shift 1" in table.caption
    assert arrange(trace, shift=0).weights.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert "shift" not in arrange(trace, shift=0).caption


def test_an_empty_translation_shows_its_end_mark():
    trace = Trace.from_arrays(["a", "</s>"], ["</s>"], [[0.25, 0.75]], shift=1)
    for table in (arrange(trace), arrange(trace, shift=1), arrange(trace, special=True)):
        assert [[label.text for label in side] for side in (table.rows, table.columns)] == [["</s>"], ["a", "</s>"]]
        assert table.weights.tolist() == [[0.25, 0.75]]
        assert "shift" not in table.caption, "no row comes after it"
        assert "hidden" not in table.caption


def test_the_head_that_a_run_names_is_drawn_with_its_own_shift(tmp_path):
    trace = Trace.from_json(mark_aligning(TRACE, Heads(0, 2, 1)).to_json())
    moved = arrange(trace, layer=0, head=2, words=False, special=True)
    assert np.allclose(moved.weights, WEIGHTS[0, 2, 1:])
    assert "shift 1" in moved.caption
    for others in (
        {"layer": 0, "head": 1},
        {"layer": 1, "head": 2},
        {"head": "mean"},
        {"layer": 0, "head": 2, "shift": 0},
    ):
        assert "shift" not in arrange(trace, **others).caption, others
    assert "shift 1" in trace.to_terminal(layer=0, head=2).replace("\n", " ")
    page = held(trace.to_html(layer=0, head=2))  # which applies the shift of the head that is chosen there
    assert page["trace"]["attention"]["layers.0"]["shifted_heads"] == [2]
    assert trace.draw(tmp_path / "heads.svg", view="heads").exists(), "thumbnails share their rows"
    assert mark_aligning(TRACE, Heads(1, None, 1)).attention["layers.1"].shift == 1, "the mean of a layer's heads"
    assert mark_aligning(TRACE, Heads()) is TRACE
    with pytest.raises(DataError, match="shifted heads of 'a' are some of its 1; got"):
        Attended("a", np.eye(2), shifted_heads=(1,))


def test_the_head_that_a_run_names_is_drawn_by_default(tmp_path):
    """In a terminal, in a file and on the page; "mean" is still the mean."""
    trace = mark_aligning(TRACE, Heads(0, 2, 1))
    expected = arrange(TRACE, layer=0, head=2, shift=1)
    for options in ({}, {"layer": 0}, {"head": 2}):
        assert np.array_equal(arrange(trace, **options).weights, expected.weights), options
    assert arrange(trace).caption == expected.caption
    assert trace.to_terminal() == TRACE.to_terminal(layer=0, head=2, shift=1)
    assert "layer 0, head 2" in trace.draw(tmp_path / "drawn.svg").read_text(encoding="utf-8")
    views = held(trace.to_html())["trace"]["views"]
    assert (views["default"], views["aligning"]) == ("layers.0", {"head": 2})
    assert arrange(trace, head="mean").caption == arrange(TRACE, layer=0).caption
    assert arrange(trace, layer=1).caption == arrange(TRACE, layer=1).caption
    assert arrange(mark_aligning(TRACE, Heads(1, None, 0))).caption == arrange(TRACE, layer=1).caption
    assert held(TRACE.to_html())["trace"]["views"]["aligning"] is None


def test_a_part_of_the_heads_keeps_what_they_are():
    seen = mark_aligning(TRACE, Heads(0, 2, 1)).attention["layers.0"]
    part = seen.part([2, 0])
    assert np.array_equal(part.weights, seen.weights[[2, 0]])
    assert (part.shifted_heads, part.aligning) == ((0,), 0)
    assert (seen.part([1]).shifted_heads, seen.part([1]).aligning) == ((), None)


@pytest.mark.parametrize("head", [1, -1, True, 0.5, "max"])
def test_an_aligning_head_that_is_not_there_is_refused(head):
    with pytest.raises(DataError, match="The aligning head of 'a' is one of its 1 or 'mean'; got"):
        Attended("a", np.eye(2), aligning=head)


def test_a_masked_word_of_several_pieces_is_named_once():
    changes = tuple(Mask(at, word="groß").describe() for at in (3, 4))
    assert arrange(replace(TRACE, changes=changes)).caption.endswith(", changed: 'groß' masked")
    assert replace(TRACE, changes=changes).changed()[1] == {3, 4}


def test_a_layer_that_is_not_there_is_told_of_the_only_one():
    with pytest.raises(ConfigError, match=r"There is no layer 7 of cross-attention; it has one layer, 0\."):
        arrange(Trace.from_arrays(["a"], ["x"], [[1.0]]), layer=7)


def test_heads_and_layers_are_chosen_and_captioned():
    mean = arrange(TRACE, words=False, special=True)
    assert np.allclose(mean.weights, WEIGHTS[0].mean(0)), "by default the last layer but one, mean over heads"
    assert mean.caption.startswith("layer 0, mean of 3 heads, cross-attention")
    assert np.allclose(arrange(TRACE, layer=1, head="max", words=False, special=True).weights, WEIGHTS[1].max(0))
    assert np.allclose(
        arrange(TRACE, layer="layers.1", head=[0, 2], words=False, special=True).weights, WEIGHTS[1, [0, 2]].mean(0)
    )
    assert np.array_equal(arrange(TRACE, head=(0, 2)).weights, arrange(TRACE, head=[0, 2]).weights)
    assert arrange(TRACE, layer=1, head=2).caption.startswith("layer 1, head 2, ")
    for options, says in (
        ({"head": 3}, "There is no head 3: 'layers.0' has heads 0 to 2"),
        ({"head": -1}, "There is no head -1"),
        ({"head": "avg"}, "'mean' or 'max'; got 'avg'"),
        ({"head": []}, "at least one head"),
        ({"layer": 7}, r"There is no layer 7 of cross-attention; it has layers 0, 1\."),
        ({"layer": "layers.9"}, "Did you mean 'layers"),
        ({"shift": 2}, "shift must be 0 or 1"),
    ):
        with pytest.raises(ConfigError, match=says):
            arrange(TRACE, **options)
    with pytest.raises(ConfigError, match="no attention"):
        arrange(Trace.from_arrays(["a"], ["b"], {}))


def test_self_attention_reads_what_was_written_before():
    trace = Trace.from_arrays(["a"], ["x", "y", "</s>"], np.tril(np.ones((3, 3))) / [[1], [2], [3]], kind="decoder")
    table = arrange(trace, special=True)
    assert [label.text for label in table.columns] == ["<s>", "x", "y"]
    cells = Trace.from_arrays(["p"], ["dog"], [[0.1, 0.2, 0.3, 0.4]], kind="image", image=Picture(4, 4, (2, 2)))
    assert [label.text for label in arrange(cells).columns] == ["0,0", "0,1", "1,0", "1,1"]


def test_right_to_left_sources_are_noticed():
    hebrew = Trace.from_arrays(["שלום", "עולם"], ["hello", "world"], np.eye(2))
    assert arrange(hebrew).right_to_left
    assert "source runs right to left" in arrange(hebrew).caption
    assert not arrange(TRACE).right_to_left


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("in 1992.", ["in", "1992", "."]),
        ("L'accord", ["L'", "accord"]),
        ("l\u2019a dit", ["l\u2019", "a", "dit"]),
        ("don't", ["don't"]),
        ("well-known", ["well-known"]),
        ("3.5 and 1,000", ["3.5", "and", "1,000"]),
        ("(so-called) ...", ["(", "so-called", ")", "..."]),
        ("中文。", ["中", "文", "。"]),
        ("नमस्ते", ["नमस्ते"]),
        ("שלום.", ["שלום", "."]),
    ],
)
def test_words_and_punctuation_are_separate_cells(text, cells):
    """With a token for each character; one setting keeps what stands between spaces together."""
    words = [len(text[:at].split()) - (not text[at - 1 : at].isspace() and at > 0) for at in range(len(text))]
    tokens = [Token(sign, sign, at, at + 1, word=words[at]) for at, sign in enumerate(text) if sign != " "]
    trace = Trace.from_arrays(Side(text, tuple(tokens)), ["x"], np.full((1, len(tokens)), 1 / len(tokens)))
    assert [label.text for label in arrange(trace).columns] == cells
    assert [label.text for label in arrange(trace, punctuation=False).columns] == text.split()
    assert len(arrange(trace, words=False).columns) == len(tokens)


def test_the_no_break_spaces_of_french_are_no_part_of_a_word():
    text = "a\u00a0? «\u202fb\u00a0»"
    spans = [("▁a", 0, 1), ("\u00a0?", 1, 3), ("▁«\u202f", 4, 6), ("b", 6, 7), ("\u00a0»", 7, 9)]
    pieces, places = [piece for piece, *_ in spans], [(start, end) for _, start, end in spans]
    side = tokens_of(Tokenised([], pieces, places, text), True)
    assert [token.text for token in side.tokens] == ["a", "?", "«", "b", "»", "</s>"]
    drawn = arrange(Trace.from_arrays(side, side, np.eye(6)))
    assert [label.text for label in drawn.rows] == [label.text for label in drawn.columns] == ["a", "?", "«", "b", "»"]


def test_the_caption_says_plainly_what_a_row_is_computed_from():
    trace = Trace.from_arrays(["a"], ["b"], [[1.0]], query="previous", score="additive", model={"name": "bahdanau"})
    assert arrange(trace).caption.startswith(
        "Bahdanau's attention (additive), computed from the state before each word"
    )


# --- measures


def test_measures_at_their_ends():
    even, sure = np.full((4, 5), 0.2), np.eye(5)[:4]
    assert entropy(even) == pytest.approx(np.full(4, np.log(5)))
    assert entropy(sure).tolist() == [0, 0, 0, 0]
    assert confidence(even) == pytest.approx(np.full(4, 0.2))
    assert coverage(sure).tolist() == [1, 1, 1, 1, 0]
    assert covered(sure) == pytest.approx(0.8)
    assert covered(np.repeat(sure[:1], 4, 0)) == pytest.approx(0.2), "looking four times at one word covers one word"
    assert coverage_penalty(np.eye(4)) == pytest.approx(0)
    assert coverage_penalty(sure) == pytest.approx(np.log(1e-10))
    assert diagonality(np.eye(6)) == pytest.approx(1)
    assert diagonality(np.array([[0, 1], [1, 0]])) == pytest.approx(0)
    assert diagonality(np.zeros((3, 4))) == 0
    assert special_mass(even, [False] * 4 + [True]) == pytest.approx(np.full(4, 0.2))


def test_measures_work_on_stacks_and_empty_sentences():
    stack = some_weights(3, 2, 4, 5)
    for one in (entropy, confidence, covered, diagonality, coverage_penalty):
        assert np.allclose(one(stack)[2, 1], one(stack[2, 1]))
    empty = Trace.from_arrays([], [], np.zeros((2, 0, 0)))
    assert all(np.isfinite(list(row.values.values())).all() for row in measure(empty))


def test_a_report_ranks_heads_by_rows_of_all_sentences():
    sharp, flat = np.eye(4), np.full((4, 4), 0.25)
    one = Trace.from_arrays([*"abcd"], [*"wxyz"], np.stack([flat, sharp]))
    two = Trace.from_arrays([*"ab"], ["w"], np.stack([[[1.0, 0.0]], [[0.5, 0.5]]]))
    found = report([one, two])
    assert found.sentences == 2
    best, worst = found.ranked("confidence")
    assert (best.head, worst.head) == (1, 0)
    assert best.values["confidence"] == pytest.approx((4 * 1 + 1 * 0.5) / 5), "sentences weigh by their rows"
    assert found.ranked("entropy")[0].head == 1
    assert found.to_text().split("\n")[1].split()[:2] == ["attention", "1"]
    assert measure_function(one)[-1].name == "all"
    with pytest.raises(ConfigError, match="Did you mean 'entropy'"):
        found.ranked("entropie")
    with pytest.raises(DataError, match="at least one trace"):
        report([])


def test_a_step_shows_attention_of_the_word_being_written(tmp_path):
    """The aligning head of layer 0 is one step late; head 1 of layer 1 attends to the word that is written."""
    late = np.array([[[0.8, 0.1, 0.1], [0.9, 0.05, 0.05], [0.1, 0.8, 0.1]]])  # of a start, "le", "chat"
    on_time, flat = np.eye(3)[None] * 0.7 + 0.1, np.full((1, 3, 3), 1 / 3)
    layers = {"layers.0": np.concatenate([flat, late]), "layers.1": np.concatenate([flat, on_time])}
    plain = Trace.from_arrays(["the", "cat", "</s>"], ["le", "chat", "</s>"], layers)
    trace = mark_aligning(plain, Heads(0, 1, 1))
    seen = step_module(trace)
    assert (seen.name, step_head(trace, seen)) == ("layers.1", 1)
    views = held(trace.to_html())["trace"]["views"]
    assert (views["step"], [one["step_head"] for one in views["modules"]]) == ("layers.1", [0, 1])
    opened = trace.draw(tmp_path / "step.svg", view="steps", step=1).read_text(encoding="utf-8")
    assert "layer 1, head 1" in opened
    assert "one step late" not in opened
    chosen = trace.draw(tmp_path / "late.svg", view="steps", step=1, layer=0, head=1).read_text(encoding="utf-8")
    assert "just read, \u2018le\u2019, and not" in re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", chosen))
    unshifted = mark_aligning(plain, Heads(1, 1, 0))
    assert step_head(unshifted, step_module(unshifted)) == 1, "a head without a shift is the one that a run names"


def test_a_weight_that_was_set_is_called_set(tmp_path):
    scores, weights = np.zeros((1, 1, 2)), np.array([[[1.0, 0.0]]])
    trace = Trace.from_arrays(["a", "b"], ["c"], weights, scores)
    drawn = [
        one.draw(tmp_path / "step.svg", view="steps").read_text(encoding="utf-8")
        for one in (trace, replace(trace, changes=({"kind": "set-row", "text": "row 0 set", "row": 0},)))
    ]
    assert ["set by a what-if" in text for text in drawn] == [False, True]
