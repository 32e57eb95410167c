"""The Python interface: train, load, translate, score, look; its promises, on small models that were really trained."""

import math
import random
import signal

import numpy as np
import pytest
import small
import torch

import regard
from regard.api.flags import unseen
from regard.api.progress import NotebookLine, in_notebook
from regard.api.training import gather
from regard.data.corpus import find_corpus
from regard.data.settings import DataConfig
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, RunError, numbered
from regard.look import SetRow
from regard.symbols import END, START
from regard.training.events import DataReady, Stepped, Validated

LONG = ("train.rate=0.02", "train.batch_tokens=300", "data.size=120", "data.max_words=5")
STRANGE = [
    "\u2028",
    "a\u00a0b",
    "\x00",
    "\ud800",
    "שלום",
    "e\u0301",
    "👩‍👩‍👧",
    "\ufeffko",
    "ko\rki",
    "ko\nki",
    " " * 40,
    "x" * 3000,
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """One trained run for each model, made when it is first asked for."""
    made = {}

    def find(model: str, *settings: str):
        if (model, settings) not in made:
            out = tmp_path_factory.mktemp("runs") / model
            small.train(model, out, *LONG, "train.epochs=6", *settings)
            made[model, settings] = out
        return made[model, settings]

    return find


@pytest.fixture(params=["bahdanau", "transformer"])
def translator(request, runs):
    return regard.load(runs(request.param))


@pytest.fixture
def sentences(translator):
    """Sentences in the words of the corpus, one of them empty and one of blanks."""
    words = translator.source_vocabulary.pieces(range(4, len(translator.source_vocabulary)))
    rng = random.Random(2)
    return [" ".join(rng.choices(words, k=k)) for k in (3, 5, 1, 4, 5, 2)] + ["", "   "]


def test_train_gives_a_translator_and_the_same_call_goes_on(tmp_path):
    events = []
    given = {"corpus": "copy", "model": "luong", "preset": "tiny", "out": tmp_path / "run"}
    settings = small.settings("luong", "train.steps=3")
    made = regard.train(**given, settings=settings, observe=events.append)
    assert isinstance(made, regard.Translator)
    again = regard.train(**given, settings=settings)
    assert [str(one) for one in again.translate(["ko ki", "ki"])] == [
        str(one) for one in made.translate(["ko ki", "ki"])
    ]
    assert {type(event).__name__ for event in events} == {"DataReady", "Stepped", "Validated", "Saved", "Finished"}
    table = {
        "model": {"name": "luong", "preset": "tiny", "width": 6, "layers": 1},
        "data": {"corpus": "copy", "size": 50},
    }
    table |= {"train": {"steps": 2}}
    assert regard.train(table, out=tmp_path / "table", settings=["data.subwords=char"]).experiment.model.width == 6
    assert table["data"] == {"corpus": "copy", "size": 50}  # the caller's tables are left alone


def test_an_observer_that_stops_gets_the_model_and_an_interrupt_is_an_error(tmp_path):
    given = {"corpus": "copy", "model": "luong", "preset": "tiny", "out": tmp_path / "run"}
    given["settings"] = small.settings("luong", "train.steps=5", "train.validate_every=1")
    seen = []

    def enough(event):
        seen.append(event)
        return isinstance(event, Validated) and event.step == 2

    assert isinstance(regard.train(**given, observe=enough), regard.Translator)
    assert seen[-1][:2] == (3, "stopped")
    with pytest.raises(RunError, match=r"^Training was interrupted and saved; the same call resumes .*run\.$"):
        regard.train(**given, observe=lambda event: isinstance(event, Stepped) and signal.raise_signal(signal.SIGTERM))
    regard.train(**given, observe=seen.append)
    assert seen[-1][:2] == (5, "done")


def test_one_sentence_a_list_and_nothing(translator, sentences):
    one = translator.translate(sentences[0])
    assert isinstance(one, regard.Translation)
    assert str(one) == one.text
    many = translator.translate(sentences)
    assert len(many) == len(sentences)
    assert many[0].text == one.text
    assert many[0].score == pytest.approx(one.score, abs=1e-5)  # a batch may round otherwise than one sentence
    assert translator.translate([]) == []
    assert [two.text for two in translator.translate(tuple(sentences[:2]))] == [two.text for two in many[:2]]
    for empty in (translator.translate(""), *many[-2:]):
        assert (empty.text, empty.tokens, empty.finished) == ("", [], "empty")
    for found in many[:-2]:
        assert found.finished in ("end", "length")
        assert " ".join(found.tokens) == found.text
        assert len(found.token_logprobs) == len(found.tokens) + (found.finished == "end")
        assert sum(found.token_logprobs) == pytest.approx(found.logprob, abs=1e-4)
        assert found.nbest == [found]


def test_any_string_is_translated_into_as_many_lines(translator):
    for text, found in zip(STRANGE, translator.translate(STRANGE), strict=True):
        found.text.encode("utf-8")
        assert found.text.count("\n") in (text.count("\n"), 0)  # a text without words has no translation
    for found in translator.translate(STRANGE, split=False):
        assert "\n" not in found.text


@pytest.mark.parametrize("wrong", [None, 5, b"ko", [None], [b"ko"], ["ko", 7]])
def test_what_is_no_text_is_refused(translator, wrong):
    with pytest.raises(DataError, match="text; got"):
        translator.translate(wrong)


def test_nbest_is_ranked_and_different(translator, sentences):
    found = translator.translate(sentences[0], nbest=4, beam=4)
    assert found.nbest[0] == found
    assert len(found.nbest) == 4
    assert len({one.text for one in found.nbest}) == 4
    ended = [one for one in found.nbest if one.finished == "end"]
    assert [one.score for one in ended] == sorted((one.score for one in ended), reverse=True)
    assert len(translator.translate(sentences[0], nbest=7).nbest) == 7  # the beam follows


def test_a_wider_beam_finds_what_is_as_likely_or_likelier(translator, sentences):
    plain = {"length_penalty": 0.0}
    greedy = translator.translate(sentences[:6], beam=1, **plain)
    wide = translator.translate(sentences[:6], beam=8, **plain)
    better = [w.score - g.score for g, w in zip(greedy, wide, strict=True) if g.finished == w.finished == "end"]
    assert better or translator.experiment.name != "bahdanau"
    assert min(better, default=0.0) > -1e-4


def test_a_prefix_is_kept(translator, sentences):
    target = translator.target_vocabulary.pieces(range(4, 12))
    for beam in (1, 3):
        found = translator.translate(sentences[:6], prefix=f"{target[2]} {target[5]}", beam=beam)
        assert all(one.tokens[:2] == [target[2], target[5]] for one in found)
    each = [f"{word}" for word in target[:6]]
    assert [one.tokens[0] for one in translator.translate(sentences[:6], prefix=each)] == each
    with pytest.raises(DataError, match="one prefix for each sentence, 6 in all; got 2"):
        translator.translate(sentences[:6], prefix=each[:2])


def test_sampling_repeats_with_its_seed_and_varies_without(translator, sentences):
    def draw(**options):
        return [one.text for one in translator.translate(sentences[:6], temperature=1.0, **options)]

    assert draw(seed=3) == draw(seed=3)
    assert draw(seed=3) != draw(seed=4)
    assert draw(seed=3, top_k=1) == [one.text for one in translator.translate(sentences[:6], beam=1)]
    # a sentence's sample does not depend on its neighbours
    assert [translator.translate(one, temperature=1.0, seed=3).text for one in sentences[:6]] == draw(seed=3)


def test_unknown_and_unfit_options_are_refused(translator):
    with pytest.raises(ConfigError, match=r"There is no setting 'beams' in \[decode\]. Did you mean 'beam'"):
        translator.translate("ko", beams=3)
    with pytest.raises(ConfigError, match=r"decode\.beam must be a whole number; got '3'"):
        translator.translate("ko", beam="3")
    with pytest.raises(ConfigError, match=r"decode\.top_p must be above 0"):
        translator.translate("ko", temperature=1.0, top_p=0)
    with pytest.raises(ConfigError, match=r"decode\.beam must be at least 1"):
        translator.translate("ko", beam=0)


def test_lists_are_lists(translator, sentences):
    for measure in (translator.score, translator.perplexity):
        with pytest.raises(DataError, match="a list of sentences and a list of their references; got a single text"):
            measure(sentences[0], sentences[0])
        with pytest.raises(DataError, match="got 2 and 1"):
            measure(sentences[:2], sentences[:1])
    with pytest.raises(DataError, match="Changes are a list"):
        translator.look(sentences[0], changes=regard.look.Mask(0))
    with pytest.raises(ConfigError, match="topk must be at least 0; got -1"):
        translator.look(sentences[0], topk=-1)
    with pytest.raises(DataError, match="Terms are a mapping, or pairs"):
        translator.translate(sentences[0], terms=5)


def test_progress_and_stop(translator, sentences):
    reported = []
    translator.translate(sentences, progress=lambda done, total: reported.append((done, total)))
    assert reported[-1] == (len(sentences), len(sentences))
    stopped = translator.translate(sentences[0], stop=lambda: True)
    assert stopped.finished == "stopped"


def test_scores_carry_their_signature(translator, sentences):
    options = {"beam": 1, "min_length": 5}
    references = [one.text for one in translator.translate(sentences[:6], **options)]
    report = translator.score(sentences[:6], references, **options)
    assert report["bleu"] == pytest.approx(100)
    assert "version:" in str(report)
    assert [score.name for score in translator.score(sentences[:3], references[:3], metrics=["chrf"]).scores] == [
        "chrF"
    ]
    with pytest.raises(DataError, match="6"):
        translator.score(sentences[:6], references[:5])


def test_perplexity_is_that_of_the_model(translator, sentences):
    target = translator.translate(sentences[:3], beam=1)
    found = translator.perplexity(sentences[:3], [one.text for one in target])
    ended = all(one.finished == "end" for one in target)
    if ended:
        tokens = sum(len(one.token_logprobs) for one in target)
        assert found == pytest.approx(math.exp(-sum(one.logprob for one in target) / tokens), rel=1e-4)
    assert translator.perplexity(["", "  "], ["", ""]) > 1
    with pytest.raises(DataError, match=r"3 .* 2"):
        translator.perplexity(sentences[:3], ["ko", "ki"])


def test_looking_shows_the_translation_and_does_not_change_it(translator, sentences):
    before = translator.translate(sentences[:6])
    for text, expected in zip(sentences[:6], before, strict=True):
        trace = translator.look(text)
        assert trace.target.text == expected.text
        assert trace.source.text == text
        assert [token.text for token in trace.source.tokens if not token.special] == text.split(" ")
        shown = [token.logprob for token in trace.target.tokens]
        assert shown == pytest.approx(expected.token_logprobs, abs=1e-4)
        for seen in trace.attention.values():
            assert np.allclose(seen.weights.sum(-1), 1, atol=1e-5)
            assert seen.weights.min() >= 0
    assert translator.translate(sentences[:6]) == before


def test_a_target_can_be_forced(translator, sentences):
    text = " ".join(translator.target_vocabulary.pieces([5, 6, 7]))
    for target in (text, [5, 6, 7]):
        trace = translator.look(sentences[0], target)
        assert trace.target.text == text
        assert len(trace.target.tokens) == 4  # END is read too
        total = sum(token.logprob for token in trace.target.tokens)
        assert math.exp(-total / 4) == pytest.approx(translator.perplexity([sentences[0]], [text]), rel=1e-4)
    assert len(translator.look(sentences[0], "").target.tokens) == 1
    with pytest.raises(DataError, match="There is no token 99999"):
        translator.look(sentences[0], [5, 99999])
    assert translator.look(sentences[0], "\ud800 ko")


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_there_is_nothing_to_see_in_an_empty_sentence(translator, empty):
    with pytest.raises(DataError, match="nothing to look at in an empty sentence"):
        translator.look(empty)


def test_the_search_tree_is_kept_on_request(translator, sentences):
    assert translator.look(sentences[0], beam=3).beam is None
    trace = translator.look(sentences[0], beam=3, tree=True)
    assert trace.beam.size == 3
    assert len(trace.beam.nodes) > 3
    assert all(trace.beam.nodes[number].finished for number in trace.beam.ranked)


def test_alternatives_are_a_distribution(translator, sentences):
    found = translator.alternatives(sentences[0], k=len(translator.target_vocabulary))
    assert sum(chance for _, chance in found) == pytest.approx(1, abs=1e-4)
    assert [chance for _, chance in found] == sorted((chance for _, chance in found), reverse=True)
    first = translator.translate(sentences[0], beam=1).tokens
    if first:
        assert found[0][0] == first[0]
    assert len(translator.alternatives(sentences[0], prefix=found[1][0] if found[1][0][0] != "<" else "", k=3)) == 3
    by_ids = translator.alternatives(sentences[0], prefix=[5], k=4)
    assert by_ids == translator.alternatives(sentences[0], prefix=translator.target_vocabulary.pieces([5])[0], k=4)


@pytest.mark.parametrize("model", ["bahdanau", "transformer", "luong", "sutskever"])
def test_the_coverage_penalty_only_changes_the_ranking(model, runs):
    translator = regard.load(runs(model))
    words = translator.source_vocabulary.pieces(range(4, 9))
    options = {"beam": 5, "nbest": 5}
    plain = translator.translate(" ".join(words), **options)
    weighed = translator.translate(" ".join(words), **options, coverage_penalty=2.0)
    assert {one.text for one in weighed.nbest} == {one.text for one in plain.nbest}
    assert all(
        one.score <= other.score + 1e-6 for one in weighed.nbest for other in plain.nbest if one.text == other.text
    )


def test_an_ensemble_of_one_twice_is_the_one(runs, sentences, translator):
    folder = runs("bahdanau")
    both, one = regard.load([folder, str(folder)]), regard.load(folder)
    words = sentences[:6] if translator.experiment.name == "bahdanau" else ["ko ki", "ki"]
    assert [t.text for t in both.translate(words)] == [t.text for t in one.translate(words)]
    assert both.perplexity(["ko"], ["ki"]) == pytest.approx(one.perplexity(["ko"], ["ki"]), rel=1e-5)
    with pytest.raises(RunError, match="ensemble"):
        both.look("ko ki")
    with pytest.raises(RunError, match="ensemble"):
        both.translate("ko ki", coverage_penalty=1.0)


def test_runs_with_other_vocabularies_form_no_ensemble(runs):
    with pytest.raises(RunError, match="An ensemble needs runs with the same vocabularies"):
        regard.load([runs("bahdanau"), runs("bahdanau", "data.subwords=char")])
    with pytest.raises(RunError, match="at least one run"):
        regard.load([])


def test_the_device_is_checked(runs):
    with pytest.raises(ConfigError, match="must be auto, cpu or cuda"):
        regard.load(runs("bahdanau"), device="abacus")
    assert regard.load(runs("bahdanau"), device="cpu").device == torch.device("cpu")


def test_translating_leaves_nothing_behind(translator, sentences):
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    state = torch.random.get_rng_state()
    translator.translate(sentences, temperature=1.0)
    translator.look(sentences[0])
    translator.score(sentences[:2], sentences[:2])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in translator.model.state_dict().items())
    assert not translator.model.training
    assert all(weight.grad is None for weight in translator.model.parameters())


def test_symbols_are_never_written(translator, sentences):
    for found in translator.translate(sentences, temperature=2.0, nbest=3):
        for one in found.nbest:
            ids = translator.target_vocabulary.encode(one.text).ids
            assert START not in ids
            assert END not in ids


def test_languages_are_named_after_the_files():
    named = gather(None, "cho", None, [], source=["a/train.en.gz", "b/more.en"], target="train.fr")["data"]
    assert (named["source_language"], named["target_language"]) == ("en", "fr")
    assert "source_language" not in gather(None, "cho", None, [], source="train.txt", target="x.tok")["data"]
    assert gather(None, "cho", None, ["data.source_language=de"], source="train.en")["data"]["source_language"] == "de"


def test_a_tsv_file_is_no_side():
    with pytest.raises(ConfigError, match=r"set only data\.tsv"):
        find_corpus(DataConfig(source="pairs.tsv.gz", target="pairs.tsv.gz"))


def test_a_translation_tells_which_words_could_not_be_read(translator, sentences):
    found = translator.translate([sentences[0], f"zebra {sentences[0]}\nquagga zebra", ""])
    assert [one.unknown for one in found] == [[], ["zebra", "quagga", "zebra"], []]
    assert translator.translate("zebra", nbest=2).nbest[1].unknown == ["zebra"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_characters_never_seen_in_training_are_reported_whether_spelled_as_bytes_or_unknown(kind):
    texts = ["the black cat does not sleep", "a red apple falls", "the dog sees a black bird"] * 9
    text = "the \u6f22\u5b57 cat \U0001f600"
    whole, part = (Vocabulary.train(texts, kind, 320 if bytes_ else 40, bytes_) for bytes_ in (True, False))
    assert unseen(whole.encode(text)) == ["\u6f22", "\u5b57", "\U0001f600"]
    assert "".join(unseen(part.encode(text))) == "\u6f22\u5b57\U0001f600"


def test_a_trace_says_what_it_is_in_a_line():
    trace = regard.Trace.from_arrays(["a", "b"], ["c"], [[0.25, 0.75]])
    assert repr(trace) == "Trace('a b' -> 'c'; weights of attention [1, 1, 2])"


def test_nothing_is_no_run():
    with pytest.raises(ConfigError, match="A run is a folder, or the name of a model such as en-fr; got None"):
        regard.load(None)


def test_numbers_are_no_models_folders_or_texts(translator):
    with (
        pytest.raises(ConfigError, match=r"record takes a model, such as translator\.model; got int"),
        regard.record(5),
    ):
        pass
    with pytest.raises(ConfigError, match="out is the folder of the run, a path; got int"):
        regard.train(out=3)
    with pytest.raises(DataError, match="A sentence is text; got int"):
        translator.align(1, 2)


def test_a_row_that_the_translation_does_not_have_is_said_to_have_no_effect(translator):
    target = translator.look("ba da").target.text
    rows = len(translator.look("ba da", target).target.tokens)
    for t, says in ((rows - 1, ""), (rows, f" (no effect: the translation has {numbered('row', rows)})")):
        trace = translator.look("ba da", target, changes=[SetRow(t, 0)])
        assert trace.changes[0]["text"] == f"row {t} set all on source position 0{says}"


def test_what_is_loaded_says_what_it_is_in_a_line(translator):
    weights = sum(part.numel() for part in translator.model.parameters())
    kind = translator.experiment.name
    assert repr(translator) == f"Translator({translator.name}: {kind}, {weights:,} weights on cpu)"


class Screen:
    """What a notebook shows in one place, as `IPython.display.display` with a display_id does."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, data: dict, raw: bool, display_id: bool) -> "Screen":
        assert raw
        assert display_id
        self.update(data, raw)
        return self

    def update(self, data: dict, raw: bool) -> None:
        self.texts.append(data["text/plain"])


def test_a_notebook_shows_a_line_of_training():
    screen = Screen()
    line = NotebookLine(screen)
    line(DataReady(3, 2_000_000, "cpu", ["a note"]))
    line(Stepped(1, 9, 0, 5.5, 0.001, 1234.0, 61.0))
    line(Validated(8, {"perplexity": 54321.0, "bleu": 5.873e-07}, [], False))
    assert "step 8 validation: perplexity 54321.0, bleu 0.0" in screen.texts[-1]
    line(Validated(9, {"bleu": 12.3}, ["a → b"], True, "bleu"))
    line(Stepped(9, 9, 0, 2.5, 0.001, 1234.0, 0.0))
    assert screen.texts[0] == "a note\n2.00 M weights on cpu, 3 batches per epoch"
    assert "step 9 validation: bleu 12.3 (best so far by bleu)\n    a → b" in screen.texts[-1]
    assert screen.texts[-1].startswith("step 9/9  loss 2.500  1,234 tokens/s")
    assert in_notebook() is None  # elsewhere the library prints nothing
