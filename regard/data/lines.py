"""Text for language models: lines into rows of ids, every token of them in some row exactly once.

A row is a line with END behind it, which the model predicts like any word. A line of more than `max_length` tokens is
read as several rows. With `context` above zero the lines are joined, END between them, and the text is cut into rows of
that many tokens: a row then begins anywhere, and its lines can look back at each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.config import setting
from regard.data.batching import pad
from regard.data.builtin import tales
from regard.data.corpus import choose_held_out, sentence_key
from regard.data.settings import as_files, check_least
from regard.data.text import is_blank, read_lines
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, unknown
from regard.symbols import END

BUILTIN = {"tales": "who has what, and an end that only somebody who remembers can tell"}
_BLOCK = 2_000  # lines tokenised at once


@dataclass(frozen=True)
class TextDataConfig:
    """Settings of a text. Give `files`, or `corpus`."""

    files: str | tuple[str, ...] = setting("", "file or files of text, a sentence or paragraph a line")
    dev_files: str | tuple[str, ...] = setting("", "file or files for validation; none: a part is held out")
    corpus: str = setting("", "name of a built-in text, generated on the spot: tales")
    size: int = setting(8_000, "lines generated for a built-in text")
    seed: int = setting(1, "seed of the generated text and of the held-out split")
    held_out: int = setting(1_000, "lines held out for validation without files of their own, at most a tenth")
    subwords: str = setting("bpe", "what a token is", choices=("bpe", "unigram", "word", "char"))
    vocabulary: int = setting(8_000, "most tokens in the vocabulary, the four symbols included")
    byte_fallback: bool = setting(True, "spell characters outside the vocabulary as bytes, so that none is unknown")
    form: str = setting("none", "Unicode normal form applied before tokenising", choices=("none", "nfc", "nfkc"))
    lowercase: bool = setting(False, "lower-case the text before tokenising")
    max_length: int = setting(256, "most tokens of a row; longer lines are read in several, no token is lost")
    context: int = setting(0, "join the lines and read rows of so many tokens; 0 = each line by itself")
    invalid: str = setting("refuse", "what to do with bytes that are not UTF-8", choices=("refuse", "replace"))

    def __post_init__(self) -> None:
        check_least(self, size=2, held_out=0, vocabulary=5, max_length=1, context=0)


class TextBatch(NamedTuple):
    """Rows of ids, then PAD."""

    target: Tensor  # [B, T]
    lengths: Tensor  # [B]


class Rows:
    """Rows of a text, one after the other in one array."""

    def __init__(self, ids: NDArray[np.int32], starts: NDArray[np.int64]) -> None:
        self.ids = ids
        self.starts = starts  # [R + 1]
        self.lengths: NDArray[np.int64] = np.diff(starts)  # [R]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Everything that is predicted: words and ends of lines."""
        return len(self.ids)

    def row(self, number: int) -> list[int]:
        """The ids of one row."""
        return self.ids[self.starts[number] : self.starts[number + 1]].tolist()

    def batch(self, numbers: Sequence[int]) -> TextBatch:
        """The rows of these numbers, padded to one length."""
        return TextBatch(*pad([self.row(int(number)) for number in numbers]))


def make_rows(lines: Iterable[str], vocabulary: Vocabulary, max_length: int = 256, context: int = 0) -> Rows:
    """Lines into rows. Blank lines are left out."""
    parts: list[NDArray[np.int32]] = []
    ends = [0]
    for block in _blocks(line for line in lines if not is_blank(line)):
        for ids in vocabulary.encode_many(block):
            parts.append(np.array([*ids, END], np.int32))
            ends.append(ends[-1] + len(ids) + 1)
    if context:
        starts = np.arange(0, ends[-1] + context, context)
        starts[-1] = ends[-1]
    else:
        cuts = [range(first, last, max_length) for first, last in pairwise(ends)]
        starts = np.fromiter(chain(*cuts, [ends[-1]]), np.int64)
    return Rows(np.concatenate(parts) if parts else np.zeros(0, np.int32), np.unique(starts).astype(np.int64))


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == _BLOCK:
            yield block
            block = []
    yield block


def find_lines(config: TextDataConfig) -> list[str]:
    """The lines of the training text that the settings name, blank ones left out."""
    files = as_files(config.files)
    if config.corpus and files:
        raise ConfigError("Both data.corpus and data.files are given; give one of the two.")
    if config.corpus:
        if config.corpus not in BUILTIN:
            raise DataError(unknown("built-in text", config.corpus, BUILTIN))
        return [tale.text for tale in tales.generate(config.size, config.seed)]
    if not files:
        raise ConfigError("There is no text: give data.files, or data.corpus.")
    return read_text(files, config.invalid)


def read_text(files: Sequence[str], invalid: str = "refuse") -> list[str]:
    """The lines of several files, blank ones left out; no line at all is refused."""
    lines = [line for path in files for line in read_lines(path, invalid) if not is_blank(line)]
    if not lines:
        raise DataError(f"There is no text in {', '.join(map(str, files))}: every line is blank.")
    return lines


@dataclass(frozen=True)
class PreparedText:
    """A text ready for training."""

    vocabulary: Vocabulary
    train: Rows
    dev: Rows
    notes: list[str]  # what a person should know of the data
    told: bool = False  # whether the last word of a line is told by those before it, as in tales


def prepare_text(config: TextDataConfig, folder: Path) -> PreparedText:
    """Read, divide, make or load the vocabulary, tokenise; a pure function of the settings and the files.

    `folder` is the run folder: it receives text.json (and text.model where there are subwords).
    """
    lines = find_lines(config)
    dev_files = as_files(config.dev_files)
    train, dev = (lines, read_text(dev_files, config.invalid)) if dev_files else _divide(config, lines)
    if (folder / "text.json").exists():
        vocabulary = Vocabulary.load(folder, "text")
    else:
        vocabulary = Vocabulary.train(
            train,
            config.subwords,
            config.vocabulary,
            config.byte_fallback,
            form=config.form,
            lowercase=config.lowercase,
        )
        vocabulary.save(folder, "text")
    rows, held = (make_rows(side, vocabulary, config.max_length, config.context) for side in (train, dev))
    notes = [
        f"text: {len(train)} lines, {rows.tokens} tokens to train on; {len(dev)} lines, {held.tokens} for validation",
        f"vocabulary: {len(vocabulary)}; the longest row has {int(rows.lengths.max())} tokens",
    ]
    return PreparedText(vocabulary, rows, held, notes, told=config.corpus == "tales" and not config.context)


def _divide(config: TextDataConfig, lines: list[str]) -> tuple[list[str], list[str]]:
    """Training and validation lines; the same line is never on both sides."""
    keys = [sentence_key(line, config.seed) for line in lines]
    chosen = choose_held_out(keys, config.held_out)
    sides: tuple[list[str], list[str]] = ([], [])
    for line, key in zip(lines, keys, strict=True):
        sides[key in chosen].append(line)
    return sides
