"""How much memory it takes to prepare a corpus of a million pairs, and to read one epoch of it.

    python benchmarks/corpus_memory.py [PAIRS]

Writes generated sentence pairs to a temporary folder, and in a fresh process trains the vocabularies, tokenises into
the memory-mapped store and goes through one epoch of batches. Prints the peak of resident memory beyond what importing
torch alone takes; pages of the mapped files count too while they are in memory.
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1024  # MiB


def peak() -> float:
    """Most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_corpus(folder: Path, pairs: int) -> None:
    """Sentences of about 17 words from a vocabulary of 60,000 made-up words, as frequent as words are (Zipf's law)."""
    draw = random.Random(1)
    syllables = [first + second for first in "bcdfglmnprstv" for second in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(60_000)]
    odds = []
    total = 0.0
    for rank in range(len(words)):
        total += 1 / (rank + 3)
        odds.append(total)
    with (
        open(folder / "source", "w", encoding="utf-8") as source,
        open(folder / "target", "w", encoding="utf-8") as target,
    ):
        for _ in range(pairs):
            row = draw.choices(words, cum_weights=odds, k=draw.randint(4, 30))
            source.write(" ".join(row) + "\n")
            target.write(" ".join(word[::-1] for word in reversed(row)) + "\n")


def measure(folder: Path) -> None:
    """Prepare the corpus of `folder` and read it through; print the memory that each step has reached."""
    import torch  # noqa: F401 - its own memory is not ours

    from regard.data.batching import make_batch, plan_epoch
    from regard.data.files import prefetch
    from regard.data.pairs import PairEncoding
    from regard.data.prepare import Preparing, prepare
    from regard.data.settings import DataConfig

    start, begun = peak(), time.perf_counter()
    config = DataConfig(source=str(folder / "source"), target=str(folder / "target"))
    reached: dict[str, float] = {}
    prepared = prepare(
        PairEncoding(config),
        folder / "run",
        Preparing(lambda stage, done, total: reached.update({stage: peak() - start})),
    )
    for stage, memory in reached.items():
        print(f"  {stage:<12} {memory:8.0f} MiB")
    print(f"  prepared in {time.perf_counter() - begun:.0f} s: {prepared.tallies[0]}")
    begun, tokens = time.perf_counter(), 0
    plan = plan_epoch(prepared.train.source_lengths, prepared.train.target_lengths, 4096, seed=1, epoch=0)
    with prefetch(make_batch(prepared.train, plan[k]) for k in range(len(plan))) as stream:
        for batch in stream:
            tokens += int(batch.target_lengths.sum())
    print(f"  one epoch    {peak() - start:8.0f} MiB, {tokens / (time.perf_counter() - begun):,.0f} target tokens/s")
    verdict = "under" if peak() - start < LIMIT else "NOT under"
    print(f"peak beyond torch: {peak() - start:.0f} MiB, {verdict} {LIMIT} MiB")


def main() -> None:
    """Write the corpus here and measure in a separate process, whose memory the writing has not touched."""
    if len(sys.argv) == 3 and sys.argv[1] == "--measure":
        measure(Path(sys.argv[2]))
        return
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), pairs)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
        print(f"{pairs:,} pairs, {size:,.0f} MiB of text")
        subprocess.run([sys.executable, __file__, "--measure", folder], check=True)


if __name__ == "__main__":
    main()
