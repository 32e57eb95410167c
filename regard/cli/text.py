"""Lines in and out: UTF-8, split on newline only, one line out for each line in."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from regard.data.text import BOM, decode_line, read_lines
from regard.errors import DataError


def lines_of(file: Path | None) -> list[str]:
    """The lines of a file (plain, gz, bz2 or xz), or of standard input."""
    return list(stream(file))


def stream(file: Path | None) -> Iterator[str]:
    """The same, one line at a time. Bytes of standard input that are not UTF-8 become U+FFFD."""
    if file is not None:
        yield from read_lines(file)
        return
    for number, line in enumerate(sys.stdin.buffer, start=1):
        whole = line[len(BOM) :] if number == 1 and line.startswith(BOM) else line
        if whole or number > 1:
            yield decode_line(whole, "standard input", number, "replace")


def check_out(path: Path | None) -> None:
    """Refuse, before the work is done, a file that cannot be written for want of a folder."""
    if path is not None and path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file.")
    if path is not None and not path.absolute().parent.is_dir():
        raise DataError(f"There is no folder {path.parent} to write {path.name} into; make it first.")


def put(line: str) -> None:
    """Write one line to standard output as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


def put_json(found: Any) -> None:
    """Write one JSON document on one line. A number that is not finite is null: JSON has no name for it."""
    put(json.dumps(_finite(found), ensure_ascii=False, allow_nan=False))


def put_note(line: str, as_json: bool) -> None:
    """Write a line beside the results: with them for a person, to standard error where they are JSON for a program."""
    if as_json:
        typer.echo(line, err=True)
    else:
        put(line)


def _finite(found: Any) -> Any:
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {name: _finite(value) for name, value in found.items()}
    return [_finite(value) for value in found] if isinstance(found, list | tuple) else found
