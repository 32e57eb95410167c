"""Seconds that each attribution method takes for a sentence, with the included models: python benchmarks/attribution.py

One thread, CPU time, the median over sentences; a row for each method, beside the time of the translation itself. A
dash: the method is not defined for the model. With `--complete`, integrated gradients of a short sentence instead, by
the most gradients of one pass: the part of a token's log-probability that is divided by an estimate, and how much a
value changes with four times as many gradients; the largest of each.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

import regard
from regard.look.attribution import METHODS, attribute, methods_of
from regard.look.case import Case
from regard.symbols import END

MODELS = ("en-fr", "en-fr/bahdanau", "en-fr/cho")
SENTENCES = (
    "Where is the station?",
    "The children never go to school by bus.",
    "I would like to know when the next train to the city leaves.",
)


def median(act: Callable[[str], object]) -> str:
    """The median CPU time over the sentences."""
    seconds = []
    for sentence in SENTENCES:
        began = time.process_time()
        act(sentence)
        seconds.append(time.process_time() - began)
    return f"{statistics.median(seconds):.2f}"


def report_estimated() -> None:
    """How well integrated gradients are known, by the most gradients of one pass."""
    print("| model | gradients | seconds | divided | change |\n|---|---:|---:|---:|---:|")
    for name, text in (
        (name, "Le chat dort." if name == "fr-en" else "The cat sleeps.") for name in (*MODELS, "fr-en")
    ):
        one = regard.load(name)
        read, written = one.encode(text).ids, one.prefix_ids(one.translate(text).text)
        ids = torch.tensor([*read, END]), torch.tensor([*written, END])
        last, row = None, ""
        for steps in (12, 48, 192, 768):
            began = time.process_time()
            found = attribute(Case(one.model, *ids, steps=steps), "integrated-gradients")
            seconds = time.process_time() - began
            if last is not None:
                print(f"{row} {(found.values - last).abs().max():.3f} |", flush=True)
            assert found.gap is not None
            last, row = found.values, f"| {name} | {steps} | {seconds:.1f} | {found.gap.max():.3f} |"
        print(f"{row} - |", flush=True)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    if "--complete" in sys.argv:
        report_estimated()
        return
    translators = [regard.load(name) for name in MODELS]
    targets = [{text: one.translate(text, split=False).text for text in SENTENCES} for one in translators]  # warm up
    print(f"| | {' | '.join(MODELS)} |\n|---{'|---:' * len(MODELS)}|")
    times = [median(one.translate) for one in translators]
    print(f"| translate | {' | '.join(times)} |", flush=True)
    for method in METHODS:
        cells = []
        for one, known in zip(translators, targets, strict=True):
            act = partial(lambda one, known, method, text: one.attribute(text, known[text], method), one, known, method)
            cells.append(median(act) if method in methods_of(one.model) else "-")
        print(f"| {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
