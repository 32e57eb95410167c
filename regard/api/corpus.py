"""Process a corpus of any size in shards, with local processes or a Ray cluster, every line exactly once.

A corpus is translated, or attention over it gives word alignments, measures of heads, or the reach of a language model.
Workers that read attention use one thread each, so that results do not depend on the number of workers. Alignments are
one line for each pair. Statistics are sums: the result of a shard's first row is its sum, the others are empty.
"""

import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.api.aligning import ARGMAX, Linking, check_attends, link, trace_pairs, traceable, weigh_pairs
from regard.api.drafts import Translation
from regard.api.heads import CHOICE, FILE, Heads
from regard.api.loading import Run, load
from regard.cluster.local import gpus_for, run_local, share_cores
from regard.cluster.ray import need_ray, run_ray
from regard.cluster.shards import (
    FORMATS,
    Count,
    Plan,
    Start,
    Work,
    finished,
    fold,
    forget,
    join,
    make_plan,
    need_parquet,
    output_name,
    read_all,
)
from regard.errors import ConfigError, DataError, RegardError, RunError, check_known
from regard.evaluate.confidence import Trust
from regard.look.measure import Reach, Report
from regard.look.record import attentions
from regard.runs.folder import digest_of_weights, find_weights, unfinished_at
from regard.runs.included import check_outside_run, find_run
from regard.sealed import digest, locked
from regard.text.pharaoh import format_pharaoh
from regard.work import Progress, usable_cores

PLACES = ("local", "ray")
SILENT = 600.0  # seconds without progress before a worker counts as stuck; its shard is tried again
PER_GPU = 4  # workers that share a GPU: each splits and joins sentences while others use it
AT_ONCE = 64  # pairs whose attention is read together
DIGITS = 4  # of a score: further digits depend on the number of threads


class CorpusResult(NamedTuple):
    """The result of processing a corpus."""

    outputs: list[Path]
    lines: int
    failed: int  # shards that were set aside; their reasons are in OUT/failed
    doubted: int | None = None  # lines that were left empty, counted by the call that writes the outputs


@dataclass(frozen=True)
class Where:
    """Where a corpus is processed, and in what shards."""

    on: str = "local"  # or "ray"
    workers: int | None = None
    shard: int = 10_000  # lines
    column: str = ""  # of a table
    address: str | None = None  # of a Ray cluster
    device: str = "auto"

    def __post_init__(self) -> None:
        check_known("place", self.on, PLACES, " to work")
        if self.address is not None and self.on != "ray":
            raise ConfigError("--address is that of a Ray cluster; add --on ray, or leave it out.")

    @property
    def gpus(self) -> int:
        return torch.cuda.device_count() if self.device != "cpu" else 0

    def run(self, start: Start, plan: Plan, out: Path, workers: int, progress: Progress | None, **local: Any) -> int:
        """Process the missing shards; returns how many were set aside. `local` are options of `run_local`."""
        if self.on == "local":
            local = {"silent": SILENT, "gpus": gpus_for(self.device), **local}
            return run_local(start, plan, out, workers, progress, **local)
        # A Ray actor takes its share of the GPUs of this machine, or a whole GPU of a cluster. There, "cuda" always
        # requests GPUs: other nodes may have them even if this one has none.
        gpus = min(1.0, self.gpus / workers)
        if self.address:
            gpus = float(self.device.startswith("cuda") or self.gpus > 0)
        return run_ray(start, plan, out, workers, progress, self.address, gpus)


def over_shards(
    start: Start, task: dict[str, Any], finish: Callable[[Plan, Path], list[Path]],
    inputs: Sequence[str | tuple[str, ...]], out: str | Path, where: Where, progress: Progress | None,
    workers: int | None = None, named: Callable[[str], str] = output_name,
) -> CorpusResult:  # fmt: skip
    """Process the rows of the inputs in shards; finished shards are kept.

    `start` is called in every worker; `finish` writes the outputs when all shards are done, one for each input under
    the name `named`. `task` describes the work: a folder of another task is refused. By default there is a worker for
    each GPU or core.
    """
    if workers is None:
        workers, _ = share_cores(where.workers if where.workers is not None else where.gpus or usable_cores(), 0)
    out = Path(out).absolute()
    if where.on == "ray":
        need_ray()  # before anything is written
    check_outside_run(out)
    with locked(out, "is working"):
        plan = make_plan(inputs, out, where.shard, where.column, task, named)
        lines = sum(file.lines for file in plan.inputs)
        if outputs := finished(out):
            return CorpusResult(outputs, lines, 0)
        try:
            failed = where.run(start, plan, out, workers, progress)
        except RegardError:
            forget(out)  # a refused call leaves no files
            raise
        return CorpusResult([] if failed else finish(plan, out), lines, failed)


def start_translating(
    runs: list[str], device: str, engine: str, threads: int, align: bool, trust: Trust, options: dict[str, Any]
) -> Work:
    """Load the translator in a worker; the work translates all lines of a shard in one call."""
    torch.set_num_threads(threads)
    translator = load(runs, device, "translate", engine)  # several are an ensemble
    options = {"confidence": trust.wanted, **options}
    translator.translate([], **options)  # refuses wrong options before the first shard

    def work(lines: Sequence[str], count: Count) -> Iterator[dict[str, Any]]:
        seen = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal seen
            share = done * len(lines) // max(1, total or 1)  # sentences done as a share of the lines
            count(share - seen)
            seen = share

        translations = translator.translate(lines, progress=progress, **options)
        for first in range(0, len(lines), AT_ONCE):
            part = translations[first : first + AT_ONCE]
            pairs = list(zip(lines[first : first + AT_ONCE], (translation.text for translation in part), strict=True))
            links = link(weigh_pairs(translator, pairs)) if align else None  # by the choice of the run
            for number, translation in enumerate(part):
                row = describe(translation, trust)
                yield row | ({"alignment": format_pharaoh(links[number])} if links else {})

    return work


def describe(translation: Translation, trust: Trust) -> dict[str, Any]:
    """A translation as a row of JSONL and Parquet."""
    names, sure = ("tokens", "finished", "flags", "unknown", "unplaced"), translation.confidence
    values = {name: getattr(translation, name) for name in names}
    values |= {"confidence": round(sure.sentence, DIGITS) if sure else None} if trust.wanted else {}
    text = "" if trust.doubts(sure) else translation.text
    return {"translation": text, "score": round(translation.score, DIGITS), **values}


def translate_corpus(
    run: Run | Sequence[Run], inputs: str | Path | Iterable[str | Path], out: str | Path, *, format: str = "text",
    align: bool = False, engine: str = "regard", max_tokens: int = 4096, confidence: bool = False,
    min_confidence: float | None = None, progress: Progress | None = None, **options: Any,
) -> CorpusResult:  # fmt: skip
    """Translate files into the folder `out`: line n of an output is line n of its input.

    `inputs` are files or patterns such as `"in/*.txt.gz"`: text, TSV, JSONL or Parquet (with `column`), compressed or
    not. Finished shards are kept: after a crash, repeat the call to continue; a finished call does nothing. `format` is
    "text", "jsonl" or "parquet" (with score, tokens and flags, and with `align` the links between words). A line of
    more than `max_tokens` tokens gives an empty line, and so does one with a smaller confidence than `min_confidence`;
    with `confidence`, JSONL and Parquet have it. `run` and `engine` are those of `regard.load`.

    `options` are those of `Translator.translate`, and where the work is done: `on` is "local" (processes of this
    machine, the default) or "ray" (`address` names a cluster), with `workers` processes or actors, `shard` lines each
    time (10,000), on a `device`.

    >>> with open("questions.txt", "w", encoding="utf-8") as file:
    ...     _ = file.write("Where is the station?\\nWhere is the cat?\\n")
    >>> result = regard.translate_corpus("en-fr", "questions.txt", "translated", workers=1)
    >>> result.lines, [path.name for path in result.outputs]
    (2, ['questions.txt'])
    """
    check_known("format", format, FORMATS)
    if format == "parquet":
        need_parquet()  # before anything is translated
    if align and format == "text":
        raise ConfigError("Text has no place for links; use --format jsonl or parquet with --align.")
    if confidence and format == "text":
        raise ConfigError("Text has no place for a confidence; use --format jsonl or parquet with --confidence.")
    trust = Trust(confidence, min_confidence)
    where = Where(**{field.name: options.pop(field.name) for field in fields(Where) if field.name in options})
    folders = [find_run(name).absolute() for name in ([run] if isinstance(run, str | Path) else run)]
    if align and len(folders) > 1:
        raise ConfigError("An ensemble has no single attention; leave --align or --with out.")
    if len(folders) > 1 and options.get("terms"):
        raise ConfigError("An ensemble cannot place terms; leave --terms or --with out.")
    number, threads = share_cores(where.workers, where.gpus, PER_GPU)
    task = {"work": "translate", "weights": [_weights(folder) for folder in folders], "align": align,
            "options": options, "engine": engine, "format": format, "max_tokens": max_tokens,
            **(vars(trust) if trust.wanted else {})}  # fmt: skip
    runs = [str(folder) for folder in folders]
    options = {"max_tokens": max_tokens, **options}
    start = partial(start_translating, runs, where.device, engine, threads, align, trust, options)
    doubted: int | None = None

    def finish(plan: Plan, out: Path) -> list[Path]:
        nonlocal doubted
        if trust.min_confidence is not None:
            sure = (row["confidence"] for row in read_all(plan, out))
            doubted = sum(one is not None and one < trust.min_confidence for one in sure)
        return join(plan, out, format, itemgetter("translation"))

    named = partial(output_name, form=format)
    found = over_shards(start, task, finish, find_inputs(inputs), out, where, progress, number, named)
    return found._replace(doubted=doubted)


def find_inputs(inputs: str | Path | Iterable[str | Path]) -> list[str]:
    """The files that match names and patterns, sorted within each pattern."""
    files = []
    for pattern in map(str, [inputs] if isinstance(inputs, str | Path) else inputs):
        matched = glob.has_magic(pattern) and not os.path.exists(pattern)  # in[1].txt may be the name of a file
        names = sorted(glob.glob(pattern, recursive=True)) if matched else [pattern]
        if not names:
            raise DataError(f"No file matches {pattern}; check the pattern.")
        files += names
    return [os.path.abspath(name) for name in files]


def align_corpus(
    run: Path, pairs: Sequence[str | Path], out: str | Path, *, where: Where, back: Path | None = None,
    how: Linking = ARGMAX, heads: Heads = CHOICE, progress: Progress | None = None,
) -> CorpusResult:  # fmt: skip
    """Write the word alignments of `pairs` into the folder `out`, one line of links for each (NAME.links).

    `pairs` are two parallel files, or one TSV file. A pair with an empty side, or with a side that is too long to
    trace, gives an empty line. With `back`, a run of the other direction, both alignments are joined. `heads`
    replace the choice of `run`.
    """
    runs = [run, back] if back else [run]
    for folder in runs:
        check_attends(folder)
    task = {"work": "align", "links": [how.method, how.threshold, asdict(heads), how.join],
            "runs": [_about(folder) for folder in runs]}  # fmt: skip
    start = partial(start_aligning, run.absolute(), back and back.absolute(), where.device, how, heads)
    finish = partial(join, form="text", text=itemgetter("links"), ending=".links")
    named = partial(output_name, ending=".links")
    return over_shards(start, task, finish, [_files(pairs)], out, where, progress, named=named)


def report_corpus(
    run: Path, pairs: Sequence[str | Path], out: str | Path, *, where: Where, progress: Progress | None = None
) -> CorpusResult:
    """Measure every head over `pairs`, two files or one TSV file; the output is for `read_report`."""
    check_attends(run)

    def combine(results: Iterator[dict[str, Any]]) -> bytes:
        total = Report()
        for result in results:
            if "heads" in result:
                total.merge(Report.of(result))
        return json.dumps(total.as_data()).encode()

    start = partial(start_measuring, run.absolute(), where.device)
    task, finish = {"work": "heads", "runs": [_about(run)]}, partial(fold, "heads.json", combine)
    return over_shards(start, task, finish, [_files(pairs)], out, where, progress)


def read_report(path: Path) -> Report:
    """The report whose sums `report_corpus` wrote."""
    return Report.of(json.loads(path.read_bytes()))


def reach_corpus(
    run: Path, files: Sequence[str | Path], out: str | Path, *, where: Where, farthest: int = 20,
    progress: Progress | None = None,
) -> CorpusResult:  # fmt: skip
    """Measure how far back a language model attends over files of lines; the output is for `read_reach`."""
    task = {"work": "reach", "runs": [_about(run)], "farthest": farthest}

    def combine(results: Iterator[dict[str, Any]]) -> bytes:
        totals: dict[str, Reach] = {}
        for part in (Reach.of(data) for result in results for data in result.get("modules", ())):
            totals.setdefault(part.name, Reach(part.name, [0.0] * (farthest + 1))).merge(part)
        return json.dumps([vars(total) for total in totals.values()]).encode()

    start = partial(start_reaching, run.absolute(), where.device, farthest)
    return over_shards(start, task, partial(fold, "reach.json", combine), _files(files), out, where, progress)


def read_reach(path: Path) -> list[Reach]:
    """The reach whose sums `reach_corpus` wrote."""
    return [Reach.of(data) for data in json.loads(path.read_bytes())]


def start_aligning(run: Path, back: Path | None, device: str, how: Linking, heads: Heads) -> Work:
    """The work: the links of pairs, each a source and a target separated by a tab."""
    torch.set_num_threads(1)
    ahead = load(run, device, "translate")
    behind = load(back, device, "translate") if back else None
    weigh_pairs(ahead, [("a", "a")], heads)  # refuses a layer or head that does not exist

    def work(rows: Sequence[str], count: Count) -> Iterator[dict[str, Any]]:
        for pairs in _parts(rows, count):
            turned = [(target, source) for source, target in pairs]
            other = weigh_pairs(behind, turned) if behind else None
            alignments = link(weigh_pairs(ahead, pairs, heads), other, how)
            yield from ({"links": format_pharaoh(links)} for links in alignments)

    return work


def start_measuring(run: Path, device: str) -> Work:
    """The work: the totals of the measures of every head."""
    torch.set_num_threads(1)
    translator = load(run, device, "translate")
    names = list(attentions(translator.model))

    def work(rows: Sequence[str], count: Count) -> Iterator[dict[str, Any]]:
        total = Report()
        for part in _parts(rows, count):
            for trace in trace_pairs(translator, list(traceable(translator, part).values()), names):
                total.add(trace)
        yield total.as_data()
        yield from ({} for _ in rows[1:])

    return work


def start_reaching(run: Path, device: str, farthest: int) -> Work:
    """The work: the totals of the reach of a language model."""
    torch.set_num_threads(1)
    writer = load(run, device, "language")
    if not attentions(writer.model):
        raise RunError(f"{writer.name} has no attention module, so there is nothing to measure.")

    def work(rows: Sequence[str], count: Count) -> Iterator[dict[str, Any]]:
        found = writer.reach(rows, farthest) if any(row.split() for row in rows) else []
        count(len(rows))
        yield {"modules": [vars(one) for one in found]}
        yield from ({} for _ in rows[1:])

    return work


def _about(run: Path) -> dict[str, str]:
    """What results depend on: the weights, and the choice of the aligning head."""
    choice = run / FILE
    return {"weights": _weights(run), "choice": digest(choice) if choice.exists() else ""}


def _weights(run: Path) -> str:
    """The digest of the weights of a run, which must be finished: otherwise they may change between two shards."""
    find_weights(run)  # refuses a folder without a run
    if unfinished_at(run) is not None:
        raise RunError(
            f"{run} has not finished training, so that its weights may change between two shards; finish it with "
            f"`regard train --out {run}`, or use a copy: regard export {run} --out DIR."
        )
    return digest_of_weights(run)


def _files(paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(str(Path(path).absolute()) for path in paths)


def _parts(rows: Sequence[str], count: Count) -> Iterator[list[tuple[str, str]]]:
    """Pairs, a few at a time; `count` is called after each part."""
    for first in range(0, len(rows), AT_ONCE):
        pairs = [tuple(row.split("\t")) for row in rows[first : first + AT_ONCE]]
        for number, pair in enumerate(pairs, first + 1):
            if len(pair) != 2:
                raise DataError(f"A pair is source, tab, target; row {number} of the shard has {len(pair) - 1} tabs.")
        yield pairs  # type: ignore[misc]
        count(len(pairs))
