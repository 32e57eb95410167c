"""A trace on disk: versioned JSON, read back to the same bit.

`plain` makes a tree of dicts, lists, numbers and arrays of a trace, and `fields` reads one; `write` and `read` are its
JSON. Every attention module is written under its name; what is read may also be the short form, for programs that have
one kind of attention: one block of weights [L, H, T, S] for all layers. Arrays are written as {"shape", "dtype",
"base64"}: little-endian float32, or float16 where that loses nothing. Nested lists of numbers are read too; null stands
for -inf in them.
"""

import base64
import binascii
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, RegardError
from regard.look.tokens import Side, Token
from regard.look.trace_data import Attended, Beam, BeamNode, Contents, Picture, StepVectors, half
from regard.sealed import write_atomically
from regard.text.lines import read_whole

VERSION = 1
_ARRAYS = ("weights", "scores", "context_norms", "centre")
_TOKEN_OPTIONAL = ("word", "logprob", "topk")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_VALUES = 1 << 24  # of JSON, each of which takes about 32 bytes of memory
_MOST_BYTES = 1 << 28  # of a trace, unpacked


def write(tree: dict[str, Any]) -> str:
    """The tree as compact JSON in valid UTF-8: lone surrogates are written as escapes."""
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def read(text: str) -> dict[str, Any]:
    """The tree of a trace, its version checked."""
    if text.count(",") > _MOST_VALUES:
        raise DataError(f"This trace holds more than {_MOST_VALUES} values outside base64; write its arrays as base64.")
    try:
        tree = json.loads(text, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"This is not a trace: its JSON cannot be read ({error}).") from error
    if not isinstance(tree, dict) or "trace" not in tree:
        raise DataError('This is not a trace: it must be a JSON object with "trace": 1 in it.')
    if tree["trace"] != VERSION or isinstance(tree["trace"], bool):
        raise DataError(
            f"This trace has version {tree['trace']!r}, and this regard reads version {VERSION}; "
            f"write it again with this version, or read it with the one that wrote it."
        )
    return tree


def array(stored: Any) -> NDArray[np.float32]:
    """An array from its form in JSON (see `write`), or from nested lists of numbers."""
    if not isinstance(stored, dict):
        values = np.asarray(stored, dtype=object)
        try:
            return np.where(values == None, -np.inf, values).astype(np.float32)  # noqa: E711
        except (TypeError, ValueError) as error:
            raise DataError(f"An array of this trace is neither numbers nor base64 ({error}).") from error
    kinds = {"float32": "<f4", "float16": "<f2"}
    try:
        data = base64.b64decode(stored["base64"], validate=True)
        shape = tuple(int(size) for size in stored["shape"])
        values = np.frombuffer(data, dtype=kinds[stored["dtype"]]).reshape(shape)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DataError(f"An array of this trace is damaged ({type(error).__name__}: {error}).") from error
    return values.astype(np.float32)


def save(text: str, path: Path) -> Path:
    """Write `text` to `path`, compressed if the name ends in .gz."""
    data = text.encode("utf-8")
    return write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def load(path: Path) -> str:
    """The text of a file that `save` wrote."""
    try:
        return read_whole(path, _MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"The trace {path} is not JSON in UTF-8 ({error}).") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        exact = np.array_equal(half(value), value)
        packed = value.astype("<f2" if exact else "<f4")
        return {
            "shape": list(value.shape),
            "dtype": "float16" if exact else "float32",
            "base64": base64.b64encode(packed.tobytes()).decode("ascii"),
        }
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, np.floating):
        return float(value)
    raise DataError(f"A trace holds text, numbers and arrays only; got {type(value).__name__}.")


def _finite(written: str) -> float:
    value = float(written)
    return value if math.isfinite(value) else _refuse(written)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def plain(trace: Contents) -> dict[str, Any]:
    """The tree of a trace: dicts, lists, numbers and arrays."""
    tree: dict[str, Any] = {
        "trace": VERSION,
        "model": dict(trace.model),
        "source": _plain_sentence(trace.source),
        "target": _plain_sentence(trace.target),
        "attention": {
            name: {**vars(seen), "shape": list(seen.weights.shape)} for name, seen in trace.attention.items()
        },
    }
    if trace.steps:
        tree["steps"] = [{**vars(step), "norms": dict(step.norms)} for step in trace.steps]
    if trace.beam is not None:
        tree["beam"] = {**vars(trace.beam), "nodes": [vars(node) for node in trace.beam.nodes]}
    for name, listed in (("changes", trace.changes), ("notes", trace.notes)):
        if listed:
            tree[name] = [dict(one) for one in listed]
    if trace.image is not None:
        tree["image"] = vars(trace.image)
    return tree


def _plain_sentence(side: Side) -> dict[str, Any]:
    def plain(token: Token) -> dict[str, Any]:
        values = {**vars(token), "topk": [{"text": text, "logprob": logprob} for text, logprob in token.topk]}
        return {key: value for key, value in values.items() if key not in _TOKEN_OPTIONAL or value not in (None, [])}

    return {"text": side.text, "tokens": [plain(token) for token in side.tokens]}


def fields(tree: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a `Contents` from its plain tree."""
    for name in ("source", "target", "attention"):
        if not isinstance(tree.get(name), dict):
            raise DataError(f"This is not a whole trace: '{name}' must be an object; got {_kind(tree.get(name))}.")
    try:
        attention, beam = _build_attention(tree["attention"], dict(tree.get("model", {}))), tree.get("beam")
        nodes = tuple(BeamNode(**node) for node in beam["nodes"]) if beam is not None else ()
        return {
            "source": _build_sentence(tree["source"]),
            "target": _build_sentence(tree["target"]),
            "attention": attention,
            "model": dict(tree.get("model", {})),
            "steps": tuple(_build_step({"name": [*attention, ""][0], **step}) for step in tree.get("steps", ())),
            "beam": None if beam is None else Beam(int(beam["size"]), nodes, tuple(beam["ranked"])),
            **{key: tuple({**one, "text": one["text"]} for one in tree.get(key, ())) for key in ("changes", "notes")},
            "image": _build_picture(tree.get("image")),
        }
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RegardError):
            raise
        lacks = f"{error} is missing" if isinstance(error, KeyError) else f"a part is of the wrong kind ({error})"
        raise DataError(f"This is not a whole trace: {lacks}. The format is in docs/looking.md.") from error


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _build_step(step: dict[str, Any]) -> StepVectors:
    query, context = (tuple(float(value) for value in step.get(key, ())) for key in ("query", "context"))
    return StepVectors(**{**step, "query": query, "context": context, "norms": dict(step.get("norms", {}))})


def _build_picture(image: dict[str, Any] | None) -> Picture | None:
    if image is None:
        return None
    rows, columns = image["grid"]
    return Picture(int(image["width"]), int(image["height"]), (int(rows), int(columns)))


def _build_sentence(side: dict[str, Any]) -> Side:
    tokens = (
        Token(
            **{
                "piece": token["text"],
                **token,
                "topk": tuple((each["text"], each["logprob"]) for each in token.get("topk", ())),
            }
        )
        for token in side["tokens"]
    )
    return Side(side["text"], tuple(tokens))


def _build_attention(tree: dict[str, Any], model: dict[str, Any]) -> dict[str, Attended]:
    block = tree.get("weights")
    if not (isinstance(block, list) or (isinstance(block, dict) and "base64" in block)):
        return {name: _build_attended(seen) for name, seen in tree.items()}
    layers = {key: array(tree[key]) for key in ("weights", "scores") if tree.get(key) is not None}
    for key, values in layers.items():
        if values.ndim != 4 or list(values.shape) != list(tree.get("shape", values.shape)):
            says = f"; it says {tree['shape']}" if "shape" in tree else ""
            raise DataError(f"The {key} of a trace in one block are [L, H, T, S]; got {list(values.shape)}{says}.")
    given: dict[str, Any] = {key: model[key] for key in ("query", "score") if key in model}
    given |= {key: value for key, value in tree.items() if key not in ("shape", *layers)}
    count = len(layers["weights"])
    return {
        f"layers.{at}": Attended(f"layers.{at}", layer=at, **{key: part[at] for key, part in layers.items()}, **given)
        for at in range(count)
    }


def _build_attended(seen: dict[str, Any]) -> Attended:
    arrays: dict[str, Any] = {key: array(seen[key]) for key in _ARRAYS if seen.get(key) is not None}
    rest = {key: value for key, value in seen.items() if key not in ("shape", *_ARRAYS)}
    attended = Attended(**arrays, **rest)
    if list(attended.weights.shape) != list(seen.get("shape", attended.weights.shape)):
        raise DataError(
            f"'{attended.name}' says its shape is {seen['shape']} but holds {list(attended.weights.shape)}."
        )
    return attended
