"""Input and output of text: UTF-8, split on newline only, one output line for each input line; and work in shards."""

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import regard
from regard.cli.options import Pairs
from regard.cli.progress import bar
from regard.config import override
from regard.data.settings import DataConfig
from regard.errors import ConfigError, DataError, RunError, brief, counted
from regard.text.lines import READING, Reading, check_not_input, decode_line, read_lines, split_lines

if TYPE_CHECKING:
    from regard.api.corpus import CorpusResult


CHUNK = 512  # lines in a batch
WORDS_SHOWN = 5  # unknown words that are printed
STDIN = "standard input"
_FILE = re.compile(r"[/\\]|\.[a-z]\w{0,7}$")  # a path separator, or a file extension


def lines_of(file: Path | None) -> list[str]:
    """The lines of a file (plain, gz, bz2, xz or zst), or of standard input."""
    return [line for lines in batches(file) for line in lines]


def batches(file: Path | None, reading: Reading = READING) -> Iterator[list[str]]:
    """The lines of a file, or of standard input as they arrive, at most `CHUNK` at a time.

    Standard input never waits for a full batch, so that every line is answered at once.
    """
    if file is not None:
        lines = read_lines(file, reading)
        while batch := list(islice(lines, CHUNK)):
            yield batch
        return

    def arriving() -> bytes:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        return sys.stdin.buffer.read1(1 << 16)  # type: ignore[union-attr]

    number = 0
    for arrived in split_lines(arriving, STDIN, reading):
        lines = (decode_line(line, STDIN, place, reading) for place, line in enumerate(arrived, number + 1))
        while batch := list(islice(lines, CHUNK)):
            yield batch
        number += len(arrived)


def load(
    run: str | Path | Sequence[str | Path], device: str = "auto", task: str | None = None, engine: str = "regard"
) -> Any:
    """`regard.load`, with a note on standard error for each run that has not finished training, and for a pair that is
    translated through English.

    An included model is called by its name, such as en-fr, not by its folder.
    """
    from regard.runs.included import find_pivot, find_run, shipped_name

    loaded = regard.load(run, device, task, engine)
    runs = [run] if isinstance(run, str | Path) else run
    halves = find_pivot(runs[0])
    for folder in halves or runs:
        note_unfinished(folder)
    if halves:
        note_pivot(str(runs[0]), halves)
    elif len(runs) == 1:
        loaded.name = shipped_name(find_run(runs[0])) or loaded.name
    return loaded


def note_pivot(pair: str, halves: Sequence[Path]) -> None:
    """Print a note on standard error about a pair that has no model."""
    from regard.runs.included import shipped_name

    first, second = (shipped_name(half) or half for half in halves)
    typer.echo(f"{pair}: there is no model, so it is translated through English, with {first} and {second}", err=True)


def note_unfinished(run: str | Path) -> None:
    """Print a note on standard error if a run has not finished training."""
    from regard.runs.folder import unfinished_at
    from regard.runs.included import find_run

    step = unfinished_at(find_run(run))
    if step is not None:
        note = f"{run} has not finished training; its newest checkpoint is of step {step}"
        typer.echo(f"{note}. To resume: regard train --out {run}", err=True)


def note_unknown(count: int, where: str, words: Sequence[str], kind: str) -> None:
    """Print a note on standard error about `count` unknown words, or characters unless the vocabulary is of words, with
    the first few of `words`."""
    if count:
        noun = "word" if kind == "word" else "character"
        are = f"{noun} of the {where} is" if count == 1 else f"{noun}s of the {where} are"
        more = ", ..." if len(words) > WORDS_SHOWN else ""
        typer.echo(f"{count} {are} not in the vocabulary: {', '.join(words[:WORDS_SHOWN])}{more}", err=True)


def pairs_of(run: Path, pairs: Pairs) -> tuple[list[str], list[str]]:
    """The sentences of a test set and their translations: from two files, a TSV file or a translation memory.

    If the test set is clearly in another direction than the run, a note is printed on standard error.
    """
    from regard.api.exporting import about_run
    from regard.api.loading import read_experiment
    from regard.data.corpus import note_files, open_corpus
    from regard.text.languages import english_name, other_language

    two = pairs.tsv is None and pairs.tmx is None
    if two and (pairs.source is None or pairs.target is None):
        raise ConfigError("Expected sentences and their translations; pass --source and --target, --tsv, or --tmx.")
    read_experiment(run, "translate")
    files: dict[str, Any] = {name: str(path) for name, path in vars(pairs).items() if path}
    languages = {name: about_run(run)["expects"][name] for name in ("source_language", "target_language")}
    config = DataConfig(**files, **languages)
    if two:
        sources, references = lines_of(pairs.source), lines_of(pairs.target)
        if len(sources) != len(references):
            sizes = f"{pairs.source} has {len(sources)} and {pairs.target} {len(references)}"
            raise DataError(f"Source and target must have the same number of lines; {sizes}.")
    else:
        fit = [pair for pair in open_corpus(config) or () if not pair.unfit]
        sources, references = [pair.source for pair in fit], [pair.target for pair in fit]
    if not sources:
        raise DataError(f"There is no pair to read in {' and '.join(files.values())}; no line has text on both sides.")
    notes, own = list(note_files(config)), config.source_language
    if not notes and (found := other_language("\n".join(sources[:CHUNK]), own)):
        notes = [
            f"the source sentences look like {english_name(found)}, but the model reads {english_name(own)}. "
            "Check that source and target are not swapped."
        ]
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    return sources, references


def is_setting(argument: str) -> bool:
    """Whether an argument is `section.key=value`, and not a sentence or the name of a file that exists."""
    return bool(re.match(r"\w+\.\w+=|[\w.]+=\S*$", argument)) and not os.path.exists(argument)


def is_text(argument: str) -> bool:
    """Whether an argument is a text: it is not an existing file, and it has a space or does not look like a path."""
    named = _FILE.search(argument) and not re.search(r"\s", argument)
    return not named and not os.path.exists(argument)  # Path.exists raises for a long text


def check_text_file(file: Path | None, command: str) -> None:
    """Refuse a text in place of a file."""
    if file is not None and is_text(str(file)) and not file.is_dir():
        text = brief(file)
        raise DataError(
            f"There is no file {text!r}. A text is passed on standard input: echo {text!r} | regard {command} RUN"
        )


def check_settings(arguments: Iterable[str]) -> None:
    """Refuse an argument that is not a setting."""
    for stray in (argument for argument in arguments if not is_setting(argument)):
        hint = " Files are given by options, such as --source and --target." if os.path.exists(stray) else ""
        hint = " Write it without spaces." if stray == "=" else hint
        raise ConfigError(f"Settings on the command line are section.key=value; got {stray!r}.{hint}")


def sections_of(settings: Iterable[str], *also: str) -> dict[str, dict[str, Any]]:
    """Settings `section.key=value` as tables, of the section decode and of those in `also`."""
    known = ("decode", *also)
    tables = override({}, *settings)
    for section in tables.keys() - set(known):
        first = next(iter(tables[section]))
        takes = " or ".join(f"{name}.key=value" for name in known)
        raise ConfigError(f"Settings here are {takes}; leave {section}.{first} out.")
    return {section: dict(tables.get(section, {})) for section in known}


def check_out(path: Path | None, overwrite: bool, *inputs: str | Path | None) -> None:
    """Refuse a file that cannot be written, that exists unless it may be overwritten, that is also an input, or that is
    in the folder of a run, before any work is done."""
    from regard.runs.included import check_outside_run

    if path is None:
        return
    check_not_input(path, *inputs)
    folder = Path(os.path.realpath(path)).parent  # a link is followed
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "not a regular file"
        raise DataError(f"{path} is {kind}; pass the name of a file.")
    if not folder.is_dir():
        raise DataError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"The folder {folder} is not writable; pass another --out.")
    check_outside_run(path)
    if os.path.exists(path) and not overwrite:
        raise DataError(f"{path} exists; write to another file, or add --overwrite to replace it.")


def put(line: str) -> None:
    """Write one line to standard output as UTF-8, independent of the locale."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


def fitted(table: Sequence[str], instead: Iterable[str]) -> str:
    """The lines of a table; if the terminal is too narrow for it, the items of `instead`, wrapped and indented.

    If standard output is not a terminal, it is the table unless COLUMNS is set.
    """
    from regard.text.visible import columns, wrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else math.inf
    if max(map(columns, table), default=0) <= width:
        return "\n".join(table)
    return "\n".join(wrap(item, int(width) - 4).replace("\n", "\n    ") for item in instead)


def put_json(found: Any) -> None:
    """Write one JSON document on one line. Numbers that are not finite become null, since JSON cannot express them."""

    def finite(found: Any) -> Any:
        if isinstance(found, float):
            return found if math.isfinite(found) else None
        if isinstance(found, dict):
            return {name: finite(value) for name, value in found.items()}
        return [finite(value) for value in found] if isinstance(found, list | tuple) else found

    put(json.dumps(finite(found), ensure_ascii=False, allow_nan=False))


def put_result(text: object, found: Any, as_json: bool) -> None:
    if as_json:
        put_json(found)
    else:
        put(str(text))


def put_note(line: str, as_json: bool) -> None:
    """Write a line that is not a result: to standard output, or to standard error if the result is JSON."""
    if as_json:
        typer.echo(line, err=True)
    else:
        put(line)


def pair_files(pairs: Pairs, out: Path | None) -> tuple[list[Path], Path]:
    """The files of pairs and the folder of the results, for work in shards."""
    files = [pairs.source, pairs.target] if pairs.tsv is None else [pairs.tsv]
    if pairs.tmx or out is None or not all(files) or (pairs.tsv and (pairs.source or pairs.target)):
        raise ConfigError("--on takes --source and --target, or --tsv, and a folder for the results, --out DIR.")
    return [file for file in files if file], out


def watch(doing: str, out: Path, work: Callable[..., "CorpusResult"]) -> "CorpusResult":
    """Run work in shards with a progress bar, and print what was written; shards that failed are an error."""
    try:
        with bar(doing) as progress:
            found = work(progress=progress)
    except KeyboardInterrupt:
        typer.echo(f"stopped; the shards in {out} are kept, and the same command continues", err=True)
        raise
    if found.failed:
        first = min((out / "failed").iterdir())
        why = brief(first.read_text("utf-8"))
        raise RunError(
            f"{counted(found.failed, 'shard')} failed three times; {first} says why: {why}. The others are kept: the "
            "same command tries again."
        )
    typer.echo(f"{counted(found.lines, 'line')} into {', '.join(str(path) for path in found.outputs)}", err=True)
    return found
