"""From a run folder to a model with its weights, every file checked on the way."""

import dataclasses
from pathlib import Path

from torch import nn

from regard.config import load_toml
from regard.errors import RunError
from regard.models.registry import build
from regard.train.begin import choose_device
from regard.train.experiment import Experiment, resolve
from regard.train.runs import find_weights, read_tensors
from regard.train.weights import set_weights


def read_experiment(folder: Path, task: str | None = None) -> Experiment:
    """The settings of a run; a run of another task than the one needed is refused."""
    find_weights(folder)  # a folder that is no run, or a damaged one, is told apart first
    experiment = resolve(load_toml(folder / "config.toml"))
    if task is not None and experiment.task != task:
        raise RunError(f"{folder} is a run for the task {experiment.task!r}; this needs one for {task!r}.")
    return experiment


def open_model(folder: Path, experiment: Experiment, device: str, **sizes: int) -> nn.Module:
    """The model of a run on its device, in eval mode. `sizes` are the settings that the run's vocabularies decide."""
    model = build(experiment.name, dataclasses.replace(experiment.model, **sizes))
    weights = find_weights(folder)
    set_weights(model, read_tensors(weights), str(weights))
    return model.to(choose_device(device)).eval()
