"""A trace is read back to the same bit, and what is not a trace is refused in a sentence."""

import contextlib
import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError, RegardError, ShapeError
from regard.look import Attended, Beam, BeamNode, Picture, Side, Token, Trace, trace_file
from regard.look.tokens import as_side

PIECES = ["▁Das", "▁Haus", "▁ist", "▁gr", "oß", "</s>"]
WORDS = ["the", "house", "is", "big", "</s>"]


def some_weights(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1]).astype(np.float32)


def full_trace():
    weights = some_weights(2, 3, 5, 6)
    scores = np.log(weights)
    scores[0, 0, 0, 3] = -np.inf
    trace = Trace.from_arrays(PIECES, WORDS, weights, scores, query="previous", shift=1, score="additive")
    tokens = [
        replace(token, logprob=-0.1 * at, topk=(("x", -0.1), ("\ud800", -2.5)))
        for at, token in enumerate(trace.target.tokens)
    ]
    first = trace.attention["layers.0"]
    vectors = np.full((5, 2), np.nan), np.full((5, 1), np.nan)
    vectors[0][0], vectors[1][0] = (0.1, -0.2), 0.3
    values = {"query": np.array([1.5, *[np.nan] * 4])}
    first = replace(first, query_vectors=vectors[0], context_vectors=vectors[1], step_values=values)
    nodes = (BeamNode(0, None, 0, "<s>", 0.0, 0.0, 0.0), BeamNode(1, 0, 1, "a", -0.5, -0.5, -0.25, finished=True))
    return replace(
        trace,
        target=Side(trace.target.text, tuple(tokens)),
        model={"id": "run", "kind": "rnn"},
        attention={**trace.attention, "layers.0": first},
        beam=Beam(2, nodes, (1,)),
        changes=({"kind": "mask", "text": "source position 1 masked", "column": 1},),
    )


def test_written_and_read_back_without_loss(tmp_path):
    trace = full_trace()
    for name in ("a.json", "a.json.gz"):
        again = Trace.load(trace.save(tmp_path / name))
        assert again == trace
        for at, seen in trace.attention.items():
            assert np.array_equal(again.attention[at].weights, seen.weights)
            assert np.array_equal(again.attention[at].scores, seen.scores)
        assert again.target == trace.target
        assert (again.beam, again.changes) == (trace.beam, trace.changes)
        assert np.array_equal(again.attention["layers.0"].query_vectors[0], [0.1, -0.2])
    assert (tmp_path / "a.json").read_bytes().decode("utf-8"), "valid UTF-8 even with a lone surrogate"
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.json.gz"}, "no temporary file is left"


def test_a_trace_that_was_saved_by_an_earlier_version_is_read_without_loss():
    saved = (Path(__file__).parent / "saved_trace.json").read_text(encoding="utf-8")
    trace = Trace.from_json(saved)
    assert json.loads(trace.to_json()) == json.loads(saved)
    last = trace.attention["layers.1"]
    assert last.query_vectors[3] == [0.5]
    assert np.isnan(last.query_vectors[:3]).all(), "steps that were not kept"
    assert last.step_values["copy"][3] == 0.25


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec=None)), min_size=1, max_size=4))
def test_any_string_survives(texts):
    trace = Trace.from_arrays(texts, ["y"], np.full((1, len(texts)), 1 / len(texts)))
    again = Trace.from_json(trace.to_json())
    assert again.source == trace.source
    trace.to_json().encode("utf-8")


def test_long_sentences_stay_small():
    trace = Trace.from_arrays([str(i) for i in range(100)], [str(i) for i in range(100)], some_weights(6, 8, 100, 100))
    assert len(trace.slim().to_json()) < 1.4e6, "half precision: 480,000 numbers in about 1.3 MB"
    slim = trace.slim()
    assert Trace.from_json(slim.to_json()) == slim
    assert max(np.abs(slim.attention[at].weights - seen.weights).max() for at, seen in trace.attention.items()) < 1e-3


def test_anybody_can_write_one_with_plain_numbers():
    tree = json.loads(full_trace().to_json())
    trace = full_trace()
    for at, seen in trace.attention.items():
        tree["attention"][at]["weights"] = seen.weights.tolist()
        tree["attention"][at]["scores"] = [
            [[None if np.isinf(e) else float(e) for e in row] for row in head] for head in seen.scores
        ]
    assert Trace.from_json(json.dumps(tree)) == trace


def short(**changes):
    """A trace as a program with one kind of attention writes it: one block for all layers, plain numbers."""
    weights = some_weights(2, 3, 2, 2)
    words = {
        "text": "Das Haus",
        "tokens": [{"text": "Das", "start": 0, "end": 3}, {"text": "Haus", "start": 4, "end": 8}],
    }
    tree = {
        "trace": 1,
        "model": {"id": "x", "kind": "rnn", "score": "additive", "query": "previous", "layers": 2, "heads": 3},
        "source": words,
        "target": {"text": "a b", "tokens": [{"text": "a", "topk": [{"text": "c", "logprob": -1.0}]}, {"text": "b"}]},
        "attention": {"kind": "cross", "shape": [2, 3, 2, 2], "weights": weights.tolist(), "shift": 1},
        "steps": [{"t": 0, "query": [0.5], "context": [], "norms": {"gate": 0.25}}],
        "image": {"width": 8, "height": 6, "grid": [2, 2]},
        **changes,
    }
    return weights, json.dumps(tree)


def test_the_short_form_is_one_block_for_all_layers():
    weights, text = short()
    trace = Trace.from_json(text)
    assert list(trace.attention) == ["layers.0", "layers.1"]
    for at, seen in enumerate(trace.attention.values()):
        assert np.array_equal(seen.weights, weights[at])
        assert (seen.layer, seen.query, seen.score, seen.shift) == (at, "previous", "additive", 1)
    assert trace.source.tokens[1].piece == "Haus"
    assert trace.attention["layers.0"].step_values["gate"][0] == 0.25
    assert Trace.from_json(trace.to_json()) == trace


def test_the_example_of_the_docs_is_a_trace():
    page = (Path(__file__).parent.parent / "docs" / "looking.md").read_text(encoding="utf-8")
    trace = Trace.from_json(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert trace.attention["layers.0"].weights.tolist() == pytest.approx(np.array([[[0.9, 0.1], [0.2, 0.8]]]))
    for key in json.loads(full_trace().to_json()):
        assert f"`{key}`" in page, "every key is described"


@pytest.mark.parametrize(
    ("attention", "says"),
    [
        ({"weights": [[1.0]]}, r"in one block are \[L, H, T, S\]; got \[1, 1\]"),
        ({"weights": [[[[1.0]]]], "shape": [1, 1, 2, 2]}, r"got \[1, 1, 1, 1\]; it says \[1, 1, 2, 2\]"),
        ({"weights": [[[[1.0]]]], "kind": "crss"}, "Did you mean 'cross'"),
        ({"weights": [[[[1.0]]]], "kin": "cross"}, "of the wrong kind .*kin"),
        ([], "'attention' must be an object; got a list"),
        ({"a": 7}, "a part is of the wrong kind"),
    ],
)
def test_a_wrong_short_form_is_refused(attention, says):
    with pytest.raises(RegardError, match=says):
        Trace.from_json(short(attention=attention)[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("[]", "must be a JSON object"),
        ('["trace"]', "must be a JSON object"),
        ("{}", "must be a JSON object"),
        ('{"trace": 2}', "version 2, and this regard reads version 1"),
        ('{"trace": true}', "version True"),
        ('{"trace": 1}', "not a whole trace: 'source' must be an object; got nothing"),
        ('{"trace": 1, "source": NaN}', "NaN is not a number"),
        ('{"trace": 1, "model": {"size": 1e400}}', "1e400 is not a number"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_not_a_trace_is_refused(text, says):
    with pytest.raises(DataError, match=says):
        Trace.from_json(text)


def leaves(tree, path=()):
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from leaves(child, (*path, key))


WHOLE = json.loads(full_trace().to_json())


@given(
    st.sampled_from([path for path in leaves(WHOLE) if path]),
    st.sampled_from([None, -1, 1e30, "x", "NaN", [], {}, [[1]], True]),
)
def test_a_damaged_trace_is_read_or_refused_but_never_crashes(path, other):
    tree = copy.deepcopy(WHOLE)
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    with contextlib.suppress(RegardError):  # any other error is a crash
        trace = Trace.from_json(json.dumps(tree))
        trace.to_json()
        trace.to_terminal()


@pytest.mark.parametrize("key", ["query", "context"])
def test_a_step_holds_finite_numbers(key):
    tree = copy.deepcopy(WHOLE)
    tree["steps"][0][key] = ["NaN"]
    with pytest.raises(DataError, match="step 0 differs"):
        Trace.from_json(json.dumps(tree))


def test_an_array_with_signs_that_are_not_of_base64_is_damaged():
    packed = {"shape": [2], "dtype": "float32", "base64": "AACAPwAAAEA="}
    assert trace_file.array(packed).tolist() == [1, 2]
    for text in ("AACA!PwAAAEA=", "AACAPwAAAEA", "AACAPwAA"):
        with pytest.raises(DataError, match="is damaged"):
            trace_file.array({**packed, "base64": text})


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"There is no file .*nothing.json"):
        Trace.load(tmp_path / "nothing.json")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b not gzip")
    with pytest.raises(DataError, match=r"bad\.gz is incomplete or damaged \(.*Unknown compression method"):
        Trace.load(tmp_path / "bad.gz")
    whole = full_trace().save(tmp_path / "cut.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[:-40])
    with pytest.raises(DataError, match=r"is incomplete or damaged \(Compressed file ended"):
        Trace.load(tmp_path / "cut.gz")
    with pytest.raises(DataError, match="could not be written"):
        full_trace().save(tmp_path / "no" / "such" / "folder.json")


def test_a_packed_trace_has_a_limit(tmp_path, monkeypatch):
    path = full_trace().save(tmp_path / "trace.json.gz")
    monkeypatch.setattr(trace_file, "_MOST_BYTES", 99)
    with pytest.raises(DataError, match=r"trace\.json\.gz has more than"):
        Trace.load(path)
    with pytest.raises(DataError, match="more than 16777216 values outside base64"):
        trace_file.read('{"trace":1,"x":[0' + ",0" * (1 << 24) + "]}")


def test_arrays_of_other_models():
    assert Trace.from_arrays(["a", "b"], ["c"], [[0.25, 0.75]]).attention["attention"].weights.shape == (1, 1, 2)
    assert Trace.from_arrays(["a", "b"], ["c"], torch.tensor([[[0.5, 0.5]] * 1] * 3)).attention["attention"].heads == 3
    trace = Trace.from_arrays(["a", "b"], ["c"], {"x.1": some_weights(2, 1, 2), "x.0": some_weights(2, 1, 2)})
    assert list(trace.attention) == ["x.1", "x.0"]
    for pieces in (["a@@", "b", "c"], ["a", "##b", "c"]):  # a piece of one letter
        assert as_side(pieces).text == "ab c"
    assert [token.word for token in as_side(["a@@", "</s>", "b"]).tokens] == [0, None, 1]  # a symbol ends a word
    placed = Token("the", "▁the", 0, 3), Token("<0xE2>", "<0xE2>", 4, 5), Token("cat", "▁cat", 6, 9)
    assert as_side(placed).text == "the   cat"  # where the text of a token is not known, there is a space
    assert as_side(["a", "@@", "##"]).text == "a @@ ##"  # words, not marks
    tokens = Trace.from_arrays(PIECES, ["I", "un@@", "do", "it"], some_weights(4, 6)).source.tokens
    assert [(token.text, token.start, token.end, token.word, token.special) for token in tokens[2:]] == [
        ("ist", 9, 12, 2, False), ("gr", 13, 15, 3, False), ("oß", 15, 17, 3, False), ("</s>", 17, 17, None, True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: Trace.from_arrays(["a"], ["b"], [[np.nan]]),
            DataError,
            "must be finite; head 0, row 0, column 0 is nan",
        ),
        (lambda: Trace.from_arrays(["a"], ["b"], [[-3.0]]), DataError, "Were scores passed instead"),
        (lambda: Trace.from_arrays(["a"], ["b"], [[[[[1.0]]]]]), ShapeError, r"must be \[T, S\] or \[H, T, S\]"),
        (lambda: Trace.from_arrays(["a"], ["b"], [["x"]]), ShapeError, "must be numbers"),
        (
            lambda: Trace.from_arrays(["a", "b"], ["b"], [[1.0]]),
            ShapeError,
            r"expected \[H, 1, 2\]. Check that special",
        ),
        (lambda: Trace.from_arrays("ab", ["b"], [[1.0]]), DataError, "list of strings"),
        (lambda: Trace.from_arrays(["a"], ["b"], [[1.0]], shfit=1), ConfigError, "Did you mean 'shift'"),
        (lambda: Trace.from_arrays(["a"], ["b"], [[1.0]], kind="crss"), ConfigError, "Did you mean 'cross'"),
        (lambda: Trace.from_arrays(["a"], ["b"], [[1.0]], [[np.nan]]), DataError, "NaN"),
        (lambda: Trace.from_arrays(["a"], ["b"], [[1.0]], kind="image"), DataError, "needs the picture's grid"),
        (lambda: Attended("x", np.ones((1, 1)), query="next"), ConfigError, "'previous' or 'current'"),
        (lambda: Side("ab", (Token("abc", "abc", 0, 3),)), DataError, "outside its text"),
        (lambda: Beam(1, (BeamNode(0, 5, 0, "a", 0, 0, 0),)), DataError, "names the parent 5"),
        (lambda: Beam(1, (BeamNode(0, None, 0, "a", 0, 0, 0),), (3,)), DataError, "names node 3"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_scores_belong_to_weights():
    weights, scores = {"x.0": some_weights(2, 1, 2)}, {"x.1": np.zeros((2, 1, 2))}
    with pytest.raises(ConfigError, match=r"no module 'x.1' with weights for the scores of .* Did you mean 'x.0'"):
        Trace.from_arrays(["a", "b"], ["c"], weights, scores)


def test_pictures_have_a_grid():
    trace = Trace.from_arrays(["x"], ["a"], [[0.25] * 4], kind="image", image=Picture(8, 6, (2, 2)))
    assert Trace.from_json(trace.to_json()) == trace


def huggingface(rows=1):
    return [torch.tensor(some_weights(rows, 3, 4, 5, seed=layer)) for layer in range(2)]


def test_huggingface_forward_and_generate_agree():
    layers = huggingface()
    forward = SimpleNamespace(cross_attentions=tuple(layers))
    generated = SimpleNamespace(
        cross_attentions=tuple(tuple(layer[:, :, t : t + 1] for layer in layers) for t in range(4)), beam_indices=None
    )
    source, target = [*"abcd", "</s>"], [*"xyz", "</s>"]
    one, two = (Trace.from_huggingface(outputs, source, target) for outputs in (forward, generated))
    assert one == two
    assert np.array_equal(one.attention["layers.1"].weights, layers[1][0].numpy())


def test_huggingface_beams_are_followed_back():
    layers = huggingface(rows=3)
    indices = torch.tensor([[0, 2, 1, 1, -1]])
    steps = tuple(tuple(layer[:, :, t : t + 1] for layer in layers) for t in range(4))
    outputs = {"cross_attentions": steps, "beam_indices": indices}
    trace = Trace.from_huggingface(outputs, [*"abcd", "</s>"], [*"xyz", "</s>"])
    for t, row in enumerate((0, 2, 1, 1)):
        assert np.array_equal(trace.attention["layers.0"].weights[:, t], layers[0][row, :, t].numpy())


@pytest.mark.parametrize("found", [None, (), (None, None), ((None,), (None,))])
def test_huggingface_without_attention_says_what_to_do(found):
    with pytest.raises(DataError, match="attn_implementation='eager'"):
        Trace.from_huggingface(SimpleNamespace(cross_attentions=found), ["a"], ["b"])


@pytest.mark.parametrize("row", [3, -1])
def test_huggingface_refuses_a_sentence_that_is_not_there(row):
    layers = huggingface(rows=3)
    steps = tuple(tuple(layer[:, :, t : t + 1] for layer in layers) for t in range(4))
    beams = SimpleNamespace(cross_attentions=steps, beam_indices=torch.zeros(3, 4, dtype=torch.int64))
    for outputs in (SimpleNamespace(cross_attentions=tuple(layers)), SimpleNamespace(cross_attentions=steps), beams):
        with pytest.raises(DataError, match=f"There is no sentence {row}: these outputs hold 3, counted from 0"):
            Trace.from_huggingface(outputs, [*"abcd", "</s>"], [*"xyz", "</s>"], row=row)
