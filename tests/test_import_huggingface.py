"""MarianMT models of transformers as runs: the same logits, and the same words from the same search."""

import io
import json
import shutil
import warnings
from itertools import pairwise

import pytest
import sentencepiece
import torch

import regard
from regard.api.importing import import_model
from regard.errors import DataError
from regard.symbols import END, START

ENGLISH = ["the cat sees the red house", "a dog and the black cat", "the house is red", "dogs see a house"]
FRENCH = ["le chat voit la maison rouge", "un chien et le chat noir", "la maison est rouge", "les chiens voient"]
SENTENCES = [*ENGLISH, "red dogs", "the black house and a cat is the dog"]


def spm(lines, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 4),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",
        minloglevel=3,
        hard_vocab_limit=False,
    )
    return model.getvalue()


def pieces_of(content):
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [processor.id_to_piece(index) for index in range(len(processor))]


def marian(name):
    """A class of transformers; the import takes seconds, so collecting the tests does without."""
    reason = "transformers is not installed (pip install transformers)"
    return getattr(pytest.importorskip("transformers", reason=reason), name)


def tokenizer_of(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return marian("MarianTokenizer").from_pretrained(folder)


def learn(model, tokenizer, updates=60):
    """Enough training that sentences end, as those of a random model never do."""
    batch = tokenizer(ENGLISH, text_target=FRENCH, return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == model.config.pad_token_id] = -100
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(updates):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()
    model.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny OPUS-MT that has learned its few sentences; one piece of the source is missing in its table."""
    folder = tmp_path_factory.mktemp("opus-mt-en-fr", numbered=False)
    source, target = spm(ENGLISH, 40), spm(FRENCH, 45)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    own = [piece for piece in pieces_of(source) + pieces_of(target) if piece not in ("<s>", "</s>", "<unk>", "▁cat")]
    tokens = ["</s>", "<unk>", *dict.fromkeys(own), ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    torch.manual_seed(3)
    config = marian("MarianConfig")(
        vocab_size=len(tokens), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
        activation_function="swish", scale_embedding=True, init_std=0.2, dropout=0.0, pad_token_id=len(tokens) - 1,
        eos_token_id=0, decoder_start_token_id=len(tokens) - 1, forced_eos_token_id=None,
    )  # fmt: skip
    model = marian("MarianMTModel")(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(weight, float("norm.weight" in name), 0.3)
    model.final_logits_bias.normal_(0, 0.5)
    learn(model, tokenizer_of(folder))
    model.generation_config.num_beams, model.generation_config.max_length = 4, 60
    model.generation_config.bad_words_ids = [[len(tokens) - 1]]
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pair(folder, tmp_path_factory):
    """The original with its tokenizer, and the same as a run."""
    out = tmp_path_factory.mktemp("runs") / "opus"
    import_model(folder, out)
    return marian("MarianMTModel").from_pretrained(folder).eval(), tokenizer_of(folder), regard.load(out)


def generated(model, tokenizer, text, beams):
    ids = tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        found = model.generate(**ids, num_beams=beams, max_length=60, do_sample=False)[0].tolist()
    return [tokenizer.convert_ids_to_tokens(index) for index in found if index not in (0, model.config.pad_token_id)]


def check_logits(model, tokenizer, translator, sentences):
    own = [translator.target_vocabulary.tokens.pieces[index] for index in range(len(translator.target_vocabulary))]
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
