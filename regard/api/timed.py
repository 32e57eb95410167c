"""Settings for training within a time limit: model, vocabulary, batches and schedule, from the size of the corpus and a
short measurement of the device; or the settings of fine-tuning a trained model."""

import dataclasses
import math
import time
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import torch

from regard.config import read
from regard.data.corpus import find_corpus
from regard.data.settings import DataConfig
from regard.errors import ConfigError, DataError, counted
from regard.models.registry import build, preset
from regard.runs.experiment import resolve
from regard.runs.folder import find_weights, read_config
from regard.runs.included import find_run
from regard.runs.weights import choose_device
from regard.training.start import LANGUAGES, check_languages

SIZES = ((1, 32), (2, 48), (2, 64), (2, 96), (2, 128), (3, 192), (3, 256), (4, 384), (6, 512))  # layers, width
MEASURED = (2, 64), (3, 256)  # sizes whose speed is measured; that of the others is derived
# For fewer pairs than the first number, the vocabulary has the second as its size.
VOCABULARIES = ((1_500, 1_000), (6_000, 2_000), (60_000, 4_000), (400_000, 8_000), (float("inf"), 16_000))
PIECE = 3.6  # mean characters of a piece
PER_WEIGHT, EPOCHS = 4, 8  # pieces for each weight, or epochs, whichever is less; otherwise a model is too large
UPDATES = 2000  # at least, which determines the batch size
PER_PIECE = 100  # weights for each piece of the corpus at most: a larger model would memorise it
COUNTED = 2_000_000  # pairs that are counted at most
MEASURE = 0.1  # share of the time that measuring the large size may take
ROUNDS = 4  # updates of a measurement; the first is a warm-up
TRAINING = 0.85  # share of the time for updates; the rest goes to preparation, validation and the end
SEEN = 0.7  # share of the prepared pairs that training sees at most; preparing still more would only take time
PREPARED = 20_000  # pairs that are quick to prepare
FURTHER = {"rate": 0.0003, "epochs": 10}  # of fine-tuning; with more, a model forgets what it has learned
# Fine-tuning on tens of pairs: number of updates, epochs at most, batches of an epoch, pairs of a batch at least, a
# rate that learns them without affecting other sentences, and how full batches of sentences of unequal length are.
SMALL_CORPUS = {"updates": 150, "epochs": 20, "batches": 8, "pairs": 6, "rate": 0.0001, "full": 2 / 3}

Given = Mapping[str, Any]  # [train] settings
Choice = tuple[dict[str, Any], list[str]]  # settings, and the reasons for them


class BatchSizes(NamedTuple):
    """Tokens of a batch: of the speed measurement, and the fewest and most in training."""

    measured: int
    least: int
    most: int


CPU, GPU = BatchSizes(1024, 384, 4096), BatchSizes(8192, 1024, 24576)


def batch_sizes(device: torch.device) -> BatchSizes:
    """The sizes for a device."""
    return GPU if device.type == "cuda" else CPU


class CorpusSize(NamedTuple):
    """The size of a corpus."""

    pairs: int
    length: float  # mean pieces of a target sentence


def choose(data: Mapping[str, Any], minutes: float, given: Given) -> Choice:
    """The [data], [model] and [train] settings for training `minutes` on the corpus of `data`, and the reasons.

    `given` are [train] settings that the user has set; the others are chosen to fit them.
    """
    size, where = check(data, minutes), choose_device(given.get("device", "auto"))
    seconds, vocabulary = minutes * 60 * TRAINING, vocabulary_for(size.pairs)
    layers, width, speed, weights, why = fastest_fit(size, vocabulary, seconds, where)
    fewer = vocabulary_for(speed * seconds / size.length)
    if fewer < vocabulary:  # most of the corpus will not be seen, so a large vocabulary would only take time
        vocabulary = fewer
        layers, width, speed, weights, why = fastest_fit(size, vocabulary, seconds, where)
    corpus = size.pairs * size.length
    seen = min(speed * seconds, given.get("epochs", 0) * corpus or math.inf)
    epochs = seen / corpus
    common, updates = by_the_clock(minutes, seen, where, given, batch_sizes(where).least)
    model = {
        "name": "transformer", "preset": "tiny", "norm": "pre", "layers": layers, "width": width,
        **parts_of(width),
        "dropout": 0.0 if epochs < 3 else 0.1 if epochs < 8 else 0.2 if epochs < 25 else 0.3,
    }  # fmt: skip
    rate = 0.003 if width <= 128 else 0.002 if width <= 256 else 0.001
    train, falls = agreed({**common, "epochs": 0, "rate": rate}, given)
    reasons = [
        f"{chosen_for(size, minutes, where)}:",
        f"a Transformer of {counted(layers, 'layer')} and width {width}, {weights:,} weights "
        f"besides the vocabulary (about {speed:,.0f} pieces a second): {why}",
        f"a joint vocabulary of at most {vocabulary:,} pieces; batches of "
        f"{train['batch_tokens']:,}, about {updates:,} updates and {epochs:.1f} epochs",
        f"{falls}; dropout {model['dropout']:g}",
    ]
    pieces = {"vocabulary": vocabulary, "joint": True, "max_length": 100}
    every = 2 ** max(0, math.floor(math.log2(min(SEEN / epochs, size.pairs / PREPARED))))
    if every > 1:
        pieces["every"] = every
        reasons.append(f"one of {every} pairs of the corpus, since the time is too short to see all of it")
    return {"data": pieces, "model": model, "train": train}, reasons


def chosen_for(size: CorpusSize, minutes: float, where: torch.device) -> str:
    """What the settings are chosen for, in words."""
    pairs, pieces = counted(size.pairs, "pair", ",.0f"), counted(round(size.length), "piece")
    return f"chosen for {pairs} of about {pieces} and {counted(minutes, 'minute', 'g')} on {where.type}"


def vocabulary_for(pairs: float) -> int:
    """The size of the vocabulary for a corpus of `pairs`."""
    return next(size for most, size in VOCABULARIES if pairs < most)


def choose_further(data: Mapping[str, Any], minutes: float, start: str, given: Given) -> Choice:
    """The [train] settings for fine-tuning the translator `start` for `minutes` on the corpus of `data`, and why.

    Nothing is chosen for a model of another task.
    """
    find_weights(find_run(start))  # refuses a folder without a run, or a damaged one
    other = resolve(read_config(find_run(start)))
    if other.task != "translate":
        return {}, []
    there = [getattr(other.data, side) for side in LANGUAGES]
    check_languages(start, [str(data.get(side, "")) for side in LANGUAGES], there)  # before anything is measured
    size, where = check(data, minutes), choose_device(given.get("device", "auto"))
    vocabulary = other.data.vocabulary
    config = dataclasses.replace(other.model, source_vocabulary=vocabulary, target_vocabulary=vocabulary)
    model = build(other.name, config).to(where).train()
    measured = at_most(batch_sizes(where).measured, size)
    speed = pace(model, vocabulary, max(3, int(size.length)), where, measured)
    train, why = further(size, minutes, speed, where, given)
    return {"train": train}, [f"{chosen_for(size, minutes, where)}, starting from {start}:", *why]


def further(size: CorpusSize, minutes: float, speed: float, where: torch.device, given: Given) -> Choice:
    """The [train] settings for fine-tuning `minutes` at `speed` pieces a second, and the reasons."""
    corpus, fits = size.pairs * size.length, speed * minutes * 60 * TRAINING
    least = at_most(batch_sizes(where).least, size)
    wanted = math.ceil(SMALL_CORPUS["updates"] * given.get("batch_tokens", least) / corpus)
    few = wanted > FURTHER["epochs"]
    steps = given.get("steps", 0)
    epochs = given.get("epochs", min(wanted, SMALL_CORPUS["epochs"]) if few else FURTHER["epochs"])
    seen = min(fits, (not steps and epochs * corpus / (SMALL_CORPUS["full"] if few else 1)) or math.inf)
    common, updates = by_the_clock(minutes, seen, where, given, least)
    train, falls = agreed({**common, "rate": (SMALL_CORPUS if few else FURTHER)["rate"], "epochs": epochs}, given)
    ends = counted(steps, "update") if steps else counted(epochs, "epoch")
    short = updates < steps if steps else seen == fits
    time = f"there is time for about {counted(updates, 'update', ',')}" if short else "there is time for them"
    reasons = [
        f"batches of {train['batch_tokens']:,} pieces, {f'at most {ends}; ' if steps or epochs else ''}{time} "
        f"({speed:,.0f} pieces a second measured)",
        f"{falls}; the model is trained already",
    ]
    if few:  # too few pairs are held out to find the best checkpoint
        average = min(2, given.get("keep", 2))
        train |= {"average": average, "keep": max(average, train["keep"])}
        reasons.append(
            "the final weights (train.average): with so small a corpus, validation cannot find the best ones"
        )
    return train, reasons


def at_most(tokens: int, size: CorpusSize) -> int:
    """The `tokens` of a batch, or fewer, so that an epoch of a small corpus has several batches."""
    return int(
        max(SMALL_CORPUS["pairs"] * size.length, min(tokens, size.pairs * size.length / SMALL_CORPUS["batches"]))
    )


def by_the_clock(
    minutes: float, seen: float, where: torch.device, given: Given, least: int
) -> tuple[dict[str, Any], int]:
    """The [train] settings of a time limit within which `seen` pieces are read, and about how many updates it has."""
    most = batch_sizes(where).most
    batch = given.get("batch_tokens") or int(min(most, max(least, seen / UPDATES)))
    updates = max(1, int(seen / batch / given.get("accumulate", 1)))
    updates = min(updates, given.get("steps") or updates)
    train = {
        "minutes": minutes, "batch_tokens": batch, "schedule": "cosine", "warmup": min(400, updates // 10),
        "beta2": 0.98, "label_smoothing": 0.1, "clip": 1.0, "validate_every": max(1, updates // 4),
        "validate_sentences": 200 if minutes >= 2 else 50, "save_every": max(1, updates // 4),
        "keep": given.get("average", 1), "precision": "bf16" if where.type == "cuda" else "float32",
    }  # fmt: skip
    return train, updates


def agreed(chosen: dict[str, Any], given: Given) -> tuple[dict[str, Any], str]:
    """The chosen settings without those that the `given` ones exclude, and a sentence about the learning rate."""
    suitable = {"schedule": "cosine", "optimiser": "adam"}  # rate, warm-up and beta2 are chosen for these
    own = [name for name, value in suitable.items() if given.get(name, value) != value]
    if not own:
        return chosen, f"a learning rate of {given.get('rate', chosen['rate']):g} that falls to zero at the end"
    dropped = [name for name in ("schedule", "rate", "warmup", "beta2") if name not in given]
    kept = {name: value for name, value in chosen.items() if name not in dropped}
    return kept, f"train.{', train.'.join(dropped)} not chosen, since you set train.{' and train.'.join(own)}"


def refuse_minutes(minutes: float) -> ConfigError:
    """What is wrong with such a time limit."""
    return ConfigError(f"--minutes must be above 0 and below a million; got {minutes:g}.")


def check(data: Mapping[str, Any], minutes: float) -> CorpusSize:
    """The size of the corpus of `data`; refuses invalid minutes, and settings without a corpus."""
    if not 0 < minutes < 1e6:
        raise refuse_minutes(minutes)
    if not any(data.get(name) for name in ("source", "tsv", "tmx", "corpus")):
        raise ConfigError(
            "There is nothing to train on; pass --source and --target, --tmx, or a built-in corpus with --corpus (see "
            "`regard corpora`)."
        )
    return count(read(DataConfig, data, "data"))


def count(config: DataConfig) -> CorpusSize:
    """The size of a corpus, from its text."""
    pairs = letters = 0
    for pair in islice(find_corpus(config), COUNTED):
        pairs += 1
        letters += len(pair.target)
    if not pairs:
        raise DataError("There is nothing to train on: the corpus has no pairs. Check that its files are not empty.")
    return CorpusSize(pairs, max(2.0, letters / pairs / PIECE + 1))


def fastest_fit(
    size: CorpusSize, vocabulary: int, seconds: float, device: torch.device
) -> tuple[int, int, float, int, str]:
    """Layers, width, pieces a second and weights of the largest model that can learn enough in `seconds`, and why."""
    rates, pieces = speeds(size, vocabulary, seconds, device), size.pairs * size.length
    least = batch_sizes(device).least
    wanted = f"{UPDATES:,} updates and see {PER_WEIGHT} pieces for each weight, or {EPOCHS} epochs, in that time"
    best = (*SIZES[0], *rates[SIZES[0]], f"the smallest of {len(SIZES)} sizes; none can make {wanted}")
    fits = f"the largest of {len(SIZES)} sizes that can make {wanted}, with at most {PER_PIECE} weights for each piece"
    for (layers, width), (speed, weights) in rates.items():
        enough = max(min(PER_WEIGHT * weights, EPOCHS * pieces), UPDATES * least)
        if speed * seconds >= enough and weights <= PER_PIECE * pieces:
            best = layers, width, speed, weights, f"{fits} of the corpus"
    return best


def speeds(
    size: CorpusSize, vocabulary: int, seconds: float, device: torch.device
) -> dict[tuple[int, int], tuple[float, int]]:
    """Target pieces a second and weights of each of `SIZES`: a piece takes a + b n seconds, where n weights are
    multiplied. Measured with two sizes, or with the small one alone if the large one would take long: then the time of
    larger ones is proportional to n, and smaller ones, whose updates are mostly overhead, are as fast."""
    points: list[tuple[int, float]] = []  # n, and seconds for a piece
    for shape in MEASURED:
        n = count_weights(*shape) + vocabulary * shape[1]
        # By the measured speed, not by elapsed time: on a GPU the first measurement compiles kernels.
        if points and ROUNDS * batch_sizes(device).measured * points[0][1] * n / points[0][0] > MEASURE * seconds:
            break
        points.append((n, 1 / measure(*shape, vocabulary, max(3, int(size.length)), device)))
    (few, short), (many, long) = points[0], points[-1]
    b = max((long - short) / (many - few), 0.0) if len(points) > 1 else short / few
    a, least = max(short - b * few, 0.0), short if len(points) == 1 else 0.0
    found = {}
    for layers, width in SIZES:
        weights = count_weights(layers, width)
        found[layers, width] = 1 / max(least, a + b * (weights + vocabulary * width)), weights
    return found


def shaped(layers: int, width: int, vocabulary: int) -> Any:
    """A Transformer of this size."""
    sizes = {"layers": layers, "width": width, "source_vocabulary": vocabulary, "target_vocabulary": vocabulary}
    tiny = preset("transformer", "tiny")
    return build("transformer", dataclasses.replace(tiny, norm="pre", **sizes, **parts_of(width)))


@cache
def count_weights(layers: int, width: int) -> int:
    """The weights of a Transformer besides its vocabulary."""
    with torch.device("meta"):
        return sum(part.numel() for part in shaped(layers, width, 4).parameters()) - 4 * width


def measure(layers: int, width: int, vocabulary: int, length: int, device: torch.device) -> float:
    """Target pieces a second in training a Transformer of this size."""
    tokens = batch_sizes(device).measured
    return pace(shaped(layers, width, vocabulary).to(device).train(), vocabulary, length, device, tokens)


def pace(model: torch.nn.Module, vocabulary: int, length: int, device: torch.device, tokens: int) -> float:
    """Target pieces a second in training `model` with batches of `tokens`: the fastest of three updates after a
    first. Its weights change."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6)
    gpu, rows = device.type == "cuda", max(1, tokens // length)
    ids = torch.randint(4, vocabulary, (rows, length), device=device)
    lengths = torch.full((rows,), length, device=device)
    taken = []
    for _ in range(ROUNDS):
        if gpu:
            torch.cuda.synchronize(device)
        began = time.monotonic()
        with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
            logits = model(ids, lengths, ids)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
        if gpu:
            torch.cuda.synchronize(device)
        taken.append(time.monotonic() - began)
    return rows * length / min(taken[1:])


def parts_of(width: int) -> dict[str, int]:
    """The settings that follow from the width: heads of 32 dimensions, in a large model of 64."""
    return {"heads": max(2, width // (64 if width >= 512 else 32)), "inner": 4 * width}
