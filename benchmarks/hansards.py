r"""The text of the alignment error rate: Europarl in the words of the Hansards, and the 200 Hansards pairs themselves.

    python benchmarks/hansards.py data runs/hansards --pairs 60000

Writes PREFIX.source (English) and PREFIX.target (French) for the prefixes `europarl`, `odd`, `even` and `all`, the
last three with PREFIX.gold; `both` is `europarl` with `all` after it, as an aligner reads it. With `--everything`,
`everything` is all that the included models were trained on, Europarl and Tatoeba, with `all` after it.

The Hansards separate punctuation and hyphens, undo elisions and contractions (`l'accord` is `le accord`, `aux` is
`à les`) and write the first word of a sentence small, so that is done to Europarl too.
"""

import argparse
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from regard.text.lines import read_lines

ELISIONS = re.compile(r"\b([ldnscjmt]|\w*qu)['’]\s*(?=\w)", re.IGNORECASE)
CONTRACTIONS = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
CONTRACTED = re.compile(rf"\b({'|'.join(CONTRACTIONS)})\b(?!-)", re.IGNORECASE)
EUPHONIC = re.compile(r"-t-(?=(?:ils?|elles?|on)\b)")  # `proposera-t-il`
TITLES = ("Mr.", "Mrs.", "Ms.", "Dr.", "M.", "hon.", "p.m.", "a.m.")
TOKENS = re.compile(
    rf"(?<!\w)(?:{'|'.join(map(re.escape, TITLES))})|\d+(?:[.,]\d+)*|['’]s\b|\w+['’](?=hui)|\w+|--|\.{{3}}|\S"
)


def split(text: str) -> str:
    """Words and marks separated by blanks; the first word begins small, a title excepted."""
    words = TOKENS.findall(text.replace("’", "'"))
    if words and words[0] not in TITLES:
        words[0] = words[0][:1].lower() + words[0][1:]
    return " ".join(words)


def split_french(text: str) -> str:
    """The same, after elisions and contractions are undone."""
    whole = CONTRACTED.sub(lambda found: CONTRACTIONS[found[1].lower()], ELISIONS.sub(r"\1e ", text))
    return split(EUPHONIC.sub(" ", whole))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of europarl.en-fr and hansards.en-fr")
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=60000, help="of train.0, the first that are short enough")
    parser.add_argument("--words", type=int, default=40, help="of either side, at most")
    parser.add_argument("--everything", action="store_true", help="also write `everything`, 960,000 pairs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    fit = list(islice((pair for pair in europarl(given.data, 0) if fits(pair, given.words)), given.pairs))
    if len(fit) < given.pairs:
        raise SystemExit(f"train.0 has only {len(fit)} pairs of at most {given.words} words.")
    hansards = given.data / "hansards.en-fr"
    gold = list(read_lines(hansards / "dev.gold.bz2"))
    lines = [line.partition(" ||| ") for line in read_lines(hansards / "dev.text.bz2")]
    tests = [(" ".join(english.split()), " ".join(french.split())) for english, _, french in lines]
    write(given.out / "europarl", fit)
    write(given.out / "both", fit + tests)
    if given.everything:
        short = (line.split("\t") for line in read_lines(given.data / "tatoeba" / "eng-fra.tsv.bz2"))
        tatoeba = ((split(line[0]), split_french(line[1])) for line in short)
        parts = (*(europarl(given.data, number) for number in range(4)), tatoeba)
        write(given.out / "everything", [pair for part in parts for pair in part if fits(pair, 150)] + tests)
    for name, places in (("all", slice(None)), ("odd", slice(0, None, 2)), ("even", slice(1, None, 2))):
        write(given.out / name, tests[places], gold[places])


def europarl(data: Path, number: int) -> Iterator[tuple[str, str]]:
    """The pairs of one part of Europarl, in the words of the Hansards."""
    sides = (read_lines(data / "europarl.en-fr" / f"train.{number}.{side}.bz2") for side in ("en", "fr"))
    return ((split(source), split_french(target)) for source, target in zip(*sides, strict=True))


def fits(pair: tuple[str, str], most: int) -> bool:
    """Whether both sides have words, and not too many of them."""
    return all(1 <= len(side.split()) <= most for side in pair)


def write(prefix: Path, pairs: list[tuple[str, str]], gold: list[str] | None = None) -> None:
    """PREFIX.source, PREFIX.target and, where there are links, PREFIX.gold."""
    sides = {
        "source": [one for one, _ in pairs],
        "target": [two for _, two in pairs],
        **({"gold": gold} if gold else {}),
    }
    for side, lines in sides.items():
        prefix.with_suffix(f".{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
