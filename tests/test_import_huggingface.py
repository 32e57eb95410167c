"""MarianMT models of transformers as runs: the same logits, and the same words from the same search."""

import json
import shutil
from itertools import pairwise

import opus
import pytest
import torch
from opus import SENTENCES, generated, marian, tokenizer_of

import regard
from regard.api.importing import import_model
from regard.errors import DataError
from regard.symbols import END, START


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return opus.make(tmp_path_factory.mktemp("made") / "opus-mt-en-fr")


@pytest.fixture(scope="module")
def pair(folder, tmp_path_factory):
    """The original with its tokenizer, and the same as a run."""
    out = tmp_path_factory.mktemp("runs") / "opus"
    import_model(folder, out)
    return marian("MarianMTModel").from_pretrained(folder).eval(), tokenizer_of(folder), regard.load(out)


def check_logits(model, tokenizer, translator, sentences):
    own = translator.target_vocabulary.tokens.pieces
    theirs = tokenizer.convert_ids_to_tokens(range(model.config.vocab_size))
    rename = {"<pad>": "<s>", ">>fra<<": "▁>>fra<<"}
    columns = [own.index(rename.get(token, token)) for token in theirs]
    for text in sentences:
        ids = tokenizer([text], return_tensors="pt")
        wanted = torch.tensor([[5, 17, 33, 8, 0]])
        read = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), wanted[:, :-1]], 1)
        with torch.no_grad():
            expected = model(**ids, decoder_input_ids=read).logits[0]
            source = torch.tensor([[*translator.encode(text).ids, END]])
            target = torch.tensor([[columns[index] for index in wanted[0].tolist()]])
            logits = translator.model(source, torch.tensor([source.shape[1]]), target)[0]
        assert (expected - logits[:, columns]).abs().max() < 1e-4
        others = sorted(set(range(logits.shape[1])) - set(columns))
        assert logits.softmax(-1)[:, others].max() == 0  # what the original does not have is never written
    assert columns[model.config.decoder_start_token_id] == START


def test_the_logits_are_those_of_transformers(pair):
    """Also for a piece that the table lacks (cat), and of every token of the original."""
    check_logits(*pair, SENTENCES)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_logits_are_those_of_transformers_with_another_activation(folder, tmp_path, activation):
    other = tmp_path / "opus-mt-en-fr"
    shutil.copytree(folder, other)
    config = json.loads((folder / "config.json").read_bytes())
    (other / "config.json").write_text(json.dumps({**config, "activation_function": activation}))
    import_model(other, tmp_path / "run")
    model = marian("MarianMTModel").from_pretrained(other).eval()
    check_logits(model, tokenizer_of(other), regard.load(tmp_path / "run"), SENTENCES[:2])


@pytest.mark.parametrize("beams", [1, 4])
def test_the_search_finds_what_transformers_finds(pair, beams):
    model, tokenizer, translator = pair
    for text in SENTENCES:
        found = translator.translate(text, beam=beams, max_ratio=0.0, max_extra=59, split=False)
        assert found.tokens == generated(model, tokenizer, text, beams), text


def test_settings_and_languages_come_along(pair):
    *_, translator = pair
    assert translator.experiment.decode.beam == 4
    assert (translator.source_language, translator.target_language) == ("en", "fr")


def test_a_text_may_begin_with_a_language_code(pair):
    _, tokenizer, translator = pair
    pieces = translator.encode(">>fra<< the house").pieces
    assert pieces == ["▁>>fra<<", *tokenizer.tokenize("the house")]


def test_pieces_know_their_place_in_the_text(pair):
    *_, translator = pair
    encoded = translator.encode("  the  ﬁne cat ")
    assert (
        encoded.text[slice(*encoded.spans[-1])].strip()
        == "cat"[-len(encoded.text[slice(*encoded.spans[-1])].strip()) :]
    )
    assert all(a[0] <= b[0] for a, b in pairwise(encoded.spans))


def test_an_imported_run_can_be_looked_at(pair):
    *_, translator = pair
    trace = translator.look("the black cat")
    assert len([name for name in trace.attention if "cross" in name]) == 1


def test_a_long_name_takes_no_longer(folder, tmp_path):
    """Which languages it mentions is found in a time that grows with its length and not with the square of it."""
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    config = json.loads((folder / "config.json").read_bytes())
    (broken / "config.json").write_text(json.dumps({**config, "_name_or_path": "_" * 200_000 + "opus-mt-de-nl"}))
    import_model(broken, tmp_path / "run")
    translator = regard.load(tmp_path / "run")
    assert (translator.source_language, translator.target_language) == ("de", "nl")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", b'{"model_type": "bart"}', "only MarianMT"),
        ("config.json", b"[" * 100_000, "not JSON"),
        ("config.json", b"{}", "type None"),
        ("config.json", {"normalize_embedding": True}, "sets normalize_embedding"),
        ("config.json", {"activation_function": "tanh"}, "activation 'tanh'"),
        ("source.spm", b"\x0a\xff\xff\xff\xff\x0f", "not a SentencePiece model"),
        ("source.spm", None, "has no source.spm"),
        ("vocab.json", b'{"</s>": 0}', "must number each token"),
        ("vocab.json", {"far": 9_999_999}, "must number each token without large gaps"),
        ("vocab.json", None, "has no vocab.json"),
        ("model.safetensors", b"\x80\x04", "safetensors"),
        ("model.safetensors", None, "never read"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence(folder, tmp_path, name, content, says):
    broken, out = tmp_path / "broken", tmp_path / "run"
    broken.mkdir()
    for path in folder.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    if isinstance(content, dict):
        content = json.dumps({**json.loads((broken / name).read_bytes()), **content}).encode()
    (broken / name).unlink()
    if content is not None:
        (broken / name).write_bytes(content)
    with pytest.raises(regard.RegardError, match=says):
        import_model(broken, out)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path != broken]


def test_sizes_that_do_not_fit_are_refused(folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in folder.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_bytes())
    (broken / "config.json").write_text(json.dumps({**config, "d_model": 20}))
    with pytest.raises(DataError, match="do not fit together"):
        import_model(broken, tmp_path / "run")
    assert not (tmp_path / "run").exists()
