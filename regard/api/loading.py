"""`regard.load`: from a run folder to a trained model, with every file checked against the run's manifest."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from regard.api.captioner import CaptionWriter
from regard.api.classifier import Classifier
from regard.api.language_model import Writer
from regard.api.translator import Translator
from regard.data.documents import load_words
from regard.data.vocabulary import Vocabulary
from regard.decode.ensemble import Ensemble
from regard.errors import RunError
from regard.models.registry import build
from regard.training.experiment import Experiment, resolve
from regard.training.known import find_run
from regard.training.runs import find_weights, read_config
from regard.training.small import read_full_shapes, read_weights
from regard.training.start import choose_device
from regard.training.weights import check_shapes, set_weights, weightless

Run = str | Path


def load(run: Run | Sequence[Run], device: str = "auto") -> Any:
    """The trained model of a run folder: a Translator, CaptionWriter, Classifier or Writer, depending on its task.

    The name of a model that ships, such as "en-fr", works like a folder (see `regard models`). Several folders of
    translators that share a vocabulary become one ensemble.
    """
    if not isinstance(run, str | Path):
        return load_translator(run, device)
    run = find_run(run)
    return LOADERS[read_experiment(run).task](run, device)


def load_translator(run: Run | Sequence[Run], device: str = "auto") -> Translator:
    """The translator of a run folder; several folders that share a vocabulary become one ensemble."""
    if not isinstance(run, str | Path):
        return _ensemble([load_translator(one, device) for one in run])
    run = find_run(run)
    experiment = read_experiment(run, "translate")
    source, target = (Vocabulary.load(Path(run), side) for side in ("source", "target"))
    model = _open(run, experiment, device, source_vocabulary=len(source), target_vocabulary=len(target))
    return Translator(model, source, target, experiment, _name(run))


def load_captioner(run: Run, device: str = "auto") -> CaptionWriter:
    """The captioner of a run folder."""
    experiment, vocabulary = read_experiment(run, "caption"), Vocabulary.load(Path(run), "target")
    model = _open(run, experiment, device, target_vocabulary=len(vocabulary))
    return CaptionWriter(model, vocabulary, experiment, _name(run))


def load_classifier(run: Run, device: str = "auto") -> Classifier:
    """The document classifier of a run folder."""
    experiment, (vocabulary, classes) = read_experiment(run, "classify"), load_words(Path(run))
    model: Any = _open(run, experiment, device, vocabulary=len(vocabulary), classes=len(classes))
    return Classifier(model, vocabulary, classes, experiment, _name(run))


def load_writer(run: Run, device: str = "auto") -> Writer:
    """The language model of a run folder."""
    experiment, vocabulary = read_experiment(run, "language"), Vocabulary.load(Path(run), "text")
    return Writer(_open(run, experiment, device, vocabulary=len(vocabulary)), vocabulary, experiment, _name(run))


LOADERS: dict[str, Callable[..., Any]] = {
    "translate": load_translator,
    "caption": load_captioner,
    "classify": load_classifier,
    "language": load_writer,
}


def read_experiment(run: Run, task: str | None = None) -> Experiment:
    """The settings of a run; a run of another task than `task` is refused."""
    run = find_run(run)
    find_weights(Path(run))  # first: its errors distinguish a missing run from a damaged one
    experiment = resolve(read_config(Path(run)))
    if task is not None and experiment.task != task:
        raise RunError(f"{run} is a run for the task {experiment.task!r}; this needs one for {task!r}.")
    return experiment


def _open(run: Run, experiment: Experiment, device: str, **sizes: int) -> nn.Module:
    """The model in eval mode. `sizes` are the settings that follow from the run's vocabularies.

    Whether the settings belong to the weights is checked before anything of their size is allocated.
    """
    config, weights = dataclasses.replace(experiment.model, **sizes), find_weights(Path(run))
    shapes = read_full_shapes(weights)
    with weightless(shapes, str(weights)):
        check_shapes(build(experiment.name, config), shapes, str(weights))
    model = build(experiment.name, config)
    set_weights(model, read_weights(weights), str(weights))
    return model.to(choose_device(device)).eval()


def _name(run: Run) -> str:
    return Path(run).resolve().name


def _ensemble(members: list[Translator]) -> Translator:
    if not members:
        raise RunError("An ensemble needs at least one run; got none.")
    first, *others = members
    for other in others:
        for side in ("source_vocabulary", "target_vocabulary"):
            if getattr(first, side).fingerprint != getattr(other, side).fingerprint:
                raise RunError(
                    f"An ensemble needs runs with the same vocabularies; the {side.replace('_', ' ')} of {other.name} "
                    f"is not that of {first.name}. Train them on the same corpus with the same data settings."
                )
    if not others:
        return first
    model, name = Ensemble([member.model for member in members]), "+".join(member.name for member in members)
    return Translator(model, first.source_vocabulary, first.target_vocabulary, first.experiment, name)
