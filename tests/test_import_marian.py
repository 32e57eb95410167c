"""Marian's npz and Bergamot's .bin as runs: the numbers of a plain reading of the same arrays, and hostile files."""

import json
import re
import struct
import zipfile

import numpy as np
import pytest
import sentencepiece
import torch
from marian_files import HEADS, D, arrays_of, folder_of, real_files, settings_of, write_bin, write_npz
from torch.nn import functional as F

import regard
from regard.api.aligning import word_weights
from regard.api.exporting import export
from regard.api.importing import import_model
from regard.interop.marian import read_vocabulary, read_yaml
from regard.symbols import END

# --- Marian's Transformer, read off its documentation: one sentence, no batch, no cache -------------------------------


def reference(arrays, source, target, decoder="ssru", norm="post", tied="all", activation="relu"):
    """Logits [T, V] of target ids, in Marian's own numbering, END = 0 last in both."""
    w = {name: torch.from_numpy(array) for name, array in arrays.items()}
    act = torch.relu if activation == "relu" else F.silu

    def positions(count):
        angle = torch.arange(count)[:, None] * 10000 ** (-torch.arange(D // 2) / (D // 2 - 1))
        return torch.cat([angle.sin(), angle.cos()], 1)

    def normed(x, here, end):
        return F.layer_norm(x, (D,), w[f"{here}_ln_scale{end}"][0], w[f"{here}_ln_bias{end}"][0], 1e-6)

    def block(x, here, act_on):
        if norm == "pre":
            return x + act_on(normed(x, here, "_pre"))
        return normed(x + act_on(x), here, "")

    def attend(x, memory, here, causal=False):
        q, k, v = (y @ w[f"{here}_W{p}"] + w[f"{here}_b{p}"] for y, p in ((x, "q"), (memory, "k"), (memory, "v")))
        out = []
        for head in range(HEADS):
            part = slice(head * D // HEADS, (head + 1) * D // HEADS)
            scores = q[:, part] @ k[:, part].T / (D // HEADS) ** 0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
            out.append(scores.softmax(-1) @ v[:, part])
        return torch.cat(out, 1) @ w[f"{here}_Wo"] + w[f"{here}_bo"]

    def feed(x, here):
        return act(x @ w[f"{here}_W1"] + w[f"{here}_b1"]) @ w[f"{here}_W2"] + w[f"{here}_b2"]

    def ssru(x, here):
        cell, out = torch.zeros(D), []
        for row in x:
            f = torch.sigmoid(row @ w[f"{here}_Wf"] + w[f"{here}_bf"][0])
            cell = f * cell + (1 - f) * (row @ w[f"{here}_W"])
            out.append(torch.relu(cell))
        return torch.stack(out)

    reads, writes = (w["Wemb"],) * 2 if tied == "all" else (w["encoder_Wemb"], w["decoder_Wemb"])
    x = reads[source] * D**0.5 + positions(len(source))
    for layer in (1, 2):
        here = f"encoder_l{layer}"
        x = block(x, f"{here}_self_Wo", lambda y, here=here: attend(y, y, f"{here}_self"))
        x = block(x, f"{here}_ffn_ffn", lambda y, here=here: feed(y, f"{here}_ffn"))
    memory = normed(x, "encoder_top", "") if norm == "pre" else x
    x = torch.cat([torch.zeros(1, D), writes[target[:-1]]]) * D**0.5 + positions(len(target))
    if decoder == "ssru":
        x = block(x, "decoder_l1_rnn_ffn", lambda y: ssru(y, "decoder_l1_rnn"))
    else:
        x = block(x, "decoder_l1_self_Wo", lambda y: attend(y, y, "decoder_l1_self", causal=True))
    x = block(x, "decoder_l1_context_Wo", lambda y: attend(y, memory, "decoder_l1_context"))
    x = block(x, "decoder_l1_ffn_ffn", lambda y: feed(y, "decoder_l1_ffn"))
    x = normed(x, "decoder_top", "") if norm == "pre" else x
    output = w["decoder_ff_logit_out_W"] if tied == "none" else writes.T
    return x @ output + w["decoder_ff_logit_out_b"]


KINDS = {
    "ssru": {},
    "swish": {"decoder": "attention", "activation": "swish"},
    "pre-norm": {"decoder": "attention", "norm": "pre", "tied": "target"},
    "untied": {"tied": "none"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "write"), [("model.npz", write_npz), ("model.enpt.bin", write_bin)], ids=["npz", "bin"]
)
@torch.no_grad()
def test_the_logits_are_those_of_a_plain_reading(tmp_path, kind, name, write):
    folder, arrays = folder_of(tmp_path, write, name, **KINDS[kind])
    import_model(folder, tmp_path / "run")
    translator = regard.load(tmp_path / "run")
    text, words = "the black cat sees a dog", [9, 4, 17, 5, 0]
    spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm"))
    pieces = [spm.id_to_piece(index) for index in range(len(spm))]
    own = translator.target_vocabulary.tokens.pieces
    columns = [own.index(piece) for piece in pieces]
    source = torch.tensor([[*translator.encode(text).ids, END]])
    assert [own[index] for index in source[0].tolist()[:-1]] == spm.encode(text, out_type=str)
    target = torch.tensor([[columns[index] for index in words]])
    logits = translator.model(source, torch.tensor([source.shape[1]]), target)[0]
    expected = reference(arrays, torch.tensor([*spm.encode(text), 0]), torch.tensor(words), **KINDS[kind])
    assert (logits[:, columns] - expected).abs().max() < 1e-4 * expected.abs().max()
    assert logits.softmax(-1)[:, :2].max() == 0  # PAD and START do not exist in Marian
    assert (translator.source_language or "en") == "en"


def quoted(token):
    """A token as YAML writes it: plain, in single quotes, or in double quotes with escapes."""
    if token[0] == "▁":
        return f'"{token}"'.replace("▁", "\\u2581")
    return f"'{token}'" if token[0] in "<,'" else token


@torch.no_grad()
def test_a_vocabulary_in_yaml_numbers_the_pieces_of_both_languages(tmp_path):
    """OPUS-MT's folders: source.spm, target.spm, and a vocab.yml in another order, with a piece missing."""
    folder, _ = folder_of(tmp_path)
    content = (folder / "vocab.spm").read_bytes()
    (folder / "vocab.spm").unlink()
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(content)
    spm = sentencepiece.SentencePieceProcessor(model_proto=content)
    pieces = [spm.id_to_piece(index) for index in range(len(spm))]
    missing = spm.encode("cat", out_type=str)[0]
    tokens = ["</s>", "<unk>", *sorted(set(pieces) - {"</s>", "<unk>", missing}, reverse=True)]
    (folder / "opus.vocab.yml").write_text("".join(f"{quoted(one)}: {row}\n" for row, one in enumerate(tokens)))
    arrays = arrays_of(len(tokens))
    write_npz(folder / "model.npz", arrays, settings_of())
    import_model(folder, tmp_path / "run")
    translator = regard.load(tmp_path / "run")
    text, words = "the black cat sees a dog", [9, 4, 17, 5, 0]
    own = translator.target_vocabulary.tokens.pieces
    columns = [own.index(piece) for piece in tokens]
    source = torch.tensor([[*translator.encode(text).ids, END]])
    target = torch.tensor([[columns[index] for index in words]])
    logits = translator.model(source, torch.tensor([source.shape[1]]), target)[0]
    read = [tokens.index(piece) if piece in tokens else 1 for piece in spm.encode(text, out_type=str)]
    assert 1 in read
    expected = reference(arrays, torch.tensor([*read, 0]), torch.tensor(words))
    assert (logits[:, columns] - expected).abs().max() < 1e-4 * expected.abs().max()
    assert logits.softmax(-1)[:, own.index(missing)].max() == 0  # the original cannot write it


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("'</s>': 0\n'<unk>': 1\n'it''s': 2\n\"a\\\"b\\x41\": 3\n:: 4\n", {"it's": 2, 'a"bA': 3, ":": 4}),
        ("</s>: 0\n<unk>: 0\n", "a unique number"),
        ("</s>: 0\n", "a unique number"),
        ("</s>: 0\n<unk>: 999999\n", "a unique number"),
        ("</s>: 0\n- <unk>\n", "not YAML as Marian writes it"),
        ("</s>: 0\n<unk>: !!python/object:os.system 1\nno: 2\n1: 3\n<<: 4\n", {"no": 2, "1": 3, "<<": 4}),
        ("</s>: 0\n<unk>: 1\na: {b: 2}\n", "line 3"),
        ("</s>: 0\n<unk>: &x 1\na: *x\n", "line 3"),
        ("{" * 100_000, "not YAML as Marian writes it"),
        ("", "a unique number"),
    ],
)
def test_a_vocabulary_in_yaml_has_tokens_with_numbers_and_nothing_else(text, says):
    if isinstance(says, dict):
        assert read_vocabulary(text.encode(), "here") == {"</s>": 0, "<unk>": 1, **says}
    else:
        with pytest.raises(regard.RegardError, match=says):
            read_vocabulary(text.encode(), "here")


def test_an_imported_run_is_a_run(tmp_path):
    """Translate, look, change and export it; a small one writes the same."""
    folder, _ = folder_of(tmp_path, write_bin, "model.enpt.bin")
    (folder / "config.yml").write_text(
        "models:\n  - model.enpt.bin\nvocabs:\n  - vocab.spm\n  - vocab.spm\nbeam-size: 1\nnormalize: 1.0\n"
        "shortlist:\n  - lex.bin\n  - false\n"
    )
    import_model(folder, tmp_path / "run")
    translator = regard.load(tmp_path / "run")
    assert (translator.source_language, translator.target_language) == ("en", "pt")
    assert translator.experiment.decode.beam == 1
    assert translator.heads.layer == 0  # the last, whose first head a student aligns with
    trace = translator.look("the cat", max_extra=5, max_ratio=0.0)
    assert {seen.kind for seen in trace.attention.values()} == {"encoder", "cross"}  # an SSRU attends to nothing
    export(tmp_path / "run", tmp_path / "small")
    assert regard.load(tmp_path / "small").translate("the cat", max_extra=5).finished in ("end", "length")
    with pytest.raises(regard.RegardError, match="not an empty folder"):
        import_model(folder, tmp_path / "run")


# --- what is refused --------------------------------------------------------------------------------------------------


def npz_of(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def npy(header):
    text = (header + "\n").encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def change_settings(**changes):
    def damage(folder):
        words = len(sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm")))
        write_npz(folder / "model.npz", arrays_of(words), settings_of(**changes))

    return damage


def drop(name):
    def damage(folder):
        words = len(sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm")))
        arrays = arrays_of(words)
        del arrays[name]
        write_npz(folder / "model.npz", arrays, settings_of())

    return damage


def replaced(name, array):
    def damage(folder):
        words = len(sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm")))
        write_npz(folder / "model.npz", {**arrays_of(words), name: array}, settings_of())

    return damage


def bomb(folder):
    npz_of(folder / "model.npz", Wemb=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }") + bytes(2**26))


HEADER = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }"
DAMAGES = {
    "a bomb": (bomb, "too many for its size"),
    "a pickle": (lambda f: npz_of(f / "model.npz", Wemb=npy(HEADER % ("|O", 1)) + b"\x80\x04."), "allow_pickle=False"),
    "a deep header": (
        lambda f: npz_of(f / "model.npz", Wemb=npy(HEADER.replace("(%d,)", "(" * 4000) % "<f4")),
        "damaged",
    ),
    "text": (lambda f: np.savez(f / "model.npz", Wemb=np.array([["a"]])), "plain numbers"),
    "a header that lies": (lambda f: npz_of(f / "model.npz", Wemb=npy(HEADER % ("<f4", 10**12))), "damaged"),
    "no zip": (lambda f: (f / "model.npz").write_bytes(b"\x80\x04"), "not an npz"),
    "no settings": (lambda f: np.savez(f / "model.npz", Wemb=np.zeros((2, 2))), "special:model.yml"),
    "no model": (lambda f: (f / "model.npz").unlink(), "found none"),
    "a vocabulary without pieces": (lambda f: (f / "vocab.spm").write_bytes(b""), "0 pieces"),
    "a vocabulary that is cut": (
        lambda f: (f / "vocab.spm").write_bytes((f / "vocab.spm").read_bytes()[:99]),
        "not a SentencePiece model",
    ),
    "a piece that is not UTF-8": (
        lambda f: (f / "vocab.spm").write_bytes(b"\x0a\x04\x0a\x02\xff\xfe"),
        "not UTF-8",
    ),
    "no vocabulary": (lambda f: (f / "vocab.spm").unlink(), "must hold the vocabulary"),
    "another type": (change_settings(type="s2s"), "cannot be imported: type is 's2s'"),
    "an average attention": (
        change_settings(**{"transformer-decoder-autoreg": "average-attention"}),
        "average-attention",
    ),
    "a GRU decoder": (change_settings(**{"dec-cell": "gru"}), "recurrent decoder of 'gru'"),
    "another width": (change_settings(**{"dim-emb": D + 2}), "do not fit together"),
    "a much larger width": (change_settings(**{"dim-emb": 16_000}), "the settings describe a much larger one"),
    "a huge width": (change_settings(**{"dim-emb": 90_000}), "1024 positions with 90000 numbers each"),
    "a width of 5,000 digits": (
        change_settings(**{"dim-emb": "1" * 5000}),
        "dim-emb must be an integer from 1 to 99999; got 1111",
    ),
    "a matrix of another shape": (replaced("encoder_l1_self_Wk", np.zeros((2, 2), np.float32)), "do not fit together"),
    "no width": (change_settings(**{"dim-emb": "wide"}), "dim-emb must be an integer from 1 to 99999"),
    "a missing matrix": (drop("encoder_l2_ffn_W1"), "no 'encoder_l2_ffn_W1'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_imported_is_refused_in_one_sentence(tmp_path, damage):
    folder, _ = folder_of(tmp_path)
    change, says = DAMAGES[damage]
    change(folder)
    with pytest.raises(regard.RegardError, match=re.escape(says)) as refusal:
        import_model(folder, tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # nothing was written


@pytest.mark.parametrize("size", [0, 15, 40, 200, 1000])
def test_a_bin_that_is_cut_is_refused(tmp_path, size):
    folder, _ = folder_of(tmp_path, write_bin, "model.bin")
    path = folder / "model.bin"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(regard.RegardError, match=r"not a Marian binary model"):
        import_model(folder, tmp_path / "run")


@pytest.mark.parametrize(
    "text", ["a: &a [x]\nb: *a", "!!python/object:os.system x", "- - - x", "x" * 200_000, "x: " + "[" * 99_999]
)
def test_only_the_yaml_that_marian_writes_is_read(text):
    try:
        found = read_yaml(text.encode(), "here")
    except regard.RegardError:
        return
    assert all(isinstance(value, str | list) for value in found.values())  # a text is a text, never resolved
    assert "b" not in found  # nor is an alias


# --- a real one -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "en-pt"
    import_model(real_files(tmp_path_factory.mktemp("enpt")), out)
    return out


def test_a_translator_of_firefox_translates_and_aligns(firefox):
    translator = regard.load(firefox)
    text = "The black cat sees the red apple on the kitchen table."
    assert str(translator.translate(text)) == "O gato preto vê a maçã vermelha na mesa da cozinha."
    trace = translator.look(text)
    weights = word_weights(trace, translator.heads)
    rows, columns = trace.target.text.split(), trace.source.text.split()
    for target, source in (("gato", "cat"), ("preto", "black"), ("vermelha", "red")):
        row = weights[rows.index(target)]
        assert columns[row.argmax()] == source
        assert row.max() > 0.85
    assert (translator.source_language, translator.target_language) == ("en", "pt")
    assert json.loads((firefox / "manifest.json").read_bytes())["imported"]["format"] == "marian"
