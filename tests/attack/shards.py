"""D4, D5: a corpus in shards is done exactly once, whatever is killed; a line that kills its worker stops no other."""

import gzip
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from commands import context, forked_children
from patience import PATIENCE
from promises import check, refused

from regard.cluster.local import run_local
from regard.cluster.shards import TRIES, Plan, ShardReader, join, make_plan, output_name, read_results, write_results
from regard.errors import RegardError

TASK = {"work": "reverse"}


@dataclass(frozen=True)
class Reverse:
    """Work that needs no model; some lines end the worker, hang it or cannot be done. It notes each time they come."""

    notes: str
    pause: float = 0.0

    def __call__(self):
        def work(lines, tell):
            for line in lines:
                if line.startswith("poison"):
                    with open(Path(self.notes) / line.split()[1], "ab") as note:
                        note.write(b"x")
                    self.die(line.split()[2])
                time.sleep(self.pause)
                tell(1)
                yield {"translation": line[::-1]}

        return work

    def die(self, kind: str) -> None:
        if kind == "error":
            raise ValueError("no good")
        if kind == "hang":
            time.sleep(PATIENCE)
        os.kill(os.getpid(), {"segfault": signal.SIGSEGV, "memory": signal.SIGKILL}[kind])


def text(result) -> str:
    return result["translation"]


def write(folder: Path, lines: list[str]) -> str:
    (folder / "notes").mkdir()
    (folder / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "a.txt")


def drive(path: str, out: Path, size: int, workers: int, start: Reverse) -> None:
    """Do all that is missing, as `regard translate --out` does."""
    try:
        plan = make_plan([path], out, size, "", TASK)
        run_local(start, plan, out, workers)
        join(plan, out, "text", text)
    except RegardError:  # too many workers were killed; the next driver does the rest
        sys.exit(2)


@check("D4", "workers and drivers of a corpus killed at any moment: every line once, in its place", 0, 100)
def exactly_once(draw: Random, folder: Path) -> None:
    lines = [f"line {n} {draw.random()}" for n in range(draw.randint(20, 60))]
    path, out = write(folder, lines), folder / "out"
    given = (path, out, draw.randint(1, 9), draw.randint(1, 3), Reverse(str(folder / "notes"), 0.01))
    for _ in range(draw.randint(1, 3)):
        driver = context.Process(target=drive, args=given)
        driver.start()
        end = time.monotonic() + draw.uniform(0, 3)
        while driver.is_alive() and time.monotonic() < end:
            if draw.random() < 0.02 and (some := forked_children(driver.pid)):
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(some), signal.SIGKILL)
            time.sleep(0.01)
        driver.kill()
        driver.join()
    for _ in range(2):  # a shard whose workers were killed three times has another chance
        last = context.Process(target=drive, args=given)
        last.start()
        last.join(PATIENCE)
        if last.exitcode == 0:
            break
    assert last.exitcode == 0
    assert (out / "a.txt").read_text(encoding="utf-8") == "".join(f"{line[::-1]}\n" for line in lines)


NAMES = ["a.txt", "a.tsv", "a.en", "a.de", "a.txt.gz", "a.jsonl", "manifest.json", "plan.json", "shards", "x/a.txt"]


@check(
    "D4", "inputs with any names and any format: each has its own output, or all are refused before any work", 20, 2000
)
def names(draw: Random, folder: Path) -> None:
    form, out, paths = draw.choice(["text", "jsonl"]), folder / "out", []
    for name in draw.sample(NAMES, draw.randint(1, 4)):
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(name.encode()) if name.endswith(".gz") else name.encode())
        paths.append(str(path))
    try:
        plan = make_plan(paths, out, 2, "", TASK, partial(output_name, form=form))
    except RegardError:
        assert not out.exists()
        return
    (out / "shards").mkdir()
    read = ShardReader(plan)
    for shard in plan.shards():
        write_results(out, shard, [{"translation": row} for row in read(shard)])
    changed = draw.choice([None, *paths])
    if changed:
        Path(changed).write_bytes(Path(changed).read_bytes()[::-1])
        return refused(lambda: join(plan, out, form, text), f"{changed} changed")
    made = join(plan, out, form, text)
    assert len({path.name for path in made}) == len(paths)
    for path, result in zip(paths, made, strict=True):
        content = gzip.decompress(result.read_bytes()) if result.suffix == ".gz" else result.read_bytes()
        assert path.endswith((json.loads(content)["translation"] if form == "jsonl" else content.decode()).strip())


def done(plan: Plan, out: Path) -> dict[int, bool]:
    return {shard.number: read_results(out, shard) is not None for shard in plan.shards()}


@check(
    "D5",
    "a line that crashes, fills memory or hangs: its shard is set aside after three tries, the rest is done",
    1,
    100,
)
def poison(draw: Random, folder: Path) -> None:
    lines = [f"line {n}" for n in range(draw.randint(10, 30))]
    kinds = draw.sample(["error", "segfault", "memory", "hang"], draw.randint(1, 2))
    for number, kind in enumerate(kinds):
        lines[draw.randrange(len(lines) // 2) * 2 + number] = f"poison {number} {kind}"
    out, size = folder / "out", draw.randint(1, 4)
    plan = make_plan([write(folder, lines)], out, size, "", TASK)
    failed = run_local(Reverse(str(folder / "notes")), plan, out, 2, silent=2.0)
    bad = {at // size for at, line in enumerate(lines) if line.startswith("poison")}
    assert failed == len(bad)
    assert done(plan, out) == {shard.number: shard.number not in bad for shard in plan.shards()}
    assert sorted(path.name for path in (out / "failed").iterdir()) == sorted(f"{number:06d}.txt" for number in bad)
    assert all(note.stat().st_size <= TRIES for note in (folder / "notes").iterdir())
