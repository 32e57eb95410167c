"""`regard.load`: whatever a run folder holds, ready to use."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.api.captioner import load_captioner
from regard.api.classifier import load_classifier
from regard.api.opening import read_experiment
from regard.api.translator import load_translator
from regard.api.writer import load_writer

LOADERS: dict[str, Callable[..., Any]] = {
    "translate": load_translator,
    "caption": load_captioner,
    "classify": load_classifier,
    "language": load_writer,
}


def load(run: str | Path | Sequence[str | Path], device: str = "auto") -> Any:
    """The trained model of a run folder: a Translator, CaptionWriter, Classifier or Writer, by the run's task.

    Several folders of translators that share a vocabulary become one ensemble. Every file is checked against the run's
    manifest.
    """
    if not isinstance(run, str | Path):
        return load_translator(run, device)
    return LOADERS[read_experiment(Path(run)).task](run, device)
