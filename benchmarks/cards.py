"""Score the models that ship, as they are in models/, and write their cards again.

    python benchmarks/cards.py data                       # all of them
    python benchmarks/cards.py data en-fr/bahdanau --device cuda

newstest2014, the Europarl test set and the held-out part of Tatoeba are translated whole with the shipped (int8)
weights, beam 4; the scores of the float32 weights stay as `benchmarks/ship.py` wrote them. The everyday sentences are
translated again. `--check` compares with the cards and changes nothing.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from models_data import Pairs, read, tatoeba
from ship import BEAM, everyday, write_card

import regard
from regard.api.exporting import read_card
from regard.evaluate.scores import score
from regard.runs.included import FOLDERS, find_run, shipped


def main() -> None:
    """Score, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of corpora")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models: {', '.join(FOLDERS)}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a score differs by 0.05")
    given = parser.parse_args()
    sets, differing = read_sets(given.data), False
    for name in given.names or shipped():
        folder = find_run(name)
        card, translator = read_card(folder), regard.load(name, given.device)
        for one in card["scores"]:
            before, now = one["small"], scores_of(translator, sets[one["name"]])
            print(f"{name} {one['name']}: {now}, in the card {before}, float32 {one.get('float')}", flush=True)
            differing = differing or any(abs(now[metric] - before[metric]) >= 0.05 for metric in now)
            one["small"] = now
        card["sentences"] = everyday(translator)
        if not given.check:
            write_card(folder, card)
    sys.exit(1 if given.check and differing else 0)


def read_sets(data: Path) -> dict[str, Pairs]:
    """The three test sets, English first, by their names in the cards."""

    def both(name: str) -> Pairs:
        return list(zip(*(read(data / f"{name}.{side}.bz2") for side in ("en", "fr")), strict=True))

    held = tatoeba(data)["test"]
    return {
        "newstest2014": both("newstest.en-fr/newstest2014"),
        "europarl": both("europarl.en-fr/test"),
        "tatoeba": held,
    }


def scores_of(translator: Any, pairs: Pairs) -> dict[str, float]:
    """BLEU and chrF of a whole set."""
    english, french = (list(side) for side in zip(*pairs, strict=True))
    sources, references = (english, french) if translator.source_language == "en" else (french, english)
    written = [one.text for one in translator.translate(sources, beam=BEAM, split=False)]
    return {
        one.name.lower(): round(one.value, 2) for one in score(written, references, metrics=["bleu", "chrf"]).scores
    }


if __name__ == "__main__":
    main()
