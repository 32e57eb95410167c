"""`regard export`: a run written for somewhere else."""

import json
from pathlib import Path
from typing import Any

from regard.api.loading import read_experiment
from regard.data.expects import expectations
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, unknown
from regard.training.known import find_run
from regard.training.runs import checkpoints, find_weights, read_about
from regard.training.small import export_small

FORMATS = {"small": "a run folder with int8 weights and without corpus and checkpoints, for every regard command"}
_KEPT = ("steps", "best", "start_from", "seconds", "device", "expects")  # of the run's own manifest


def export(run: str | Path, out: str | Path, to: str = "small") -> int:
    """Write a run as `to` into the new folder `out`; returns the size of what was written in bytes."""
    if to not in FORMATS:
        raise ConfigError(unknown("format to export to", to, FORMATS))
    return export_small(find_run(run), Path(out), about_run(run))


def about_run(run: str | Path) -> dict[str, Any]:
    """What is known of a run besides its settings: what it expects, its best validation, the seconds of training."""
    folder = find_run(run)
    experiment, weights = read_experiment(folder), find_weights(folder)
    manifest = json.loads((weights.parent / "manifest.json").read_bytes())
    about = {name: manifest[name] for name in _KEPT if name in manifest}
    if experiment.task == "translate":
        about["expects"] = expectations(experiment.data, Vocabulary.load(folder, "source"))
    if "seconds" not in about and checkpoints(folder):
        about["seconds"] = round(read_about(checkpoints(folder)[-1])["seconds"], 1)
    return about
