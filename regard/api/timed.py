"""Settings for a training that must fit into some minutes: model, vocabulary, batches and schedule, from the size of
the corpus and a short measurement of the device."""

import dataclasses
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch

from regard.config import read
from regard.data.pairs import find_corpus
from regard.data.settings import DataConfig
from regard.errors import ConfigError, DataError
from regard.models.registry import build, preset
from regard.training.start import choose_device

SIZES = ((1, 32), (2, 48), (2, 64), (2, 96), (2, 128), (3, 192), (3, 256), (4, 384), (6, 512))  # layers, width
# The most pairs, and the size of the vocabulary for them.
VOCABULARIES = ((1_500, 1_000), (6_000, 2_000), (60_000, 4_000), (400_000, 8_000), (float("inf"), 16_000))
PIECE = 3.6  # characters of a piece, on average
PER_WEIGHT, EPOCHS = 4, 8  # tokens that a weight wants to see, or epochs, whichever is less: a larger model is too slow
UPDATES = 2000  # that are wanted at least, which decides the batch
COUNTED = 2_000_000  # pairs that are counted
BATCH = {"cpu": (1024, 384, 4096), "cuda": (8192, 1024, 24576)}  # tokens of a batch: measured, least, most
MEASURE = 0.05  # share of the time that measuring may take


class CorpusSize(NamedTuple):
    """How large a corpus is."""

    pairs: int
    length: float  # pieces of a target sentence, on average


def choose(data: Mapping[str, Any], minutes: float, device: str = "auto") -> tuple[dict[str, Any], list[str]]:
    """The [data], [model] and [train] settings of a training of `minutes` on the corpus that `data` names, and why."""
    if not 0 < minutes < 1e6:
        raise ConfigError(f"--minutes is the time that training may take, above 0; got {minutes}.")
    config, where = read(DataConfig, data, "data"), choose_device(device)
    size = count(config)
    vocabulary = next(most for pairs, most in VOCABULARIES if size.pairs < pairs)
    seconds = minutes * 60 * 0.85  # the rest goes to preparation, validation and the end
    kind = "cuda" if where.type == "cuda" else "cpu"
    tokens, least, most = BATCH[kind]
    layers, width, speed, weights = fastest_fit(size, vocabulary, seconds, where, tokens)
    seen = speed * seconds
    epochs = seen / (size.pairs * size.length)
    batch = int(min(most, max(least, seen / UPDATES)))
    updates = max(1, int(seen / batch))
    model = {
        "name": "transformer", "preset": "tiny", "norm": "pre", "layers": layers, "width": width,
        "heads": heads_of(width), "inner": 4 * width,
        "dropout": 0.0 if epochs < 3 else 0.1 if epochs < 8 else 0.2 if epochs < 25 else 0.3,
    }  # fmt: skip
    train = {
        "minutes": minutes, "epochs": 0, "batch_tokens": batch, "schedule": "cosine", "warmup": min(400, updates // 10),
        "rate": 0.003 if width <= 128 else 0.002 if width <= 256 else 0.001, "beta2": 0.98, "label_smoothing": 0.1,
        "clip": 1.0, "validate_every": max(1, updates // 4), "validate_sentences": 200 if minutes >= 2 else 50,
        "save_every": max(1, updates // 4), "keep": 1, "precision": "bf16" if kind == "cuda" else "float32",
        "device": device,
    }  # fmt: skip
    reasons = [
        f"chosen for {size.pairs:,} pairs of about {size.length:.0f} pieces and {minutes:g} minutes on {where.type}:",
        f"a Transformer of {layers} layers and width {width}, {weights:,} weights: the largest of {len(SIZES)} sizes "
        f"that can see {PER_WEIGHT} pieces for each weight, or {EPOCHS} epochs, in that time ({speed:,.0f} pieces a "
        f"second measured)",
        f"a joint vocabulary of {vocabulary:,} pieces; batches of {batch:,}, about {updates:,} updates and "
        f"{epochs:.1f} epochs",
        f"a learning rate of {train['rate']:g} that falls to zero when the time is up; dropout {model['dropout']:g}",
    ]
    pieces = {"vocabulary": vocabulary, "joint": True, "max_length": 100}
    return {"data": pieces, "model": model, "train": train}, reasons


def count(config: DataConfig) -> CorpusSize:
    """The size of a corpus, from its text."""
    pairs = letters = 0
    for pair in islice(find_corpus(config), COUNTED):
        pairs += 1
        letters += len(pair.target)
    if not pairs:
        raise DataError("There is nothing to train on: the corpus has no pair.")
    return CorpusSize(pairs, max(2.0, letters / pairs / PIECE + 1))


def fastest_fit(
    size: CorpusSize, vocabulary: int, seconds: float, device: torch.device, tokens: int
) -> tuple[int, int, float, int]:
    """Layers, width, pieces a second and weights of the largest model that can learn enough in `seconds`."""
    began = time.monotonic()
    best: tuple[int, int, float, int] | None = None
    for layers, width in SIZES:
        speed, weights = measure(layers, width, vocabulary, max(3, int(size.length)), tokens, device)
        enough = min(PER_WEIGHT * weights, EPOCHS * size.pairs * size.length)
        if best is not None and speed * seconds < enough:
            break
        best = layers, width, speed, weights
        if time.monotonic() - began > MEASURE * seconds:
            break
    assert best is not None
    return best


def measure(
    layers: int, width: int, vocabulary: int, length: int, tokens: int, device: torch.device
) -> tuple[float, int]:
    """Target pieces a second in training a Transformer of this size, and its weights outside the vocabulary."""
    config = dataclasses.replace(
        preset("transformer", "tiny"), layers=layers, width=width, heads=heads_of(width), inner=4 * width, norm="pre",
        source_vocabulary=vocabulary, target_vocabulary=vocabulary,
    )  # fmt: skip
    model = build("transformer", config).to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6)
    rows = max(1, tokens // length)
    ids = torch.randint(4, vocabulary, (rows, length), device=device)
    lengths = torch.full((rows,), length, device=device)
    taken = []
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.monotonic()
        logits = model(ids, lengths, ids)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.monotonic() - began)
    weights = sum(part.numel() for part in model.parameters()) - vocabulary * width
    return rows * length / min(taken), weights


def heads_of(width: int) -> int:
    """Heads of 32 dimensions, in a large model of 64."""
    return max(2, width // (64 if width >= 512 else 32))
