"""Lines in and out: UTF-8, split on newline only, one line out for each line in."""

import sys
from collections.abc import Iterator
from pathlib import Path

from regard.data.text import BOM, decode_line, read_lines


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


def put(line: str) -> None:
    """Write one line to standard output as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
