"""Transformers as MarianMT folders: transformers computes the same logits and words, and so does the way back."""

import json
from dataclasses import replace

import opus
import pytest
import torch
from commands import run_here
from opus import ENGLISH, FRENCH, generated, marian, tokenizer_of

import regard
from regard.api.exporting import export
from regard.api.importing import import_model
from regard.data.vocabulary import Vocabulary
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError
from regard.interop.huggingface import EXPORTED, ROWS, export_huggingface
from regard.interop.imported import sines_then_cosines
from regard.models.registry import MODELS, build
from regard.symbols import END

TINY = MODELS["transformer"].presets["tiny"]
KINDS = {
    "published": {},
    "target": {"tied": "target", "activation": "gelu"},
    "untied": {"tied": "none", "bias": True, "activation": "swish", "decoder_layers": 1},
    "table": {"positions": "learned", "longest": 40},
}


def vocabularies_of(tied):
    kinds = [("unigram", ENGLISH, 60), ("bpe", FRENCH, 70)]
    made = [Vocabulary.train(lines * 4, kind, size, byte_fallback=False) for kind, lines, size in kinds]
    return (made[0], made[0]) if tied == "all" else (made[0], made[1])


def model_of(vocabularies, **changes):
    torch.manual_seed(2)
    sizes = {"width": 16, "inner": 24, "heads": 4, "layers": 2}
    sizes |= {f"{side}_vocabulary": len(one) for side, one in zip(("source", "target"), vocabularies, strict=True)}
    model = build("transformer", replace(TINY, **{**sizes, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(float("norm.weight" in name), 0.4)
        if model.config.positions == "learned":
            model.place.embed.table.weight.copy_(sines_then_cosines(40, 16, 1 - 2 / 16))
    return model


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_transformers_computes_the_same_logits(tmp_path, kind):
    """Of every token, and again after an import."""
    vocabularies = vocabularies_of(KINDS[kind].get("tied", "all"))
    assert len(vocabularies[0]) != len(vocabularies[1]) or kind in ("published", "table")
    model = model_of(vocabularies, **KINDS[kind])
    size = export_huggingface(model, vocabularies, tmp_path / "hf", DecodeConfig(), ("en", "fr"), "# A card\n")
    assert size == sum(path.stat().st_size for path in (tmp_path / "hf").iterdir())
    theirs, tokenizer = marian("MarianMTModel").from_pretrained(tmp_path / "hf").eval(), tokenizer_of(tmp_path / "hf")
    assert theirs.generation_config.bad_words_ids == [[theirs.config.pad_token_id]]
    import_model(tmp_path / "hf", tmp_path / "run")
    back = regard.load(tmp_path / "run")
    assert (back.source_language, back.target_language) == ("en", "fr")
    rows = [[*ROWS, *range(4, len(one))] for one in vocabularies]  # ours, in the order of theirs
    for text in ENGLISH:
        ids = tokenizer([text], return_tensors="pt")
        read = torch.tensor([[*vocabularies[0].encode(text).ids, END]])
        assert [rows[0][index] for index in ids["input_ids"][0].tolist()] == read[0].tolist()
        wanted = torch.tensor([[5, 17, 12, 8, 0]])
        begun = torch.cat([torch.tensor([[theirs.config.decoder_start_token_id]]), wanted[:, :-1]], 1)
        written = torch.tensor([[rows[1][index] for index in wanted[0].tolist()]])
        logits = model(read, torch.tensor([read.shape[1]]), written)[0][:, rows[1]]
        expected = theirs(**ids, decoder_input_ids=begun).logits[0]
        assert (logits - expected).abs().max() < 1e-4
        again = back.model(read, torch.tensor([read.shape[1]]), written)[0]
        assert (logits - again[:, rows[1]]).abs().max() < 1e-4
    assert back.encode("a dog").ids == vocabularies[0].encode("a dog").ids


@pytest.mark.slow
def test_an_included_translator_writes_the_same_in_transformers(tmp_path):
    out = tmp_path / "en-fr-hf"
    done = run_here("export", "en-fr", "--to", "huggingface", "--out", out)
    assert done.code == 0, done.err
    model, tokenizer = marian("MarianMTModel").from_pretrained(out).eval(), tokenizer_of(out)
    translator = regard.load("en-fr", "cpu")
    for text in ("Where is the station?", 'The "black" cat — 12 years old — does not see a 😀, naïve as it is.'):
        found = translator.translate(text, beam=1, split=False)
        assert found.tokens == generated(model, tokenizer, text, 1)
        ids = model.generate(**tokenizer([text], return_tensors="pt"), num_beams=1, max_length=60)
        assert tokenizer.batch_decode(ids, skip_special_tokens=True) == [found.text]
    card = (out / "README.md").read_text("utf-8")
    assert 'language: ["en", "fr"]' in card
    assert "Europarl" in card  # its data


def test_an_imported_model_comes_back_as_it_was(tmp_path):
    """Bit for bit: weights, vocabularies and search."""
    import_model(opus.make(tmp_path / "made" / "opus-mt-en-fr"), tmp_path / "first")
    export(tmp_path / "first", tmp_path / "opus-mt-en-fr", "huggingface")
    assert ">>fra<<" in json.loads((tmp_path / "opus-mt-en-fr" / "vocab.json").read_bytes())
    import_model(tmp_path / "opus-mt-en-fr", tmp_path / "second")
    first, second = (json.loads((tmp_path / name / "manifest.json").read_bytes()) for name in ("first", "second"))
    same = {name for name, one in first["files"].items() if one == second["files"][name]}
    assert same == {"weights.safetensors", "config.toml", "source.model", "target.model", "source.json", "target.json"}


OTHERS = {name: one for name, one in MODELS["transformer"].variants.items()
          if any(getattr(one, setting) not in known for setting, known in EXPORTED.items())}  # fmt: skip


@pytest.mark.parametrize("variant", OTHERS)
def test_what_marian_cannot_express_is_refused_with_the_reason(tmp_path, variant):
    vocabularies = vocabularies_of("all")
    sizes = {f"{side}_vocabulary": len(vocabularies[0]) for side in ("source", "target")}
    model = build("transformer", replace(OTHERS[variant], **sizes))
    wrong = next(name for name, known in EXPORTED.items() if getattr(model.config, name) not in known)
    with pytest.raises(ConfigError, match=f"no {wrong} = {getattr(model.config, wrong)!r}, only"):
        export_huggingface(model, vocabularies, tmp_path / "hf", DecodeConfig(), ("", ""), "")
    assert not list(tmp_path.iterdir())


def test_other_families_positions_and_vocabularies_are_refused(tmp_path):
    vocabularies = vocabularies_of("all")
    learned = model_of(vocabularies, positions="learned", longest=40)
    torch.nn.init.normal_(learned.place.embed.table.weight)
    words = Vocabulary.train(ENGLISH, "word", 30)
    for model, some, says in (
        (learned, vocabularies, "other wavelengths"),
        (model_of([words, words]), (words, words), "data.subwords = 'word'"),
    ):
        with pytest.raises(ConfigError, match=says):
            export_huggingface(model, some, tmp_path / "hf", DecodeConfig(), ("", ""), "")
    done = run_here("export", "en-fr/bahdanau", "--to", "huggingface", "--out", tmp_path / "hf")
    assert (done.code, "this run is a Bahdanau" in done.err) == (2, True)
    assert not list(tmp_path.iterdir())
