"""What comes through a translation unchanged: python benchmarks/copying.py [RUN] [--sentences 100]

Names that no corpus has, numbers, amounts of money, web and e-mail addresses in sentences of ours; printed is the share
that the translation has as it was (amounts: as in the other language), as a text and as a file (where addresses are
protected), by the model alone (nothing protected or read again), and how many of the losses are flagged.
"""

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import regard
from regard.api.files import translate_file
from regard.api.flags import lost_numbers

PARTS = ("ba", "cor", "dal", "fen", "gri", "hol", "jo", "kel", "lin", "mar", "nor", "pel", "ros", "san", "tor", "vin")
ENDS = ("den", "field", "kins", "low", "man", "nez", "rie", "son", "ton", "wick")


def name(draw: random.Random) -> str:
    return "".join([*draw.choices(PARTS, k=draw.randint(1, 2)), draw.choice(ENDS)]).capitalize()


def number(draw: random.Random) -> str:
    return str(draw.randint(10, 9999))


def amount(draw: random.Random) -> str:
    value = draw.choice((draw.randint(10, 99) + 0.99, draw.randint(1000, 99999), draw.randint(1000, 9999) + 0.5, 45))
    return draw.choice("$€£") + (f"{value:,}" if isinstance(value, int) else f"{value:,.2f}")


def address(draw: random.Random) -> str:
    host = f"{name(draw).lower()}.{draw.choice(('com', 'org', 'fr', 'eu'))}"
    return draw.choice((f"https://www.{host}/{name(draw).lower()}", f"{name(draw).lower()}@{host}"))


KINDS: dict[str, tuple[Callable[[random.Random], str], tuple[str, ...]]] = {
    "names": (name, ("Mrs. {} lives in London.", "I have not seen {} since Monday.", "The report of Mr. {} is good.")),
    "numbers": (number, ("We have {} members.", "The house was built in {}.", "There are {} books in this room.")),
    "amounts": (amount, ("It costs {} today.", "I paid {} for it.", "The ticket is {}.", "She earns {} a month.")),
    "addresses": (address, ("Please write to {} today.", "You can find the report at {} now.")),
}


def has(given: str, text: str, translation: str) -> bool:
    """Whether a translation has what was given; an amount is spelled as in the other language."""
    return given in translation or (given[0] in "$€£" and not lost_numbers(text, translation))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", default="en-fr")
    parser.add_argument("--sentences", type=int, default=100, help="of each kind")
    options = parser.parse_args()
    translator = regard.load(options.run, "cpu")
    draw = random.Random(1)
    for kind, (make, templates) in KINDS.items():
        given = [make(draw) for _ in range(options.sentences)]
        texts = [draw.choice(templates).format(one) for one in given]
        written = [one.text for one in translator.translate(texts)]
        flagged = [bool(lost_numbers(text, found)) for text, found in zip(texts, written, strict=True)]
        kept = [has(one, text, found) for one, text, found in zip(given, texts, written, strict=True)]
        alone = [one.text for one in translator.translate(texts, split=False)]  # read once, as `regard score` does
        first = sum(has(one, text, found) for one, text, found in zip(given, texts, alone, strict=True))
        lost = [flag for flag, good in zip(flagged, kept, strict=True) if not good]
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "in.txt", Path(folder) / "out.txt"
            source.write_text("\n".join(texts) + "\n", encoding="utf-8")
            translate_file(translator, source, target)
            lines = target.read_text(encoding="utf-8").split("\n")
        in_file = sum(has(one, text, line) for one, text, line in zip(given, texts, lines, strict=False))
        print(
            f"{kind:10} {sum(kept):4} of {len(kept)} kept as text, {in_file:4} in a file, "
            f"{first:4} by the model alone; {sum(lost)} of {len(lost)} losses flagged"
        )


if __name__ == "__main__":
    main()
