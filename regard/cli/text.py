"""Lines in and out: UTF-8, split on newline only, one line out for each line in."""

import sys
from collections.abc import Iterator
from pathlib import Path

from regard.data.text import read_lines


def lines_of(file: Path | None) -> list[str]:
    """The lines of a file (plain, gz, bz2 or xz), or of standard input."""
    if file is not None:
        return list(read_lines(file))
    return list(_stdin())


def _stdin() -> Iterator[str]:
    data = sys.stdin.buffer.read().decode("utf-8", "replace")
    lines = data.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return iter(line[:-1] if line.endswith("\r") else line for line in lines)


def put(line: str) -> None:
    """Write one line to standard output as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
