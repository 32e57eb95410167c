"""The files that configs/models.toml trains and tests on: python benchmarks/models_data.py ../shared/data runs/models

Tatoeba is split by English sentence, never by line: 1.2 % of the sentences are for testing, 0.4 % for validation. The
validation set is 200 pairs of Europarl's, 300 of newstest2013 and 300 of Tatoeba.
"""

import bz2
import hashlib
import sys
from pathlib import Path

Pairs = list[tuple[str, str]]


def read(path: Path) -> list[str]:
    """The lines of a packed file."""
    return bz2.open(path, "rt", encoding="utf-8", newline="\n").read().split("\n")[:-1]


def place(english: str) -> str:
    """The part that a sentence belongs to, by its hash."""
    number = int(hashlib.sha256(english.strip().encode()).hexdigest(), 16) % 1000
    return "test" if number < 12 else "dev" if number < 16 else "train"


def tatoeba(data: Path) -> dict[str, Pairs]:
    """The pairs of Tatoeba by part. For testing and validation an English sentence has its first translation only."""
    parts: dict[str, Pairs] = {"train": [], "test": [], "dev": []}
    for line in read(data / "tatoeba/eng-fra.tsv.bz2"):
        english, french = line.split("\t")[:2]
        parts[place(english)].append((english, french))
    first = {name: list(dict(reversed(parts[name])).items())[::-1] for name in ("test", "dev")}
    return {**parts, **first}


def write(folder: Path, name: str, pairs: Pairs) -> None:
    """Two files, line for line."""
    for side, language in enumerate(("en", "fr")):
        with bz2.open(folder / f"{name}.{language}.bz2", "wt", encoding="utf-8", newline="\n") as file:
            file.write("".join(pair[side] + "\n" for pair in pairs))


def main(data: Path, out: Path) -> None:
    """Split, and write."""
    out.mkdir(parents=True, exist_ok=True)
    parts = tatoeba(data)
    dev: Pairs = []
    for name, most in (("europarl.en-fr/dev", 200), ("newstest.en-fr/newstest2013", 300)):
        dev += list(zip(*(read(data / f"{name}.{side}.bz2") for side in ("en", "fr")), strict=True))[:most]
    write(out, "tatoeba.train", parts["train"])
    write(out, "tatoeba.test", parts["test"])
    write(out, "dev", dev + parts["dev"][:300])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
