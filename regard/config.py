"""Settings as frozen dataclasses with a one-sentence description each, read from TOML and from `section.key=value`.

A section of settings is a frozen dataclass whose fields are made with `setting`. This file reads and writes any
section; a value that does not fit is refused with a sentence about what is expected.
"""

import dataclasses
import json
import math
import re
import tomllib
import types
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import ConfigError, brief, check_known, near_file

Section = TypeVar("Section")
MOST_DOTS = 100  # in a line of a settings file, outside of quotes
# Strings and comments. A string may be open at its end, so that every try matches and the time is linear.
_QUOTED = re.compile(
    r'''"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5})?'''
    r"""|'''(?:[^']++|'(?!''))*+(?:'{3,5})?"""
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+""",
    re.DOTALL,
)
_LARGEST = 2**63  # numbers are smaller than this, so that they fit into a tensor


def setting(default: Any, meaning: str, choices: Collection[str] = ()) -> Any:
    """A field of a settings dataclass: its default, its meaning in one sentence, and the values it may have.

    `choices` is not copied, so that values that other packages add to it later are accepted.
    """
    return dataclasses.field(default=default, metadata={"help": meaning, "choices": choices})


def read(section: type[Section], values: Mapping[str, Any], where: str, over: Section | None = None) -> Section:
    """Build `section` from plain values, on top of its defaults or of the settings `over`.

    `where` is the name of the TOML table, for the error sentence. Unknown names and values of another type are refused.
    """
    fields = {field.name: field for field in dataclasses.fields(section)}  # type: ignore[arg-type]
    kinds = get_type_hints(section)
    checked = {}
    for name, value in values.items():
        check_known("setting", name, fields, f" in [{where}]")
        checked[name] = _fit(value, kinds[name], f"{where}.{name}", fields[name].metadata.get("choices", ()))
    return dataclasses.replace(over, **checked) if over is not None else section(**checked)  # type: ignore[type-var]


def check_range(where: str, settings: Any, bounds: str, *names: str) -> None:
    """Refuse settings outside `bounds`, an interval as in "[0, 1)"; infinity is never inside.

    >>> from types import SimpleNamespace
    >>> check_range("train", SimpleNamespace(rate=0.0), "(0, inf)", "rate")
    Traceback (most recent call last):
    regard.errors.ConfigError: train.rate must be above 0; got 0.0.
    """
    low, high = (float(bound) for bound in bounds[1:-1].split(","))
    words = f"{'at least' if bounds[0] == '[' else 'above'} {low:g}"
    if high < math.inf:
        words += f" and {'at most' if bounds[-1] == ']' else 'below'} {high:g}"
    for name in names:
        value = getattr(settings, name)
        above = low <= value if bounds[0] == "[" else low < value
        if not (above and (value <= high if bounds[-1] == "]" else value < high)):
            raise ConfigError(f"{where}.{name} must be {words}; got {value}.")


def _fit(value: Any, kind: Any, name: str, choices: Collection[str]) -> Any:
    """`value` as `kind`: whole numbers become floats and lists tuples; anything else must be of that type."""
    if isinstance(value, int | float) and not -_LARGEST < value < _LARGEST:  # also for inf and nan
        raise ConfigError(f"{name} must be a number between -2^63 and 2^63; got {_shown(value)}.")
    if choices and value not in tuple(choices):  # in a dict, a list as the value would raise
        raise ConfigError(f"{name} must be one of {', '.join(filter(None, choices))}; got {_shown(value)}.")
    if get_origin(kind) in (Union, types.UnionType):
        for option in get_args(kind):
            if _fits(value, option):
                return _fit(value, option, name, ())
    elif _fits(value, kind):
        if kind is float:
            return float(value)
        return tuple(value) if get_origin(kind) is tuple else value
    raise ConfigError(f"{name} must be {_describe(kind)}; got {_shown(value)}.")


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
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in get_args(kind))
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
    """The tables of a TOML file with this content; `path` is for the error sentence."""
    try:
        text = content.decode("utf-8-sig")  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"The settings file {path} could not be read as UTF-8 text: {error}.") from None
    # Time and memory of tomllib grow with the square of the number of dots in a key.
    if any(line.count(".") > MOST_DOTS for line in _QUOTED.sub("", text).split("\n")):
        raise ConfigError(
            f"{path} has a line with more than {MOST_DOTS} dots outside of quotes; shorten the key, or write a list on "
            f"several lines."
        )
    try:
        return _read_toml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {brief(error)}.") from None


def _read_toml(text: str) -> dict[str, Any]:
    """The tables of `text`; ValueError or RecursionError for invalid or deep TOML, or a number too long to print."""
    tables = tomllib.loads(text)
    repr(tables)  # Python reads hexadecimal numbers of any length, but error sentences could not show them
    return tables


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
            value = _read_toml(f"value = {text}")["value"]
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
        choices = field.metadata.get("choices", ())
        meaning = field.metadata.get("help", "") + (f" ({' | '.join(choices)})" if choices else "")
        value = field.default if isinstance(section, type) else getattr(section, field.name)
        rows.append((field.name, value, meaning))
    return rows
