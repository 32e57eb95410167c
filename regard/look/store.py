"""The trace on disk: versioned JSON, read back to the same bit.

Arrays are written as {"shape", "dtype", "base64"}: little-endian float32, or float16 where that loses nothing (half the
size). Nested lists of numbers are read too, so that any program can write a trace; null stands for -inf in them.
"""

import base64
import binascii
import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.text import write_atomically
from regard.errors import DataError

VERSION = 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BYTES = 1 << 30  # a packed file may not unfold into more than this


def write(tree: dict[str, Any]) -> str:
    """The tree as compact JSON. Valid UTF-8 whatever the strings hold: lone surrogates are written as escapes."""
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def read(text: str) -> dict[str, Any]:
    """The tree of a trace, its version checked."""
    try:
        tree = json.loads(text, parse_constant=_refuse)
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
    """An array from what `write` made of it, or from nested lists of numbers."""
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
    """Write `text` to `path`, packed where the name ends in .gz."""
    data = text.encode("utf-8")
    return write_whole(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, path)


def load(path: Path) -> str:
    """The text of a file that `save` wrote."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"The trace {path} cannot be read: {error.strerror}.") from error
    try:
        if data[:2] == b"\x1f\x8b":
            unfold = zlib.decompressobj(wbits=31)
            data = unfold.decompress(data, _MOST_BYTES)
            if unfold.unconsumed_tail or not unfold.eof:
                raise DataError(f"The trace {path} is cut short or unfolds into more than {_MOST_BYTES >> 20} MiB.")
        return data.decode("utf-8")
    except (zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"The trace {path} is not JSON in UTF-8 ({error}).") from error


def write_whole(data: bytes, path: Path) -> Path:
    """Write a file so that it is there whole or not at all."""
    write_atomically(path, data)
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        with np.errstate(over="ignore"):
            half = value.astype("<f2")
        exact = np.array_equal(half.astype(np.float32), value)
        packed = half if exact else value.astype("<f4")
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


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")
