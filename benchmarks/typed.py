"""How much typing errors cost: python benchmarks/typed.py data [RUN ...] [--device cuda]

BLEU and chrF of English-to-French runs (default: the included ones) on the held-out part of Tatoeba, as it is and with
the typing errors of benchmarks/models_data.py, drawn with another seed than those of the training text; beam 4.
"""

import argparse
import random
from pathlib import Path

from models_data import tatoeba, typed
from ship import BEAM

import regard
from regard.evaluate.scores import score
from regard.runs.included import shipped


def main() -> None:
    """Translate both, and score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of corpora")
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    chance = random.Random(2)
    pairs = tatoeba(given.data)["test"]
    clean, references = ([pair[side] for pair in pairs] for side in (0, 1))
    hasty = [typed(text, chance) for text in clean]
    changed = sum(one != other for one, other in zip(clean, hasty, strict=True))
    print(f"{changed:,} of {len(clean):,} sentences have typing errors")
    for name in given.runs or [run for run in shipped() if run.startswith("en-fr")]:
        translator = regard.load(name, given.device)
        for kind, texts in (("clean", clean), ("typed", hasty)):
            written = [one.text for one in translator.translate(texts, beam=BEAM, split=False)]
            scores = score(written, references, metrics=["bleu", "chrf"]).scores
            print(f"{name} {kind}: {', '.join(f'{one.name} {one.value:.1f}' for one in scores)}", flush=True)


if __name__ == "__main__":
    main()
