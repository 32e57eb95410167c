"""Seconds that each attribution method takes for a sentence, with the included models: python benchmarks/attribution.py

One thread, CPU time, the median over sentences; a row for each method, beside the time of the translation itself. A
dash: the method is not defined for the model.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import regard
from regard.look.attribution import METHODS, methods_of

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


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
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
