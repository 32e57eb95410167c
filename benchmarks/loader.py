"""How fast batches of sentence pairs are loaded for training, with and without sampled segmentations, on one core.

    python benchmarks/loader.py configs/multi30k-transformer.toml [data.sampling=0.1 train.batch_tokens=4096 ...]

Prints for each epoch the batches that are loaded per second of processor time; the different shapes of batches so far,
for each of which a GPU records its update (padded, and with sentences end to end as in bfloat16); and what share of the
padded batches holds words.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from regard.config import load_toml, override, read
from regard.data.pairs import PairEncoding
from regard.data.prepare import prepare
from regard.data.settings import DataConfig
from regard.decode.settings import DecodeConfig
from regard.runs.settings import TrainConfig
from regard.training.translation import TranslationTask

EPOCHS = 3


def main(path: str, *settings: str) -> None:
    tables = override(load_toml(Path(path)), *settings)
    config, tokens = read(DataConfig, tables["data"], "data"), tables["train"].get("batch_tokens", 4096)
    sampling = config.sampling or 0.1
    print(f"{'sampling':>8}{'epoch':>7}{'batches':>9}{'a second':>10}{'padded shapes':>15}{'packed':>8}{'words':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for amount in (0.0, sampling):
            data = prepare(PairEncoding(replace(config, sampling=amount)), Path(folder) / "run")
            task = TranslationTask(data, TrainConfig(batch_tokens=tokens), DecodeConfig(), Path(folder) / "run")
            shapes: tuple[set, set] = set(), set()  # padded, and end to end
            for epoch in range(EPOCHS):
                plan, seconds, words, room = task.plan(epoch, even=True), 0.0, 0, 0
                for numbers in plan:
                    began = time.thread_time()
                    batch = task.load(numbers.tolist(), epoch)
                    seconds += time.thread_time() - began
                    for task.packs in (True, False):
                        even = task.even(batch, 1)
                        shapes[task.packs].add(tuple(part.shape for part in even))
                    words += int(batch.source_lengths.sum() + batch.target_lengths.sum())
                    room += even.source.numel() + even.target.numel()
                print(
                    f"{amount:8}{epoch:7}{len(plan):9}{len(plan) / seconds:10.1f}{len(shapes[0]):15}{len(shapes[1]):8}"
                    f"{words / room:7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
