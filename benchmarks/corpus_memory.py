"""How much memory it takes to prepare a corpus of a million pairs, and to read one epoch of it in several processes.

    python benchmarks/corpus_memory.py [PAIRS [PROCESSES]]

Writes generated sentence pairs to a temporary folder, and in a fresh process trains the vocabularies and tokenises into
the memory-mapped store. Then each of the processes opens the store and loads its rows of every batch of an epoch, as
the ranks of a training do. Prints the peak of resident memory beyond what importing torch alone takes. Pages of mapped
files count in it while they are in memory; `own` leaves them out, since processes share them and the system drops them
when it needs the memory (Linux only).
"""

import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1024  # MiB


def peak() -> float:
    """Most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_corpus(folder: Path, pairs: int) -> None:
    """Sentences of about 17 words from a vocabulary of 60,000 made-up words, as frequent as words are (Zipf's law)."""
    draw, chance = random.Random(1), np.random.default_rng(1)
    syllables = [first + second for first in "bcdfglmnprstv" for second in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(60_000)]
    turned = [word[::-1] for word in words]
    odds = np.cumsum(1 / (np.arange(len(words)) + 3))
    with (
        open(folder / "source", "w", encoding="utf-8") as source,
        open(folder / "target", "w", encoding="utf-8") as target,
    ):
        for first in range(0, pairs, 10_000):
            ends = np.cumsum(chance.integers(4, 31, min(10_000, pairs - first)))
            chosen = np.searchsorted(odds, chance.random(ends[-1]) * odds[-1]).tolist()
            for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                source.write(" ".join([words[k] for k in chosen[start:end]]) + "\n")
                target.write(" ".join([turned[k] for k in chosen[end - 1 : start - 1 if start else None : -1]]) + "\n")


def own() -> float:
    """Memory of this process now without pages of files, in MiB; NaN where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return math.nan
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def prepared(folder: Path, progress: Any) -> Any:
    """The corpus of `folder`, made at the first call."""
    from regard.data.pairs import PairEncoding
    from regard.data.prepare import prepare
    from regard.data.settings import DataConfig

    config = DataConfig(source=str(folder / "source"), target=str(folder / "target"))
    return prepare(PairEncoding(config), folder / "run", progress)


def measure(folder: Path) -> None:
    """Prepare the corpus of `folder`; print the memory that each stage has reached."""
    import torch  # noqa: F401 - its own memory is not ours

    start, begun = peak(), time.perf_counter()
    reached: dict[str, float] = {}
    data = prepared(folder, lambda stage, done, total: reached.update({stage: peak() - start}))
    for stage, memory in reached.items():
        print(f"  {stage:<12} {memory:8.0f} MiB")
    print(f"  prepared in {time.perf_counter() - begun:.0f} s: {data.tallies[0]}")
    report(peak() - start, "preparing")


def read(folder: Path, rank: int, world: int) -> None:
    """Load the rows of one rank of every batch of an epoch."""
    import torch

    torch.set_num_threads(1)
    from regard.data.batching import ShardedPlan
    from regard.work import prefetch

    start, started, most = peak(), own(), 0.0
    train = prepared(folder, lambda stage, done, total: None).train
    begun, tokens = time.perf_counter(), 0
    plan = ShardedPlan(*train.sides, 4096, seed=1, epoch=0)
    planned = time.perf_counter() - begun
    with prefetch(train.batch(plan[k][rank::world]) for k in range(len(plan))) as stream:
        for number, batch in enumerate(stream):
            tokens += int(batch.target_lengths.sum())
            if number % 100 == 0:
                most = max(most, own() - started)
    speed = tokens / (time.perf_counter() - begun - planned)
    text = f"reading, rank {rank} of {world}: planned in {planned:.1f} s, {speed:,.0f} target tokens/s"
    report(most if most == most else peak() - start, text, f" own ({peak() - start:.0f} with pages of files)")


def report(memory: float, work: str, kind: str = "") -> None:
    """One line, with a verdict."""
    verdict = "under" if memory < LIMIT else "NOT under"
    print(f"{work}: {memory:.0f} MiB{kind} beyond torch, {verdict} {LIMIT} MiB", flush=True)


def main() -> None:
    """Write the corpus here and measure in separate processes, whose memory the writing has not touched."""
    if sys.argv[1:2] == ["--measure"]:
        return measure(Path(sys.argv[2]))
    if sys.argv[1:2] == ["--read"]:
        return read(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    pairs, world = (int(value) for value in (sys.argv[1:] + ["1000000", "1"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), pairs)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
        print(f"{pairs:,} pairs, {size:,.0f} MiB of text", flush=True)
        call = [sys.executable, __file__]
        subprocess.run([*call, "--measure", folder], check=True)
        ranks = [subprocess.Popen([*call, "--read", folder, str(rank), str(world)]) for rank in range(world)]
        codes = [rank.wait() for rank in ranks]
        sys.exit(any(codes))


if __name__ == "__main__":
    main()
