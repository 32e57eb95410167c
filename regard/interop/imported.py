"""A model of another toolkit as a run of regard, with regard's parameter names and vocabulary order, and back."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.subwords import Subwords
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, RegardError, brief
from regard.models.registry import build
from regard.models.transformer import Transformer
from regard.runs.expects import expectations
from regard.runs.experiment import resolve
from regard.runs.folder import pack, write_folder
from regard.runs.int8 import check_new
from regard.runs.weights import build_filled, weights_of
from regard.sealed import read_small

LONGEST = 1024  # positions in a table of sinusoids
MOST_NUMBERS = 1 << 24  # in such a table; its size comes from the settings, not from a file

Linear = tuple[Tensor, Tensor | None]  # weight [out, in] and bias [out]; of a layer norm its scale and shift [D]
Part = Callable[[str, int, str], Linear]  # (encoder or decoder, layer from 0, name of the part) -> its weights

# regard's name of a matrix or a norm in a layer -> the parts that it joins, see `parts_of`
_SELF = {"self_attention.project": "self.query self.keys self.values", "self_attention.output": "self.output"}
_SSRU = {"self_attention.forget": "ssru.forget", "self_attention.project": "ssru.project"}
_CROSS = {
    "cross_attention.query": "cross.query",
    "cross_attention.project": "cross.keys cross.values",
    "cross_attention.output": "cross.output",
    "join_cross.norm": "cross.norm",
}
_FEED = {"feed_forward.0": "feed.inner", "feed_forward.2": "feed.outer", "join_feed.norm": "feed.norm"}


class Imported(NamedTuple):
    """The content of a run, read from the files of another toolkit."""

    model: dict[str, Any]  # the [model] settings of a Transformer
    weights: dict[str, Tensor]  # by the names of regard's Transformer
    source: bytes  # SentencePiece models that begin with regard's symbols
    target: bytes
    kind: str  # of both: unigram or bpe
    data: dict[str, Any]  # [data] settings: the languages, the longest sentence
    decode: dict[str, Any]  # [decode] settings
    origin: dict[str, Any]  # for the manifest
    guided: int | None = None  # the cross-attention layer whose first head was trained to align


def parts_of(side: str, depth: int, norm: str = "post", ssru: bool = False) -> Iterator[tuple[str, int, list[str]]]:
    """The matrices and norms of the layers of one side, `encoder` or `decoder`: regard's name, the layer, and the parts
    that it joins.

    The parts are self.query, self.keys, self.values, self.output, self.norm (or ssru.forget, ssru.project, self.norm),
    the same with cross in the decoder, feed.inner, feed.outer, feed.norm, and top.norm for layer -1.
    """
    block = dict(_SSRU if ssru else _SELF)
    block |= {"join_self.norm": "self.norm", **(_CROSS if side == "decoder" else {}), **_FEED}
    for layer in range(depth):
        yield from ((f"{side}.{layer}.{name}", layer, parts.split()) for name, parts in block.items())
    if norm == "pre":
        yield f"{side}_norm", -1, ["top.norm"]


def lay_out(side: str, depth: int, part: Part, norm: str, ssru: bool = False) -> dict[str, Tensor]:
    """The weights of the layers of one side by regard's names; `part` is called for each part of `parts_of`."""
    weights: dict[str, Tensor] = {}
    for name, layer, parts in parts_of(side, depth, norm, ssru):
        found = [part(side, layer, one) for one in parts]
        weights[f"{name}.weight"] = torch.cat([weight for weight, _ in found]).contiguous()
        biases = [bias for _, bias in found if bias is not None]
        if biases:
            weights[f"{name}.bias"] = torch.cat(biases).contiguous()
    return weights


def check_exported(model: Any, engine: str, known: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse a model that an engine cannot run; `known` are the supported values of the settings of a Transformer."""
    if not isinstance(model, Transformer):
        raise ConfigError(f"{engine} runs Transformers; this run is a {type(model).__name__}. Export it to ONNX.")
    for setting, values in known.items():
        value, some = getattr(model.config, setting), " or ".join(map(repr, values))
        if value not in values:
            raise ConfigError(f"{engine} has no {setting} = {value!r}, only {some}; export this run to ONNX.")


def sines_then_cosines(positions: int, width: int, last: float) -> Tensor:
    """[positions, width]: all sines and then all cosines, with wavelengths from 2 pi to 2 pi 10000^last."""
    if positions * width > MOST_NUMBERS:
        raise DataError(
            f"The position table of this model would have {positions} positions with {width} numbers each; at most "
            f"{MOST_NUMBERS} numbers are supported."
        )
    exponents = torch.linspace(0, last, width // 2, dtype=torch.float64)  # [width / 2]
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * 10000.0**-exponents  # [positions, width / 2]
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def write_run(imported: Imported, out: Path) -> int:
    """Write the run folder `out`, which must be new or empty; returns its size in bytes. A failure leaves nothing."""
    check_new(out)
    vocabularies = {
        side: Vocabulary(Subwords(content), imported.kind)
        for side, content in (("source", imported.source), ("target", imported.target))
    }
    sizes = {f"{side}_vocabulary": len(one) for side, one in vocabularies.items()}
    settings = {"name": "transformer", "preset": "paper", **imported.model, **sizes}
    data = {"subwords": imported.kind, **imported.data}
    experiment = resolve({"model": settings, "data": data, "decode": imported.decode})
    where, shapes = str(imported.origin["from"]), {name: weight.shape for name, weight in imported.weights.items()}
    try:
        make = partial(build, "transformer", experiment.model)
        model = build_filled(make, shapes, imported.weights.items, where)
    except RegardError as error:
        raise DataError(f"This model cannot be imported: its parts do not fit together. {error}") from None
    weights = weights_of(model)
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise DataError(f"This model cannot be imported: its weights contain NaN or infinity ('{name}').")
    about = {"imported": imported.origin, "expects": expectations(experiment.data, vocabularies["source"])}
    contents = {name: content for side, one in vocabularies.items() for name, content in one.contents(side).items()}
    contents |= {"config.toml": experiment.toml().encode(), "weights.safetensors": pack(weights)}
    beside = {}
    if imported.guided is not None:
        beside["alignment.json"] = (json.dumps({"layer": imported.guided, "head": 0, "shift": 0}) + "\n").encode()
    return write_folder(out, contents, about, beside)


def read_sizes(settings: Mapping[str, Any], names: Mapping[str, str], where: object) -> dict[str, Any]:
    """The sizes of a model by regard's names; `names` maps them to the names in `settings`, of strings or numbers."""
    sizes = {}
    for ours, theirs in names.items():
        value = settings.get(theirs, "")
        text = "" if isinstance(value, bool) else str(value)
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) < 100_000):
            raise DataError(f"{where}: {theirs} must be an integer from 1 to 99999; got {brief(settings.get(theirs))}.")
        sizes[ours] = int(text)
    return sizes


def find_file(folder: Path, name: str) -> bytes:
    """The content of a required file of the folder."""
    path = folder / name
    if not path.is_file():
        what = f"{path} is not a regular file" if path.exists() else f"{folder} has no {name}"
        raise DataError(f"{what}, which the import needs.")
    try:
        return read_small(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
