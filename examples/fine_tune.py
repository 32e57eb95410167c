"""Fine-tune a translator on a translation memory: python examples/fine_tune.py RUN MEMORY OUT [SETTING ...]

MEMORY is a TMX, XLIFF or PO file; the model and the vocabulary of RUN are taken over.
"""

import sys

import regard


def main(run: str, memory: str, out: str, *settings: str) -> None:
    """Train on and compare a sentence before and after."""
    before = regard.load(run)
    languages = [f"data.source_language={before.source_language}", f"data.target_language={before.target_language}"]
    after = regard.train(out=out, tmx=memory, settings=[f"train.start_from={run}", *languages, *settings])
    sentence = "Where is the station?"
    print(f"before: {before.translate(sentence)}\nafter:  {after.translate(sentence)}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
