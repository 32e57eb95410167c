"""Translate a corpus of any size: in shards, over processes or a Ray cluster, every line exactly once."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.api.loading import load
from regard.cluster.local import gpus_for, run_local, share_cores
from regard.cluster.ray import run_ray
from regard.cluster.shards import FORMATS, Tell, Work, finished, join, make_plan, missing
from regard.data.files import Progress, digest
from regard.errors import DataError, check_known
from regard.training.known import find_run
from regard.training.locks import locked

ENGINES = ("local", "ray")
SILENT = 600.0  # seconds without one more line before a worker counts as stuck; its shard is tried again
DIGITS = 4  # of a score: more would depend on the number of threads


class CorpusResult(NamedTuple):
    """What became of a corpus."""

    outputs: list[Path]
    lines: int
    failed: int  # shards that were set aside; their reasons are in OUT/failed


@dataclass(frozen=True)
class Translating:
    """Loads the translator in a worker; the work is to translate the lines of a shard, of all lengths together."""

    run: str
    device: str
    threads: int
    max_tokens: int
    options: dict[str, Any]

    def __call__(self) -> Work:
        torch.set_num_threads(self.threads)
        translator = load(self.run, self.device, "translate")

        def work(lines: Sequence[str], tell: Tell) -> Iterator[dict[str, Any]]:
            seen = 0

            def progress(done: int, total: int | None) -> None:
                nonlocal seen
                share = done * len(lines) // max(1, total or 1)  # sentences done as a share of the lines
                tell(share - seen)
                seen = share

            for one in translator.translate(lines, max_tokens=self.max_tokens, progress=progress, **self.options):
                yield {
                    "translation": one.text, "score": round(one.score, DIGITS), "tokens": one.tokens,
                    "finished": one.finished, "flags": one.flags, "unknown": one.unknown,
                }  # fmt: skip

        return work


def translate_corpus(
    run: str | Path, inputs: str | Path | Iterable[str | Path], out: str | Path, *, on: str = "local",
    workers: int | None = None, shard: int = 10_000, column: str = "", format: str = "text", address: str | None = None,
    device: str = "auto", max_tokens: int = 4096, progress: Progress | None = None, **options: Any,
) -> CorpusResult:  # fmt: skip
    """Translate files into the folder `out`: line n of an output is line n of its input.

    `inputs` are files or patterns such as `"in/*.txt.gz"`: text, TSV, JSONL or Parquet (with `column`), packed or not.
    `on` is "local" (processes of this machine) or "ray" (`address` names a cluster). What is done already is kept: the
    same call again continues after a crash, and does nothing once all is done. `format` is "text", "jsonl" or "parquet"
    (with score, tokens and flags). A line of more than `max_tokens` tokens gives an empty line. Options are those
    of `Translator.translate`.

    >>> with open("questions.txt", "w", encoding="utf-8") as file:
    ...     _ = file.write("Where is the station?\\nWhere is the cat?\\n")
    >>> result = regard.translate_corpus("en-fr", "questions.txt", "translated", workers=1)
    >>> result.lines, [path.name for path in result.outputs]
    (2, ['questions.txt'])
    """
    check_known("engine", on, ENGINES)
    check_known("format", format, FORMATS)
    folder, paths = Path(find_run(run)), find_inputs(inputs)
    out = Path(out).absolute()
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    number, threads = share_cores(workers, gpus)
    task = {"work": "translate", "weights": digest(folder / "weights.safetensors"), "options": options,
            "format": format, "max_tokens": max_tokens}  # fmt: skip
    with locked(out, "is working"):
        plan = make_plan(paths, out, shard, column, task)
        lines = sum(one.lines for one in plan.inputs)
        if outputs := finished(out):
            return CorpusResult(outputs, lines, 0)
        local = partial(run_local, silent=SILENT, gpus=gpus_for(device))
        engine = partial(run_ray, address=address, gpus=min(1.0, gpus)) if on == "ray" else local
        start = Translating(str(folder.absolute()), device, threads, max_tokens, options)
        failed = engine(start, plan, out, missing(plan, out), number, progress)
        outputs = [] if failed else join(plan, out, format, lambda result: result["translation"])
        return CorpusResult(outputs, lines, failed)


def find_inputs(inputs: str | Path | Iterable[str | Path]) -> list[str]:
    """The files that names and patterns stand for, sorted within each."""
    found = []
    for one in [inputs] if isinstance(inputs, str | Path) else inputs:
        names = sorted(glob.glob(str(one), recursive=True)) if glob.has_magic(str(one)) else [str(one)]
        if not names:
            raise DataError(f"No file matches {one}; check the pattern.")
        found += names
    return [os.path.abspath(name) for name in found]
