"""Transformers in CTranslate2: the same probabilities, the same words, the attention of a chosen head."""

from dataclasses import replace

import pytest
import small
import torch
from commands import run_here
from serve_parts import Server

import regard
from regard.cli.models import describe_run
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.interop.ctranslate2 import KNOWN, export_ctranslate2, open_engine
from regard.look.record import record
from regard.models.registry import MODELS, build
from regard.runs.included import find_run
from regard.symbols import END, SYMBOLS

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install regard[fast])")

WORDS = 23
ENTRY = MODELS["transformer"]
KINDS = {
    "post": ENTRY.presets["tiny"],
    **{
        name: one
        for name, one in ENTRY.variants.items()
        if all(getattr(one, setting) in known for setting, known in KNOWN.items())
    },
    "gelu": replace(ENTRY.presets["tiny"], activation="gelu"),
    "marian": replace(ENTRY.variants["marian"], decoder="attention"),  # the engine has no SSRU
}
ROWS = [[5, 9, 4, 17], [8], [20, 6, 7, 21, 22, 10, 4, 11], [12, 13]]
PIECES = [*SYMBOLS, *(f"w{index}" for index in range(4, WORDS))]


class Words:
    """Names for ids; a vocabulary as far as an engine needs one."""

    def __init__(self):
        self.numbers = {piece: index for index, piece in enumerate(PIECES)}

    def __len__(self):
        return WORDS

    def pieces(self, ids):
        return [PIECES[index] for index in ids]


def model_of(kind, **changes):
    torch.manual_seed(2)
    sizes = {"source_vocabulary": WORDS, "target_vocabulary": WORDS, "width": 16, "inner": 24, "heads": 4}
    model = build("transformer", replace(KINDS[kind], **sizes, **changes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(float("norm.weight" in name), 0.4)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_probabilities_are_the_same(kind, tmp_path):
    model = model_of(kind)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    export_ctranslate2(model, Words(), Words(), tmp_path / "model", "float32")
    translator = ctranslate2.Translator(str(tmp_path / "model"))
    target = [4, 19, 7, 7, 12]
    scored = translator.score_batch(
        [[PIECES[i] for i in row] for row in ROWS], [[PIECES[i] for i in target]] * len(ROWS)
    )
    for row, one in zip(ROWS, scored, strict=True):
        source = torch.tensor([[*row, END]])
        words = torch.tensor([[*target, END]])
        with torch.no_grad():
            logprobs = model(source, torch.tensor([len(row) + 1]), words)[0].log_softmax(-1)
        expected = logprobs[torch.arange(len(target) + 1), words[0]]
        assert (expected - torch.tensor(one.log_probs)).abs().max() < 2e-4
    export_ctranslate2(model, Words(), Words(), tmp_path / "int8", "int8")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())  # nothing in place


@pytest.fixture(scope="module")
def shipped():
    """The Transformer that ships, beside the same with the engine in float32."""
    own, fast = regard.load("en-fr", "cpu"), regard.load("en-fr", "cpu")
    fast.engine = open_engine(fast.model, fast.source_vocabulary, fast.target_vocabulary, 1, "float32")
    return own, fast


TEXTS = ["Where is the station?", "I do not know who wrote this letter.", "The red house is old. We like it.", ""]


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 3}, {"beam": 1, "prefix": "Nous"}], ids=str)
def test_the_engine_finds_what_the_search_finds(shipped, options):
    own, fast = (translator.translate(TEXTS, **options) for translator in shipped)
    for mine, theirs in zip(own, fast, strict=True):
        assert (theirs.text, theirs.finished) == (mine.text, mine.finished)
        assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-3)
        assert theirs.score == pytest.approx(mine.score, abs=1e-3)
        assert len(theirs.nbest) == len(mine.nbest)


def test_a_server_translates_with_the_engine_and_looks_with_regard():
    server = Server(find_run("en-fr"), engine="ctranslate2")
    try:
        answer = server.post("/translate", q=["Where is the station?"], source="en", target="fr")
        assert answer.json()["translatedText"] == ["Où est la gare\u00a0?"]
        looked = server.post("/api/v1/trace", text="Where is the station?")
        assert looked.status_code == 200, looked.text
    finally:
        assert server.stop() == 0


def test_int8_is_what_a_run_is_loaded_with():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        fast = regard.load("en-fr", "cpu", engine="ctranslate2")
        assert torch.get_num_threads() == 2  # the engine sets those of the process
    finally:
        torch.set_num_threads(before)
    assert fast.translate("Where is the station?").text == "Où est la gare\u00a0?"
    assert len(fast.look("Where is the station?").attention) > 3  # looking stays with regard
    with pytest.raises(ConfigError, match="Did you mean 'ctranslate2'"):
        regard.load("en-fr", engine="ctranslate")
    with pytest.raises(ConfigError, match="ensemble"):
        regard.load(["en-fr", "en-fr"], engine="ctranslate2")
    with pytest.raises(ConfigError, match="runs Transformers"):
        regard.load("en-fr/bahdanau", engine="ctranslate2")


@pytest.mark.parametrize(("layer", "head"), [(0, 2), (1, 0), (-1, 3)])
def test_the_attention_of_the_chosen_head_comes_with_it(layer, head, tmp_path):
    model = model_of("pre")
    export_ctranslate2(model, Words(), Words(), tmp_path / "model", "float32", (layer, head))
    translator = ctranslate2.Translator(str(tmp_path / "model"))
    row = ROWS[2]
    (found,) = translator.translate_batch([[PIECES[i] for i in row]], return_attention=True, max_decoding_length=6)
    words = [PIECES.index(piece) for piece in found.hypotheses[0]]
    name = f"decoder.{layer % 2}.cross_attention.attention"
    with torch.no_grad(), record(model, [name]) as seen:
        model(torch.tensor([[*row, END]]), torch.tensor([len(row) + 1]), torch.tensor([words]))
    expected = seen[name].weights[0, head, : len(words), : len(row)]
    attention = torch.tensor(found.attention[0])[: len(words), : len(row)]
    assert (attention - expected).abs().max() < 1e-4


def test_what_it_cannot_do_is_said():
    with pytest.raises(ConfigError, match="no decoder = 'ssru', only"):
        open_engine(build("transformer", replace(ENTRY.variants["marian"], width=16, heads=4)), Words(), Words(), 1)
    for name in ("relative", "alibi", "modern", "additive-sparsemax", "cosine-entmax15"):
        with pytest.raises(ConfigError, match=r"CTranslate2 has no .*, only .*; export this run to ONNX"):
            open_engine(build("transformer", replace(ENTRY.variants[name], width=16, heads=4)), Words(), Words(), 1)
    with pytest.raises(ConfigError, match="runs Transformers"):
        open_engine(torch.nn.Linear(2, 2), Words(), Words(), 1)
    engine = open_engine(model_of("learned"), Words(), Words(), threads=1)
    with pytest.raises(ConfigError, match="temperature"):
        engine.search(ROWS, DecodeConfig(temperature=1.0))
    with pytest.raises(ConfigError, match="at most 31 tokens"):
        engine.search([[5] * 40], DecodeConfig())
    assert [one[0].ended for one in engine.search(ROWS, DecodeConfig(), stop=lambda: True)] == ["stopped"] * 4


def test_an_export_and_its_run_say_that_text_is_rewritten_first(tmp_path, capfd):
    small.train("transformer", tmp_path / "run", "train.steps=1", "data.form=punctuation")
    out = ("--to", "ctranslate2", "--out", tmp_path / "out")
    found = run_here("export", tmp_path / "run", *out)
    assert found.code == 0, found.err
    assert "rewritten text (data.form=punctuation, data.lowercase=false)" in found.err
    describe_run(str(tmp_path / "run"))
    assert "text is rewritten first (data.form=punctuation)" in capfd.readouterr().out
