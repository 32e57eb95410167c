"""Translating by CTranslate2 beside regard's own search, on the Transformer that ships: python benchmarks/engines.py

The sentences are generated (the corpus `phrasebook`). Speeds are measured in turns in one run; then both translate the
same sentences once more, and what differs is counted. `--clock cpu --threads 1` is for a machine with other work.
"""

import argparse

import torch
from race import Lane, machine, race, report, translates

import regard
from regard.corpora.registry import find_builtin
from regard.evaluate.scores import score
from regard.interop.ctranslate2 import open_engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="en-fr", help="a run whose model is a Transformer")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made = find_builtin("phrasebook")
    pairs = made.generate(options.sentences, 7, 6, 14)
    texts = [pair.source for pair in pairs]
    own = regard.load(options.run, "cpu")
    engines = {}
    for kind in ("int8", "float32"):
        engines[kind] = regard.load(options.run, "cpu")
        vocabularies = own.source_vocabulary, own.target_vocabulary
        engines[kind].engine = open_engine(own.model, *vocabularies, options.threads, kind)
    print(f"{options.run}: {machine('cpu', options.clock)}")
    for batch, beam in ((1, 1), (1, 5), (32, 1), (32, 5)):
        lanes = [
            Lane(f"ctranslate2 {kind}", translates(engine, texts, batch, beam)) for kind, engine in engines.items()
        ]
        peers = [Lane("regard", translates(own, texts, batch, beam))]
        race(lanes + peers, options.rounds, options.clock)
        report(f"batch {batch}, {'greedy' if beam == 1 else f'beam {beam}'}", "sentences", lanes, peers)
    print(f"\n{len(texts)} sentences, beam 5: how many translations are the same, and BLEU against the references")
    references = [pair.target for pair in pairs]
    expected = [one.text for one in own.translate(texts, split=False)]
    print(f"  {'regard':<20} {score(expected, references, metrics=['bleu'])}")
    for kind, engine in engines.items():
        written = [one.text for one in engine.translate(texts, split=False)]
        same = sum(mine == theirs for mine, theirs in zip(expected, written, strict=True))
        print(
            f"  ctranslate2 {kind:<8} {score(written, references, metrics=['bleu'])}; {same} of {len(texts)} the same"
        )


if __name__ == "__main__":
    main()
