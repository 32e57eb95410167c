"""Text in and out: UTF-8, split on newline only, one line out for each line in."""

import json
import math
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from regard.data.files import BOM, decode_line, read_lines
from regard.errors import ConfigError, DataError

CHUNK = 512  # lines in a batch


def lines_of(file: Path | None) -> list[str]:
    """The lines of a file (plain, gz, bz2 or xz), or of standard input."""
    return [line for lines in batches(file) for line in lines]


def batches(file: Path | None) -> Iterator[list[str]]:
    """The lines of a file, or of standard input as they arrive, at most `CHUNK` at a time.

    Standard input never waits for a full batch, so that a person or a program gets an answer to each line. Bytes of
    standard input that are not UTF-8 become U+FFFD.
    """
    if file is not None:
        lines = read_lines(file)
        while some := list(islice(lines, CHUNK)):
            yield some
        return
    number = 0
    for arrived in _arriving():
        for first in range(0, len(arrived), CHUNK):
            some = [
                decode_line(line.removesuffix(b"\r"), "standard input", at, "replace")
                for at, line in enumerate(arrived[first : first + CHUNK], number + 1)
            ]
            number += len(some)
            yield some


def _arriving() -> Iterator[list[bytes]]:
    """Whole lines of standard input, as many as one read brings; a prompt on a terminal."""
    parts, begun = [b""], False
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        arrived = sys.stdin.buffer.read1(1 << 16)  # type: ignore[union-attr]
        parts.append(arrived)
        if arrived and b"\n" not in arrived:
            continue  # joined once, when the line ends: a long line costs linear time
        *lines, rest = b"".join(parts).split(b"\n")
        lines += [rest] if rest and not arrived else []
        if lines and not begun:
            begun = True
            lines[0] = lines[0].removeprefix(BOM)
            lines = [] if lines == [b""] and not arrived else lines  # a byte order mark and nothing else
        yield lines
        if not arrived:
            return
        parts = [rest]


def pairs_of(
    run: Path, source: Path | None, target: Path | None, tsv: Path | None, tmx: Path | None
) -> tuple[list[str], list[str]]:
    """The sentences of a test set and their translations: from two files, a TSV file or a translation memory."""
    if tsv is None and tmx is None:
        if source is None or target is None:
            raise ConfigError("Expected sentences and their translations; pass --source and --target, --tsv, or --tmx.")
        sources, references = lines_of(source), lines_of(target)
        if len(sources) != len(references):
            sizes = f"{source} has {len(sources)} and {target} {len(references)}"
            raise DataError(f"Source and target must have the same number of lines; {sizes}.")
        return sources, references
    from regard.api.exporting import about_run
    from regard.api.loading import read_experiment
    from regard.data.corpus import open_corpus

    read_experiment(run, "translate")
    expects = about_run(run)["expects"]

    def files(path: Path | None) -> tuple[str, ...]:
        return (str(path),) if path else ()

    languages = expects["source_language"], expects["target_language"]
    corpus = open_corpus(files(source), files(target), files(tsv), "refuse", files(tmx), languages)
    pairs = [pair for pair in corpus if not pair.unfit]
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def is_setting(argument: str) -> bool:
    """Whether an argument is `section.key=value` and not the name of a file that exists."""
    return bool(re.match(r"[\w.]+=", argument)) and not Path(argument).exists()


def check_out(path: Path | None) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    if path is not None and path.is_dir():
        raise DataError(f"{path} is a folder; pass the name of a file.")
    if path is not None and not path.absolute().parent.is_dir():
        raise DataError(f"There is no folder {path.parent} to write {path.name} into; create it first.")


def put(line: str) -> None:
    """Write one line to standard output as UTF-8, whatever the locale."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


def put_json(found: Any) -> None:
    """Write one JSON document on one line. A number that is not finite becomes null, since JSON has no name for it."""
    put(json.dumps(_finite(found), ensure_ascii=False, allow_nan=False))


def put_note(line: str, as_json: bool) -> None:
    """Write a line that is not a result: to standard output, or to standard error where that is for JSON only."""
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
