"""The speed of this tree on a GPU against an older one, in turns: python benchmarks/gpu_ratio.py OLD_TREE

    git archive 5f60cf2 regard benchmarks/gpu.py | tar x -C OLD_TREE

Each tree does the work of its benchmarks/gpu.py in another process, and the two take turns. Printed are the medians of
a piece of work alone and in a row, and the median and the quartiles of the ratios of neighbouring turns, new by old.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
ROW = 5  # pieces of work in a row


def work(tree: Path) -> None:
    """Answer the requests of the other process, a line each: make a row of the table, or time one of its lanes."""
    sys.path.insert(0, str(tree))
    spec = importlib.util.spec_from_file_location("gpu", tree / "benchmarks" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    gpu: Any = importlib.util.module_from_spec(spec)
    sys.modules["gpu"] = gpu
    spec.loader.exec_module(gpu)
    out, sys.stdout = sys.stdout, sys.stderr
    ready: list[Any] = []
    for line in sys.stdin:
        kind, asked = json.loads(line)
        answer: Any = None
        try:
            if kind == "make":
                ready.clear()  # frees the row before
                lanes = [lane for lane in gpu.rows()[asked]()[1] if lane.name.startswith("regard")]
                ready.extend(lane.make() for lane in lanes)
                for act in ready:
                    for _ in range(gpu.WARM):
                        act()
                answer = [lane.name for lane in lanes]
            else:
                answer = [gpu.seconds(ready[asked], 1), gpu.seconds(ready[asked], ROW)]
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error)[:200]}"
        print(json.dumps(answer), file=out, flush=True)


class Side:
    """The process of one tree."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(tree), "--work"]
        paths = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)

    def ask(self, kind: str, asked: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps([kind, asked]), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"the process ended"')


def compare(new: Side, old: Side, row: str, limit: float) -> None:
    """Print a line for each lane of a row."""
    sides = new, old
    for side in sides:
        side.ask("make", row)
    names = [side.answer() for side in sides]
    if not isinstance(names[0], list) or names[0] != names[1]:
        print(f"{row}: {names}", flush=True)
        return
    for lane, name in enumerate(names[0]):
        found: list[list[Any]] = [[], []]
        began = time.monotonic()
        while time.monotonic() < began + limit or len(found[0]) < 4:
            for at in (0, 1) if len(found[0]) % 2 else (1, 0):
                sides[at].ask("time", lane)
                found[at].append(sides[at].answer())
        if any(isinstance(one, str) for one in (*found[0], *found[1])):
            print(f"{row} {name}: {found[0][-1]} {found[1][-1]}", flush=True)
            continue
        cells = []
        for part in (0, 1):
            times = [[1e3 * turn[part] for turn in side] for side in found]
            ratios = [a / b for a, b in zip(*times, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            medians = " / ".join(f"{statistics.median(side):.2f}" for side in times)
            cells.append(f"{medians} ms | {middle:.3f} ({low:.3f}-{high:.3f})")
        print(f"| {row}, {name} | {' | '.join(cells)} | {len(found[0])} |", flush=True)


def main() -> None:
    """Compare the two trees, or be the process of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="of benchmarks/gpu.py (default: all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="for each lane")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.tree.resolve())
        return
    new, old = Side(TREE), Side(given.tree.resolve())
    print("| work | alone, new / old | ratio | in a row | ratio | turns |\n|---|---|---|---|---|---|", flush=True)
    rows = given.rows
    if not rows:
        sys.path.insert(0, str(TREE / "benchmarks"))
        import gpu

        rows = list(gpu.rows())
    for row in rows:
        compare(new, old, row, given.seconds)
    for side in (new, old):
        side.process.kill()


if __name__ == "__main__":
    main()
