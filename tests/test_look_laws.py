"""Laws of looking, on trained models from end to end: nothing is changed, nothing is lost, nothing breaks a picture."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import trained
from commands import regard as command
from commands import run_here

from regard import load
from regard.api import aligning, measuring
from regard.api.looking import locate
from regard.corpora.phrasebook import generate
from regard.corpora.registry import generate_copy
from regard.data.batching import pad
from regard.errors import ConfigError, DataError, RegardError, RunError
from regard.evaluate.alignment import score_alignments
from regard.evaluate.scores import score
from regard.look import Force, Mask, Silence, Temperature, Trace, change, record
from regard.look.measure import reproduce
from regard.look.record import attentions
from regard.look.table import arrange
from regard.symbols import END, UNKNOWN
from regard.text.pharaoh import Gold

TEXT = {
    "copy": "ba de fi go lu",
    "heads": "the black cat sleeps .",
    "bahdanau": "the cat is black .",
    "local": "ba de fi go",
    "fixed": "ba de fi",
    "lstmn": "ba de fi go",
}
ALL = list(TEXT)


@pytest.fixture(params=ALL)
def name(request):
    return request.param


def look(name, **options):
    return trained.translator(name).look(TEXT[name], **options)


def test_looking_never_changes_the_translation(name):
    translator = trained.translator(name)
    before = translator.translate(TEXT[name], beam=3)
    trace = look(name, beam=3)
    assert trace.target.text == before.text
    with record(translator.model):
        assert translator.translate(TEXT[name], beam=3).tokens == before.tokens
    assert translator.translate(TEXT[name], beam=3) == before
    assert not any(module._forward_hooks for module in translator.model.modules())


def test_a_trace_is_exact_for_the_hypothesis_of_the_beam(name):
    before = trained.translator(name).translate(TEXT[name], beam=3)
    trace = look(name, beam=3)
    assert sum(token.logprob for token in trace.target.tokens) == pytest.approx(before.logprob, abs=1e-3)
    for token in trace.target.tokens:
        assert token.topk[0][1] >= token.logprob - 1e-6


def test_rows_sum_to_one_and_stop_at_the_end_of_the_sentence(name):
    for seen in look(name).attention.values():
        sums = seen.weights.sum(-1)  # [H, T]
        if seen.normalise == "Gaussian window":  # Luong 2015 does not renormalise
            assert (sums <= 1 + 1e-5).all()
        else:
            nowhere = np.isneginf(seen.scores).all(-1)  # the first word of a model that looks at its past
            assert np.allclose(sums, np.where(nowhere, 0, 1), atol=1e-5)
            assert nowhere.sum() <= (seen.kind in ("encoder", "decoder"))


def test_padding_has_no_weight_and_changes_no_other(name):
    translator = trained.translator(name)
    rows = [translator.source_vocabulary.encode(text).ids for text in (TEXT[name], TEXT[name][:5])]
    source, lengths = pad([[*row, END] for row in rows])
    target = torch.tensor([[5, 6, END]] * 2)
    with torch.inference_mode(), record(translator.model) as together:
        translator.model(source, lengths, target)
    for row in range(2):
        with torch.inference_mode(), record(translator.model) as alone:
            translator.model(source[row : row + 1, : lengths[row]], lengths[row : row + 1], target[row : row + 1])
        for module in together:
            whole, single = together[module].weights[row], alone[module].weights[0]
            T, S = single.shape[-2:]
            assert torch.allclose(whole[..., :T, :S], single, atol=1e-5)
            if whole.shape[-2] == T:  # attention over the source: what lies behind the sentence is exactly zero
                assert (whole[..., S:] == 0).all()


def test_scores_through_the_stated_normaliser_are_the_weights(name):
    for seen in look(name).attention.values():
        again = reproduce(seen)
        assert again is not None, seen.normalise
        assert np.allclose(again, seen.weights, atol=1e-5)


def test_weights_times_values_are_the_context(name):
    translator, contexts = trained.translator(name), {}

    def watch(key):
        def hook(module, args, found):
            query, memory = args[0], args[1]
            contexts.setdefault(key, []).append((found, memory.values))
            assert torch.allclose(found.weights @ memory.values, found.context, atol=1e-5)
            assert query.shape[-2] == found.weights.shape[-2]

        return hook

    handles = [module.register_forward_hook(watch(key)) for key, module in attentions(translator.model).items()]
    try:
        trace = look(name, target=TEXT[name])
    finally:
        for handle in handles:
            handle.remove()
    for key, seen in trace.attention.items():
        context = torch.cat([one.context for one, _ in contexts[key]], dim=-2)[0]  # [(H), T, Dv]
        norms = context.norm(dim=-1).reshape(seen.heads, -1).numpy()
        assert np.allclose(np.broadcast_to(norms, seen.context_norms.shape), seen.context_norms, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in ("bahdanau", "local"))) for one in ALL]
)  # "copy" has the layout of those two
def test_a_trace_read_back_draws_the_same_picture(name, tmp_path):
    trace = look(name, tree=True)
    back = Trace.from_json(trace.to_json())
    assert back == trace
    first, second = (one.draw(tmp_path / f"{number}.svg") for number, one in enumerate((trace, back)))
    assert first.read_bytes() == second.read_bytes()
    assert trace.to_html() == back.to_html()
    assert trace.to_terminal() == back.to_terminal()
    assert Trace.load(trace.save(tmp_path / "trace.json.gz")) == trace


def test_merged_words_keep_the_total_mass():
    trace = look("heads")
    words, pieces = (arrange(trace, words=merge, special=True) for merge in (True, False))
    assert len(words.columns) < len(pieces.columns), "there is something to merge"
    counts = np.array([len(row.tokens) for row in words.rows])
    assert (words.weights.sum(-1) * counts).sum() == pytest.approx(pieces.weights.sum(), rel=1e-5)
    assert np.allclose(words.weights.sum(-1), 1, atol=1e-5)


def test_the_alignment_of_a_model_that_copies_is_the_identity():
    translator = trained.translator("copy")
    made = generate_copy(40, 99, 2, 6)
    sources = [example.source for example in made]
    copied = [one.text == source for one, source in zip(translator.translate(sources, beam=1), sources, strict=True)]
    assert sum(copied) >= 38, "it copies; the last percent depends on the machine's arithmetic"
    seen = aligning.traces(translator, sources, sources)
    for links, example in zip(aligning.align(seen, aligning.Heads()), made, strict=True):
        assert links == {(place, place) for place in range(len(example.source.split()))}


def test_pairs_read_together_are_what_each_is_alone(name):
    translator, text = trained.translator(name), TEXT[name]
    sources = [text, text.split()[0], f"{text} {text}", text.split()[1]]
    targets = [text.split()[0], f"{text} {text}", text, text]
    names = list(attentions(translator.model))
    for together, source, target in zip(
        aligning.traces(translator, sources, targets, names=names), sources, targets, strict=True
    ):
        alone = translator.look(source, target)
        assert (together.source, together.target.text) == (alone.source, alone.target.text)
        assert list(together.attention) == list(alone.attention)
        for key, seen in together.attention.items():
            assert np.allclose(seen.weights, alone.attention[key].weights, atol=1e-5)
            for what in ("kind", "layer", "query", "shift"):
                assert getattr(seen, what) == getattr(alone.attention[key], what)
            assert seen.scores is None
    cross = next(aligning.traces(translator, sources, targets))
    assert list(cross.attention) == list(translator.model.attention_layout.cross)


def test_an_ensemble_has_nothing_to_look_into():
    both = load([trained.run("fixed"), trained.run("fixed")])
    for act in (lambda: both.look("ba"), lambda: list(aligning.traces(both, ["ba"], ["ba"]))):
        with pytest.raises(RunError, match="An ensemble has no single attention"):
            act()


def test_perplexity_does_not_depend_on_the_batch(name):
    translator, text = trained.translator(name), TEXT[name]
    sources = [text, text.split()[0], f"{text} {text}"]
    targets = [f"{text} {text}", text, text.split()[0]]
    counts = [len(translator.prefix_ids(target)) + 1 for target in targets]
    alone = [translator.perplexity([one], [other]) for one, other in zip(sources, targets, strict=True)]
    mean = sum(count * np.log(each) for count, each in zip(counts, alone, strict=True)) / sum(counts)
    assert translator.perplexity(sources, targets) == pytest.approx(np.exp(mean), rel=1e-5)


# What if


def test_a_forced_beginning_is_kept_and_marked_and_the_model_continues():
    translator = trained.translator("copy")
    trace = translator.look(TEXT["copy"], prefix="zu")
    assert trace.target.text.startswith("zu")
    assert trace.changes == ({"kind": "force", "text": "begins with 'zu'", "rows": [0]},)
    assert "changed: begins with 'zu'" in arrange(trace).caption
    assert trace.target.tokens[0].logprob < -1, "the model would not have said it"
    assert translator.look(TEXT["copy"], prefix=translator.prefix_ids("zu")).target == trace.target
    assert translator.look(TEXT["copy"], prefix="").changes == ()


def test_a_word_is_forced_at_one_step_and_the_rest_is_free():
    translator = trained.translator("copy")
    trace = translator.look(TEXT["copy"], changes=[Force(2, "zu")], beam=3)
    words = trace.target.text.split()
    assert words[:3] == ["ba", "de", "zu"], "its own words before it"
    assert trace.changes == ({"kind": "force", "text": "step 2 writes 'zu'", "row": 2, "rows": [2]},)
    assert "changed: step 2 writes 'zu'" in arrange(trace).caption
    free = translator.look(TEXT["copy"], prefix="ba de zu", beam=3)
    assert trace.target == free.target, "after it the model goes on as from any beginning"
    both = translator.look(TEXT["copy"], changes=[Force(3, "ku"), Temperature(2.0), Force(1, "zu")])
    assert (both.target.text.split()[1], both.target.text.split()[3]) == ("zu", "ku")
    assert [one["kind"] for one in both.changes] == ["temperature", "force", "force"]
    pieces = trained.translator("heads").look(TEXT["heads"], changes=[Force(0, "chatte noire")]).changes[0]["rows"]
    assert pieces == list(range(len(pieces)))
    assert len(pieces) > 1


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (
            lambda it: it.look("ba de", changes=[Force(40, "zu")]),
            r"Step 40 cannot be forced; .* steps are 0 to \d+",
        ),
        (
            lambda it: it.look("ba", changes=[Force(0, "a"), Force(0, "b")]),
            r"Step 0 cannot be forced; .* steps are 1 to",
        ),
        (lambda it: it.look("ba", "de", changes=[Force(0, "zu")]), "A target excludes a prefix and forced words"),
        (lambda it: Force(-1, "a"), "Rows count from 0"),
        (lambda it: Force(0, " "), "Force needs a word to write at step 0"),
        (lambda it: change(it.model, Force(0, "a")).__enter__(), r"pass it to translator\.look\(changes=\[\.\.\.\]\)"),
    ],
)
def test_a_force_that_cannot_be_is_refused(act, sentence):
    with pytest.raises((ConfigError, DataError), match=sentence):
        act(trained.translator("copy"))


def test_a_masked_word_is_not_copied_any_more():
    translator = trained.translator("copy")

    def located(text: str, word: str) -> list:
        return locate([Mask(word)], translator.model, translator.encode(text))

    assert located(TEXT["copy"], "fi") == [Mask(2, word="fi")]
    trace = translator.look(TEXT["copy"], changes=[Mask("fi")])
    assert "fi" not in trace.target.text.split()
    assert (trace.attention["attention"].weights[..., 2] == 0).all()
    assert trace.changes[0]["column"] == 2
    assert located("7 x 2", "2") == [Mask(2, word="2")], "a word before a place"
    assert located("7 x y", "2") == [Mask(2, word="y")]


def test_every_piece_of_a_masked_word_is_masked():
    translator = trained.translator("heads")
    trace = look("heads")
    pieces = [at for at, token in enumerate(trace.source.tokens) if token.word == 3]
    assert len(pieces) > 1
    assert [one["column"] for one in translator.look(TEXT["heads"], changes=[Mask("sleeps")]).changes] == pieces


def test_silence_is_named_by_layer_and_head_or_by_module():
    translator = trained.translator("heads")
    cross = "decoder.1.cross_attention.attention"
    for place, silenced in (("1.0", Silence(cross, 0)), ("1", Silence(cross)), ("encoder.0", Silence("encoder.0"))):
        assert locate([Silence(place)], translator.model, translator.encode("a")) == [silenced]
    trace = translator.look(TEXT["heads"], changes=[Silence("1.0"), Temperature(0.5)])
    assert (trace.attention[cross].weights[0] == 0).all()
    assert (trace.attention[cross].weights[1] > 0).any()
    assert [one["kind"] for one in trace.changes] == ["silence", "temperature"]


def test_leaving_out_the_only_attention_costs_all_and_the_report_says_so():
    translator = trained.translator("copy")
    made = [example.source for example in generate_copy(12, 98, 4, 6)]
    whole = score([one.text for one in translator.translate(made)], made).scores[0].value
    (worth,) = measuring.silence_heads(translator, made, made)
    assert worth.drop == pytest.approx(whole - worth.score)
    assert worth.drop > 50


def test_the_report_names_the_beam_which_is_not_that_of_score(tmp_path):
    (tmp_path / "a").write_text("ba de\n", encoding="utf-8")
    heads = ["heads", trained.run("copy"), "--source", tmp_path / "a", "--target", tmp_path / "a", "--silence"]
    said = command(*heads, folder=tmp_path / "log").out
    assert said.endswith("BLEU with beam 1 (--beam); regard score searches with beam 5\n")
    assert command(*heads, "--beam", 5, folder=tmp_path / "log").out.endswith("BLEU with beam 5 (--beam)\n")
    assert json.loads(command(*heads, "--json", folder=tmp_path / "log").out)["beam"] == 1


def test_forced_words_that_are_not_in_the_vocabulary_are_noted():
    translator = trained.translator("bahdanau")
    known = {"prefix": "le chat", "changes": [Force(2, "chat")]}
    assert "forced" not in [note["flag"] for note in translator.look(TEXT["bahdanau"], **known).notes]
    for forced in ({"prefix": "le zebu"}, {"changes": [Force(0, "zebu")]}, {"target": "le zebu ."}):
        (note,) = (note for note in translator.look(TEXT["bahdanau"], **forced).notes if note["flag"] == "forced")
        assert note["words"] == ["zebu"]


def test_what_a_translation_with_terms_copies_is_not_noted_as_forced(monkeypatch):
    translator = trained.translator("bahdanau")
    monkeypatch.setattr(type(translator), "translate", lambda *_, **__: SimpleNamespace(text="le zebu ."))
    notes = translator.look(TEXT["bahdanau"], terms=[("cat", "chat")]).notes
    assert "forced" not in [note["flag"] for note in notes]


# Gradient flow


def test_the_flow_of_a_sentence_has_two_ways_where_there_are_two(tmp_path):
    found = measuring.flow_of(trained.translator("bahdanau"), TEXT["bahdanau"])
    assert found.attention.any()
    assert found.state.any()
    plain = measuring.flow_of(trained.translator("fixed"), TEXT["fixed"])
    upper = measuring.flow_of(trained.translator("fixed"), TEXT["fixed"].upper())
    assert np.array_equal(upper.total, plain.total), "trained on lower-case text, so it reads no other"
    assert not plain.attention.any()
    from regard.look.flow import draw_flows

    svg = draw_flows({"with": found, "without": plain}, tmp_path / "flow.svg").read_text(encoding="utf-8")
    assert "with, attention held fixed" in svg
    assert "without, attention" not in svg


# Bad input

STRANGE = {
    "a lone surrogate": "ba \ud800 de",
    "NUL": "ba \0 de",
    "controls of direction": "ba \u202e de \u2066 fi",
    "a family": "👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 👍🏽",
    "a broken tag": "</script><svg onload=alert(1)> & \" ' ]]>",
    "marks without a letter": "\u0301\u0301\u0301 a" + "\u0300" * 60,
    "spaces of all kinds": "a\u00a0b\u3000c\u2028d\u0085e",
    "line breaks": "ba\nde\r\nfi",
    "right to left": "שלום עולם",
    "long": "x" * 120,
    "noncharacters": "\ufffe \uffff \U0010ffff",
    "dollars": "$x^2$ \\frac{1}{2} %s {0}",
}


# The models in turn; in `make slow` each text with both.
@pytest.mark.parametrize(
    ("model", "what"),
    [
        (model, what) if (number + turn) % 2 else pytest.param(model, what, marks=pytest.mark.slow)
        for turn, model in enumerate(["heads", "copy"])
        for number, what in enumerate(STRANGE)
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # no font of this machine may have all of them
def test_any_string_whatever_can_be_looked_into_and_drawn(model, what, tmp_path):
    trace = trained.translator(model).look(STRANGE[what], STRANGE[what])
    assert Trace.from_json(trace.to_json()) == trace
    if model == "heads":  # a word is drawn as a piece of a word is
        ElementTree.parse(trace.draw(tmp_path / "a.svg"))
    else:
        assert trace.draw(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = trace.draw(tmp_path / "a.html").read_bytes().decode("utf-8")
    assert "<svg onload" not in page
    assert "\0" not in trace.to_terminal(colour=False) + page
    assert "\n" not in "".join(token.piece for token in trace.source.tokens)


@pytest.mark.parametrize("empty", ["", " ", "\u3000\u00a0", "\n"])
def test_an_empty_sentence_is_refused(empty):
    translator = trained.translator("heads")
    for act in (translator.look, lambda text: measuring.flow_of(translator, text)):
        with pytest.raises(DataError, match=r"nothing to look at in an empty sentence; pass at least one word\."):
            act(empty)


def test_an_empty_target_is_the_end_alone(tmp_path):
    trace = trained.translator("copy").look(TEXT["copy"], "")
    assert [token.special for token in trace.target.tokens] == [True]
    drawn = trace.draw(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "&lt;/s&gt;" in drawn
    assert "nothing to show" not in drawn


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ([5, 9999], r"There is no token 9999: the ids"),
        ([-1], r"There is no token -1: the ids"),
        ([5, END, 6], r"cannot contain the symbol </s> \(token 2\); leave it out\."),
        ([0.5], r"A translation is text or a list of token ids; got \[0\.5\]\."),
        (7, r"A translation is text or a list of token ids; got 7\."),
        ("ba " * 10_000, r"A sentence of 10000 tokens is too long to look into; give at most 1000\."),
    ],
)
def test_a_target_that_does_not_belong_is_refused(target, sentence):
    with pytest.raises(DataError, match=sentence):
        trained.translator("copy").look(TEXT["copy"], target)


def test_a_target_of_strange_words_is_forced_all_the_same():
    trace = trained.translator("copy").look(TEXT["copy"], "never seen")
    assert [token.piece for token in trace.target.tokens[:2]] == ["<unk>", "<unk>"]


def test_ten_thousand_words_are_refused_in_a_sentence():
    with pytest.raises(DataError, match=r"A sentence of 10000 tokens is too long to look into; give at most 1000\."):
        trained.translator("copy").look("ba " * 10_000)


def test_what_cannot_be_drawn_is_refused(tmp_path):
    trace, translator = look("heads"), trained.translator("heads")
    cases = [
        (lambda: trace.draw(tmp_path / "a.gif"), r"must end in \.png, \.svg, \.pdf or \.html; got 'a\.gif'"),
        (lambda: trace.draw(tmp_path / "a"), r"got 'a'"),
        (lambda: trace.draw(tmp_path / "a.svg", head=2), r"There is no head 2: .* has heads 0 to 1\."),
        (lambda: trace.draw(tmp_path / "a.svg", head=-1), r"There is no head -1"),
        (lambda: trace.draw(tmp_path / "a.svg", layer=2), r"There is no layer 2"),
        (lambda: trace.draw(tmp_path / "a.svg", view="matrxi"), r"matrix"),
        (lambda: trace.draw(tmp_path / "a.svg", veiw="matrix"), r"no option 'veiw' .* Did you mean 'view'\?"),
        (lambda: trace.draw(tmp_path / "a.html", veiw="matrix"), r"no option 'veiw' .* Did you mean 'view'\?"),
        (lambda: translator.look("a", changes=[Silence("2")]), r"There is no layer 2 .* has layers 0 to 1\."),
        (lambda: translator.look("a", changes=[Silence("decoder.9")]), r"decoder\.9"),
        (lambda: translator.look("a", changes=[Silence("0.7")]), r"There is no head 7"),
        (lambda: translator.look("a b", changes=[Mask("c")]), r"There is no word 'c' in the sentence"),
        (lambda: translator.look("a b", changes=[Mask("2")]), r"There is no word '2' in the sentence"),
        (lambda: translator.look("a", changes=[Temperature(0)]), r"A temperature must be above zero and finite"),
    ]
    for act, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            act()
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="A target excludes a prefix and forced words; pass one"):
        translator.look("a", "b", prefix="c")
    with pytest.raises(DataError, match="A sentence is text; got int"):
        translator.look(7)


def test_a_model_without_attention_refuses_changes_of_attention_and_takes_forced_words():
    translator, text = trained.translator("fixed"), TEXT["fixed"]
    for one in (Mask(0), Temperature(0.5), Silence("attention")):
        with pytest.raises(RegardError, match=r"has no attention to words to change \(model sutskever\); force words"):
            translator.look(text, changes=[one])
    word = translator.target_vocabulary.pieces([UNKNOWN + 1])[0]
    assert translator.look(text, changes=[Force(0, word)]).target.tokens[0].piece == word


def test_a_change_leaves_no_trace_after_an_error():
    translator = trained.translator("heads")
    before = translator.translate(TEXT["heads"])
    with pytest.raises(RegardError), change(translator.model, Silence("decoder.0", 9)):
        translator.translate(TEXT["heads"])
    assert translator.translate(TEXT["heads"]) == before


# The command line


def regard_command(*arguments):
    done = run_here(*arguments)
    return done.code, done.out, done.err


def test_regard_look_shows_draws_keeps_and_asks_what_if(tmp_path):
    run = trained.run("copy")
    code, out, err = regard_command("look", run, TEXT["copy"])
    assert (code, out.split("\n")[0], err) == (0, TEXT["copy"], "")
    assert "Luong's attention (general)" in " ".join(out.split())
    for name in ("a.pdf", "a.json", "a.json.gz"):  # test_cli_use.py draws every view, and into the other kinds
        assert regard_command("look", run, TEXT["copy"], "--out", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size > 500
    assert Trace.load(tmp_path / "a.json") == Trace.load(tmp_path / "a.json.gz")
    code, out, _ = regard_command("look", run, TEXT["copy"], "--mask", "fi", "--force", "zu", "--temperature", "0.5")
    assert code == 0
    assert out.startswith(f"unchanged: {TEXT['copy']}\nchanged:   zu")
    words = " ".join(out.split())
    assert "changed: 'fi' masked, changed: temperature 0.5, changed: begins with 'zu'" in words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["", "--head", "0"], "nothing to look at in an empty sentence"),
        (["ba", "--head", "4"], "There is no head 4"),
        (["ba", "--layer", "4"], "There is no layer 4"),
        (["ba", "--silence", "0.4"], "There is no head 4"),
        (["ba", "--mask", "de"], "There is no word 'de' in the sentence"),
        (["ba", "--temperature", "0"], "A temperature must be above zero"),
        (["ba", "--target", "ba", "--force", "de"], "A target excludes a prefix and forced words"),
        (["ba", "--out", "a.gif"], "A picture's name must end in .png, .svg, .pdf or .html; got 'a.gif'"),
        (["ba", "--view", "matrix", "--out", "no/such/a.svg"], "no/such"),
        (["ba " * 10_000], "too long to look into"),
    ],
)
def test_regard_look_refuses_in_one_sentence(arguments, sentence):
    done = run_here("look", trained.run("copy"), *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("regard: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("what", [key for key in STRANGE if key not in ("NUL", "a lone surrogate")])
def test_regard_look_takes_any_argument(what):
    done = run_here("look", trained.run("heads"), STRANGE[what], "--target", STRANGE[what])
    assert done.code == 0, done.err
    assert "weights: 0" in done.out


def test_regard_flow_compares_runs(tmp_path):
    runs = trained.run("copy"), trained.run("fixed")
    code, out, err = regard_command("flow", runs[0], TEXT["copy"], "--with", runs[1], "--out", tmp_path / "flow.svg")
    assert code == 0, err
    assert "fixed: 0.0 % of the gradient passes through attention" in out
    assert ">copy<" in (tmp_path / "flow.svg").read_text(encoding="utf-8")
    code, out, _ = regard_command("flow", runs[0], TEXT["copy"], "--target", TEXT["copy"])
    assert code == 0
    assert out.split("\n")[1].split() == ["distance", "total", "attention", "held", "fixed"]
    code, _, err = regard_command("flow", runs[0], TEXT["copy"], "--out", tmp_path / "flow.gif")
    assert code == 2
    assert "must end in .png, .svg, .pdf" in err


def test_regard_heads_ranks_them_and_says_what_they_are_worth(tmp_path):
    made = generate(6, 3, 3, 6)
    lines = {
        "source": [example.source for example in made],
        "target": [example.target for example in made],
        "gold": [" ".join(f"{i + 1}-{j + 1}" for i, j in example.alignment) for example in made],
    }
    for ending, rows in lines.items():
        (tmp_path / ending).write_bytes("".join(f"{row}\n" for row in rows).encode())
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    run = trained.run("heads")
    code, out, err = regard_command("heads", run, *files, "--by", "entropy", "--json")
    assert code == 0, err
    report = json.loads(out)
    entropies = [row["entropy"] for row in report["heads"]]
    assert len(entropies) == 12, "two heads of two layers, three kinds"
    assert entropies == sorted(entropies)
    assert "aer" not in report["heads"][0]
    code, out, _ = regard_command("heads", run, *files, "--gold", tmp_path / "gold")
    assert out.endswith("entropy in nats, aer as a fraction, with shift 0 (regard align --choose tries both)\n")
    assert regard_command("heads", run, *files)[1].endswith("entropy in nats\n")
    table = [line.split() for line in out.split("\n") if "cross" in line]
    assert len(table) == 4, "those over the source alone have an error rate"
    assert [float(row[-1]) for row in table] == sorted(float(row[-1]) for row in table)
    gold = [Gold(frozenset(example.alignment), frozenset(example.alignment)) for example in made]
    seen = aligning.traces(trained.translator("heads"), lines["source"], lines["target"])
    heads = aligning.Heads(int(table[0][0].split(".")[1]), int(table[0][1]))
    assert float(table[0][-1]) == pytest.approx(score_alignments(aligning.align(seen, heads), gold).aer, abs=6e-4)
    code, out, _ = regard_command("heads", run, *files, "--silence", "--json")
    worth = json.loads(out)["heads"]
    assert len(worth) == 12
    assert [row["drop"] for row in worth] == sorted((row["drop"] for row in worth), reverse=True)
    for wrong, sentence in (
        (["--by", "entropie"], "Did you mean 'entropy'"),
        (["--silence", "--by", "entropy"], "--silence sorts by BLEU"),
        (["--gold", tmp_path / "source"], "must hold links i-j"),
        (["--target", tmp_path / "nowhere"], "There is no file"),
    ):
        code, out, err = regard_command("heads", run, *files, *wrong)
        assert (code, out) == (2, "")
        assert sentence in err


def test_reports_need_as_many_lines_on_every_side(tmp_path):
    translator = trained.translator("heads")
    gold = Gold(frozenset(), frozenset())
    with pytest.raises(DataError, match="needs a line of gold links; got 2 pairs and 1 line"):
        measuring.report_heads(translator, ["a", "b"], ["a", "b"], [gold])
    with pytest.raises(DataError, match="needs its target; got 1 and 2"):
        measuring.report_heads(translator, ["a"], ["a", "b"])
    with pytest.raises(DataError, match="needs its target; got 0 and 0"):
        measuring.silence_heads(translator, [], [])
    with pytest.raises(DataError, match="Pair 2 has an empty side"):
        measuring.report_heads(translator, ["a", " "], ["a", "b"])


def test_a_slim_trace_draws_the_same_up_to_rounding():
    trace = look("heads")
    assert np.allclose(arrange(trace).weights, arrange(replace(trace.slim())).weights, atol=1e-3)
