"""Attention over a corpus of any size: word alignments, measures of heads, and reach, in shards like a translation.

A worker has one thread, so that results do not depend on the number of workers. Alignments are a line for each pair.
Statistics are sums: the sum of a shard stands in the result of its first row, and the others are empty.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.api import aligning
from regard.api.corpus import CorpusResult, Where, over_shards
from regard.api.links import FILE, Heads
from regard.api.loading import load
from regard.cluster.shards import Tell, Work, fold, join
from regard.data.files import Progress, digest
from regard.data.pharaoh import format_pharaoh
from regard.errors import DataError, RunError
from regard.look.measure import Reach, ReachSum, Report, ReportSum
from regard.look.record import attentions

AT_ONCE = 64  # pairs that a worker reads before it says so


class Links(NamedTuple):
    """How links are made of weights."""

    method: str = "argmax"
    threshold: float = 0.3
    heads: Heads | None = None  # of the first run; None: its own choice
    join: str = "grow-diag"  # of both directions, where there are two


def align_corpus(
    run: Path, pairs: Sequence[str | Path], out: str | Path, *, back: Path | None = None, links: Links | None = None,
    where: Where | None = None, progress: Progress | None = None,
) -> CorpusResult:  # fmt: skip
    """Write the word alignments of `pairs` into the folder `out`, a line of links for each (NAME.links).

    `pairs` are two files, line for line, or one TSV file. A pair with an empty side, or with a side that is too long to
    look into, gives an empty line. With `back`, a run of the other direction, both alignments are joined.
    """
    how, where = links or Links(), where or Where()
    aligning.check_linking(how.method, how.threshold, how.join)
    task = {"work": "align", "links": [*how[:2], how.heads and asdict(how.heads), how.join],
            "runs": [_about(one) for one in (run, back) if one]}  # fmt: skip
    start = partial(start_aligning, run.absolute(), back and back.absolute(), where.device, how)
    finish = partial(join, form="text", text=itemgetter("links"), ending=".links")
    return over_shards(start, [_files(pairs)], out, task, where, finish, progress)


def report_corpus(
    run: Path, pairs: Sequence[str | Path], out: str | Path, *, where: Where | None = None,
    progress: Progress | None = None,
) -> CorpusResult:  # fmt: skip
    """Measure every head over `pairs`, two files or one TSV file; the output is for `read_report`."""
    where = where or Where()

    def combine(results: Iterator[dict[str, Any]]) -> bytes:
        total = ReportSum()
        for one in results:
            if "heads" in one:
                total.merge(ReportSum.of(one))
        return json.dumps(total.as_data()).encode()

    start, finish = partial(start_measuring, run.absolute(), where.device), partial(fold, "heads.json", combine)
    return over_shards(start, [_files(pairs)], out, {"work": "heads", "runs": [_about(run)]}, where, finish, progress)


def read_report(path: Path) -> Report:
    """The report whose sums `report_corpus` wrote."""
    return ReportSum.of(json.loads(path.read_bytes())).result()


def reach_corpus(
    run: Path, files: Sequence[str | Path], out: str | Path, *, farthest: int = 20, where: Where | None = None,
    progress: Progress | None = None,
) -> CorpusResult:  # fmt: skip
    """Measure how far back a language model attends over files of lines; the output is for `read_reach`."""
    where = where or Where()
    task = {"work": "reach", "runs": [_about(run)], "farthest": farthest}

    def combine(results: Iterator[dict[str, Any]]) -> bytes:
        totals: dict[str, ReachSum] = {}
        for one in results:
            for name, data in one.get("modules", {}).items():
                totals.setdefault(name, ReachSum([0.0] * (farthest + 1))).merge(ReachSum.of(data))
        return json.dumps({name: total.as_data() for name, total in totals.items()}).encode()

    start, finish = (
        partial(start_reaching, run.absolute(), where.device, farthest),
        partial(fold, "reach.json", combine),
    )
    return over_shards(start, _files(files), out, task, where, finish, progress)


def read_reach(path: Path) -> list[Reach]:
    """The reach whose sums `reach_corpus` wrote."""
    return [ReachSum.of(data).result(name) for name, data in json.loads(path.read_bytes()).items()]


def start_aligning(run: Path, back: Path | None, device: str, how: Links) -> Work:
    """The work: the links of pairs, each a source and a target separated by a tab."""
    torch.set_num_threads(1)
    ahead = load(run, device, "translate")
    behind = load(back, device, "translate") if back else None

    def work(rows: Sequence[str], tell: Tell) -> Iterator[dict[str, Any]]:
        for some in _parts(rows, tell):
            turned = [(target, source) for source, target in some]
            other = aligning.weigh_pairs(behind, turned) if behind else None
            weights = aligning.weigh_pairs(ahead, some, how.heads)
            links = aligning.link(weights, other, how.method, how.threshold, how.join)
            yield from ({"links": format_pharaoh(one)} for one in links)

    return work


def start_measuring(run: Path, device: str) -> Work:
    """The work: the totals of the measures of every head."""
    torch.set_num_threads(1)
    translator = load(run, device, "translate")
    names = list(attentions(translator.model))

    def work(rows: Sequence[str], tell: Tell) -> Iterator[dict[str, Any]]:
        total = ReportSum()
        for some in _parts(rows, tell):
            pairs = list(aligning.traceable(translator, some).values())
            for trace in translator.trace_pairs([pair[0] for pair in pairs], [pair[1] for pair in pairs], names):
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

    def work(rows: Sequence[str], tell: Tell) -> Iterator[dict[str, Any]]:
        totals = writer.reach_sums(rows, farthest) if any(row.split() for row in rows) else {}
        tell(len(rows))
        yield {"modules": {name: total.as_data() for name, total in totals.items()}}
        yield from ({} for _ in rows[1:])

    return work


def _about(run: Path) -> dict[str, str]:
    """What results depend on: the weights, and the head that was chosen."""
    choice = run / FILE
    return {"weights": digest(run / "weights.safetensors"), "choice": digest(choice) if choice.exists() else ""}


def _files(paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(str(Path(path).absolute()) for path in paths)


def _parts(rows: Sequence[str], tell: Tell) -> Iterator[list[tuple[str, str]]]:
    """Pairs, a few at a time, and how many were done after each."""
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        pairs = [tuple(row.split("\t")) for row in some]
        for number, pair in enumerate(pairs, first + 1):
            if len(pair) != 2:
                raise DataError(f"A pair is source, tab, target; row {number} of the shard has {len(pair) - 1} tabs.")
        yield pairs  # type: ignore[misc]
        tell(len(some))
