"""Run folders into models that can be served."""

import re
from collections.abc import Sequence
from pathlib import Path

import regard
from regard.api.captioner import CaptionWriter
from regard.api.translator import Translator
from regard.errors import RunError
from regard.serve.models import TranslationModel
from regard.serve.pictures import CaptionModel


def load(runs: Sequence[str | Path]) -> list[TranslationModel | CaptionModel]:
    """Load every run, a translator or a captioner; two of the same name get a number."""
    if not runs:
        raise RunError("There is nothing to serve; name at least one run folder.")
    models: list[TranslationModel | CaptionModel] = []
    for run in runs:
        loaded = regard.load(run)
        if not isinstance(loaded, Translator | CaptionWriter):
            task = loaded.experiment.task
            raise RunError(f"{run} is a run for the task {task!r}; only translators and captioners can be served.")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.name) or "model"
        taken = {model.id for model in models}
        number = next(number for number in range(1, len(runs) + 2) if _numbered(name, number) not in taken)
        name = _numbered(name, number)
        models.append(TranslationModel(loaded, name) if isinstance(loaded, Translator) else CaptionModel(loaded, name))
    return models


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
