"""What to expect of `regard train --minutes`: one row of a table for each size of corpus.

    python benchmarks/expect.py data --pairs 1000 10000 100000 1000000
    OMP_NUM_THREADS=2 taskset -c 0,1 python benchmarks/expect.py data --pairs 1000 10000 --device cpu
    python benchmarks/expect.py data --start-from en-fr --minutes 3 --pairs 2000

Pairs are random pairs of Tatoeba English-French; more than it has are completed with Europarl. The test set is 1,000
Tatoeba sentences whose English side is in no training pair. With --start-from, the corpus is Multi30k (captions of
photographs), a narrow domain that no model of regard was trained on, and a row before training is printed as well.
DATA needs tatoeba/eng-fra.tsv.bz2, and for some rows europarl.en-fr/train.*.bz2 or multi30k/. Beam 5, sacreBLEU 13a.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from models_data import Pairs, read, tatoeba

import regard
from regard.evaluate.scores import ScoreReport

ROOT = Path(__file__).resolve().parent.parent
TESTED, BEAM = 1000, 5
HEAD = "| pairs | model | updates | BLEU | chrF | seconds | device, load before |\n|---|---|---|---|---|---|---|"


def main() -> None:
    """Train and score each size, and print its row."""
    given = arguments()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    if given.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no GPU here that torch can use; leave --device out.")
    where = "cuda" if given.device != "cpu" and torch.cuda.is_available() else "cpu"
    work = Path(tempfile.mkdtemp(prefix="expect-", dir=given.work))
    everything, test = captions(given.data) if given.start_from else sentences(given.data, max(given.pairs))
    print(HEAD, flush=True)
    if given.start_from:
        before = regard.load(given.start_from, where).score(*zip(*test, strict=True), beam=BEAM)
        print(f"| 0 | {given.start_from} | 0 | {numbers(before)} | 0 | |", flush=True)
    for pairs in given.pairs:
        chosen = everything[:pairs]
        for side, language in enumerate(("en", "fr")):
            lines = "".join(pair[side] + "\n" for pair in chosen)
            (work / f"{pairs}.{language}").write_text(lines, encoding="utf-8", newline="\n")
        files = ["--source", f"{work / str(pairs)}.en", "--target", f"{work / str(pairs)}.fr"]
        run, start = work / f"run-{pairs}", ["--start-from", given.start_from] if given.start_from else []
        load, began = os.getloadavg()[0], time.monotonic()
        command = [sys.executable, "-m", "regard", "train", *files, *start, "--minutes", str(given.minutes)]
        subprocess.run([*command, "--out", run], env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        translator = regard.load(run, where)
        model = translator.experiment.model
        kind = f"{translator.experiment.name} {model.layers} x {model.width}"
        device = torch.cuda.get_device_name() if where == "cuda" else f"cpu, {torch.get_num_threads()} threads"
        scores = numbers(translator.score(*zip(*test, strict=True), beam=BEAM))
        row = [f"{len(chosen):,}", kind, f"{updates(run):,}", scores, f"{seconds:.0f}", f"{device}, {load:.1f}"]
        print("| " + " | ".join(row) + " |", flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of corpora")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--start-from", default="", help="model or run to start from")
    parser.add_argument(
        "--work", type=Path, default=None, help="folder for corpora and runs (default: a temporary one)"
    )
    return parser.parse_args()


def sentences(data: Path, most: int) -> tuple[Pairs, Pairs]:
    """Pairs to train on, Tatoeba's first, in random order, and the test set."""
    parts = tatoeba(data)
    for pairs in parts.values():
        random.Random(1).shuffle(pairs)
    train = parts["train"]
    if most > len(train):
        train += europarl(data / "europarl.en-fr")
    return train, parts["test"][:TESTED]


def europarl(folder: Path) -> Iterator[tuple[str, str]]:
    """The pairs of Europarl."""
    for number in range(4):
        yield from zip(*(read(folder / f"train.{number}.{side}.bz2") for side in ("en", "fr")), strict=True)


def captions(data: Path) -> tuple[Pairs, Pairs]:
    """The pairs of Multi30k, and its test set."""

    def both(part: str) -> Pairs:
        return list(zip(*(read(data / "multi30k" / f"{part}.{side}.bz2") for side in ("en", "fr")), strict=True))

    return both("train"), both("test_2016_flickr")


def numbers(report: ScoreReport) -> str:
    """BLEU and chrF as two cells."""
    values = {one.name.lower(): one.value for one in report.scores}
    return f"{values['bleu']:.1f} | {values['chrf']:.1f}"


def updates(run: Path) -> int:
    """The updates of a run."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return max(json.loads(line)["step"] for line in lines)


if __name__ == "__main__":
    main()
