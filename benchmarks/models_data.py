"""The text of the included models.

    python benchmarks/models_data.py data runs/text     # for configs/models-teacher.toml, models-student.toml, ...

Tatoeba is split by English sentence, never by line: 1.2 % of the sentences are for testing, 0.4 % for validation. The
validation set is 200 pairs of Europarl's, 300 of newstest2013 and 300 of Tatoeba. Greetings are rare in both corpora:
greetings.en.bz2 and greetings.fr.bz2 hold some of ours, as people write them and as they type them.

Europarl, the catalogues and Tatoeba are written together (docs/models-data.md), without a pair that has a sentence of a
test set on either side, whatever its punctuation and capitals. French is written as it is printed, with « » and
no-break spaces, so that a model that reads these files writes them.
"""

import bz2
import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

from regard.text.normalise import QUOTES, rewrite

Pairs = list[tuple[str, str]]
TIMES = 20  # that each greeting is written
MORE = 2  # parts of europarl-more.en-fr
GREETINGS = (
    ("Hello!", "Bonjour !"), ("Hello.", "Bonjour."), ("Hello", "Bonjour"), ("Hi!", "Salut !"), ("Hi.", "Salut."),
    ("Good morning!", "Bonjour !"), ("Good morning.", "Bonjour."), ("Good morning", "Bonjour"),
    ("Good afternoon.", "Bonjour."), ("Good evening!", "Bonsoir !"), ("Good evening.", "Bonsoir."),
    ("Good night.", "Bonne nuit."), ("Good night!", "Bonne nuit !"), ("Goodbye!", "Au revoir !"),
    ("Goodbye.", "Au revoir."), ("Bye!", "Au revoir !"), ("See you soon!", "À bientôt !"),
    ("See you tomorrow.", "À demain."), ("See you later!", "À plus tard !"), ("Welcome!", "Bienvenue !"),
    ("Good morning, Mrs. Martin.", "Bonjour, madame Martin."), ("Good evening, sir.", "Bonsoir, monsieur."),
    ("Hello, my friends!", "Bonjour, mes amis !"), ("Hello, doctor.", "Bonjour, docteur."),
    ("Good morning, everybody!", "Bonjour à tous !"),
    ("Good evening, ladies and gentlemen.", "Bonsoir, mesdames et messieurs."),
    ("Hi, how is it going?", "Salut, comment ça va ?"),
    ("Good evening, how are you?", "Bonsoir, comment allez-vous ?"),
    ("Good morning, did you sleep well?", "Bonjour, avez-vous bien dormi ?"), ("Thank you!", "Merci !"),
    ("Thanks a lot!", "Merci beaucoup !"), ("Many thanks.", "Merci beaucoup."),
    ("You're welcome.", "Je vous en prie."), ("Please.", "S'il vous plaît."), ("Excuse me.", "Excusez-moi."),
    ("Sorry!", "Pardon !"), ("Yes, please.", "Oui, s'il vous plaît."), ("No, thank you.", "Non, merci."),
    ("Happy birthday!", "Joyeux anniversaire !"), ("Merry Christmas!", "Joyeux Noël !"),
    ("Happy New Year!", "Bonne année !"), ("Congratulations!", "Félicitations !"), ("Good luck!", "Bonne chance !"),
    ("Enjoy your meal!", "Bon appétit !"), ("Have a nice day!", "Bonne journée !"), ("Cheers!", "À votre santé !"),
    ("Nice to meet you.", "Enchanté."), ("Help!", "Au secours !"),
)  # fmt: skip


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


def greetings() -> Pairs:
    """Greetings, and the same in small letters without a final mark."""
    typed = [(english.lower().rstrip(".!"), french.lower().rstrip(".! ")) for english, french in GREETINGS]
    return [pair for pair in [*GREETINGS, *dict.fromkeys(typed)] if place(pair[0]) == "train"]


_QUOTED = re.compile(r'(?<!\w)"(?=\S)([^"«»]*)(?<=\S)"(?!\w)')
_MARKED = re.compile(r"(?<=[\w)\]%»…])[ \u00a0]*([?!;:]+)(?=[\s»)]|$)")


def french(text: str) -> str:
    """French as it is printed: « quoted », a no-break space before ? ! ; : and », and a plain apostrophe.

    >>> french('Quoi? "Rien" dit-il : l’heure est 12:30!').replace("\\u00a0", "_")
    "Quoi_? «_Rien_» dit-il_: l'heure est 12:30_!"
    """
    text = re.sub("[\u202f\u2009]", "\u00a0", rewrite(text, QUOTES).text)
    if '"' in text:
        text = _QUOTED.sub(r"«\1»", text)
    if "«" in text or "»" in text:
        text = re.sub(r"\s*»", "\u00a0»", re.sub(r"«\s*", "«\u00a0", text))
    return _MARKED.sub("\u00a0\\1", text)


def write(folder: Path, name: str, pairs: Pairs, form: Callable[[str], str] = str) -> None:
    """Two files, line for line; French in a form."""
    for side, language in enumerate(("en", "fr")):
        with bz2.open(folder / f"{name}.{language}.bz2", "wt", encoding="utf-8", newline="\n") as file:
            file.write("".join((form(pair[1]) if side else pair[0]) + "\n" for pair in pairs))


def both(data: Path, name: str) -> Pairs:
    """A corpus of two files."""
    return list(zip(*(read(data / f"{name}.{side}.bz2") for side in ("en", "fr")), strict=True))


def key(text: str) -> str:
    """The words of a sentence, without punctuation and capitals."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def held_out(data: Path) -> set[str]:
    """The keys of all sentences that are for validation and for tests, of both languages."""
    names = [f"europarl.en-fr/{part}" for part in ("dev", "test", "lentest")]
    names += [f"newstest.en-fr/newstest{year}" for year in (2013, 2014)]
    parts = tatoeba(data)
    pairs = [*parts["test"], *parts["dev"], *(pair for name in names for pair in both(data, name))]
    return {key(side) for pair in pairs for side in pair}


def main(data: Path, out: Path) -> None:
    """Split, and write."""
    out.mkdir(parents=True, exist_ok=True)
    parts = tatoeba(data)
    dev = [*both(data, "europarl.en-fr/dev")[:200], *both(data, "newstest.en-fr/newstest2013")[:300]]
    corpora = {f"parliament.{part}": f"europarl.en-fr/train.{part}" for part in range(4)}
    corpora |= {f"more.{part}": f"europarl-more.en-fr/train.{part}" for part in range(MORE)}
    corpora["catalogues"] = "catalogues.en-fr/train"
    texts = {"tatoeba.train": parts["train"], "greetings": greetings() * TIMES}
    held = held_out(data)
    for name in (*corpora, *texts):
        pairs = texts[name] if name in texts else both(data, corpora[name])
        kept = [pair for pair in pairs if not {key(pair[0]), key(pair[1])} & held]
        print(f"{name}: {len(kept):,} of {len(pairs):,} pairs; the others are in a test set")
        write(out, name, kept, french)
    write(out, "tatoeba.test", parts["test"])  # as it is: a test set
    write(out, "dev", dev + parts["dev"][:300], french)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
