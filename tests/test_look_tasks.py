"""Laws of looking for the other tasks: captions, a language model's own past, documents."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
import torch
import trained
from test_look_laws import STRANGE

from regard.api.language_model import Writer
from regard.corpora import shapes
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.look import Force, Mask, Temperature, Trace, record
from regard.look.documents import DocumentTrace
from regard.look.measure import reproduce

PICTURE = shapes.draw_scene(shapes.scene(1))
LINE = "anna has flutes and tom has drums"
REVIEW = "The plot is not bad. Then the captain leaves. Nobody laughs!"


def look(name):
    return trained.model("captioner").look(PICTURE) if name == "captioner" else trained.model("language").look(LINE)


both = pytest.mark.parametrize("name", ["captioner", "language"])


def test_looking_changes_neither_caption_nor_text_nor_class():
    writer = trained.model("captioner")
    before = writer.caption(PICTURE, beam=3)
    assert writer.look(PICTURE, beam=3).target.text == before.text
    with record(writer.model):
        assert writer.caption(PICTURE, beam=3).tokens == before.tokens
    assert sum(token.logprob for token in writer.look(PICTURE, beam=3).target.tokens) == pytest.approx(before.logprob)
    teller = trained.model("language")
    written = teller.generate("anna", count=2, longest=5)
    value, tokens = teller.perplexity([LINE])
    trace = teller.look(LINE)
    assert np.exp(-sum(token.logprob for token in trace.target.tokens) / tokens) == pytest.approx(value, rel=1e-4)
    assert teller.generate("anna", count=2, longest=5) == written
    classifier = trained.model("classifier")
    assert classifier.look(REVIEW).probabilities == pytest.approx(classifier.classify(REVIEW).probabilities)
    for model in (writer.model, teller.model, classifier.model):
        assert not any(module._forward_hooks for module in model.modules())


@both
def test_rows_sum_to_one_and_scores_give_the_weights(name):
    for seen in look(name).attention.values():
        sums = seen.weights.sum(-1)  # [H, T]
        assert np.all(np.isclose(sums, 1, atol=1e-5) | (sums == 0)), "or there is nothing to look at yet"
        assert np.isclose(sums, 1, atol=1e-5).sum() >= sums.size - 1
        assert np.allclose(reproduce(seen), seen.weights, atol=1e-5)


def test_a_language_model_looks_at_its_past_alone():
    (seen,) = look("language").attention.values()
    assert seen.kind == "decoder"
    assert (np.triu(seen.weights[0], 1) == 0).all()


def test_sentences_and_their_words_sum_to_one():
    trace = trained.model("classifier").look(REVIEW)
    assert len(trace.sentences) == 3
    assert sum(one.weight for one in trace.sentences) == pytest.approx(1, abs=1e-5)
    for one in trace.sentences:
        assert sum(weight for _, _, weight in one.words) == pytest.approx(1, abs=1e-5)


@both
def test_a_trace_read_back_draws_the_same_picture(name, tmp_path):
    trace = look(name)
    back = Trace.from_json(trace.to_json())
    assert back == trace
    for ending in ("svg", "html"):
        first, second = (one.draw(tmp_path / f"{number}.{ending}") for number, one in enumerate((trace, back)))
        assert first.read_bytes() == second.read_bytes()
    assert trace.to_terminal() == back.to_terminal()


def test_the_trace_of_a_document_is_kept(tmp_path):
    trace = trained.model("classifier").look(REVIEW)
    for name in ("a.json", "a.json.gz"):
        assert DocumentTrace.load(trace.save(tmp_path / name)) == trace


def test_a_captioner_accepts_what_ifs():
    writer = trained.model("captioner")
    before = writer.look(PICTURE)
    trace = writer.look(PICTURE, changes=[Mask(3), Temperature(0.5)])
    assert (before.attention["attention"].weights[..., 3] > 0).all()
    assert (trace.attention["attention"].weights[..., 3] == 0).all()
    assert [one["kind"] for one in trace.changes] == ["mask", "temperature"]
    assert writer.look(PICTURE) == before
    with pytest.raises(ConfigError, match=r"pass it to translator\.look"):
        writer.look(PICTURE, changes=[Force(0, "a")])


# The models in turn; in `make slow` each text with both.
@pytest.mark.parametrize(
    ("name", "what"),
    [
        pytest.param(name, what, marks=[pytest.mark.slow] * ((number + turn) % 2))
        for turn, name in enumerate(["captioner", "language"])
        for number, what in enumerate(STRANGE)
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # no font of this machine may have all of them
def test_any_string_whatever_can_be_looked_into(name, what, tmp_path):
    text, model = STRANGE[what], trained.model(name)
    trace = model.look(PICTURE, text) if name == "captioner" else model.look(text)
    assert Trace.from_json(trace.to_json()) == trace
    assert "<svg onload" not in trace.draw(tmp_path / "a.html").read_bytes().decode("utf-8")
    trace.to_terminal(colour=False).encode("utf-8")
    if what in ("a lone surrogate", "a broken tag", "controls of direction"):  # drawing each would take long
        ElementTree.parse(trace.draw(tmp_path / "a.svg"))
    document = trained.model("classifier").look(text)
    assert DocumentTrace.from_json(document.to_json()) == document
    assert "<svg onload" not in document.to_html()
    document.to_terminal(colour=False).encode("utf-8")
    trained.model("language").generate(text, longest=1)
    assert trained.model("language").perplexity([text])[1] > 0


@pytest.mark.parametrize(
    ("act", "error", "sentence"),
    [
        (lambda: trained.model("language").look(" "), DataError, "nothing to look at in an empty text"),
        (lambda: trained.model("language").look(7), DataError, "A sentence is text; got int"),
        (lambda: trained.model("language").look("x y " * 9_000), DataError, "too long to look into"),
        (lambda: trained.model("language").generate(count=0), ConfigError, "count must be at least 1; got 0"),
        (lambda: trained.model("language").generate(longest=-5), ConfigError, "longest must be at least 1; got -5"),
        (lambda: trained.model("language").generate(tempreature=1), ConfigError, "Did you mean 'temperature'"),
        (lambda: trained.model("language").perplexity([" "]), DataError, "There is no text"),
        (lambda: trained.model("language").reach([]), DataError, "There is no text"),
        (lambda: trained.model("language").perplexity("a b"), DataError, "a list of lines; got a single string"),
        (lambda: trained.model("language").reach([LINE], farthest=0), ConfigError, "must be at least 1; got 0"),
        (lambda: trained.model("classifier").classify(None), DataError, "A document is text; got NoneType"),
        (lambda: trained.model("classifier").look(b"x"), DataError, "A document is text; got bytes"),
        (lambda: trained.model("captioner").caption(PICTURE, beams=3), ConfigError, "Did you mean 'beam'"),
        (lambda: trained.model("captioner").caption(None), DataError, "a file, its bytes or its pixels; got NoneType"),
        (lambda: trained.model("captioner").look(PICTURE, 7), DataError, "is text or a Caption; got int"),
        (lambda: trained.model("captioner").look(PICTURE, "a " * 3000), DataError, "too long to look into"),
        (
            lambda: trained.model("captioner").look(PICTURE, changes=["x"]),
            ConfigError,
            "A change is one of regard.look",
        ),
        (
            lambda: trained.model("captioner").caption(PICTURE, beam=0),
            ConfigError,
            "at least 1 and at most 1,000; got 0",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(act, error, sentence):
    with pytest.raises(error, match=sentence):
        act()


def test_the_runs_own_settings_are_used_for_texts():
    writer = trained.model("language")
    experiment = replace(writer.experiment, decode=DecodeConfig(temperature=0.001))
    cold = Writer(writer.model, writer.vocabulary, experiment, "cold")
    assert len(set(cold.generate("anna", count=3, longest=6))) == 1, "so cold that all are the likeliest text"
    assert len(set(cold.generate("anna", count=3, longest=6, temperature=3.0))) > 1
    assert len(set(writer.generate("anna", count=3, longest=6))) > 1


def test_perplexity_can_read_longer_rows_than_the_run():
    writer = trained.model("language")
    lines = [LINE, "tom likes drums", LINE]
    data = replace(writer.experiment.data, context=6)
    longer = Writer(writer.model, writer.vocabulary, replace(writer.experiment, data=data), "longer")
    assert writer.perplexity(lines, context=6) == longer.perplexity(lines) != writer.perplexity(lines)
    assert longer.perplexity(lines, context=0) == writer.perplexity(lines)
    with pytest.raises(ConfigError, match="context"):
        writer.perplexity(lines, context=-1)


def test_reach_says_how_far_back_and_at_what():
    (found,) = trained.model("language").reach([LINE, "tom likes drums"])
    assert found.shares.sum() == pytest.approx(1)
    assert found.mean > 0
    writer = trained.model("language")
    plain = Writer(torch.nn.Linear(2, 2), writer.vocabulary, writer.experiment, "plain")
    with pytest.raises(RunError, match="plain has no attention module"):
        plain.reach([LINE])
