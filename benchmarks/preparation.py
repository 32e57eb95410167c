"""How long it takes from two text files to a tokenised corpus, stage by stage.

    python benchmarks/preparation.py train.en.bz2 train.fr.bz2 [vocabulary=16000 joint=true ...]

Prints for each stage the seconds on the clock, the processor seconds of all threads, and those of the thread that runs
the stage: its Python code, which more cores do not make faster. Unpacking, learning subwords and finding them release
the lock of Python and run on other cores; two stages overlap by a few blocks.
"""

import sys
import tempfile
import time
from pathlib import Path

from regard.config import override, read
from regard.data.pairs import PairEncoding
from regard.data.prepare import prepare
from regard.data.settings import DataConfig


def main(source: str, target: str, *settings: str) -> None:
    tables = override({}, *(f"data.{setting}" for setting in settings))
    config = read(DataConfig, {"source": source, "target": target, **tables.get("data", {})}, "data")
    first: dict[str, tuple[float, float, float]] = {}  # of each stage: clock, processor, thread
    last: dict[str, tuple[float, float, float]] = {}

    def report(stage: str, done: int, total: int | None) -> None:
        last[stage] = time.perf_counter(), time.process_time(), time.thread_time()
        first.setdefault(stage, last[stage])

    report("all", 0, None)
    with tempfile.TemporaryDirectory() as folder:
        made = prepare(PairEncoding(config), Path(folder) / "run", report)
        report("all", 0, None)
    last["vocabulary"] = (*first["tokenising"][:2], first["vocabulary"][2])  # it is reported once, when it begins
    print(f"{made.tallies[0].total} pairs\n{'stage':12}{'clock s':>10}{'processor s':>13}{'its thread s':>14}")
    for stage in ("reading", "vocabulary", "tokenising", "all"):
        if stage in first:
            clock, processor, thread = (b - a for a, b in zip(first[stage], last[stage], strict=True))
            print(f"{stage:12}{clock:10.1f}{processor:13.1f}" + (f"{thread:14.1f}" if thread > 0 else f"{'-':>14}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
