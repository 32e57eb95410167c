"""Kernels compiled while a corpus is prepared: another process makes one update with random sentences.

Triton compiles a kernel when it is first used and keeps it on disk. For a Transformer that takes about ten seconds.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.data.batching import Batch
from regard.data.prepare import Data
from regard.errors import little_memory
from regard.models.registry import build
from regard.symbols import END
from regard.training.distributed import Ranks
from regard.training.experiment import KINDS, Experiment, resolve
from regard.training.update import MicroBatch, Update, arithmetic

LENGTH = 32  # of each random sentence, END counted
_MAIN = "import sys; sys.path[:] = sys.argv[2:]; from regard.training.rehearsal import main; main(sys.argv[1])"


@contextmanager
def compiling(experiment: Experiment, device: torch.device) -> Iterator[None]:
    """While the block runs, compile the kernels that `experiment` needs on a GPU, if this machine has compiled none.

    What the other process cannot do is left to the first update, and so is what it has not done in time.
    """
    if device.type != "cuda" or experiment.task != "translate" or has_kernels() or little_memory():
        yield
        return
    with tempfile.TemporaryFile() as settings:
        settings.write(experiment.toml().encode())
        settings.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, str(device), *sys.path], stdin=settings, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


def has_kernels() -> bool:
    """Whether Triton has compiled anything for this user."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
    return folder.is_dir() and any(folder.iterdir())


def main(device: str) -> None:
    """The other process."""
    rehearse(resolve(tomllib.loads(sys.stdin.read())), torch.device(device))


def rehearse(experiment: Experiment, device: torch.device) -> None:
    """One update of a fresh model."""
    words, config = experiment.data.vocabulary, dataclasses.replace(experiment.train, guided=0.0)  # there are no links
    sizes = {"source_vocabulary": words, "target_vocabulary": words}
    model = build(experiment.name, dataclasses.replace(experiment.model, **sizes)).to(device)
    data = Data(encoding=None, train=None, dev=None, shown=[], tallies=[], fingerprint="", notes=[])
    task = KINDS[experiment.task].task(data, config, experiment.decode, Path())
    task.ready(model)
    batch = random_batch(words, max(1, config.batch_tokens // LENGTH))
    part = MicroBatch([], task.even(batch, 1), *task.count(batch))
    with arithmetic(config.precision):
        Update(model, config, Ranks(device))(task, [part], config.rate, lambda: (False, False)).cpu()


def random_batch(words: int, rows: int) -> Batch:
    """`rows` sentences of `LENGTH` ids."""
    source, target = (torch.randint(END + 1, words, (rows, LENGTH)) for _ in range(2))
    source[:, -1] = target[:, -1] = END
    lengths = torch.full((rows,), LENGTH)
    return Batch(torch.arange(rows), source, lengths, target, lengths)
