"""A corpus in shards beside a bare loop, and what SIGKILL does to it: python benchmarks/corpus.py FILE [--kills 20]

Every row of the table is the same corpus, translated by fresh processes in turns: a bare loop (one process that calls
`Translator.translate` with as many lines at a time as a shard has, and writes what comes back), then
`regard.translate_corpus` with each number of workers and, with `--ray`, on a Ray cluster of that many nodes, which are
raylets of this machine with one worker each. `work` is the time from the first loaded model to the last byte of the
output, `start` what comes before it (imports, counting the lines, loading; with Ray, which reports whole shards, also
the first of them, whose lines do not count for the speed), CPU the processor time of all processes. The outputs are
compared by their SHA-256.

With `--kills N` the corpus is translated again, by the most workers and by the most nodes, while the driver, a worker
or a raylet, drawn at random, is killed with SIGKILL at N random moments. The same command follows a dead driver, and a
killed node is started again, as an operator would; the head of the cluster is not killed. The exit code is 1 if
anything differs, fails, is lost or comes twice, or if fewer than N processes were killed.

`--at-once 4` runs four of all these beside each other, those with kills first: less time, but the rows disturb each
other.
"""

import argparse
import hashlib
import json
import multiprocessing
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from kills import SPAWN, Killer, Nodes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from regard.config import override  # noqa: E402
from regard.sealed import digest  # noqa: E402

Measured = tuple[float, float, int, float | None]  # when the work began and ended, its lines, its processor time
CUT = 4096  # tokens of the longest line, as in `regard translate`


class Lane(NamedTuple):
    """One way to translate the corpus, measured once."""

    start: float  # seconds before the work
    work: float
    lines: int  # done in that time
    cpu: float | None
    busy: float | None  # share of the work in which the GPU ran something
    sha256: str


class Killed(NamedTuple):
    """What became of a run whose processes were killed."""

    seconds: float
    kills: Counter[str]  # of each kind of process
    commands: int  # how often the command was given
    lines: list[int]  # their numbers, as the output has them
    sha256: str  # of the text


def bare(options: argparse.Namespace, source: Path, out: Path) -> Measured:
    """A loop without shards: the lines of the source into one file."""
    import regard

    translator = regard.load(options.model, options.device, "translate", options.engine)
    ready, count = time.time(), 0
    with open(source, encoding="utf-8") as stream, open(out, "w", encoding="utf-8") as target:
        while lines := [line.rstrip("\n") for line in islice(stream, options.shard)]:
            for one in translator.translate(lines, max_tokens=CUT, **options.decode):
                target.write(one.text + "\n")
            count += len(lines)
    return ready, time.time(), count, processor_time()


def shards(
    options: argparse.Namespace, source: Path, workers: int, address: str | None, out: Path, form: str
) -> Measured:
    """The corpus in shards, as `regard translate --on local` or `--on ray` does it."""
    import regard

    ready, before = 0.0, 0

    def progress(done: int, total: int | None) -> None:
        nonlocal ready, before
        if not ready:  # a worker has loaded its model and done something
            ready, before = time.time(), done

    found = regard.translate_corpus(
        options.model, source, out, on="ray" if address else "local", address=address, workers=workers,
        shard=options.shard, format=form, device=options.device, engine=options.engine, max_tokens=CUT,
        progress=progress, **options.decode,
    )  # fmt: skip
    if found.failed:
        raise RuntimeError(f"{found.failed} shards were set aside")
    return ready, time.time(), found.lines - before, None if address else processor_time()


def processor_time() -> float:
    """Seconds of this process and of those that it started."""
    for worker in multiprocessing.active_children():
        worker.join()  # only then its time counts
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Gpu:
    """Samples of how busy the GPU is, by nvidia-smi; none where there is no such program."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []  # time, percent
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
        self.process = (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) if shutil.which(command[0]) else None
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in (self.process.stdout if self.process else None) or ():
            if line.strip().isdecimal():
                self.samples.append((time.time(), float(line)))

    def busy(self, start: float, end: float) -> float | None:
        """The mean share of that time in which the GPU ran something."""
        found = [percent for moment, percent in self.samples if start <= moment <= end]
        return statistics.mean(found) / 100 if found else None

    def stop(self) -> None:
        if self.process:
            self.process.terminate()


def measure(translate: Callable[[], Measured], gpu: Gpu, output: Path) -> Lane:
    """Run one lane in a fresh process."""
    begun = time.time()
    with ProcessPoolExecutor(1, SPAWN) as pool:
        ready, done, lines, cpu = pool.submit(translate).result()
    return Lane(ready - begun, done - ready, lines, cpu, gpu.busy(ready, done), digest(output))


def compare(options: argparse.Namespace, folder: Path) -> bool:
    """Measure all lanes on the corpus; returns whether everything is as promised."""
    from race import machine

    from regard.cluster.shards import read_rows

    source = folder / "source.txt"
    with open(source, "w", encoding="utf-8") as stream:
        lines = chain.from_iterable(read_rows(path) for path in options.source)
        count = sum(stream.write(line + "\n") > 0 for line in islice(lines, options.sentences))
    gpu = Gpu()
    names = ["bare loop", *(f"{number} worker{'s' * (number > 1)}" for number in options.workers)]
    names += [f"{number} Ray node{'s' * (number > 1)}" for number in options.ray]
    most = [f"{max(options.workers)} workers", *([f"{max(options.ray)} Ray nodes"] if options.ray else [])]

    def lane(name: str, number: int) -> Lane:
        return run_lane(options, name, source, folder / f"{name} {number}", gpu)

    def kills(name: str) -> Killed:
        return survive(options, name, source, folder / f"{name} killed", count)

    with ThreadPoolExecutor(options.at_once) as pool:
        killed = {name: pool.submit(kills, name) for name in most if options.kills}
        futures = {name: [] for name in names}  # type: dict[str, list[Future[Lane]]]
        for number in range(options.rounds):
            for name in names:
                futures[name].append(pool.submit(lane, name, number))
    gpu.stop()
    print(f"{count:,} sentences, {options.model}, {' '.join(options.set) or 'defaults'}, engine {options.engine}, "
          f"{machine('cuda' if has_gpu(options.device) else 'cpu', 'wall')}, shards of {options.shard:,} lines, "
          f"{options.at_once} at once\n")  # fmt: skip
    lanes = {name: [future.result() for future in some if succeeded(name, future)] for name, some in futures.items()}
    table({name: some for name, some in lanes.items() if some})
    found = {lane.sha256 for some in lanes.values() for lane in some}
    same = len(found) == 1 and all(len(some) == options.rounds for some in lanes.values())
    print(f"\nsame bytes in all outputs: {'yes' if same else 'NO'} (SHA-256 {', '.join(sorted(found))})")
    if len(found) > 1:
        print_differences(folder, names, count)
    results = [succeeded(name, future) and report(name, future.result(), options, count, found)
               for name, future in killed.items()]  # fmt: skip
    return same and all(results)


def run_lane(options: argparse.Namespace, name: str, source: Path, out: Path, gpu: Gpu) -> Lane:
    """Translate the corpus in the way that `name` says."""
    if name == "bare loop":
        lane = measure(partial(bare, options, source, out), gpu, out)
    else:
        with place(options, name, source) as (translate, _):
            lane = measure(partial(translate, out, "text"), gpu, out / source.name)
    print(f"{name}: {lane}", file=sys.stderr)
    return lane


def survive(options: argparse.Namespace, name: str, source: Path, out: Path, count: int) -> Killed:
    """Translate the corpus of `count` lines in the way that `name` says, while processes are killed."""
    begun = time.time()
    with place(options, name, source) as (translate, nodes):
        killer = Killer(out, -(-count // options.shard), options.kills, options.within, options.seed, nodes)
        commands = killer.run(partial(translate, out, "jsonl"))
    numbers, joined = [], hashlib.sha256()
    with open(out / f"{source.stem}.jsonl", encoding="utf-8") as stream:
        for line in stream:
            found = json.loads(line)
            numbers.append(found["line"])
            joined.update(found["translation"].encode() + b"\n")
    result = Killed(time.time() - begun, killer.killed, commands, numbers, joined.hexdigest())
    print(f"{name}: {result.kills}, {result.seconds:.0f} s", file=sys.stderr)
    return result


@contextmanager
def place(
    options: argparse.Namespace, name: str, source: Path
) -> Iterator[tuple[Callable[[Path, str], Measured], Nodes | None]]:
    """What translates, with the number of workers that `name` begins with, and their cluster if it is one of Ray."""
    number = int(name.split()[0])
    nodes = Nodes(number, has_gpu(options.device)) if "Ray" in name else None
    try:
        yield partial(shards, options, source, number, nodes.address if nodes else None), nodes
    finally:
        if nodes:
            nodes.stop()


def succeeded(name: str, future: "Future[Any]") -> bool:
    """Whether a run came to its end; else its error is printed."""
    error = future.exception()
    if error:
        print(f"{name} FAILED: {type(error).__name__}: {error}")
    return error is None


def table(lanes: dict[str, list[Lane]]) -> None:
    """Print a row for each lane: medians over the rounds."""
    print("| | start s | work s | CPU s | sentences/s | speed-up | over the bare loop | GPU busy |")
    print("|---|---|---|---|---|---|---|---|")
    speeds = {name: statistics.median(one.lines / one.work for one in some) for name, some in lanes.items()}
    loop, single = speeds.get("bare loop"), speeds.get("1 worker")
    for name, some in lanes.items():
        start, work = (statistics.median(column) for column in zip(*(one[:2] for one in some), strict=True))
        times = [one.cpu for one in some if one.cpu is not None]
        cpu = f"{statistics.median(times):.1f}" if times else "-"
        busy = [one.busy for one in some if one.busy is not None]
        share = f"{100 * statistics.mean(busy):.0f} %" if busy else "-"
        other = name != "bare loop"
        speed_up = f"{speeds[name] / single:.2f}x" if single and other else ""
        over = f"{100 * (loop / speeds[name] - 1):+.1f} %" if loop and other else ""
        print(f"| {name} | {start:.1f} | {work:.1f} | {cpu} | {speeds[name]:,.0f} | {speed_up} | {over} | {share} |")


def report(name: str, run: Killed, options: argparse.Namespace, count: int, expected: set[str]) -> bool:
    """Print what the kills did; returns whether every line is there once, in order, and the text the same."""
    once = set(run.lines)
    lost, twice = count - len(once), len(run.lines) - len(once)
    same, ordered = expected == {run.sha256}, run.lines == sorted(run.lines)
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(run.kills.items()))
    print(f"\n{name}: {run.kills.total()} of {options.kills} kills within {run.seconds:.0f} s: {kinds} "
          f"(seed {options.seed}); the command was given {run.commands} times; lines lost {lost}, twice {twice}, "
          f"in order: {'yes' if ordered else 'NO'}, same bytes: {'yes' if same else 'NO'}")  # fmt: skip
    return same and ordered and lost == twice == 0 and run.kills.total() == options.kills


def print_differences(folder: Path, names: list[str], count: int) -> None:
    """Print how many lines of each lane's first output are not those of the bare loop."""
    first, *others = (folder / f"{name} 0" for name in names)
    for path in others:
        with suppress(OSError, ValueError), open(first, "rb") as ours, open(path / "source.txt", "rb") as theirs:
            different = sum(one != other for one, other in zip(ours, theirs, strict=True))
            print(f"  {path.name[:-2]}: {different} of {count:,} lines differ from those of the bare loop")


def has_gpu(device: str) -> bool:
    import torch

    return device != "cpu" and torch.cuda.is_available()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", help="files of sentences, one on each line, packed or not")
    parser.add_argument("--model", default="en-fr")
    parser.add_argument("--sentences", type=int, default=200_000, help="of the source, from its start")
    parser.add_argument("--shard", type=int, default=10_000, help="lines of a shard")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ray", type=int, nargs="+", default=[], metavar="NODES", help="also on Ray, a worker a node")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="how many runs are made beside each other")
    parser.add_argument("--kills", type=int, default=0, help="how often SIGKILL comes, in runs of their own")
    parser.add_argument("--within", type=float, default=5.0, help="seconds that SIGKILL comes after its shard, at most")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the kills; the clock by default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="regard", help="regard or ctranslate2")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of [decode], as in precision=bf16")
    parser.add_argument("--out", help="new folder that keeps the outputs")
    options = parser.parse_args()
    options.decode = override({}, *(f"decode.{pair}" for pair in options.set)).get("decode", {})
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if options.out:
        Path(options.out).mkdir(parents=True)
    with nullcontext(options.out) if options.out else tempfile.TemporaryDirectory(prefix="regard-") as folder:
        sys.exit(not compare(options, Path(folder)))


if __name__ == "__main__":
    main()
