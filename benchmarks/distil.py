"""Translate whole files with a teacher, for sequence-level distillation and interpolation (Kim and Rush 2016).

    python benchmarks/distil.py runs/teacher runs/text/tatoeba.train.en.bz2 --out runs/distilled

writes runs/distilled/tatoeba.train.en: line n is the greedy translation of line n, and empty for a line of more than
`--longest` tokens or beyond the time limit, which no student reads, and for a translation that is held out: one of
`--held-out`, whatever its punctuation and capitals. With `--nearest fr`, it is the one of a beam of 4
that is most like the reference, line n of runs/text/tatoeba.train.fr.bz2 (sequence-level interpolation).

`regard translate --on local` also splits lines into sentences, keeps addresses and flags problems; this script only
decodes, in batches of few sizes, so that captured steps serve them all: 19,000 sentences per second on one H200 for two
Transformers of base width at once, greedily; 9,000 with beams of 4, for the two included ones.
"""

import argparse
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import torch
from models_data import key, read

import regard
from regard.data.batching import pad
from regard.decode.search import decode
from regard.decode.settings import DecodeConfig
from regard.symbols import END

TOKENS = 16384  # source tokens of a batch, padding counted, for each translation in the beam
LINES = 16384  # lines of a task: each has a few batches that are not full
STEP = 16  # widths of batches are multiples of it
BEAM = 4  # translations to choose from
T = TypeVar("T")
TEACHER: list[regard.Translator] = []  # of this process


def parts(rows: list[T], size: int) -> Iterator[list[T]]:
    """Consecutive parts of `size` rows; the last one may be shorter."""
    return (rows[first : first + size] for first in range(0, len(rows), size))


def begin(run: str, device: str) -> None:
    """Load the teacher into a worker."""
    torch.set_num_threads(1)
    TEACHER[:] = [regard.load(run, device=device)]


def likeness(written: Sequence[int], reference: Sequence[int]) -> float:
    """BLEU of one sentence, with one added to the counts of two to four tokens (Lin and Och 2004).

    >>> likeness([5, 6, 7], [5, 6, 7]), round(likeness([5, 6, 8], [5, 6, 7]), 2), likeness([8], [5, 6, 7])
    (1.0, 0.69, 0.0)
    """
    logarithms = min(0.0, 1 - len(reference) / max(1, len(written)))  # the brevity penalty
    for size in range(1, 5):
        counts, wanted = (
            Counter(zip(*(ids[first:] for first in range(size)), strict=False)) for ids in (written, reference)
        )
        extra = int(size > 1)
        found = sum((counts & wanted).values()) + extra
        if not found:
            return 0.0
        logarithms += math.log(found / (max(0, len(written) - size + 1) + extra)) / 4
    return math.exp(logarithms)


def translate(lines: list[str], references: list[str], longest: int) -> list[str]:
    """The translations of `lines`, in their order: greedy ones, or those of a beam that are most like `references`."""
    teacher, device = TEACHER[0], TEACHER[0].device
    beam = BEAM if references else 1
    precision = "bf16" if device.type == "cuda" else "float32"
    config = DecodeConfig(beam=beam, nbest=beam, precision=precision)
    rows = teacher.source_vocabulary.encode_many(lines, end=True)
    wanted = teacher.target_vocabulary.encode_many(references)
    written = [""] * len(lines)

    def width(row: int) -> int:
        return -(-len(rows[row]) // STEP) * STEP

    chosen = sorted((row for row in range(len(rows)) if rows[row] != [END] and len(rows[row]) <= longest), key=width)
    for size, some in groupby(chosen, width):
        for batch in parts(list(some), max(1, TOKENS // (size * beam))):
            source, lengths = pad([rows[row] for row in batch])
            for row, found in zip(batch, decode(teacher.model, source.to(device), lengths, config), strict=True):
                best = max(found, key=lambda one: likeness(one.ids, wanted[row])) if references else found[0]
                written[row] = " ".join(teacher.target_vocabulary.decode(best.ids).split("\n"))
    return written


def tasks(path: Path, nearest: str) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of a packed file and their references (if a language is given), a task at a time."""
    lines = read(path)
    references = read(path.with_suffix("").with_suffix(f".{nearest}.bz2")) if nearest else lines
    if len(references) != len(lines):
        raise SystemExit(f"{path} has {len(lines)} lines and its references have {len(references)}.")
    for some, wanted in zip(parts(lines, LINES), parts(references, LINES), strict=True):
        yield some, wanted if nearest else []


def main() -> None:
    """Translate each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("files", type=Path, nargs="+", help="packed by bzip2")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nearest", default="", metavar="LANGUAGE", help="language of the references (default: none)")
    parser.add_argument("--held-out", type=Path, help="packed file of sentences that no translation may be")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=1e6, help="time limit: lines beyond it stay empty")
    parser.add_argument("--longest", type=int, default=121, help="tokens of a line, END counted")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    held = set(map(key, read(given.held_out))) if given.held_out else set()
    context, settings = multiprocessing.get_context("spawn"), (given.run, given.device)
    with ProcessPoolExecutor(given.workers, context, begin, settings) as pool:
        began, total = time.monotonic(), 0
        waiting = {
            path: [
                (some, pool.submit(translate, some, wanted, given.longest))
                for some, wanted in tasks(path, given.nearest)
            ]
            for path in given.files
        }
        for path, results in waiting.items():
            with open(given.out / path.stem, "w", encoding="utf-8", newline="\n") as out:
                for some, result in results:
                    over = time.monotonic() - began > 60 * given.minutes and result.cancel()
                    written = [""] * len(some) if over else result.result()
                    written = ["" if key(line) in held else line for line in written]
                    total += sum(map(bool, written))
                    out.writelines(line + "\n" for line in written)
            print(f"{path.name}: {total} translations so far, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
