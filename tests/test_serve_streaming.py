"""Translations while they are written, what layers and heads do, and what is answered while models are loaded."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from serve_parts import Server, calling, serving, shared, trained

from regard.api.loading import load
from regard.errors import ConfigError, DataError
from regard.look.change import importance
from regard.look.trace_file import array
from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.runs.included import find_run
from regard.serve.access import Access
from regard.serve.app import build
from regard.serve.call import _confidences
from regard.serve.examples import fit
from regard.serve.inside import follow_path, weigh_heads
from regard.serve.limits import Limits, RefusedError
from regard.serve.models import TranslationModel
from regard.serve.queue import TraceRequest
from regard.serve.server import serve
from regard.serve.service import Service


@pytest.fixture(scope="module")
def deep() -> Iterator[Server]:
    with serving(trained("transformer", "data.joint=true", steps=60)) as server:
        yield server


def events(server: Server, **fields: Any) -> list[dict[str, Any]]:
    with server.client.stream("POST", "/translate", json={"source": "en", "target": "de", **fields}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        parts = "".join(response.iter_text()).split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_a_text_is_streamed_sentence_by_sentence() -> None:
    server, text = shared(), "ba da fo\nlu me"
    found = events(server, q=text, stream=True)
    whole = server.translate(text)["translatedText"]
    assert found[-1] == {"translatedText": whole}
    for place, sentence in enumerate(text.split("\n")):
        mine = [one for one in found[:-1] if one["sentence"] == place]
        assert {text[slice(*one["source"])] for one in mine} == {sentence}
        *growing, last = mine
        assert last["done"] is True
        assert last["flags"] == last["notes"] == []
        assert last["translatedText"] == whole.split("\n")[place]
        assert [one["translatedText"] for one in growing] == [
            " ".join(last["translatedText"].split()[:count]) for count in range(1, len(growing) + 1)
        ], "a model that is sure writes one word after the other"


def test_what_cannot_be_streamed_is_refused_before_the_first_event() -> None:
    server = shared()
    for more in ({"q": ["ba", "da"]}, {"q": "ba", "format": "html"}, {"q": "ba", "alternatives": 2}):
        response = server.post("/translate", source="en", target="de", stream=True, **more)
        assert response.status_code == 400
        assert "stream needs one text" in response.json()["error"]


def test_the_last_layer_of_the_lens_is_what_the_model_writes(deep: Server) -> None:
    fields = {"text": "ba da fo", "t": 0}
    layers = deep.post("/api/v1/path", **fields).json()["layers"]
    words = deep.post("/api/v1/steps", **fields).json()["output"]
    assert len(layers) == 2
    best = layers[-1]["lens"][0]
    assert best["piece"] == words["words"][0]["piece"]
    assert best["probability"] == pytest.approx(np.exp(words["words"][0]["logit"] - words["log_total"]), abs=1e-5)
    for part in ("self", "cross"):
        name = f"decoder.1.{part}_attention.attention"
        context = deep.post("/api/v1/steps", **fields, name=name, head=2).json()["context"]
        assert np.allclose(array(layers[1][f"{part}_heads"])[2], array(context), atol=1e-5)
    assert np.array_equal(array(layers[0]["stream"]), array(layers[1]["before"]))


def test_a_word_of_the_source_has_its_steps_and_its_path_through_the_encoder(deep: Server) -> None:
    fields = {"text": "ba da fo", "target": "fo", "t": 3}  # its END: the translation has no step 3
    name = "encoder.1.self_attention.attention"
    layers = deep.post("/api/v1/path", **fields, name=name).json()["layers"]
    step = deep.post("/api/v1/steps", **fields, name=name, head=2).json()
    assert step["output"] is None
    assert len(array(step["weights"])) == 4
    assert [set(one) & {"cross", "cross_heads", "lens"} for one in layers] == [set(), set()]
    assert np.allclose(array(layers[1]["self_heads"])[2], array(step["context"]), atol=1e-5)
    assert np.array_equal(array(layers[0]["stream"]), array(layers[1]["before"]))
    for path in ("path", "steps"):
        response = deep.post(f"/api/v1/{path}", **{**fields, "t": 4}, name=name)
        assert response.json()["error"] == "There is no step 4: this sentence has steps 0 to 3."


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_parts_of_a_layer_add_up_where_nothing_is_normalised_in_between(norm: str) -> None:
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(13, 13, width=16, heads=2, layers=2, inner=20, norm=norm)).eval()
    ids = torch.tensor([[5, 6, 7]]), torch.tensor([3]), torch.tensor([[4, 5]])
    for layer in follow_path(model, lambda: model(*ids), 1, lambda index: {"text": str(index)}):
        whole = layer["before"] + layer["self"] + layer["cross"] + layer["feed"]
        assert layer["adds"] == (norm == "pre")
        assert np.allclose(whole, layer["stream"], atol=1e-5) == layer["adds"]
    for layer in follow_path(model, lambda: model(*ids), 2, None):
        whole = layer["before"] + layer["self"] + layer["feed"]
        assert np.allclose(whole, layer["stream"], atol=1e-5) == (norm == "pre")


@pytest.mark.parametrize(
    ("model", "heads"),
    [
        (lambda: Transformer(TransformerConfig(13, 13, width=12, heads=3, layers=3, inner=20)), 27),
        (lambda: Bahdanau(BahdanauConfig(11, 13, width=8, embedding=6, attention=7, readout=5)), 1),
    ],
)
def test_leaving_out_many_heads_at_once_is_leaving_out_one_at_a_time(
    model: Callable[[], torch.nn.Module], heads: int
) -> None:
    torch.manual_seed(2)
    built, written = model().eval(), [4, 5, 6]

    def run(rows: int = 1) -> torch.Tensor:
        source, target = (torch.tensor([ids] * rows) for ids in ([5, 6, 7, 8], written))
        return built(source, torch.tensor([4] * rows), target)

    def logprob() -> float:
        return float(run()[0].log_softmax(-1)[torch.arange(3), torch.tensor(written)].sum())

    with torch.inference_mode():
        one_by_one = {(one.name, one.head or 0): one.drop for one in importance(built, logprob)}
    together = {(one["name"], one["head"]): one["drop"] for one in weigh_heads(built, run, written)}
    assert together == pytest.approx(one_by_one, abs=1e-4)
    assert len(together) == heads


def test_heads_are_left_out_together_only_as_far_as_one_trace_may_be_large() -> None:
    translator = load(trained("transformer", "data.joint=true", steps=60))
    look = TraceRequest("ba da fo", target=tuple(translator.translate("ba da fo").tokens))
    rows: list[int] = []
    translator.model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    model = TranslationModel(translator, "any", Limits())
    whole = model.worth(look, calling())
    assert rows == [1, 16, 8]
    length = len(translator.translate(look.text).tokens) + 1
    _, recorded = model._sizes(look, 4, length)
    model.limits = Limits(numbers=5 * recorded // 8 + 1)
    rows.clear()
    parts = model.worth(look, calling())
    assert rows == [1, 5, 5, 5, 5, 4]
    worth = [{(one["name"], one["head"]): one["drop"] for one in some["heads"]} for some in (whole, parts)]
    assert worth[0] == pytest.approx(worth[1], abs=1e-4)


def test_what_is_too_large_is_refused_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = load(trained("transformer", "data.joint=true", steps=60))
    model, look = TranslationModel(translator, "any", Limits()), TraceRequest("ba da " * 100)
    longest = model._longest(len(model._source(look.text)) - 1)
    assert longest == 2 * 200 + 20
    model.limits = Limits(numbers=model._sizes(look, 201, longest)[1] // 8 - 1)
    monkeypatch.setattr(translator, "translate", None)
    for act in (model.worth, lambda *given: model.path(look, 0, None, given[1])):
        with pytest.raises(RefusedError, match="The attention of this trace has"):
            act(look, calling())
    model.limits = Limits(numbers=model._sizes(look, 201, 100)[0] - 1)
    with pytest.raises(RefusedError, match="The attention of this trace has"):
        model.look(look, calling())
    with pytest.raises(DataError, match="no step 201: this sentence has steps 0 to 200"):
        TranslationModel(translator, "any", Limits()).path(look, 201, "encoder.layers.0.self_attention", calling())


def test_a_model_without_layers_has_no_path_in_a_sentence() -> None:
    response = shared().post("/api/v1/path", text="ba da", t=0)
    assert response.status_code == 422
    assert response.json()["error"] == "Only a Transformer has a path through layers to show; this model has none."


def test_the_worth_of_a_head_is_what_silencing_it_costs(deep: Server) -> None:
    text = "ba da fo"
    heads = deep.post("/api/v1/worth", text=text).json()["heads"]
    assert len(heads) == 3 * 2 * 4
    assert [one["drop"] for one in heads] == sorted((one["drop"] for one in heads), reverse=True)
    trace = deep.post("/api/v1/trace", text=text).json()
    target = [token["piece"] for token in trace["target"]["tokens"] if not token["special"]]
    change = {"kind": "silence", "name": heads[0]["name"], "head": heads[0]["head"]}
    without = deep.post("/api/v1/what-if", text=text, target=target, changes=[change]).json()
    total = [sum(token["logprob"] for token in one["target"]["tokens"]) for one in (trace, without)]
    assert total[0] - total[1] == pytest.approx(heads[0]["drop"], abs=1e-3)
    cold = {"kind": "temperature", "value": 0.2}
    (first, *_) = deep.post("/api/v1/worth", text=text, target=target, changes=[cold]).json()["heads"]
    silent = {"kind": "silence", "name": first["name"], "head": first["head"]}
    both = [
        deep.post("/api/v1/what-if", text=text, target=target, changes=some).json() for some in ([cold], [cold, silent])
    ]
    total = [sum(token["logprob"] for token in one["target"]["tokens"]) for one in both]
    assert total[0] - total[1] == pytest.approx(first["drop"], abs=1e-3), "measured under the changes"


def test_while_models_are_loaded_the_server_says_so() -> None:
    state = Service([], Limits(), Access())
    transport = httpx.ASGITransport(build(state))

    async def ask(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    health, languages = (asyncio.run(ask(path)) for path in ("/health", "/languages"))
    assert (health.status_code, health.json()["error"]) == (503, "the models are being loaded")
    assert (languages.status_code, languages.headers["retry-after"]) == (503, "2")
    assert languages.json()["error"] == "The models are being loaded; GET /health reports when they are ready."
    state.open()
    assert asyncio.run(ask("/languages")).json() == []
    state.close()


def test_languages_that_a_run_does_not_name_come_from_the_operator(logged: list[str]) -> None:
    def pairs(*given: str) -> dict[str, list[str]]:
        state = Service([], Limits(), Access())
        sides = {"kind": "translate", "source": {"code": "und"}, "target": {"code": "fr"}}
        nothing = {"open": lambda: None, "start": lambda: None, "close": lambda: None}
        state._opened = [SimpleNamespace(about={**sides, "id": "m"}, name="m", run="runs/m", **nothing)]  # type: ignore[list-item]
        state.unnamed = dict(zip(("source", "target"), given, strict=True))
        state.open()
        state.close()
        return state.reachable

    assert pairs("EN", "pt") == {"en": ["fr"]}  # the run names its target language
    assert not logged
    assert pairs("", "") == {"und": ["fr"]}
    assert logged[0].startswith("runs/m: the run does not name its languages, so they are served as und; name them")


def test_a_model_that_ships_has_the_name_that_other_commands_use() -> None:
    state = Service([], Limits(), Access())
    kinds = {"en-fr-bahdanau": "translate", "en-fr-transformer": "translate", "shapes": "caption"}
    state.workers = {name: SimpleNamespace(about={"kind": kind}) for name, kind in kinds.items()}  # type: ignore[misc]
    for given, expected in (
        ("en-fr/bahdanau", "en-fr-bahdanau"),
        ("en-fr", "en-fr-transformer"),
        ("", "en-fr-bahdanau"),
    ):
        assert state.named(given, "translate") is state.workers[expected]
    with pytest.raises(RefusedError, match="There is no model 'en-fr-cho'"):
        state.named("en-fr/cho", "translate")
    state.close()


def test_the_confidence_in_a_language_is_low_where_two_fit() -> None:
    assert _confidences({"en": (0.9, 10.0)}) == [("en", 90.0)]
    assert _confidences({"en": (0.9, 10.0), "fr": (0.9, 10.0)}) == [("en", 45.0), ("fr", 45.0)]
    assert _confidences({"en": (0.4, 60.0), "fr": (0.9, 20.0)}) == [("fr", 90.0), ("en", 0.0)]


def test_suggestions_are_kept_where_the_operator_wants_them(tmp_path: Path) -> None:
    fields = {"q": "ba da", "s": "da ba \u00e9", "source": "en", "target": "de"}
    refused = shared().post("/suggest", **fields)
    assert (refused.status_code, refused.json()["error"]) == (403, "Suggestions are disabled on this server.")
    kept = tmp_path / "kept.jsonl"
    with serving(suggestions=str(kept)) as server:
        assert server.client.get("/frontend/settings").json()["suggestions"] is True
        assert server.post("/suggest", **fields).json() == {"success": True}
    assert [json.loads(line) for line in kept.read_text("utf-8").split("\n") if line] == [fields]


def test_the_name_of_a_language_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data.source_language must be a language code such as en or pt-BR; got 'E"):
        serve([tmp_path], languages=("English", "fr"))
    says = r"^data.target_language must be a language code .*; got 'jp'. Did you mean 'ja' \(Japanese\)\?$"
    with pytest.raises(ConfigError, match=says):
        serve([tmp_path], languages=("en", "jp"))


def test_a_text_in_a_language_that_no_model_reads_fits_none() -> None:
    vocabulary = load(find_run("en-fr")).source_vocabulary
    text = "Der Hund schläft im Garten und die Katze ist auf dem Dach."
    assert [fit(text, vocabulary, code)[0] for code in ("en", "fr")] == [0, 0]
    assert [fit("Wo ist der Bahnhof", vocabulary, code)[0] for code in ("en", "fr")] == [0, 0]
    assert fit(text, vocabulary, "de")[0] > 0.3
    assert fit("The dog sleeps in the garden.", vocabulary, "en")[0] > 0.6
    assert _confidences({"en": (0.0, 60.0), "fr": (0.0, 20.0)}) == [("fr", 0.0), ("en", 0.0)]


def test_languages_with_one_joint_vocabulary_differ_by_their_common_words() -> None:
    vocabulary = load(trained()).source_vocabulary
    for text, language in (("Je ne sais pas.", "fr"), ("the table", "en"), ("Où est la gare ?", "fr")):
        found = _confidences({code: (1.0, fit(text, vocabulary, code)[1]) for code in ("en", "fr")})
        assert found[0][0] == language
        assert found[0][1] > 80
