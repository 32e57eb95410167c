"""Marian's own files: `model.npz`, and the int8 `.bin` of Bergamot, the translators of Firefox.

    post-norm, biases everywhere, relu or swish; input sqrt(D) E[token] + [sines; cosines]
    decoder: self-attention, or an SSRU;  the first step reads a zero vector;  END ends both sides

Both files hold named arrays and the training settings as YAML in `special:model.yml`. Next to them are the vocabulary,
a SentencePiece model (`.spm`) for each side or one for both (OPUS-MT: source.spm, target.spm and a `vocab.yml` that
numbers the pieces of both), and often a `.yml` with decoding settings.
"""

import math
import re
import struct
import zipfile
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, brief, need
from regard.interop.imported import LONGEST, Imported, Linear, Part, find_file, lay_out, read_sizes, sines_then_cosines
from regard.interop.pieces import UNKNOWN_TYPE, Pieces, RowOrder, kind_of, order_rows, read_pieces

Arrays = dict[str, NDArray[Any]]
SETTINGS = "special:model.yml"
FLOAT32, INT8 = 0x404, 0x4101  # types of a tensor in a .bin; others are text
MOST_TENSORS, MOST_DIMENSIONS, MOST_NAME = 10_000, 8, 1_000
SLACK = 2**24  # bytes by which the content of an npz may exceed four times its size
LONGEST_YAML = 2**24  # bytes of settings or a vocabulary

# Settings that change the model. Any other value is another architecture.
NEEDED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": ("2",),
    "transformer-no-projection": ("false",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-tied-layers": ([], ""),
    "right-left": ("false",),
    "lemma-dim-emb": ("0",),
    "input-types": ([], ""),
    "transformer-pool": ("false",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish"),
}
NORMS = {("", "dan"): "post", ("n", "da"): "pre"}  # preprocess, postprocess -> our name
BLOCKS = {"self": "self", "cross": "context", "feed": "ffn", "ssru": "rnn"}
WEIGHTS = {
    "query": ("Wq", "bq"),
    "keys": ("Wk", "bk"),
    "values": ("Wv", "bv"),
    "output": ("Wo", "bo"),
    "inner": ("W1", "b1"),
    "outer": ("W2", "b2"),
    "forget": ("Wf", "bf"),
    "project": ("W", ""),
}


def read_marian(folder: Path) -> Imported:
    """Read the one model in a folder, with its vocabulary and decoding settings."""
    decoding = _decoding(folder)
    named = decoding.get("models", [])
    found = [folder / Path(name).name for name in named] if isinstance(named, list) else []
    if len(found) != 1 or not found[0].is_file():
        some = (path for ending in ("*.npz", "*.bin") for path in folder.glob(ending) if path.name[:3] != "lex")
        found = sorted(path for path in some if path.is_file())  # no pipe or device, which may never end
    if len(found) != 1:
        raise DataError(
            f"{folder} must hold one Marian model, a .npz or a .bin; found "
            f"{', '.join(path.name for path in found) or 'none'}."
        )
    [path] = found
    arrays = read_npz(path) if path.suffix == ".npz" else read_bin(path)
    if SETTINGS not in arrays:
        raise DataError(f"{path} has no '{SETTINGS}', the settings of a Marian model.")
    settings = read_yaml(arrays.pop(SETTINGS).tobytes().rstrip(b"\0"), path)
    model = _model_settings(settings, path)
    (source, reader), (target, writer) = _vocabularies(folder, decoding)
    if model["tied"] == "all" and source.tokens != target.tokens:
        raise DataError(f"{path} has one embedding table for both languages, but their vocabularies differ.")
    layers = _layers(arrays, model, path)
    weights = _tables(arrays, model, source, target, path)
    weights["place.embed.table.weight"] = sines_then_cosines(LONGEST, model["width"], 1.0)
    weights |= lay_out("encoder", model["layers"], layers, model["norm"])
    weights |= lay_out("decoder", model["decoder_layers"], layers, model["norm"], model["decoder"] == "ssru")
    return Imported(
        model=model,
        weights=weights,
        source=source.vocabulary(reader),
        target=target.vocabulary(writer),
        kind=kind_of(reader),
        data={"joint": model["tied"] == "all"},
        decode=_search(decoding),
        origin={"format": "marian", "from": path.name, "version": str(settings.get("version", ""))},
        guided=model["decoder_layers"] - 1 if path.suffix == ".bin" else None,  # students learn to align
    )


def _model_settings(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    """The [model] settings of regard; another architecture is refused."""
    for name, known in NEEDED.items():
        if settings.get(name, known[0]) not in known:
            raise DataError(
                f"{path} is a Marian model that cannot be imported: {name} is {brief(repr(settings[name]))}; only "
                f"{' or '.join(map(repr, known))} is supported."
            )
    norm = str(settings.get("transformer-preprocess", "")), str(settings.get("transformer-postprocess", "dan"))
    if norm not in NORMS:
        raise DataError(f"{path} has the residual connections {norm}; only {', '.join(map(str, NORMS))} are supported.")
    ssru = settings.get("transformer-decoder-autoreg") == "rnn"
    if ssru and settings.get("dec-cell") != "ssru":
        raise DataError(
            f"{path} has a recurrent decoder of {brief(repr(settings.get('dec-cell')))}; only 'ssru' is supported."
        )
    tied = {name: settings.get(name) == "true" for name in ("tied-embeddings-all", "tied-embeddings")}
    sizes = {
        "width": "dim-emb",
        "layers": "enc-depth",
        "decoder_layers": "dec-depth",
        "heads": "transformer-heads",
        "inner": "transformer-dim-ffn",
    }
    return {
        **read_sizes(settings, sizes, path),
        "norm": NORMS[norm],
        "positions": "learned",  # a table with the sinusoids
        "longest": LONGEST,
        "tied": "all" if tied["tied-embeddings-all"] else "target" if tied["tied-embeddings"] else "none",
        "decoder": "ssru" if ssru else "attention",
        "activation": settings.get("transformer-ffn-activation", "relu"),
        "bias": True,
    }


def _layers(arrays: Arrays, model: dict[str, Any], path: Path) -> Part:
    """The parts of the layers, by Marian's names."""

    def part(side: str, layer: int, name: str) -> Linear:
        block, what = name.split(".")
        if what == "norm":
            # The name of the part that a layer norm is named after.
            after = {"self": "self_Wo", "cross": "context_Wo", "feed": "ffn_ffn", "top": ""}[block]
            if block == "self" and side == "decoder" and model["decoder"] == "ssru":
                after = "rnn_ffn"
            here = f"{side}_l{layer + 1}_{after}" if after else f"{side}_top"
            end = "_pre" if model["norm"] == "pre" and block != "top" else ""
            return _take(arrays, f"{here}_ln_scale{end}", path)[0], _take(arrays, f"{here}_ln_bias{end}", path)[0]
        here = f"{side}_l{layer + 1}_{BLOCKS[block]}"
        weight, bias = WEIGHTS[what]
        return _take(arrays, f"{here}_{weight}", path).T, _take(arrays, f"{here}_{bias}", path)[0] if bias else None

    return part


def _take(arrays: Arrays, name: str, path: Path) -> Tensor:
    """A matrix; vectors are matrices of one row in Marian."""
    if name not in arrays:
        raise DataError(f"{path} is incomplete: it has no '{name}'.")
    array = arrays[name]
    if array.ndim != 2 or not array.size:
        raise DataError(f"{path} is damaged: '{name}' must be a matrix; it has the shape {list(array.shape)}.")
    return torch.from_numpy(array.astype(np.float32))


def _tables(arrays: Arrays, model: dict[str, Any], source: RowOrder, target: RowOrder, path: Path) -> dict[str, Tensor]:
    """Embeddings and output layer with rows in regard's order. PAD and START are zero vectors and never written."""

    def table(rows: Tensor, words: RowOrder) -> Tensor:
        if len(rows) != words.known - 2:
            raise DataError(
                f"{path} has an embedding table of {len(rows)} words, but the vocabulary has {words.known - 2}; check "
                f"that they belong together."
            )
        return words.embedding(rows, path)

    together = model["tied"] == "all"
    weights = {"embed.weight": table(_take(arrays, "Wemb" if together else "encoder_Wemb", path), source)}
    if not together:
        weights["embed_target.weight"] = table(_take(arrays, "decoder_Wemb", path), target)
    if model["tied"] == "none":
        weights["output.weight"] = table(_take(arrays, "decoder_ff_logit_out_W", path).T, target)
    omitted = torch.zeros(1, target.known - 2)
    bias = _take(arrays, "decoder_ff_logit_out_b", path) if "decoder_ff_logit_out_b" in arrays else omitted
    return {**weights, "output.bias": target.bias(bias[0])}


def _vocabularies(folder: Path, decoding: dict[str, Any]) -> list[tuple[RowOrder, Pieces]]:
    """The table and the SentencePiece model of source and target.

    A SentencePiece model may define its own table; in OPUS-MT folders, a vocab.yml next to source.spm and target.spm
    does.
    """
    named = [Path(name).name for name in decoding.get("vocabs", [])]
    listed = [name for name in named if name.endswith(".yml")] or sorted(
        path.name for path in folder.glob("*vocab*.yml")
    )
    files = ["source.spm", "target.spm"] if listed else _vocabulary_files(folder, named)
    spms = [read_pieces(find_file(folder, name), folder / name) for name in files]
    if not listed:
        own = []
        for spm, file in zip(spms, files, strict=True):
            names = [piece.piece for piece in spm.pieces]
            unknown = [index for index, piece in enumerate(spm.pieces) if piece.type == UNKNOWN_TYPE]
            if "</s>" not in names or len(unknown) != 1:
                raise DataError(f"{folder / file} must have the pieces </s> and <unk>, like every Marian vocabulary.")
            rows = [-1, -1, names.index("</s>"), unknown[0]]
            own.append((order_rows(dict(enumerate(names)), rows, []), spm))
        return own
    if len(set(listed)) > 2:
        raise DataError(f"{folder} must hold one vocab.yml, or two; found {', '.join(listed)}.")
    tables = [read_vocabulary(find_file(folder, name), folder / name) for name in (listed[0], listed[-1])]
    owners = [spms, spms] if listed[0] == listed[-1] else [[spms[0]], [spms[1]]]
    made = []
    for table, some in zip(tables, owners, strict=True):
        rows = [-1, -1, table["</s>"], table["<unk>"]]
        made.append(order_rows({row: token for token, row in table.items()}, rows, some))
    return list(zip(made, spms, strict=True))


def read_vocabulary(content: bytes, where: object) -> dict[str, int]:
    """The tokens of a vocab.yml with their numbers."""
    names = read_yaml(content, where)
    found = {token: int(row) for token, row in names.items() if re.fullmatch("[0-9]{1,7}", str(row))}
    rows, listed = set(found.values()), {"</s>", "<unk>"} <= found.keys()
    if len(rows) != len(names) or not listed or max(rows, default=0) >= 2 * len(rows):
        raise DataError(f"{where} must give each token a unique number, including </s> and <unk>.")
    return found


def _decoding(folder: Path) -> dict[str, Any]:
    """The decoding settings of a Bergamot folder, if any."""
    for path in sorted(folder.glob("*.yml")):
        settings = read_yaml(find_file(folder, path.name), path) if "vocab" not in path.name else {}
        if "models" in settings or "beam-size" in settings:
            return settings
    return {}


def _vocabulary_files(folder: Path, named: list[str]) -> list[str]:
    """The SentencePiece models of source and target; one file may serve both."""
    if len(named) == 2 and all((folder / name).is_file() for name in named):
        return named
    found = sorted(path.name for path in folder.glob("*.spm"))  # Firefox: srcvocab.*.spm, trgvocab.*.spm
    if len(found) not in (1, 2):
        raise DataError(
            f"{folder} must hold the vocabulary of the model: one .spm for both languages, or two, the source first by "
            f"name; found {', '.join(found) or 'none'}."
        )
    return found if len(found) == 2 else found * 2


def _search(decoding: dict[str, Any]) -> dict[str, Any]:
    """[decode] settings: Marian divides the log-probability by length^normalize and never writes <unk>."""

    def number(name: str, default: float) -> float:
        value = decoding.get(name, "")
        return float(value) if isinstance(value, str) and re.fullmatch(r"\d{1,6}(\.\d{1,9})?", value) else default

    return {
        "beam": max(1, min(100, int(number("beam-size", 4)))),
        "length_penalty": number("normalize", 0.0),
        "length_offset": 0.0,
        "max_ratio": number("max-length-factor", 3.0),
        "ban_unknown": True,
    }


def read_npz(path: Path) -> Arrays:
    """The arrays of an npz file. Pickles are not read, nor archives that expand to much more than their size."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        size = sum(entry.file_size for entry in entries)
        if len(entries) > MOST_TENSORS or size > 4 * path.stat().st_size + SLACK:
            raise ValueError(f"{len(entries)} arrays of {size} bytes in total, too many for its size")
        with np.load(path, allow_pickle=False) as arrays:
            found = dict(arrays)
        for name, array in found.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
                raise ValueError(f"'{name}' is not an array of plain numbers")
    except Exception as error:  # a header is any Python literal, an archive has several compressions: many types
        raise DataError(f"{path} is not an npz file of arrays, or is damaged: {brief(error)}.") from None
    return found


def read_bin(path: Path) -> Arrays:
    """The tensors of a Bergamot .bin as float32 in the layout of the npz; int8 is divided by its multiplier."""
    found: Arrays = {}
    try:
        with open(path, "rb") as stream:
            content = mmap(stream.fileno(), 0, access=ACCESS_READ)
        version, count = struct.unpack_from("<QQ", content)
        if version != 1 or count > MOST_TENSORS:
            raise ValueError(f"version {version} with {count} tensors")
        heads = [struct.unpack_from("<4Q", content, 16 + 32 * index) for index in range(count)]
        place = 16 + 32 * count
        names, shapes = [], []
        for length, *_ in heads:
            if length > MOST_NAME:
                raise ValueError(f"a name of {length} bytes")
            names.append(content[place : place + length].rstrip(b"\0").decode("utf-8"))
            place += length
        for _, _, dimensions, _ in heads:
            if dimensions > MOST_DIMENSIONS:
                raise ValueError(f"a tensor of {dimensions} dimensions")
            shapes.append(struct.unpack_from(f"<{dimensions}i", content, place))
            place += 4 * dimensions
        place += 8 + struct.unpack_from("<Q", content, place)[0]
        for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
            if place + size > len(content):
                raise ValueError(f"'{name}' extends beyond the end of the file")
            found[name] = _tensor(content[place : place + size], kind, shape, name)
            place += size
    except (OSError, ValueError, struct.error, OverflowError, MemoryError) as error:
        raise DataError(f"{path} is not a Marian binary model, or is damaged: {error}.") from None
    return {name: tensor for name, tensor in found.items() if not name.endswith("_QuantMultA")}


def _tensor(content: bytes, kind: int, shape: tuple[int, ...], name: str) -> NDArray[Any]:
    if kind == FLOAT32:
        return np.frombuffer(content, "<f4", math.prod(shape)).reshape(shape)
    if kind == INT8:
        count = math.prod(shape)
        (multiplier,) = struct.unpack_from("<f", content, count)
        if name.endswith("_QuantMultA"):  # scales of activations, which stay float32 here
            return np.zeros(shape)
        numbers = np.frombuffer(content, "i1", count).astype(np.float32) / multiplier
        return numbers.reshape(shape) if name.endswith("Wemb") else numbers.reshape(shape[::-1]).T
    if name == SETTINGS:
        return np.frombuffer(content, "i1")
    raise ValueError(f"'{name}' is of the unknown type {kind:#x}")


def read_yaml(content: bytes, where: object) -> dict[str, Any]:
    """The YAML that Marian writes: names with a text or a list of texts.

    No other YAML is read: the events of the parser are taken one by one, so that nothing is nested or repeated by an
    alias, and no text is resolved to another type (the token `no` is not False).
    """
    yaml = need("yaml", "A model of Marian needs PyYAML; install it: pip install 'regard[import]'.", DataError)
    if len(content) > LONGEST_YAML:
        raise DataError(f"{where} has {len(content)} bytes of YAML; at most {LONGEST_YAML} are read.")
    found: dict[str, Any] = {}
    name: str | None = None  # the name whose value comes next
    items: list[str] | None = None  # the list that is being read
    inside = False
    try:
        for event in yaml.parse(content, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
            if isinstance(event, yaml.ScalarEvent) and inside:
                if items is not None:
                    items.append(event.value)
                elif name is None:
                    name = event.value
                else:
                    found[name], name = event.value, None
            elif isinstance(event, yaml.SequenceStartEvent) and name is not None and items is None:
                items = found[name] = []
            elif isinstance(event, yaml.SequenceEndEvent):
                items = name = None
            elif isinstance(event, yaml.MappingStartEvent) and not inside:
                inside = True
            elif isinstance(event, yaml.NodeEvent):  # an alias, or something nested
                raise ValueError(f"expected 'name: text' in line {event.start_mark.line + 1}")
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{where} is not YAML as Marian writes it: {brief(error)}.") from None
    return found
