"""A run that starts with the weights of another: `train.start_from` names it, its model and vocabulary are taken over.

The weights become checkpoint 0 of the new run. From then on the other run is not needed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.files import digest, write_atomically
from regard.errors import ConfigError
from regard.models.registry import build
from regard.training import runs
from regard.training.experiment import Experiment, check_tables, resolve
from regard.training.known import find_run
from regard.training.small import read_weights
from regard.training.weights import weights_of

# The settings of [data] that make a vocabulary, over all tasks.
VOCABULARY = (
    "subwords", "vocabulary", "vocabulary_from", "joint", "byte_fallback", "coverage", "form", "lowercase", "min_count",
)  # fmt: skip


LANGUAGES = ("source_language", "target_language")


class Origin(NamedTuple):
    """The run that another begins from."""

    name: str
    sha256: str  # of the file of its weights
    weights: dict[str, Tensor]


def inherit(tables: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """The tables of settings, with what they leave open of the model and its vocabulary taken from `train.start_from`.

    A run that has a checkpoint reads its own settings, which are the same: the other may be gone.
    """
    check_tables(tables)
    start, given = tables.get("train", {}).get("start_from"), tables.get("model", {})
    if not start:
        return dict(tables)
    place = run
    if not runs.checkpoints(run):
        place = find_run(str(start))
        runs.find_weights(place)  # a folder that is no run, or a damaged one, is refused first
    other = resolve(runs.read_config(place))
    if given.get("name", other.name) != other.name:
        return dict(tables)  # `check_origin` refuses it
    model, data = (other.tables()[section] for section in ("model", "data"))
    taken = {name: value for name, value in data.items() if name in VOCABULARY or name in LANGUAGES}
    return {**tables, "model": {**model, **given}, "data": {**taken, **tables.get("data", {})}}


def take_over(experiment: Experiment, run: Path) -> Origin:
    """Put the vocabularies of the run that `experiment` starts from into `run`; returns its weights."""
    other = find_run(experiment.train.start_from)
    weights = runs.find_weights(other)
    check_origin(experiment, resolve(runs.read_config(other)))
    for name in runs.belongings(weights):
        write_atomically(run / name, (other / name).read_bytes())
    return Origin(other.resolve().name, digest(weights), read_weights(weights))


def check_origin(new: Experiment, old: Experiment) -> None:
    """Refuse settings that contradict the model, the vocabulary or the languages of the run that is started from."""
    check_languages(new.train.start_from, *([getattr(one.data, side, "") for side in LANGUAGES] for one in (new, old)))
    pairs = [
        ("model.name", new.name, old.name),
        ("model.preset", new.preset, old.preset),
        *((f"data.{name}", getattr(new.data, name, None), getattr(old.data, name, None)) for name in VOCABULARY),
        *((f"model.{name}", getattr(new.model, name), getattr(old.model, name)) for name in shaping(new, old)),
    ]
    for setting, here, there in pairs:
        if here != there:
            raise ConfigError(
                f"train.start_from takes over the model and vocabulary of {new.train.start_from}, where {setting} is "
                f"{there!r}; got {here!r}. Leave {setting} out, or begin without train.start_from."
            )


def check_languages(name: str, here: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a corpus of other languages than those of the run `name`; an empty language is not known."""
    if any(ours and theirs and ours != theirs for ours, theirs in zip(here, there, strict=True)):
        raise ConfigError(
            f"{name} translates {' to '.join(there)}, but the corpus is {' to '.join(here)}. Start from a model of "
            f"these languages, swap --source and --target, or set data.source_language={there[0]} "
            f"data.target_language={there[1]} if the corpus is named wrongly."
        )


def shaping(new: Experiment, old: Experiment) -> list[str]:
    """The settings of the new model, each of which would give weights of the old one other names or shapes."""
    if new.name != old.name:
        return []
    there = dataclasses.asdict(old.model)
    changed = {name: value for name, value in dataclasses.asdict(new.model).items() if value != there[name]}
    return [name for name, value in changed.items() if shapes(old, **{name: value}) != shapes(old)]


def shapes(experiment: Experiment, **changes: Any) -> dict[str, torch.Size]:
    """The shape of each weight of a model, which is not really made."""
    with torch.device("meta"):
        try:
            model = build(experiment.name, dataclasses.replace(experiment.model, **changes))
        except ConfigError:
            return {}  # settings that do not go together
    return {name: weight.shape for name, weight in weights_of(model).items()}
