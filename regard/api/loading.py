"""`regard.load`: from a run folder to a trained model, with every file checked against the run's manifest."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.confidence import find_calibration
from regard.api.heads import find_choice
from regard.api.translator import Translator
from regard.data.vocabulary import Vocabulary
from regard.decode.ensemble import Ensemble
from regard.errors import ConfigError, RunError, check_known
from regard.models.registry import build
from regard.runs.experiment import Experiment, resolve
from regard.runs.folder import find_weights, read_config
from regard.runs.included import find_pivot, find_run, shipped_name
from regard.runs.int8 import read_full_shapes, read_weights
from regard.runs.weights import build_filled, choose_device, weightless
from regard.text.languages import without_region

Run = str | Path
ENGINES = ("regard", "ctranslate2")


def load(run: Run | Sequence[Run], device: str = "auto", task: str | None = None, engine: str = "regard") -> Any:
    r"""The trained model of a run folder: a Translator, CaptionWriter, Classifier or Writer, depending on its task.

    The name of an included model, such as "en-fr", works like a folder (see `regard models`). Several folders of
    translators that share a vocabulary become one ensemble. A run of another task than `task` is refused. With `engine`
    "ctranslate2" instead of "regard", `translate` uses CTranslate2: a Transformer in int8 on the CPU. A pair of
    languages without a model, such as "fr-de", is a `Pivot`: it translates through English with the models of fr-en and
    en-de.

    >>> translator = regard.load("en-fr")
    >>> translator.translate("Where is the station?").text  # French has a no-break space before a question mark
    'Où est la gare\xa0?'
    """
    check_known("engine", engine, ENGINES)
    if not isinstance(run, str | Path | Sequence):
        raise ConfigError(f"A run is a folder, or the name of a model such as en-fr; got {run!r}.")
    if not isinstance(run, str | Path):
        if engine != "regard" and len(run) > 1:
            raise ConfigError(f"An ensemble is searched by regard itself; the engine {engine} runs one model.")
        if len(run) > 1 and any(map(find_pivot, run)):
            raise ConfigError(
                "An ensemble needs runs of one direction; name runs, not a pair to translate through English."
            )
        return _ensemble([load(member, device, "translate", engine) for member in run])
    if halves := find_pivot(run):
        from regard.api.pivot import Pivot

        return Pivot(*(load(half, device, "translate", engine) for half in halves))
    folder = find_run(run)
    experiment = read_experiment(folder, task)
    loaded = _LOADERS[experiment.task](folder, experiment, device)
    if engine == "ctranslate2" and isinstance(loaded, Translator):
        from regard.interop.ctranslate2 import open_engine

        vocabularies = loaded.source_vocabulary, loaded.target_vocabulary
        loaded.engine = open_engine(loaded.model, *vocabularies, torch.get_num_threads())
    return loaded


def _translator(run: Path, experiment: Experiment, device: str) -> Translator:
    source, target = (Vocabulary.load(run, side) for side in ("source", "target"))
    model = _open(run, experiment, device, source_vocabulary=len(source), target_vocabulary=len(target))
    heads, calibration = find_choice(run, model, experiment.train), find_calibration(run)
    return Translator(model, source, target, experiment, run.resolve().name, heads, calibration)


# The modules of the other tasks and engines are imported by the functions that need them.


def _captioner(run: Path, experiment: Experiment, device: str) -> Any:
    from regard.api.captioner import CaptionWriter

    words = Vocabulary.load(run, "target")
    model = _open(run, experiment, device, target_vocabulary=len(words))
    return CaptionWriter(model, words, experiment, run.resolve().name)


def _classifier(run: Path, experiment: Experiment, device: str) -> Any:
    from regard.api.classifier import Classifier
    from regard.data.documents import load_words

    words, classes = load_words(run)
    model: Any = _open(run, experiment, device, vocabulary=len(words), classes=len(classes))
    return Classifier(model, words, classes, experiment, run.resolve().name)


def _writer(run: Path, experiment: Experiment, device: str) -> Any:
    from regard.api.language_model import Writer

    words = Vocabulary.load(run, "text")
    model = _open(run, experiment, device, vocabulary=len(words))
    return Writer(model, words, experiment, run.resolve().name)


_LOADERS: dict[str, Callable[[Path, Experiment, str], Any]] = {
    "translate": _translator,
    "caption": _captioner,
    "classify": _classifier,
    "language": _writer,
}


_COMMANDS = {"language": "generate"}  # task -> its command, if that has another name


def read_experiment(run: str | Path, task: str | None = None) -> Experiment:
    """The settings of a run; a run of another task than `task` is refused."""
    run = find_run(run)
    find_weights(run)  # first: its errors distinguish a missing run from a damaged one
    experiment = resolve(read_config(run))
    if task is not None and experiment.task != task:
        raise RunError(
            f"{shipped_name(run) or run} is a run for the task {experiment.task!r}; this needs one for {task!r}. Use "
            f"`regard {_COMMANDS.get(experiment.task, experiment.task)}` or `regard look`."
        )
    return experiment


def build_outline(run: Run) -> nn.Module:
    """The model of a translator without its weights, for inspecting its attention modules."""
    run, experiment = find_run(run), read_experiment(run, "translate")
    sizes = {f"{side}_vocabulary": len(Vocabulary.load(run, side)) for side in ("source", "target")}
    weights = find_weights(run, check=())  # verified with the settings
    with weightless(read_full_shapes(weights), str(weights)):
        return build(experiment.name, dataclasses.replace(experiment.model, **sizes))


def _open(run: Path, experiment: Experiment, device: str, **sizes: int) -> nn.Module:
    """The model in eval mode. `sizes` are the settings that follow from the run's vocabularies."""
    weights = find_weights(run, check=())  # verified with the settings
    make = partial(build, experiment.name, dataclasses.replace(experiment.model, **sizes))
    model = build_filled(make, read_full_shapes(weights), partial(read_weights, weights), str(weights))
    return model.to(choose_device(device)).eval()


def check_direction(first: Translator, other: Translator) -> None:
    """Refuse two translators of different directions, if their languages are known."""
    ways = [(translator.source_language, translator.target_language) for translator in (first, other)]
    plain = [list(map(without_region, way)) for way in ways]
    if all(map(all, plain)) and plain[0] != plain[1]:
        raise RunError(
            f"{first.name} translates {' to '.join(ways[0])}, {other.name} translates {' to '.join(ways[1])}; "
            "use runs of one direction."
        )


def _ensemble(members: list[Translator]) -> Translator:
    if not members:
        raise RunError("An ensemble needs at least one run; got none.")
    first, *others = members
    for other in others:
        check_direction(first, other)
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
