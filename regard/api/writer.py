"""A trained language model: how likely a text is, and texts of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.opening import open_model, read_experiment
from regard.api.tracing import spans_of, tokens_of
from regard.data.lines import make_rows
from regard.data.vocabulary import Vocabulary
from regard.decode.search import search
from regard.decode.settings import DecodeConfig, change_settings
from regard.errors import ConfigError, DataError
from regard.evaluate.language import text_loss
from regard.evaluate.scores import perplexity
from regard.look.assemble import add_probabilities, assemble
from regard.look.record import record
from regard.look.trace import Trace
from regard.symbols import END
from regard.train.experiment import Experiment


class Writer:
    """A language model with its vocabulary, ready to use."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, experiment: Experiment, name: str) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.experiment, self.name = experiment, name

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    def perplexity(self, lines: Sequence[str], progress: Any = None) -> tuple[float, int]:
        """The perplexity of a text a token, ends of lines counted, and the number of tokens."""
        if not lines:
            raise DataError("Perplexity needs a text; got no line.")
        data = self.experiment.data
        rows = make_rows(lines, self.vocabulary, data.max_length, data.context)
        nll, tokens = text_loss(self.model, rows, self.device, progress=progress)  # type: ignore[arg-type]
        return perplexity(nll, tokens), tokens

    def generate(self, prefix: str = "", count: int = 1, longest: int = 60, **options: Any) -> list[str]:
        """Texts that go on from `prefix`, drawn with `temperature` (1 where none is given), best first."""
        for name, number in (("count", count), ("longest", longest)):
            if number < 1:
                raise ConfigError(f"{name} must be at least 1; got {number}.")
        config = change_settings(DecodeConfig(temperature=1.0), options)
        ids = self.vocabulary.encode(prefix).ids
        limits = torch.full((count,), longest + len(ids), device=self.device)
        contents = [f"{prefix}\0{number}".encode() for number in range(count)]  # each text draws for itself
        with torch.inference_mode():
            start = self.model.start(count)  # type: ignore[operator]
            found = search(self.model, start, limits, config, prefixes=[ids] * count, contents=contents)  # type: ignore[arg-type]
        return [self.vocabulary.decode(texts[0].ids) for texts in found]

    def look(self, text: str, topk: int = 5) -> Trace:
        """What the model looked at in its own past while it read `text`."""
        encoded = self.vocabulary.encode(text)
        if not encoded.ids:
            raise DataError("There is nothing to look at in an empty text; give at least one word.")
        target = torch.tensor([[*encoded.ids, END]], device=self.device)  # [1, T]
        with torch.inference_mode(), record(self.model) as seen:
            logits = self.model(target)  # [1, T, V]
        spelled = tokens_of(text, encoded.pieces, spans_of(self.vocabulary, encoded.ids, text), ended=True)
        ids = [*encoded.ids, END]
        written = add_probabilities(spelled, ids, logits[0], lambda one: self.vocabulary.pieces([one])[0], topk)
        about = {"id": self.name, "name": self.experiment.name, "kind": "language"}
        return assemble(self.model, seen, spelled, written, about=about)


def load_writer(run: str | Path, device: str = "auto") -> Writer:
    """The language model of a run folder."""
    folder = Path(run)
    experiment = read_experiment(folder, "language")
    vocabulary = Vocabulary.load(folder, "text")
    model = open_model(folder, experiment, device, vocabulary=len(vocabulary))
    return Writer(model, vocabulary, experiment, folder.resolve().name)
