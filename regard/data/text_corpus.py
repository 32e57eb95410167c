"""Text for language models: lines into rows of ids, with every token in exactly one row.

A row is a line followed by END, which the model predicts like any word. A line of more than `max_length` tokens becomes
several rows. With `context` above zero the lines are joined, with END between them, and split into rows of that many
tokens, so that a row may start anywhere and cover several lines. With `streams` the joined text is also divided into
that many equal parts, which are read in parallel: each row of a part continues the previous one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.corpora import tales
from regard.data.batching import pad
from regard.data.encoding import Corpus, Encoding, Rows, Tally, have_text, named_files
from regard.data.settings import TextDataConfig, as_files
from regard.data.store import Array, Column, ColumnType, id_type
from regard.data.tokenisers import Tokenise
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.symbols import END, PAD, START
from regard.text.lines import Digests, Reading, is_blank, read_files


class TextBatch(NamedTuple):
    """Rows of ids, then PAD."""

    target: Tensor  # [B, T]
    lengths: Tensor  # [B]


class TextRows(Column):
    """Rows of a text, one after the other in one array."""

    def __init__(self, lines: Column, max_length: int = 256, context: int = 0) -> None:
        size = len(lines.values)
        if context:
            starts = np.append(np.arange(0, size, context), size)
        else:
            rows = -(-lines.lengths[:] // max_length)  # [L] of each line
            place = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)  # [R] of a row in its line
            starts = np.append(np.repeat(lines.offsets[:-1], rows) + max_length * place, size)
        super().__init__(lines.values, starts)
        self.sides = self.lengths, self.lengths
        self.tokens = size  # everything that is predicted: words and ends of lines

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> TextBatch:
        """These rows, padded to one length."""
        return TextBatch(*pad(self.take(numbers)))


class StreamBatch(NamedTuple):
    """The next rows of several streams."""

    words: Tensor  # [B, T], the word before each target word: START at the start of a stream or a line
    target: Tensor  # [B, T], with PAD after the end of a stream
    lengths: Tensor  # [B]
    fresh: Tensor  # [B], True at the start of a stream


class TextStreams:
    """A text in `streams` parts whose lengths differ by at most one token; row k of a part has number k * streams +
    part."""

    def __init__(self, values: Array, streams: int, context: int) -> None:
        self.values, self.streams, self.context, self.tokens = values, streams, context, len(values)
        self.offsets = np.arange(streams + 1) * len(values) // streams  # [streams + 1]
        self.steps = -(-int(np.diff(self.offsets).max()) // context)  # rows of the longest part
        self.lengths = np.array([min(context, len(values))])  # of the longest row

    def plan(self) -> list[Array]:
        """The numbers of the rows that are read in parallel, for each step."""
        return [step * self.streams + np.arange(self.streams) for step in range(self.steps)]

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> StreamBatch:
        """The rows `numbers`, all of the same step, with PAD after the end of a part."""
        steps, parts = np.divmod(np.asarray(numbers, np.int64), self.streams)
        places = (self.offsets[parts] + steps * self.context)[:, None] + np.arange(self.context)  # [B, T]
        first, inside = places == self.offsets[parts][:, None], places < self.offsets[parts + 1][:, None]
        ids, before = (self.values[np.clip(at, 0, self.tokens - 1)].astype(np.int64) for at in (places, places - 1))
        # A line begins with START here too, so that a single text begins with a symbol that was trained.
        words = np.where(first | (before == END), START, before)
        found = words, np.where(inside, ids, PAD), inside.sum(1), steps == 0
        return StreamBatch(*map(torch.from_numpy, found))


def make_rows(lines: Iterable[str], vocabulary: Vocabulary, max_length: int = 256, context: int = 0) -> TextRows:
    """Lines into rows, in memory. Blank lines are skipped."""
    ids = vocabulary.encode_many(line for line in lines if not is_blank(line))
    return TextRows(Column.of([[*row, END] for row in ids]), max_length, context)


class TextLine(NamedTuple):
    """A line of a text; `line` counts from 1 over all files."""

    line: int
    text: str


def text_files(files: tuple[str, ...], reading: Reading) -> Corpus[TextLine]:
    """The lines of files."""

    def read(digests: Digests) -> Iterator[TextLine]:
        lines = chain.from_iterable(read_files(files, reading, digests))
        return (TextLine(number, line) for number, line in enumerate(lines, start=1))

    return Corpus(read, files, [reading.invalid])


def find_text(config: TextDataConfig) -> Corpus[TextLine]:
    """The training text of the settings."""
    files = named_files(config, "tales", "is no text")
    if files:
        return text_files(files, config)
    made = [tale.text for tale in tales.generate(config.size, config.seed)]
    return Corpus(lambda digests: map(TextLine, range(1, len(made) + 1), made), (), made)


class TextEncoding(Encoding[TextLine]):
    """Lines into ids with END; they are split into rows when the store is opened."""

    noun, names = "lines", ("text",)

    def __init__(self, config: TextDataConfig) -> None:
        dev = as_files(config.dev_files)
        super().__init__(config, find_text(config), text_files(dev, config) if dev else None)
        # In tales the last word of a line follows from the words before it.
        self.recalls = config.corpus == "tales" and not config.context

    def column_types(self) -> dict[str, ColumnType]:
        return {"ids": id_type(len(self.vocabularies[0]))}

    def encode(self, items: Sequence[TextLine], tally: Tally, tokenise: Tokenise) -> Rows[TextLine]:
        texts = self.columns(items)
        usable = np.array(have_text(texts))
        for item in compress(items, ~usable):
            tally.drop("empty", item.line)
        return Rows(items, {"ids": tokenise(0, texts[0])}).where(usable)

    def open(self, columns: dict[str, Any], training: bool) -> TextRows | TextStreams:
        if self.config.streams:
            size = len(columns["ids"].values)
            if training and size < self.config.streams * self.config.context:
                raise DataError(
                    f"The text has {size} tokens, too few for data.streams = {self.config.streams} parts of at least "
                    f"data.context = {self.config.context}; set one of them lower."
                )
            return TextStreams(columns["ids"].values, self.config.streams, self.config.context)
        return TextRows(columns["ids"], self.config.max_length, self.config.context)

    def describe(self, train: TextRows | TextStreams, dev: TextRows | TextStreams) -> list[str]:
        tokens = f"text: {train.tokens} tokens to train on, {dev.tokens} for validation"
        return [f"{tokens}; at most {train.lengths[:].max()} in a row", *super().describe(train, dev)]
