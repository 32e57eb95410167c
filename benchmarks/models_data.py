"""The files that configs/models.toml trains and tests on: python benchmarks/models_data.py data runs/models

Tatoeba is split by English sentence, never by line: 1.2 % of the sentences are for testing, 0.4 % for validation. The
validation set is 200 pairs of Europarl's, 300 of newstest2013 and 300 of Tatoeba. Greetings are rare in both corpora:
greetings.en.bz2 and greetings.fr.bz2 hold some of ours, as people write them and as they type them.
"""

import bz2
import hashlib
import sys
from pathlib import Path

Pairs = list[tuple[str, str]]
TIMES = 20  # that each greeting is written
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
    write(out, "greetings", greetings() * TIMES)
    write(out, "tatoeba.test", parts["test"])
    write(out, "dev", dev + parts["dev"][:300])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
