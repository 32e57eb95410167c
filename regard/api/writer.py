"""A trained language model: how likely a text is, and texts of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.api.opening import open_model, read_experiment
from regard.api.tracing import check_length, spans_of, tokens_of
from regard.api.translator import clean
from regard.data.batching import plan_epoch
from regard.data.lines import Rows, make_rows
from regard.data.vocabulary import Vocabulary
from regard.decode.search import search
from regard.decode.settings import change_settings
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.language import text_loss
from regard.evaluate.scores import perplexity
from regard.look.assemble import add_probabilities, assemble
from regard.look.reach import Reach, reach
from regard.look.record import attentions, record
from regard.look.trace import Trace
from regard.symbols import END
from regard.train.experiment import Experiment

_READ_TOKENS = 4096  # read together while every look is recorded


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
        rows = self._rows(lines)
        nll, tokens = text_loss(self.model, rows, self.device, progress=progress)  # type: ignore[arg-type]
        return perplexity(nll, tokens), tokens

    def reach(self, lines: Sequence[str], farthest: int = 20, progress: Any = None) -> list[Reach]:
        """How far back each attention module looked while it read a text, and which words it looked at most."""
        rows = self._rows(lines)
        if not attentions(self.model):
            raise RunError(f"{self.name} has no attention: it looks back at nothing.")

        def batches() -> Iterator[Tensor]:
            plan = plan_epoch(rows.lengths, rows.lengths, _READ_TOKENS, seed=0, epoch=0)
            done = 0
            for position in range(len(plan)):
                batch = rows.batch(plan[position].tolist())
                yield batch.target
                done += int(batch.lengths.sum())
                if progress:
                    progress(done, rows.tokens)

        return reach(self.model, batches(), farthest)

    def _rows(self, lines: Sequence[str]) -> Rows:
        if isinstance(lines, str):
            raise DataError("A text to read is a list of lines; got one string.")
        data = self.experiment.data
        rows = make_rows([clean(line) for line in lines], self.vocabulary, data.max_length, data.context)
        if not rows.tokens:
            raise DataError("There is no text to read: every line is empty.")
        return rows

    def generate(self, prefix: str = "", count: int = 1, longest: int = 60, **options: Any) -> list[str]:
        """`count` texts that go on from `prefix` by at most `longest` tokens, in the order they were drawn.

        Options are the settings of [decode]. The temperature is 1 where neither they nor the run give one; 0 searches
        for the likeliest text instead of drawing.
        """
        for name, number in (("count", count), ("longest", longest)):
            if not isinstance(number, int) or number < 1:
                raise ConfigError(f"{name} must be at least 1; got {number!r}.")
        own = self.experiment.decode
        given = {name: value for name, value in options.items() if value is not None}
        config = change_settings(own, {"temperature": own.temperature or 1.0, "nbest": 1, **given})
        prefix = clean(prefix)
        ids = self.vocabulary.encode(prefix).ids
        limits = torch.full((count,), longest + len(ids), device=self.device)
        contents = [f"{prefix}\0{number}".encode() for number in range(count)]  # each text draws for itself
        with torch.inference_mode():
            start = self.model.start(count)  # type: ignore[operator]
            found = search(self.model, start, limits, config, prefixes=[ids] * count, contents=contents)  # type: ignore[arg-type]
        return [self.vocabulary.decode(texts[0].ids) for texts in found]

    def look(self, text: str, topk: int = 5) -> Trace:
        """What the model looked at in its own past while it read `text`."""
        encoded = self.vocabulary.encode(clean(text))
        if not encoded.ids or not text.split():
            raise DataError("There is nothing to look at in an empty text; give at least one word.")
        check_length(encoded.ids)
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
