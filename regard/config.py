"""Settings as frozen dataclasses with a one-sentence description each, read from TOML and from `section.key=value`.

A section of settings is a frozen dataclass whose fields are made with `setting`. This file reads and writes any
section; a value that does not fit is refused with a sentence about what is expected.
"""

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import ConfigError, brief, check_known, near_file

Section = TypeVar("Section")
_LARGEST = 2**63  # numbers are smaller than this, so that they fit into a tensor


def setting(default: Any, meaning: str, allowed: str | Collection[str] = ()) -> Any:
    """A field of a settings dataclass: its default, its meaning in one sentence, and the values it may have.

    `allowed` is an interval such as "[0, 1)" for numbers, or a collection of names. The collection is not copied, so
    that names that other packages add to it later are accepted.
    """
    return dataclasses.field(default=default, metadata={"help": meaning, "allowed": allowed})


class Settings:
    """The settings of one TOML table: a subclass is a frozen dataclass whose fields are made with `setting`.

    Every instance is checked, whether it comes from a file, the command line, a request or a constructor in Python.
    A subclass that relates two settings to each other extends `__post_init__`.

    >>> from regard.runs.settings import TrainConfig
    >>> TrainConfig(rate=0.0)
    Traceback (most recent call last):
    regard.errors.ConfigError: train.rate must be above 0; got 0.0.
    """

    table = "model"  # its name, for error sentences
    allowed = ""  # the interval of numbers that declare none

    def __post_init__(self) -> None:
        check(self, self.table)


def read(section: type[Section], values: Mapping[str, Any], where: str, over: Section | None = None) -> Section:
    """Build `section` from plain values, on top of its defaults or of the settings `over`.

    `where` is the name of the TOML table, for the error sentence. Unknown names are refused, and values that `check`
    refuses.
    """
    names = [field.name for field in dataclasses.fields(section)]  # type: ignore[arg-type]
    for name in values:
        check_known("setting", name, names, f" in [{where}]")
    found = dataclasses.replace(over, **values) if over is not None else section(**values)  # type: ignore[type-var]
    if not isinstance(found, Settings):  # a plain dataclass of another package
        check(found, where)
    return found


def check(settings: Any, where: str) -> None:
    """Refuse values of another type than declared, outside of their interval, or not among the allowed names.

    Whole numbers become floats and lists tuples where the setting is declared so.
    """
    kinds: dict[str, Any] = _kinds(type(settings))  # type: ignore[arg-type]
    others = getattr(settings, "allowed", "")
    for field in dataclasses.fields(settings):
        value, name, kind = getattr(settings, field.name), f"{where}.{field.name}", kinds[field.name]
        allowed = field.metadata.get("allowed", others)
        if isinstance(value, int | float) and not -_LARGEST < value < _LARGEST:  # also for inf and nan
            raise ConfigError(f"{name} must be a number between -2^63 and 2^63; got {_shown(value)}.")
        if allowed and not isinstance(allowed, str) and value not in tuple(allowed):  # in a dict, a list would raise
            raise ConfigError(f"{name} must be one of {', '.join(filter(None, allowed))}; got {_shown(value)}.")
        fitting = [one for one in _options(kind) if _fits(value, one)]
        if not fitting:
            raise ConfigError(f"{name} must be {_describe(kind)}; got {_shown(value)}.")
        if allowed and isinstance(allowed, str) and value is not None:
            _check_interval(value, allowed, name)
        fitted = float(value) if fitting[0] is float else tuple(value) if get_origin(fitting[0]) is tuple else value
        object.__setattr__(settings, field.name, fitted)


@cache
def _kinds(section: Any) -> dict[str, Any]:
    return get_type_hints(section)  # slow, and a server checks the settings of every request


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _check_interval(value: float, interval: str, name: str) -> None:
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    closed, ends = interval[0] == "[", interval[-1] == "]"
    if (low <= value if closed else low < value) and (value <= high if ends else value < high):
        return
    words = f"{'at least' if closed else 'above'} {low:,.16g}"
    if high < math.inf:
        words += f" and {'at most' if ends else 'below'} {high:,.16g}"
    raise ConfigError(f"{name} must be {words}; got {value}.")


def _shown(value: Any) -> str:
    """A value as it is quoted in an error."""
    try:
        return brief(repr(value))
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"


def _fits(value: Any, kind: Any) -> bool:
    if kind is None or kind is type(None):
        return value is None
    if get_origin(kind) in (tuple, list):
        return isinstance(value, list | tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_fits(item, get_args(kind)[1]) for item in value.values())
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _describe(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "left out"}
    if len(_options(kind)) > 1:
        return " or ".join(map(_describe, _options(kind)))
    if get_origin(kind) is tuple:
        return f"a list, each {_describe(get_args(kind)[0])}"
    return names.get(kind, str(kind))


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file into plain tables; a file that is missing or not TOML is refused with its line."""
    try:
        return parse_toml(path.read_bytes(), path)
    except FileNotFoundError:
        raise ConfigError(f"There is no settings file {path}; give the path of a TOML file.{near_file(path)}") from None
    except OSError as error:
        raise ConfigError(
            f"The settings file {path} could not be read: {error.strerror or error}; give the path of a TOML file."
        ) from None


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """The tables of a TOML file with this content; `path` is for the error sentence.

    For files that the user wrote; `regard.runs.folder` checks those of other people first.
    """
    try:
        text = content.decode("utf-8-sig")  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"The settings file {path} could not be read as UTF-8 text: {error}.") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {brief(error)}.") from None


def check_once(settings: Iterable[str], options: Mapping[str, str]) -> None:
    """Refuse `section.key=value` of a setting that an option has set; `options` are names of settings -> of options."""
    for name in (one.partition("=")[0].strip() for one in settings):
        if name in options:
            raise ConfigError(f"--{options[name]} and {name} are the same setting; pass one of them.")


def override(tables: dict[str, Any], *assignments: str) -> dict[str, Any]:
    """`tables` with each `section.key=value` applied. A value is read as TOML, or as plain text if it is not TOML."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        section, dot, key = path.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(
                f"A setting on the command line is section.key=value, as in train.steps=200; got {assignment!r}."
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text
        table = tables.get(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section} is a single value, so {path} cannot be set; write {section}={text}.")
        tables = {**tables, section: {**table, key: value}}
    return tables


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables of plain values as TOML. None is left out: TOML cannot express it, and it is always a default."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines.extend(f"{key} = {_toml_value(value)}" for key, value in table.items() if value is not None)
        lines.append("")
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, int | str):
        raise ConfigError(f"TOML here holds text, numbers, true/false and lists of them; got {value!r}.")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")  # JSON writes this character as it is


def describe(section: type[Any] | Any) -> list[tuple[str, Any, str]]:
    """(name, default, meaning) of every setting, for help texts. An instance shows its own values."""
    rows = []
    for field in dataclasses.fields(section):
        allowed = field.metadata.get("allowed", ())
        names = "" if isinstance(allowed, str) or not allowed else f" ({' | '.join(allowed)})"
        value = field.default if isinstance(section, type) else getattr(section, field.name)
        rows.append((field.name, value, field.metadata.get("help", "") + names))
    return rows
