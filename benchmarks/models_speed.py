"""Source words per second of each included model on one core: python benchmarks/models_speed.py

Each model translates the everyday sentences of tests/everyday.toml, sixteen at a time, with a beam of 4, by torch and,
if it is a Transformer, by CTranslate2 in int8. Beside them a Transformer of the sizes of OPUS-MT's en-fr (6 + 6 layers,
width 512, 59,514 pieces) with random weights on the same two engines. Since it never ends a sentence, it stops at 1.1
pieces for each piece of the longest source of a batch (`en-fr` writes 1.09); the sentences of a batch have similar
lengths. All take turns; processor time is what counts, and wall time is shown beside it.
"""

import argparse
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from race import machine
from sentencepiece import sentencepiece_model_pb2

import regard
from regard.api.exporting import read_card
from regard.data.subwords import Subwords
from regard.data.vocabulary import Vocabulary
from regard.interop.ctranslate2 import open_engine
from regard.models.registry import build, preset
from regard.runs.included import find_run, shipped

OPUS = 59514  # pieces
BATCH, BEAM = 16, 4


def texts(language: str) -> list[str]:
    """The everyday sentences in a language by length, without those that are not read as plain text."""
    kinds = tomllib.loads((Path(__file__).parent.parent / "tests" / "everyday.toml").read_text(encoding="utf-8"))
    ways = next(kinds[way] for way in kinds if way.startswith(f"{language}-"))
    found = [one["text"] for kind in ways if kind not in ("capitals", "addresses") for one in ways[kind]]
    return sorted(found, key=lambda text: len(text.split()))


def opus_sized() -> Any:
    """A translator of the sizes of OPUS-MT with random weights. No text has pieces beyond those of `en-fr`."""
    found = regard.load("en-fr", "cpu")
    model = sentencepiece_model_pb2.ModelProto.FromString((find_run("en-fr") / "source.model").read_bytes())
    for number in range(OPUS - len(model.pieces)):
        model.pieces.add(piece=f"▁\ue000{number}", score=-1e9)
    found.source_vocabulary = found.target_vocabulary = Vocabulary(Subwords(model.SerializeToString()), "bpe")
    sizes = {"layers": 6, "decoder_layers": 6, "width": 512, "heads": 8, "inner": 2048, "tied": "all"}
    torch.manual_seed(1)
    config = replace(preset("transformer", "base"), source_vocabulary=OPUS, target_vocabulary=OPUS, **sizes)
    found.model = build("transformer", config).eval()
    return found


def engine_of(found: Any, kind: str) -> Any:
    """The same translator, by CTranslate2."""
    found.engine = open_engine(found.model, found.source_vocabulary, found.target_vocabulary, 1, kind)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="batches that each model translates")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lanes: dict[tuple[str, str], tuple[Callable[[list[str]], Any], str]] = {}
    for name in (*shipped(), ""):
        load: Callable[[], Any] = (lambda name=name: regard.load(name, "cpu")) if name else opus_sized
        limits = {} if name else {"max_ratio": 1.1, "max_extra": 0}
        own = load()
        large = sum(part.numel() for part in own.model.parameters())  # bytes as int8
        engines = {"torch": own}
        if own.experiment.name == "transformer":
            engines["CTranslate2 int8"] = engine_of(load(), "int8")
        for engine, found in engines.items():
            work = lambda batch, found=found, limits=limits: found.translate(batch, beam=BEAM, split=False, **limits)  # noqa: E731
            lanes[name, engine] = work, own.source_language
    spent = {lane: [0.0, 0.0, 0] for lane in lanes}
    for number in range(-1, options.rounds):
        for lane, (work, language) in lanes.items():
            lines = texts(language)
            start = (len(lines) - BATCH) * max(number, 0) // max(options.rounds - 1, 1)
            batch = lines[start : start + BATCH]
            before = time.process_time(), time.perf_counter()
            work(batch)
            if number >= 0:  # the first one warms up
                passed = time.process_time() - before[0], time.perf_counter() - before[1]
                words = sum(len(line.split()) for line in batch)
                spent[lane] = [old + new for old, new in zip(spent[lane], (*passed, words), strict=True)]
    print(f"{machine('cpu', 'cpu')}, batches of {BATCH}, beam {BEAM}, {options.rounds} rounds\n")
    print("| model | size | BLEU newstest2014 | torch | CTranslate2 int8 |\n|---|---|---|---|---|")
    for name in dict.fromkeys(name for name, _ in lanes):
        card = read_card(find_run(name)) if name else None
        size = f"{(card['bytes'] if card else large) / 2**20:.1f} MiB"
        bleu = f"{card['scores'][0]['small']['bleu']:.1f}" if card else "random weights"
        cells = [
            f"{spent[key][2] / spent[key][0]:.0f} ({spent[key][2] / spent[key][1]:.0f})" if key in spent else "–"
            for key in ((name, "torch"), (name, "CTranslate2 int8"))
        ]
        print(f"| {f'`{name}`' if name else 'sizes of OPUS-MT'} | {size} | {bleu} | {' | '.join(cells)} |")
    print("\nSource words per second of processor time (of wall time).")


if __name__ == "__main__":
    main()
