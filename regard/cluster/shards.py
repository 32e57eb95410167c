"""A corpus of any size as shards: cut once, worked on in any order by any number of processes, joined at the end.

    OUT/plan.json             the inputs with their SHA-256, the lines of a shard, what is done with them
    OUT/shards/000012.jsonl   the results of a shard, one object a line; its last line says that it is whole
    OUT/failed/000012.txt     why a shard was set aside
    OUT/NAME                  the results of the input NAME, once all shards are there
    OUT/manifest.json         comes last: the SHA-256 of every output

A shard is a pure function of the plan, and its results appear under their name by one rename. So whatever is killed,
and however often, repeating the command does the rest: each line once, in order. Nothing here depends on a model or an
engine.
"""

import bz2
import gzip
import hashlib
import json
import lzma
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ConfigError, DataError, RunError, check_known, counted, need
from regard.sealed import digest, make_folder, replacing, seal, unseal, write_atomically
from regard.text.lines import Digests, open_zst, read_lines

Count = Callable[[int], None]  # called with the number of rows that were just done
Work = Callable[[Sequence[str], Count], Iterable[dict[str, Any]]]  # the rows of a shard -> one result for each
# Called once in every worker: loads what the work needs. Pickled, since it is sent to other processes.
Start = Callable[[], Work]

PACK: dict[str, Callable[..., Any]] = {
    ".gz": partial(gzip.GzipFile, mtime=0),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": open_zst,
}  # ending -> how such a file is opened
FORMATS = {"text": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}
OWN = ("plan.json", "shards", "failed", "manifest.json")  # names in OUT that no output may have
TRIES = 3  # attempts at a shard before it is set aside
AT_ONCE = 10_000  # rows of a Parquet file that are written together


class Input(NamedTuple):
    """A file of the corpus, as it was when the plan was made, and the files that are read beside it, line for line."""

    path: str
    sha256: str
    size: int
    changed: int  # time of its last change, in nanoseconds
    lines: int
    beside: "tuple[Input, ...]" = ()

    @property
    def files(self) -> "tuple[Input, ...]":
        return (self, *self.beside)


class Shard(NamedTuple):
    """Consecutive lines of one input."""

    number: int
    input: int
    first: int  # line, from 0
    lines: int


class Plan(NamedTuple):
    """What is to be done: all shards follow from it."""

    inputs: list[Input]
    size: int  # lines of a shard
    column: str  # of a table: its number (TSV) or name (JSONL, Parquet); "" = whole lines
    task: dict[str, Any]  # what is done with the lines: another task needs another folder

    def shards(self) -> list[Shard]:
        """Every shard, in order."""
        places = [(i, first) for i, file in enumerate(self.inputs) for first in range(0, file.lines, self.size)]
        return [
            Shard(number, i, first, min(self.size, self.inputs[i].lines - first))
            for number, (i, first) in enumerate(places)
        ]


def need_parquet() -> Any:
    """The package for Parquet files."""
    return need("pyarrow.parquet", "Parquet files need pyarrow; install it: pip install 'regard[ray]'.")


def read_rows(path: str, column: str = "", digests: Digests | None = None) -> Iterator[str]:
    """The rows of a text, TSV, JSONL or Parquet file, compressed or not; the extension is its format.

    A row of JSONL or Parquet may have line breaks; null is an empty row.
    """
    kind = kind_of(path)
    if kind == ".parquet":
        pq = need_parquet()
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise DataError(f"{path} has no column {column!r}; pass --column, one of {', '.join(names)}.")
            for batch in file.iter_batches(columns=[column]):
                yield from ("" if value is None else str(value) for value in batch.column(0).to_pylist())
        return
    for number, line in enumerate(read_lines(path, digests=digests), 1):
        if not column:
            yield line
        elif kind == ".jsonl":
            try:
                value = json.loads(line)[column]
                if isinstance(value, dict | list | bool):
                    raise TypeError
            except (ValueError, KeyError, TypeError, RecursionError):
                raise DataError(
                    f"{path}, line {number} is not a JSON object with {column!r}, a text; pass another --column."
                ) from None
            yield "" if value is None else str(value)
        else:
            cells = line.split("\t")
            if not column.isdecimal() or not 1 <= int(column) <= len(cells):
                raise DataError(
                    f"{path}, line {number} has {counted(len(cells), 'column')}; --column is the number of one, from "
                    f"1; got {column}."
                )
            yield cells[int(column) - 1]


def kind_of(path: str) -> str:
    """The extension of a file, without that of its compression."""
    return Path(path.removesuffix(packing(path))).suffix


def packing(path: str) -> str:
    """The extension of a compressed file, or an empty text."""
    return next((ending for ending in PACK if path.endswith(ending)), "")


def output_name(path: str, form: str = "text", ending: str = "") -> str:
    """The name of the output of an input: that of the input, with the extension of the format if that differs, or with
    `ending`."""
    packed = packing(path)
    name = Path(path).name.removesuffix(packed)
    if ending or form != "text" or Path(name).suffix in (".tsv", ".jsonl", ".parquet"):
        name = str(Path(name).with_suffix(ending or FORMATS[form]))
    return name + (packed if form != "parquet" else "")


def make_plan(
    paths: Sequence[str | tuple[str, ...]], out: Path, size: int, column: str, task: dict[str, Any],
    named: Callable[[str], str] = output_name,
) -> Plan:  # fmt: skip
    """The plan in the folder `out`, or a new one that is kept there. Inputs that have changed since are refused, and
    inputs whose outputs would have the same name; `named` is the name of an output.

    An input is a file, or several that are read side by side: a row is then their lines, separated by tabs.
    """
    groups = [(files,) if isinstance(files, str) else files for files in paths]
    if size < 1:
        raise ConfigError(f"A shard has at least one line; got --shard {size}.")
    kept = _read_plan(out)
    if kept is None:
        if out.is_dir() and any(not file.name.startswith(".") for file in out.iterdir()):
            raise RunError(f"{out} holds other files; choose another --out.")
        for name, count in Counter(os.path.normcase(named(files[0])) for files in groups).items():
            if count > 1 or name in OWN:
                whose = f"The outputs of {count} inputs" if count > 1 else "An output and a file of regard"
                raise DataError(f"{whose} would be called {name}; rename an input, or use another --out for it.")
        if not paths:
            raise DataError("There is nothing to do: no input file.")
        plan = Plan([_measure(files, column) for files in groups], size, column, task)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "plan.json", seal({"inputs": plan.inputs, "size": size, "column": column, "task": task}))
        return plan
    task = json.loads(json.dumps(task))
    if (kept.size, kept.column, kept.task) != (size, column, task):
        raise RunError(
            f"{out} was begun with another run, other settings or another version of regard; choose another --out."
        )
    if [tuple(file.path for file in group.files) for group in kept.inputs] != groups:
        raise RunError(f"{out} was begun with other input files; choose another --out.")
    for file in (file for group in kept.inputs for file in group.files):
        if not _is_same(file):
            raise RunError(f"{file.path} has changed since {out} was begun; choose another --out.")
    return kept


def _read_plan(out: Path) -> Plan | None:
    try:
        found = unseal((out / "plan.json").read_bytes())
        return Plan([_input(*file) for file in found["inputs"]], found["size"], found["column"], found["task"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{out / 'plan.json'} is damaged ({error}); choose another --out.") from None


def _input(path: str, sha256: str, size: int, changed: int, lines: int, beside: Sequence[Any] = ()) -> Input:
    """An Input from its JSON."""
    return Input(path, sha256, size, changed, lines, tuple(_input(*file) for file in beside))


def _measure(paths: Sequence[str], column: str) -> Input:
    measured = []
    for path in paths:
        if kind_of(path) == ".jsonl" and not column:
            raise DataError(f"{path} has JSON objects, not lines of text; pass --column, the name of their text.")
        digests: Digests = {}
        lines, about = sum(1 for _ in read_rows(path, column, digests)), os.stat(path)
        measured.append(Input(path, digests.get(path) or digest(path), about.st_size, about.st_mtime_ns, lines))
    first, *others = measured
    for other in others:
        if other.lines != first.lines:
            sizes = f"{first.path} has {first.lines} and {other.path} {other.lines}"
            raise DataError(f"Files that belong together must have the same number of lines; {sizes}.")
    return first._replace(beside=tuple(others))


def _is_same(file: Input) -> bool:
    """Whether a file is unchanged; it is read again only if its modification time differs."""
    try:
        about = os.stat(file.path)
        same = about.st_size == file.size
        return same and (about.st_mtime_ns == file.changed or digest(file.path) == file.sha256)
    except (OSError, DataError):
        return False


class ShardReader:
    """The rows of one shard after the other. A file stays open, so that shards in rising order are one pass.

    Rows of files that are read side by side are separated by tabs; tabs inside them become spaces.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.input, self.reached = plan, -1, 0
        self.rows: Iterator[str] = iter(())

    def __call__(self, shard: Shard) -> list[str]:
        if shard.input != self.input or shard.first < self.reached:
            sides = [read_rows(file.path, self.plan.column) for file in self.plan.inputs[shard.input].files]
            plain = ([row.replace("\t", " ") for row in rows] for rows in zip(*sides, strict=False))  # as in the plan
            self.rows = map("\t".join, plain) if len(sides) > 1 else sides[0]
            self.input, self.reached = shard.input, 0
        rows = list(islice(self.rows, shard.first - self.reached, shard.first - self.reached + shard.lines))
        self.reached = shard.first + shard.lines
        if len(rows) != shard.lines:
            raise DataError(f"{self.plan.inputs[shard.input].path} is shorter than when the work was begun.")
        return rows


def results_path(out: Path, shard: Shard) -> Path:
    return out / "shards" / f"{shard.number:06d}.jsonl"


def write_results(out: Path, shard: Shard, results: Iterable[dict[str, Any]]) -> None:
    """Commit the results of a shard, each with the number of its line from 1."""
    numbered = enumerate(results, shard.first + 1)
    lines = [json.dumps({"line": line, **result}, ensure_ascii=False).encode() + b"\n" for line, result in numbered]
    if len(lines) != shard.lines:
        raise RunError(f"Shard {shard.number} has {shard.lines} lines but {len(lines)} results.")
    write_atomically(results_path(out, shard), b"".join(lines) + _last_line(lines))


def read_results(out: Path, shard: Shard) -> list[bytes] | None:
    """The lines of a shard's results, or None if they are missing or incomplete."""
    try:
        *lines, last = results_path(out, shard).read_bytes().splitlines(keepends=True)
    except (OSError, ValueError):
        return None
    return lines if len(lines) == shard.lines and last == _last_line(lines) else None


def _last_line(lines: Sequence[bytes]) -> bytes:
    return json.dumps({"lines": len(lines), "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}).encode() + b"\n"


def missing(plan: Plan, out: Path) -> list[Shard]:
    """The shards without results. Those that were set aside are tried again."""
    make_folder(out / "shards")
    shutil.rmtree(out / "failed", ignore_errors=True)
    return [shard for shard in plan.shards() if read_results(out, shard) is None]


def forget(out: Path) -> None:
    """Remove a plan without results, so that the folder can be used for something else."""
    with suppress(OSError):  # a folder with results is not empty and is kept
        (out / "shards").rmdir()
        shutil.rmtree(out / "failed", ignore_errors=True)
        (out / "plan.json").unlink()


def set_aside(out: Path, shard: Shard, reason: str) -> None:
    """Keep the reason why a shard has no results."""
    make_folder(out / "failed")
    write_atomically(out / "failed" / f"{shard.number:06d}.txt", (reason + "\n").encode())


def finished(out: Path) -> list[Path] | None:
    """The outputs of a finished folder, or None."""
    try:
        return [out / name for name in unseal((out / "manifest.json").read_bytes())["outputs"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{out / 'manifest.json'} is damaged ({error}); delete it to join the shards again.") from None


def join(plan: Plan, out: Path, form: str, text: Callable[[dict[str, Any]], str], ending: str = "") -> list[Path]:
    """Write one output for each input from all shards, then the manifest; the shards are removed after that.

    In text, line breaks inside a result become spaces: line n belongs to row n.
    """
    check_known("format", form, FORMATS)
    check_unchanged(plan, out)
    outputs: dict[str, str] = {}
    for i, file in enumerate(plan.inputs):
        name = output_name(file.path, form, ending)
        lines = (line for shard in plan.shards() if shard.input == i for line in _whole(out, shard))
        outputs[name] = _write(out / name, lines, form, text)
    return _conclude(out, outputs)


def fold(name: str, combine: Callable[[Iterator[dict[str, Any]]], bytes], plan: Plan, out: Path) -> list[Path]:
    """Write one output for the whole corpus, made of all results in order, then the manifest."""
    check_unchanged(plan, out)
    write_atomically(out / name, combine(read_all(plan, out)))
    return _conclude(out, {name: digest(out / name)})


def read_all(plan: Plan, out: Path) -> Iterator[dict[str, Any]]:
    """The results of all shards, in order."""
    return (json.loads(line) for shard in plan.shards() for line in _whole(out, shard))


def check_unchanged(plan: Plan, out: Path) -> None:
    """Refuse results of inputs that were changed meanwhile: each shard may be of another version. They are deleted."""
    for file in (file for group in plan.inputs for file in group.files):
        if not os.path.exists(file.path):
            raise RunError(f"{file.path} is gone; put it back and repeat the command. All results are kept.")
        if not _is_same(file._replace(changed=-1)):  # read it, whatever its time says
            shutil.rmtree(out / "shards", ignore_errors=True)
            (out / "plan.json").unlink()
            raise RunError(
                f"{file.path} was changed while it was read, so that lines of two versions were mixed; the results "
                "were deleted. Repeat the command."
            )


def _conclude(out: Path, outputs: dict[str, str]) -> list[Path]:
    write_atomically(out / "manifest.json", seal({"outputs": outputs}))
    shutil.rmtree(out / "shards", ignore_errors=True)
    return [out / name for name in outputs]


def _whole(out: Path, shard: Shard) -> list[bytes]:
    lines = read_results(out, shard)
    if lines is None:
        raise RunError(f"{results_path(out, shard)} is missing or damaged; repeat the command.")
    return lines


def _write(path: Path, lines: Iterator[bytes], form: str, text: Callable[[dict[str, Any]], str]) -> str:
    """Write an output under a temporary name, sync and rename it; returns its SHA-256."""
    with replacing(path) as temporary:
        if form == "parquet":
            _write_parquet(temporary, lines)
        else:
            with PACK.get(packing(path.name), open)(temporary, "wb") as stream:
                for line in lines:
                    if form != "jsonl":  # one line for each row
                        one = text(json.loads(line)).replace("\r\n", " ").replace("\r", " ").replace("\n", " ")
                        line = one.encode() + b"\n"
                    stream.write(line)
        return digest(temporary)


def _write_parquet(path: Path, lines: Iterator[bytes]) -> None:
    import pyarrow as pa

    pq = need_parquet()

    rows = [json.loads(line) for line in islice(lines, AT_ONCE)]
    schema = pa.Table.from_pylist(rows).schema
    empty, texts = pa.list_(pa.null()), pa.list_(pa.string())  # lists that are empty so far hold text later
    schema = pa.schema([field.with_type(texts) if field.type == empty else field for field in schema])
    with pq.ParquetWriter(path, schema) as writer:
        while rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            rows = [json.loads(line) for line in islice(lines, AT_ONCE)]
