"""A trace on disk: JSON with arrays in it, read back to the same bit.

Arrays are written as {"shape", "dtype", "base64"}: little-endian float32, or float16 where that loses nothing. Nested
lists of numbers are read too; null stands for -inf in them. What is read may come from anybody: `build` refuses values
of another type than a dataclass declares.
"""

import base64
import binascii
import gzip
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.sealed import write_output
from regard.text.lines import read_whole

VERSION = 1
Part = TypeVar("Part")
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
    return write_output(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


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


def half(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values rounded to half precision."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def _finite(written: str) -> float:
    value = float(written)
    return value if math.isfinite(value) else _refuse(written)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def build(kind: type[Part], values: Mapping[str, Any], **arrays: Any) -> Part:
    """A dataclass from values of JSON, each of the declared type, and from arrays, which it checks itself."""
    hints = get_type_hints(kind)
    found = dict(arrays)
    for name, value in values.items():
        if name not in hints or not fits(value, hints[name]):
            raise DataError(
                f"This is not a whole trace: a part is of the wrong kind ({kind.__name__} {name}={value!r:.60})."
            )
        found[name] = tuple(value) if isinstance(value, list) else value
    return kind(**found)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON has a type as dataclasses declare it; True and False are no numbers."""
    options = get_args(kind)
    if get_origin(kind) is UnionType:
        return any(fits(value, option) for option in options)
    if get_origin(kind) is tuple:
        kinds = options[:1] * len(value) if options[-1] is ... and isinstance(value, list | tuple) else options
        same = isinstance(value, list | tuple) and len(value) == len(kinds)
        return same and all(fits(item, one) for item, one in zip(value, kinds, strict=True))
    if kind in (int, float):
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return number and abs(value) <= sys.float_info.max
    return isinstance(value, kind)
