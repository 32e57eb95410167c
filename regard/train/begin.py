"""From settings to a trained run: the folder, the data, the model, the loop. The same settings again resume."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.config import load_toml
from regard.data.prepare import Stages
from regard.errors import ConfigError, RunError
from regard.models.registry import build
from regard.train.distributed import Ranks
from regard.train.experiment import KINDS, Experiment, resolve
from regard.train.journal import Observe, Prepared
from regard.train.loop import Loop, seed_everything
from regard.train.runs import checkpoints, clear, write_file

# Settings of [train] that a resumed run may change: they say when to stop and where to run, not what is learned.
MAY_CHANGE = {"steps", "epochs", "minutes", "patience", "device", "save_every", "keep"}


def train(experiment: Experiment, run: Path, observe: Observe | None = None, stages: Stages | None = None) -> str:
    """Train `experiment` into the folder `run`, or go on there; returns why it ended ("done", "asked", ...)."""
    ranks = Ranks(choose_device(experiment.train.device))
    try:
        if ranks.first:
            claim(experiment, run)
            KINDS[experiment.task].open(experiment, run, stages)  # makes the vocabularies and the store, once
        ranks.wait()
        opened = KINDS[experiment.task].open(experiment, run, None)
        seed_everything(experiment.train.seed, 0, 0)
        model = build(experiment.name, dataclasses.replace(experiment.model, **opened.sizes))
        opened.ready(model)
        loop = Loop(opened.task, model, experiment.train, run, ranks, observe)
        if observe and ranks.first:
            weights = sum(weight.numel() for weight in model.parameters())
            observe(Prepared(loop.batches_an_epoch, weights, str(ranks.device), opened.notes))
        return loop.run()
    finally:
        ranks.close()


def claim(experiment: Experiment, run: Path) -> None:
    """Make the run folder, or check that the one that is there was begun with the same settings."""
    config = run / "config.toml"
    if run.exists() and not run.is_dir():
        raise RunError(f"{run} is a file; --out needs the name of a folder for the run.")
    if config.exists():
        other = differences(resolve(load_toml(config)), experiment)
        if other and checkpoints(run):
            raise RunError(
                f"{run} holds a run with other settings ({'; '.join(other[:3])}). "
                f"Use the same settings to resume it, or another --out."
            )
        if other:
            clear(run)  # begun but never trained: a vocabulary of other settings must not stay
    elif run.is_dir() and any(run.iterdir()):
        raise RunError(f"{run} exists and is not a run of regard; nothing was touched. Choose another --out.")
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The run folder {run} could not be made: {error.strerror or error}.") from None
    write_file(config, experiment.toml().encode())


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
        raise ConfigError(f"train.device must be auto, cpu or cuda; got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device = 'cuda' needs a GPU that torch can see; use cpu or auto.")
    return device
