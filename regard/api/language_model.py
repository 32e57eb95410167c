"""A trained language model: perplexity, generation, and attention over the past."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from regard.api.tracing import check_length, check_words, note_unseen, tokens_of, trace_forward
from regard.api.trained import Trained
from regard.config import read
from regard.data.batching import ShardedPlan
from regard.data.settings import TextDataConfig
from regard.data.text_corpus import TextRows, TextStreams, make_rows
from regard.data.vocabulary import Vocabulary
from regard.decode.search import search
from regard.decode.steps import SearchRequest
from regard.errors import ConfigError, DataError, RunError
from regard.evaluate.language import text_loss
from regard.evaluate.scores import perplexity
from regard.look.measure import Reach, reach
from regard.look.record import attentions
from regard.look.trace import Trace
from regard.runs.experiment import Experiment
from regard.symbols import END
from regard.text.normalise import one_line
from regard.work import Progress, reporting

_READ_TOKENS = 4096  # in a batch whose attention is recorded


class Writer(Trained):
    """A language model with its vocabulary; `regard.load` makes one from a run folder.

    >>> settings = ["data.size=50", "data.held_out=0", "train.steps=10"]  # leave these out to get a model that works
    >>> settings.append("data.subwords=word")
    >>> writer = regard.train(corpus="tales", model="attentive-lm", preset="tiny", out="tales", settings=settings)
    >>> writer
    Writer(tales: attentive-lm, ... weights on ...)
    """

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, experiment: Experiment, name: str) -> None:
        super().__init__(model, experiment, name)
        self.vocabulary = vocabulary

    def perplexity(
        self, lines: Sequence[str], progress: Progress | None = None, context: int | None = None
    ) -> tuple[float, int]:
        """The perplexity per token of a text, and its number of tokens; the end of a line is a token.

        `context` replaces the run's `data.context`: a model that was trained on short rows can read longer ones.

        >>> sentence, tokens = writer.perplexity(["anna has boats , tom has dolls"])
        >>> shuffled, tokens = writer.perplexity(["has , tom dolls has boats anna"])
        >>> tokens, sentence < shuffled
        (8, True)
        """
        data = self.experiment.data
        if context is not None:
            data = read(type(data), {"context": context}, "data", over=data)
        rows: TextRows | TextStreams = self._rows(lines, data)
        if data.streams:  # the whole text is read with one state
            rows = TextStreams(rows.values, 1, data.context)
        nll, tokens = text_loss(self.model, rows, self.device, progress=progress)
        return perplexity(nll, tokens), tokens

    def reach(self, lines: Sequence[str], farthest: int = 20, progress: Progress | None = None) -> list[Reach]:
        """For each attention module, its weights by distance over a text, and the words with the most weight."""
        rows = self._rows(lines, self.experiment.data)
        if not attentions(self.model):
            raise RunError(f"{self.name} has no attention module, so there is nothing to measure.")

        numbers = ShardedPlan(rows.lengths, rows.lengths, _READ_TOKENS, seed=0, epoch=0)
        batches = (rows.batch(batch.tolist()) for batch in numbers)
        read = reporting(batches, progress, rows.tokens, lambda batch: int(batch.lengths.sum()))
        return reach(self.model, (batch.target for batch in read), farthest)

    def _rows(self, lines: Sequence[str], data: TextDataConfig) -> TextRows:
        if isinstance(lines, str):
            raise DataError("Expected a list of lines; got a single string.")
        context = 0 if data.streams else data.context  # a stream begins each line with START, a row of lines does not
        rows = make_rows([one_line(line) for line in lines], self.vocabulary, data.max_length, context)
        if not rows.tokens:
            raise DataError("There is no text: every line is empty.")
        return rows

    def generate(self, prefix: str = "", count: int = 1, longest: int = 60, **options: Any) -> list[str]:
        """`count` texts that continue `prefix` by at most `longest` tokens, in the order they were sampled.

        Options are the [decode] settings. The default temperature is the run's, or 1; 0 searches for the most likely
        text instead of sampling.

        >>> texts = writer.generate("anna has", count=2, longest=5)
        >>> [text.startswith("anna has") for text in texts]
        [True, True]
        """
        for name, number in (("count", count), ("longest", longest)):
            if not isinstance(number, int) or number < 1:
                raise ConfigError(f"{name} must be at least 1; got {number!r}.")
        given = {name: value for name, value in options.items() if value is not None}
        own = self.experiment.decode.temperature or 1.0
        config = self.settings(**{"temperature": own, "nbest": 1, **given})
        prefix = one_line(prefix)
        ids = self.vocabulary.encode(prefix).ids
        limits = torch.full((count,), longest + len(ids))
        contents = [f"{prefix}\0{number}".encode() for number in range(count)]  # an independent sample each
        with torch.inference_mode():
            start = self.model.start(count)
            found = search(self.model, start, limits, config, SearchRequest([ids] * count), contents)
        return [self.vocabulary.decode(texts[0].ids) for texts in found]

    def look(self, text: str, topk: int = 5) -> Trace:
        """The attention over the past while the model reads `text`.

        >>> writer.look("anna has flutes")  # [H, T, S]: each word and the end, over the words before
        Trace('anna has flutes' -> 'anna has flutes'; weights of attention [1, 4, 4])
        """
        encoded = self.vocabulary.encode(one_line(text))
        check_words(text, encoded, "text")
        check_length(encoded.ids)
        read, written = tokens_of(encoded, ended=True), [*encoded.ids, END]
        about = {"id": self.name, "name": self.experiment.name, "kind": "language"}
        notes = note_unseen("unseen", "the text holds", encoded)
        return trace_forward(self.model, (), written, read, self.vocabulary, topk, read, about=about, notes=notes)
