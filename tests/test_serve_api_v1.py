"""The endpoints under /api/v1/: traces, steps, search trees, alternatives and what-ifs over HTTP."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from serve_parts import Server, one_vector, serving, trained

import regard
from regard.corpora.registry import find_builtin
from regard.look.trace import Trace
from regard.look.trace_file import array


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(trained(), one_vector()) as server:
        yield server


def ask(server: Server, path: str, **fields: object) -> dict:
    response = server.post(f"/api/v1/{path}", **{"text": "ba da fo", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def read(answer: dict) -> Trace:
    """A trace as any reader of the format gets it."""
    return Trace.from_json(json.dumps({name: part for name, part in answer.items() if name != "translations"}))


def pieces(answer: dict) -> list[str]:
    return [token["piece"] for token in answer["target"]["tokens"] if not token["special"]]


def test_two_models_stand_side_by_side(server: Server) -> None:
    models = server.client.get("/api/v1/models").json()["models"]
    assert [one["id"] for one in models] == ["bahdanau-reverse", "rnnencdec-reverse"]
    assert models[0]["paper"] == "Bahdanau et al. 2015"
    assert models[0]["status"] == "ok"
    assert len(models[0]["examples"]) == 4
    for name, run in (("bahdanau-reverse", trained()), ("rnnencdec-reverse", one_vector())):
        assert server.translate("ba da", model=name)["translatedText"] == regard.load(run).translate("ba da").text
    assert server.post("/api/v1/trace", text="ba", model="none").status_code == 404


def test_a_misspelled_field_is_refused_with_the_nearest(server: Server) -> None:
    refused = server.post("/api/v1/trace", text="ba", baem=2)
    assert refused.status_code == 422
    assert "There is no field 'baem' of this request. Did you mean 'beam'? Known: model, text" in refused.text
    refused = server.post("/api/v1/what-if", text="ba", changes=[{"kind": "mask", "position": 0, "head": 1}])
    assert refused.json()["error"] == "There is no field 'head' of a mask change. Known: kind, position."
    assert server.client.get("/api/v1/heads", params={"modle": "x"}).status_code == 422
    assert server.translate("ba da", speed="high")["translatedText"], "other APIs have fields that we do not know"


@pytest.mark.parametrize(
    ("path", "field"),
    [("path", "head"), ("path", "layers"), ("worth", "layers"), ("worth", "heads"), ("beam", "target"),
     ("beam", "prefix"), ("steps", "heads")],
)  # fmt: skip
def test_a_field_without_effect_is_refused(server: Server, path: str, field: str) -> None:
    refused = server.post(f"/api/v1/{path}", text="ba", **{field: [0]})
    assert refused.status_code == 422
    assert f"There is no field '{field}' of this request." in refused.json()["error"]


def test_json_that_is_sent_as_a_form_is_refused_with_the_header_it_needs(server: Server) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path in ("/api/v1/trace", "/translate"):
        refused = server.client.post(path, content='{"q": "ba", "text": "ba"}', headers=form)
        assert refused.status_code == 400
        assert "send the header Content-Type: application/json" in refused.json()["error"]


def test_translators_describe_no_pictures(server: Server) -> None:
    refused = server.client.post("/api/v1/caption", content=b"any picture")
    assert refused.status_code == 404
    assert "No loaded model describes pictures" in refused.json()["error"]


def test_a_trace_is_one_that_regard_reads(server: Server) -> None:
    trace = read(ask(server, "trace"))
    assert trace.target.text == "fo da ba"
    (seen,) = trace.attention.values()
    np.testing.assert_allclose(seen.weights.sum(-1), 1, atol=1e-5)
    assert [token.text for token in trace.source.tokens] == ["ba", "da", "fo", "</s>"]


def test_a_trace_says_which_source_words_a_word_came_from(server: Server) -> None:
    methods = {one["id"]: one["methods"] for one in server.client.get("/api/v1/models").json()["models"]}
    for name, able in methods.items():
        assert "gradient" in able
        for method in able:
            trace = read(ask(server, "trace", model=name, target=["da", "ba"], by=method))
            assert list(trace.attributions) == [method]
            assert trace.attributions[method].matrix.shape == (3, 4)
    trace = read(ask(server, "trace", by="occlusion-removed", against="ba"))
    assert list(trace.attributions) == ["occlusion-removed against ba"]
    some = read(ask(server, "trace", by="gradient", layers=[0], heads=[0]))
    assert list(some.attributions) == ["gradient"]


def test_traces_are_written_in_the_process_of_the_model(server: Server) -> None:
    """The process of the event loop cannot write any: `serve_parts` has taken that from it."""
    for path in ("trace", "steps"):
        answer = server.post(f"/api/v1/{path}", text="ba da fo")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-encoding"] == "gzip"


def test_a_model_without_attention_shows_its_one_vector(server: Server) -> None:
    trace = read(ask(server, "trace", model="rnnencdec-reverse"))
    (seen,) = trace.attention.values()
    assert seen.kind == "fixed"
    steps = [ask(server, "steps", model="rnnencdec-reverse", t=t) for t in range(3)]
    assert all(step["formula"]["kind"] == "fixed" for step in steps)
    vectors = [array(step["context"]) for step in steps]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])


def test_a_model_without_attention_refuses_changes_of_attention(server: Server) -> None:
    for path in ("what-if", "trace", "steps", "beam"):
        changed = {"text": "ba da fo", "model": "rnnencdec-reverse", "changes": [{"kind": "mask", "position": 1}]}
        refused = server.post(f"/api/v1/{path}", **changed)
        assert refused.status_code == 422
        assert "has no attention to words to change (model rnnencdec)" in refused.json()["error"]
    assert pieces(ask(server, "what-if", model="rnnencdec-reverse", prefix="ba"))[0] == "ba"


def test_the_numbers_of_a_step_can_be_computed_again(server: Server) -> None:
    trace = read(ask(server, "trace"))
    for t in range(4):
        step = ask(server, "steps", t=t)
        formula = {name: array(part) for name, part in step["formula"].items() if name != "kind"}
        scores = np.tanh(formula["left"] + formula["right"]) @ formula["v"]
        np.testing.assert_allclose(scores, array(step["scores"]), atol=1e-5)
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(weights, array(step["weights"]), atol=1e-5)
        np.testing.assert_allclose(weights @ array(step["values"]), array(step["context"]), atol=1e-5)
        (chosen,) = [word for word in step["output"]["words"] if word["chosen"]]
        logprob = trace.target.tokens[t].logprob
        assert logprob is not None
        assert chosen["logit"] - step["output"]["log_total"] == pytest.approx(logprob, abs=1e-5)


def test_heads_are_measured_where_the_right_links_are_known(server: Server) -> None:
    first = server.client.get("/api/v1/heads").json()
    assert first["sentences"] == 30
    (head,) = first["heads"]
    assert (head["layer"], head["head"]) == (0, 0)
    right = total = 0
    for example in find_builtin("reverse").generate(30, 2, 2, 4):
        (seen,) = read(ask(server, "trace", text=example.source, target=example.target)).attention.values()
        best = seen.weights[0, :-1, :-1].argmax(-1).tolist()  # the end of the sentence left out
        right += sum(last == t for t, last in enumerate(reversed(best)))
        total += len(best)
    assert head["aer"] == pytest.approx(1 - right / total), "the words stand the other way round"
    assert server.client.get("/api/v1/heads").json() == first
    assert server.client.get("/api/v1/heads", params={"model": "rnnencdec-reverse"}).json()["heads"] == []
    assert all(one["aligned"] for one in server.client.get("/api/v1/models").json()["models"])


def test_the_search_tree_holds_every_finished_translation(server: Server) -> None:
    answer = ask(server, "beam", beam=4)
    trace = read(answer)
    assert trace.beam is not None
    assert [one["node"] for one in answer["translations"]] == list(trace.beam.ranked)
    assert answer["translations"][0]["text"] == trace.target.text == "fo da ba"
    scores = [one["score"] for one in answer["translations"]]
    assert scores == sorted(scores, reverse=True)
    assert any(node.pruned for node in trace.beam.nodes)


def test_alternatives_are_probabilities_at_a_place(server: Server) -> None:
    first = ask(server, "alternatives", prefix=[], most=5)["alternatives"]
    assert first[0]["text"] == "fo"
    chances = [one["probability"] for one in first]
    assert chances == sorted(chances, reverse=True)
    assert 0 < sum(chances) <= 1.0001
    second = ask(server, "alternatives", prefix=["fo"], most=5)["alternatives"]
    assert ask(server, "alternatives", prefix="fo", most=5)["alternatives"] == second  # as text
    assert second[0]["text"] == "da"


def test_a_forced_beginning_is_kept_and_marked_and_the_rest_is_translated(server: Server) -> None:
    answer = ask(server, "what-if", prefix=["lu"])
    assert pieces(answer)[0] == "lu"
    assert [(change["kind"], change["rows"]) for change in answer["changes"]] == [("force", [0])]
    assert math.isfinite(sum(token["logprob"] for token in answer["target"]["tokens"]))


def test_a_beginning_may_be_given_as_text(server: Server) -> None:
    assert pieces(ask(server, "what-if", prefix="lu me"))[:2] == ["lu", "me"]


def test_what_if_changes_what_is_looked_at_and_says_so(server: Server) -> None:
    before = ask(server, "trace")
    same = pieces(before)
    masked = read(ask(server, "what-if", target=same, changes=[{"kind": "mask", "position": 0}]))
    (seen,) = masked.attention.values()
    assert (seen.weights[:, :, 0] == 0).all()
    assert [token.piece for token in masked.target.tokens if not token.special] == same
    assert masked.changes[0]["kind"] == "mask"
    forced = read(ask(server, "what-if", target=same, changes=[{"kind": "set-row", "t": 1, "position": 2}]))
    (seen,) = forced.attention.values()
    np.testing.assert_array_equal(seen.weights[0, 1], [0, 0, 1, 0])
    by_hand = {"kind": "set-row", "t": 1, "weights": [0.25, 0.75]}
    (seen,) = read(ask(server, "what-if", target=same, changes=[by_hand])).attention.values()
    assert seen.weights[0, 1, :3].tolist() == [0.25, 0.75, 0]
    flat = read(ask(server, "what-if", target=same, changes=[{"kind": "temperature", "value": 1000}]))
    (seen,) = flat.attention.values()
    np.testing.assert_allclose(seen.weights, 0.25, atol=0.02)
    step = ask(server, "steps", target=same, t=1, changes=[{"kind": "set-row", "t": 1, "position": 2}])
    np.testing.assert_array_equal(array(step["weights"]), [0, 0, 1, 0])
    assert ask(server, "trace") == before, "nothing of a change stays behind"


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("trace", {"text": "a\nb"}, "text must be one line"),
        ("trace", {"text": "..."}, "at least one letter or digit"),
        ("trace", {"beam": 21}, "must be <= 20"),
        ("trace", {"beam": 0}, "must be >= 1"),
        ("trace", {"target": [1]}, "target: must be text, or a list of pieces as in a trace; got [1]"),
        ("trace", {"target": ["nowhere"]}, "There is no piece 'nowhere'"),
        ("trace", {"target": ["</s>"]}, "There is no piece '</s>'"),
        ("trace", {"by": "alty"}, "There is no attribution method 'alty'. Did you mean 'alti'?"),
        ("trace", {"by": "alti"}, "Bahdanau has no Transformer layers"),
        ("trace", {"by": "gradient", "against": "nowhere"}, "There is no word 'nowhere'"),
        ("trace", {"against": "ba"}, "needs a method"),
        ("trace", {"by": "gradient", "changes": [{"kind": "mask", "position": 0}]}, "leave out the what-ifs"),
        ("steps", {"t": 99}, "There is no step 99"),
        ("steps", {"head": 7}, "There is no head 7"),
        ("steps", {"name": "nowhere"}, "There is no attention module 'nowhere'"),
        ("alternatives", {}, "Invalid request: missing prefix parameter"),
        ("alternatives", {"prefix": 3}, "prefix: must be text, or a list of pieces"),
        ("what-if", {}, "A what-if needs changes, or a prefix to continue"),
        ("what-if", {"changes": {}}, "changes: Input should be a valid list"),
        (
            "what-if",
            {"changes": [{"kind": "magic"}]},
            "does not match any of the expected tags: 'mask', 'temperature', 'set-row'",
        ),
        ("what-if", {"changes": [{"kind": "mask"}]}, "changes.0.mask.position: Field required"),
        ("what-if", {"changes": [{"kind": "mask", "position": 99}]}, "There is no source position 99"),
        (
            "what-if",
            {"changes": [{"kind": "temperature", "value": 0}]},
            "changes.0.temperature.value: Input should be greater than or equal to 0.001",
        ),
        ("what-if", {"target": "fo", "prefix": "fo"}, "Send target, a whole translation, or prefix"),
        ("what-if", {"changes": [{"kind": "silence", "name": "nowhere"}]}, "There is no attention module"),
        ("what-if", {"changes": [{"kind": "mask", "position": 0}] * 33}, "At most 32 changes"),
    ],
)
def test_refusals_name_what_is_wrong(server: Server, path: str, fields: dict, sentence: str) -> None:
    response = server.post(f"/api/v1/{path}", **{"text": "ba da fo", **fields})
    assert response.status_code in (400, 422)
    assert sentence in response.json()["error"]


WORDS = " ".join(["ba"] * 1200)


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("trace", {"text": WORDS}, "1200 tokens"),
        ("trace", {"target": WORDS}, "1200 tokens"),
        ("trace", {"prefix": WORDS}, "1200 tokens"),
        ("steps", {"text": WORDS}, "1200 tokens"),
        ("steps", {"target": WORDS}, "1200 tokens"),
        ("alternatives", {"text": WORDS, "prefix": []}, "1200 tokens"),
        ("alternatives", {"prefix": ["ba"] * 1001}, "at most 1000 pieces"),
        ("beam", {"text": WORDS[:3000], "beam": 20}, "search tree"),
        ("what-if", {"text": WORDS, "changes": [{"kind": "mask", "position": 0}]}, "1200 tokens"),
        ("trace", {"layers": [0, 7]}, "There is no layer 7; this model has one layer, 0."),
        ("trace", {"heads": [7]}, "There is no head 7; this model has one head, 0."),
        ("trace", {"heads": 0}, "heads: Input should be a valid list"),
        ("trace", {"layers": [-1]}, "layers.0: Input should be greater than or equal to 0"),
    ],
)
def test_every_endpoint_is_bounded_before_its_work_starts(
    server: Server, path: str, fields: dict, sentence: str
) -> None:
    response = server.post(f"/api/v1/{path}", **{"text": "ba da fo", **fields})
    assert (response.status_code, sentence in response.json()["error"]) == (422, True), response.text


def test_a_part_of_a_trace_is_the_same_as_in_the_whole() -> None:
    tiny = ["model.heads=2", "model.inner=24", "model.layers=2", "data.joint=true"]
    with serving(trained("transformer", *tiny, steps=20), limits={"numbers": 4000}) as server:
        whole = read(ask(server, "trace", target="da ba"))
        answer = ask(server, "trace", target="da ba", layers=[1], heads=[1])
        part = read(answer)
        assert answer["part"] == {"layers": [1], "heads": [1]}
        assert {seen.layer for seen in part.attention.values()} == {1}
        assert len(part.attention) * 2 == len(whole.attention)
        for name, seen in part.attention.items():
            np.testing.assert_array_equal(seen.weights, whole.attention[name].weights[1:])
            np.testing.assert_array_equal(seen.scores, whole.attention[name].scores[1:])
        words = " ".join(["ba"] * 20)
        refused = server.post("/api/v1/trace", text=words, target=words)
        assert (refused.status_code, "choose some layers and heads" in refused.json()["error"]) == (422, True)
        assert ask(server, "trace", text=words, target=words, layers=[0], heads=[0])


def test_a_part_of_a_trace_keeps_the_head_that_aligns(tmp_path: Path) -> None:
    tiny = ["model.heads=2", "model.inner=24", "model.layers=2", "data.joint=true"]
    run = shutil.copytree(trained("transformer", *tiny, steps=20), tmp_path / "run")
    (run / "alignment.json").write_text('{"layer": 1, "head": 1, "shift": 1}')
    with serving(run) as server:
        whole = ask(server, "trace", target="da ba")
        name = whole["views"]["default"]
        assert (read(whole).attention[name].layer, whole["views"]["aligning"]) == (1, {"head": 1})
        for heads, numbers in (([1], (0,)), ([0], ()), ([1, 0], (0,))):
            part = read(ask(server, "trace", target="da ba", heads=heads))
            assert part.attention[name].shifted_heads == numbers


def test_metrics_count_what_happened(server: Server) -> None:
    server.translate(["ba da", "lu me"])
    lines = server.client.get("/metrics").text.split("\n")
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}
    assert values['regard_requests_total{path="/translate",status="200"}'] >= 1
    assert values['regard_batch_sentences_count{model="bahdanau-reverse"}'] >= 1
    assert values['regard_model_up{model="rnnencdec-reverse"}'] == 1
    buckets = [
        value for name, value in values.items() if name.startswith('regard_request_seconds_bucket{path="/translate"')
    ]
    assert buckets == sorted(buckets)
