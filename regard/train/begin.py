"""From settings to a trained run: the folder, the data, the model, the loop. The same settings again resume."""

import dataclasses
import math
import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from regard.config import load_toml
from regard.data.prepare import Stages
from regard.data.text import write_atomically
from regard.errors import ConfigError, RegardError, RunError
from regard.models.registry import build
from regard.train.distributed import Ranks
from regard.train.experiment import KINDS, Experiment, resolve
from regard.train.journal import Observe, Prepared
from regard.train.loop import Loop, seed_everything
from regard.train.origin import take_over
from regard.train.runs import checkpoints, clear, held, withdraw

# Settings of [train] that a resumed run may change: they say when to stop and where to run, not what is learned.
MAY_CHANGE = {"steps", "epochs", "minutes", "patience", "device", "save_every", "keep"}
FEW = 300  # updates in all, below which a translator has hardly begun to learn
# What a run may hold before its first checkpoint. Only where there is nothing else may it be begun anew.
BEGUN = re.compile(
    r"config\.toml|metrics\.jsonl|\.lock|\..*\.tmp|checkpoints|tensorboard|corpus|features-\w+"
    r"|(source|target|words|text|classes|documents)\.(json|model|safetensors)"
)


def train(experiment: Experiment, run: Path, observe: Observe | None = None, stages: Stages | None = None) -> str:
    """Train `experiment` into the folder `run`, or go on there; returns why it ended ("done", "asked", ...)."""
    ranks = Ranks(choose_device(experiment.train.device))
    try:
        fresh = claim(experiment, run) if ranks.first else False
        with held(run) if ranks.first else nullcontext():
            try:
                loop = prepare(experiment, run, ranks, observe, stages)
            except RegardError:
                if fresh:
                    clear(run)  # made for nothing
                raise
            return loop.run()
    finally:
        ranks.close()


def prepare(experiment: Experiment, run: Path, ranks: Ranks, observe: Observe | None, stages: Stages | None) -> Loop:
    """The data, read by rank 0 first, the model with its first weights, and the loop around them."""
    open_data = KINDS[experiment.task].open
    origin = None
    if ranks.first:
        if experiment.train.start_from and not checkpoints(run):
            origin = take_over(experiment, run)
        opened = open_data(experiment, run, stages)  # makes the vocabularies and the store, once
        settle(experiment, run)
    ranks.wait()
    if not ranks.first:
        opened = open_data(experiment, run, None)
    seed_everything(experiment.train.seed, 0, 0)
    model = build(experiment.name, dataclasses.replace(experiment.model, **opened.sizes))
    opened.ready(model)
    loop = Loop(opened.task, model, experiment.train, run, ranks, observe)
    if observe and ranks.first:
        weights = sum(weight.numel() for weight in model.parameters())
        notes = [*opened.notes, *([f"begins with the weights of {origin.name}"] if origin else few(loop))]
        observe(Prepared(loop.batches_an_epoch, weights, str(ranks.device), notes))
    if origin:
        loop.start_from(origin)
    ranks.wait()
    return loop


def few(loop: Loop) -> list[str]:
    """A note where training is over before anything can have been learned, as with a small corpus and few epochs."""
    if loop.total >= FEW or loop.config.steps:
        return []
    epochs = math.ceil(FEW * loop.config.accumulate / loop.batches_an_epoch)
    return [
        f"only {loop.total} updates in all, which teach little: a small corpus wants smaller batches "
        f"(train.batch_tokens={max(1, loop.config.batch_tokens // 8)}), more epochs (train.epochs={epochs}) and a "
        f"small model (--preset tiny)"
    ]


def claim(experiment: Experiment, run: Path) -> bool:
    """Make the run folder, or check that the one that is there was begun with the same settings; returns if it is new.

    Nothing that is there already is touched, except what an attempt with other settings left before its first
    checkpoint.
    """
    if run.exists() and not run.is_dir():
        raise RunError(f"{run} is a file; --out needs the name of a folder for the run.")
    inside = sorted(path.name for path in run.iterdir()) if run.exists() else []
    if "config.toml" in inside:
        again = check_same(experiment, run, inside)
        if again:
            return False
        clear(run)  # begun but never trained: a vocabulary of other settings must not stay
    elif inside:
        raise RunError(f"{run} exists and is not a run of regard; nothing was touched. Choose another --out.")
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The run folder {run} could not be made: {error.strerror or error}.") from None
    write_atomically(run / "config.toml", experiment.toml().encode())
    return True


def check_same(experiment: Experiment, run: Path, inside: list[str]) -> bool:
    """Whether the run there goes on; False where it was begun with other settings and never trained."""
    config = run / "config.toml"
    old = resolve(load_toml(config))
    other = differences(old, experiment)
    trained = bool(checkpoints(run))
    if not trained and "weights.safetensors" in inside:
        raise RunError(f"{run} holds a finished model and no checkpoint to go on from; choose another --out.")
    if other and trained:
        raise RunError(
            f"{run} holds a run with other settings ({'; '.join(other[:3])}). "
            f"Use the same settings to resume it, or another --out."
        )
    if not trained and config.read_text(encoding="utf-8") != old.toml():
        raise RunError(f"{config} was not written by a run; choose another --out, so that nothing of yours is changed.")
    strange = [name for name in inside if not BEGUN.fullmatch(name)]
    if other and strange:
        raise RunError(
            f"{run} was begun with other settings, and holds {strange[0]}, which is not of a run; choose another --out."
        )
    return not other


def settle(experiment: Experiment, run: Path) -> None:
    """Keep the settings of a run that goes on with some of them changed; its finished model is one no more."""
    config, text = run / "config.toml", experiment.toml().encode()
    if config.read_bytes() != text:
        withdraw(run)
        write_atomically(config, text)


def differences(old: Experiment, new: Experiment) -> list[str]:
    """What differs between two experiments, apart from what a resumed run may change."""
    found = []
    before: Mapping[str, dict[str, Any]] = old.tables()
    for section, table in new.tables().items():
        for name, value in table.items():
            was = before.get(section, {}).get(name)
            if was != value and not (section == "train" and name in MAY_CHANGE) and section != "decode":
                found.append(f"{section}.{name} was {was!r}, now {value!r}")
    return found


def choose_device(name: str) -> torch.device:
    """The device of a setting: "auto" takes the GPU of this rank where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"The device must be auto, cpu or cuda; got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("The device cuda needs a GPU that torch can see; use cpu or auto.")
    return device
