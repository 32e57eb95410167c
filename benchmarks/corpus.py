"""A corpus in shards beside a bare loop, and what SIGKILL does to it: python benchmarks/corpus.py FILE [--kills 20]

Every row of the table is the same corpus, translated by fresh processes in turns: a bare loop (one process that calls
`Translator.translate` with as many lines at a time as a shard has, and writes what comes back), then
`regard.translate_corpus` with each number of workers. `work` is the time from the first loaded model to the last byte
of the output, `start` what comes before it (imports, counting the lines, loading), CPU the processor time of all
processes. The outputs are compared by their SHA-256. With `--kills N` the corpus is translated once more while the
driver or a worker, at random, is killed with SIGKILL at N random moments; the same command follows a dead driver.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CUT = 4096  # tokens of the longest line, as in `regard translate`
FAILED = 3  # exit code of a driver that set shards aside


class Lane(NamedTuple):
    """One way to translate the corpus, measured once."""

    start: float  # seconds before the work
    work: float
    cpu: float
    busy: float | None  # share of the work in which the GPU ran something
    sha256: str


def bare(options: argparse.Namespace, settings: dict[str, Any], out: Path) -> None:
    """A loop without shards: the lines of the source into one file."""
    import regard

    translator = regard.load(options.model, options.device, "translate", options.engine)
    ready = time.time()
    with open(options.source[0], encoding="utf-8") as source, open(out, "w", encoding="utf-8") as target:
        while lines := [line.rstrip("\n") for line in islice(source, options.shard)]:
            for one in translator.translate(lines, max_tokens=CUT, **settings):
                target.write(one.text + "\n")
    print(json.dumps({"ready": ready, "done": time.time()}))


def shards(options: argparse.Namespace, settings: dict[str, Any], out: Path, workers: int, form: str) -> None:
    """The corpus in shards on local workers, as `regard translate --on local` does it."""
    import regard

    ready = 0.0

    def progress(done: int, total: int | None) -> None:
        nonlocal ready
        ready = ready or time.time()  # a worker has loaded its model

    found = regard.translate_corpus(
        options.model, options.source[0], out, workers=workers, shard=options.shard, format=form,
        device=options.device, engine=options.engine, max_tokens=CUT, progress=progress, **settings,
    )  # fmt: skip
    if found.failed:
        sys.exit(FAILED)
    print(json.dumps({"ready": ready, "done": time.time()}))


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


def child(options: argparse.Namespace, source: Path, what: list[str]) -> list[str]:
    """The command that runs this file for one lane."""
    own = ["--shard", str(options.shard), "--model", options.model, "--device", options.device]
    own += ["--engine", options.engine, "--set", *options.set]
    return [sys.executable, __file__, str(source), *own, "--lane", *what]


def measure(command: list[str], gpu: Gpu, output: Path) -> Lane:
    """Run one lane in a separate process."""
    before, begun = os.times(), time.time()
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    after, times = os.times(), json.loads(said.splitlines()[-1])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    ready, done = times["ready"], times["done"]
    return Lane(ready - begun, done - ready, cpu, gpu.busy(ready, done), digest(output))


def workers_of(driver: int) -> list[int]:
    """The processes that a driver has started to work for it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                spawned = b"spawn_main" in (folder / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue  # it has ended
            if parent == driver and spawned:
                found.append(int(folder.name))
    return found


def kill_at_random(command: list[str], kills: int, within: float, rng: random.Random) -> Counter[str]:
    """Run `command` until it succeeds, killing it or one of its workers `kills` times; returns what was killed.

    The next moment is drawn once there is a worker, which may still be loading.
    """
    killed: Counter[str] = Counter()
    while True:
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while driver.poll() is None and killed["driver"] + killed["worker"] < kills:
            if not workers_of(driver.pid):
                time.sleep(0.05)
                continue
            try:
                driver.wait(rng.uniform(0, within))
            except subprocess.TimeoutExpired:
                workers = workers_of(driver.pid)
                name = "worker" if workers and rng.random() < 0.5 else "driver"
                try:
                    os.kill(rng.choice(workers) if name == "worker" else driver.pid, 9)
                except ProcessLookupError:
                    continue  # it ended first
                killed[name] += 1
                if name == "driver":
                    break
        code = driver.wait()
        if code == 0:
            return killed
        if code not in (-9, FAILED, 1) or killed["driver started again"] > 3 * kills:
            raise SystemExit(f"The driver ended with exit code {code}.")  # 1: its workers were killed while they loaded
        killed["driver started again"] += 1


def digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def working_folder(name: str | None) -> Iterator[Path]:
    """A new folder for the outputs: one that stays, or a temporary one."""
    if name is None:
        with tempfile.TemporaryDirectory(prefix="regard-") as folder:
            yield Path(folder)
    else:
        Path(name).mkdir(parents=True)
        yield Path(name)


def compare(options: argparse.Namespace, folder: Path) -> bool:
    """Measure all lanes on the corpus; returns whether everything is as promised."""
    from regard.cluster.shards import read_rows

    source = folder / "source.txt"
    with open(source, "w", encoding="utf-8") as stream:
        lines = chain.from_iterable(read_rows(path) for path in options.source)
        count = sum(stream.write(line + "\n") > 0 for line in islice(lines, options.sentences))
    names = ["bare loop", *(f"{number} worker{'s' * (number > 1)}" for number in options.workers)]
    lanes: dict[str, list[Lane]] = {name: [] for name in names}
    gpu, outputs = Gpu(), {}
    for number in range(options.rounds):
        for name in names:
            out = folder / f"{name} {number}"
            what = ["bare", str(out)] if name == "bare loop" else ["shards", str(out), name.split()[0], "text"]
            outputs[name] = out if name == "bare loop" else out / "source.txt"
            lanes[name].append(measure(child(options, source, what), gpu, outputs[name]))
            print(f"{name}: {lanes[name][-1]}", file=sys.stderr)
    print(f"{count:,} sentences, {options.model}, {' '.join(options.set) or 'defaults'}, engine {options.engine}, "
          f"{about_machine(options.device)}, shards of {options.shard:,} lines\n")  # fmt: skip
    table(lanes, count)
    expected = lanes["bare loop"][0].sha256
    same = all(lane.sha256 == expected for some in lanes.values() for lane in some)
    print(f"\nsame bytes in all outputs: {'yes' if same else 'NO'} (SHA-256 {expected[:16]})")
    for name, path in outputs.items():
        if different := differing(outputs["bare loop"], path):
            print(f"  {name}: {different} of {count:,} lines differ from those of the bare loop")
    good = not options.kills or survives(options, source, folder / "killed", count, outputs["bare loop"])
    gpu.stop()
    return same and good


def table(lanes: dict[str, list[Lane]], count: int) -> None:
    """Print a row for each lane: medians over the rounds."""
    print("| | start s | work s | CPU s | sentences/s | speed-up | over the bare loop | CPU over it | GPU busy |")
    print("|---|---|---|---|---|---|---|---|---|")
    middle = {name: [statistics.median(one[:3][k] for one in some) for k in range(3)] for name, some in lanes.items()}
    loop, one = middle["bare loop"], middle.get("1 worker")
    for name, (start, work, cpu) in middle.items():
        speed_up = f"{one[1] / work:.2f}x" if one and name != "bare loop" else ""
        over = (f"{100 * (work / loop[1] - 1):+.1f} %", f"{100 * (cpu / loop[2] - 1):+.1f} %")
        wall, processor = ("", "") if name == "bare loop" else over
        busy = [lane.busy for lane in lanes[name] if lane.busy is not None]
        share = f"{100 * statistics.mean(busy):.0f} %" if busy else "-"
        print(f"| {name} | {start:.1f} | {work:.1f} | {cpu:.1f} | {count / work:,.0f} | {speed_up} | {wall} | "
              f"{processor} | {share} |")  # fmt: skip


def survives(options: argparse.Namespace, source: Path, out: Path, count: int, expected: Path) -> bool:
    """Whether a run that is killed again and again gives every line once, in order, and the same text."""
    seed = options.seed if options.seed is not None else time.time_ns()
    begun, workers = time.time(), str(max(options.workers))
    killed = kill_at_random(
        child(options, source, ["shards", str(out), workers, "jsonl"]),
        options.kills,
        options.within,
        random.Random(seed),
    )
    numbers, joined = [], hashlib.sha256()
    with open(out / "source.jsonl", encoding="utf-8") as stream:
        for line in stream:
            found = json.loads(line)
            numbers.append(found["line"])
            joined.update(found["translation"].encode() + b"\n")
    lost, twice = count - len(set(numbers)), len(numbers) - len(set(numbers))
    same, ordered = joined.hexdigest() == digest(expected), numbers == sorted(numbers)
    print(f"\n{killed['driver'] + killed['worker']} of {options.kills} kills within {time.time() - begun:.0f} s, "
          f"{workers} workers: driver {killed['driver']}, worker {killed['worker']} (seed {seed}); the command was "
          f"given {killed['driver started again'] + 1} times; lines lost {lost}, twice {twice}, "
          f"in order: {'yes' if ordered else 'NO'}, same bytes: {'yes' if same else 'NO'}")  # fmt: skip
    return same and ordered and lost == twice == 0


def differing(first: Path, second: Path) -> int:
    """How many lines of two files differ."""
    with open(first, encoding="utf-8") as ours, open(second, encoding="utf-8") as theirs:
        return sum(one != other for one, other in zip(ours, theirs, strict=True))


def about_machine(device: str) -> str:
    import torch
    from race import machine

    return machine("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu", "wall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", help="files of sentences, one on each line, packed or not")
    parser.add_argument("--model", default="en-fr")
    parser.add_argument("--sentences", type=int, default=200_000, help="of the source, from its start")
    parser.add_argument("--shard", type=int, default=10_000, help="lines of a shard")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0, help="how often SIGKILL comes, in one more run")
    parser.add_argument("--within", type=float, default=20.0, help="seconds from one SIGKILL to the next, at most")
    parser.add_argument("--seed", type=int, help="of the moments of SIGKILL; the clock by default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="regard", help="regard or ctranslate2")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of [decode], as in precision=bf16")
    parser.add_argument("--out", help="new folder that keeps the outputs")
    parser.add_argument("--lane", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if options.lane is None:
        with working_folder(options.out) as folder:
            sys.exit(not compare(options, folder))
    from regard.config import override

    settings: dict[str, Any] = {}
    for pair in options.set:
        settings = override(settings, f"decode.{pair}")
    given, what = settings.get("decode", {}), options.lane
    if what[0] == "bare":
        bare(options, given, Path(what[1]))
    else:
        shards(options, given, Path(what[1]), int(what[2]), what[3])


if __name__ == "__main__":
    main()
