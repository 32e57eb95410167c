"""`regard export`: a run written for somewhere else."""

import json
from pathlib import Path
from typing import Any

from regard.api.loading import read_experiment
from regard.data.expects import expectations
from regard.data.files import read_small
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, RunError, unknown
from regard.training.known import find_run
from regard.training.runs import FINISHED, checkpoints, find_weights, read_cursor, read_manifest
from regard.training.small import export_small

FORMATS = {"small": "a run folder with int8 weights and without corpus and checkpoints, for every regard command"}
_KEPT = ("steps", "best", "start_from", "seconds", "device", "expects")  # of the run's own manifest


def export(run: str | Path, out: str | Path, to: str = "small") -> int:
    """Write a run as `to` into the new folder `out`; returns the size of what was written in bytes."""
    if to not in FORMATS:
        raise ConfigError(unknown("format to export to", to, FORMATS))
    return export_small(find_run(run), Path(out), about_run(run))


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a model, or nothing where it has none; a card that belongs to other weights is refused."""
    path = folder / "card.json"
    if not path.exists():
        return {}
    try:
        card = json.loads(read_small(path))
        weights = str(card["weights"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({type(error).__name__}); restore it from a copy.") from None
    if weights != read_manifest(folder, FINISHED)["files"]["weights.safetensors"]["sha256"]:
        raise RunError(f"{path} does not belong to the weights beside it; restore both from one copy.")
    return card


def about_run(run: str | Path) -> dict[str, Any]:
    """What is known of a run besides its settings: what it expects, its best validation, the seconds of training."""
    folder = find_run(run)
    experiment, weights = read_experiment(folder), find_weights(folder)
    manifest = read_manifest(weights.parent, (), check=())
    about = {name: manifest[name] for name in _KEPT if name in manifest}
    if experiment.task == "translate":
        about["expects"] = expectations(experiment.data, Vocabulary.load(folder, "source"))
    if "seconds" not in about and checkpoints(folder):
        about["seconds"] = round(read_cursor(checkpoints(folder)[-1]).seconds, 1)
    return about
