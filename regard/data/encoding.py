"""What a task defines to prepare its corpus: the examples (`Corpus`) and how they become ids (`Encoding`)."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from sys import getsizeof
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from regard.corpora.registry import check_kind
from regard.data.settings import as_files
from regard.data.store import Array, Column, ColumnType
from regard.data.tokenisers import Tokenise
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError
from regard.sealed import digest
from regard.text.lines import Digests

FIRST_LINES = 5  # line numbers that a tally keeps for each reason


T = TypeVar("T")  # an example; its `line` is its number, from 1, counted over all files without gaps


class Corpus(Generic[T]):
    """Examples from files or memory; every read gives the same ones.

    `read` fills in the digests of the `files`; `parts` is everything else that the examples depend on. `place` is the
    unit that `line` counts.
    """

    def __init__(
        self, read: Callable[[Digests], Iterable[T]], files: Sequence[str], parts: Iterable[str], place: str = "line"
    ) -> None:
        self.read, self.files, self.parts, self.place = read, files, list(parts), place
        self.digests: Digests = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self.read(self.digests))

    def fingerprint(self) -> str:
        """SHA-256 of the content; files that were read before are not read again."""
        return fingerprint_of([self.parts, [self.digests.get(path) or digest(path) for path in self.files]])


def named_files(config: Any, builtin: str, missing: str) -> tuple[str, ...]:
    """The files of a [data] section with `files` and `corpus`; none if it names the built-in corpus `builtin`.

    `missing` is part of the error message.
    """
    files = as_files(config.files)
    if config.corpus and files:
        raise ConfigError("Both data.corpus and data.files are set; set one of the two.")
    if config.corpus:
        check_kind(config.corpus, (builtin,))
    if not config.corpus and not files:
        raise ConfigError(f"There {missing}: set data.files or data.corpus.")
    return files


@dataclasses.dataclass
class Tally:
    """The number of examples `kept`, `held_out` for validation, and `dropped` by reason; their sum is `total`."""

    kept: int = 0
    held_out: int = 0
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: dict[str, list[int]] = dataclasses.field(default_factory=dict)  # the first line numbers of each reason
    replaced: int = 0  # examples with U+FFFD, kept or not
    place: str = "line"  # the unit of these numbers
    noun: str = "pairs"

    @property
    def total(self) -> int:
        return self.kept + self.held_out + sum(self.dropped.values())

    def drop(self, reason: str, line: int) -> None:
        """Count one dropped example."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        first = self.lines.setdefault(reason, [])
        if len(first) < FIRST_LINES:
            first.append(line)

    def add(self, other: "Tally") -> None:
        """Add the tally of later examples."""
        self.kept, self.held_out = self.kept + other.kept, self.held_out + other.held_out
        self.replaced += other.replaced
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            first = self.lines.setdefault(reason, [])
            first.extend(other.lines[reason][: FIRST_LINES - len(first)])

    def __str__(self) -> str:
        text = f"{self.kept} of {self.total} {self.noun} kept"
        text += f", {self.held_out} held out" if self.held_out else ""
        for reason, count in self.dropped.items():
            where = ", ".join(map(str, self.lines[reason])) + (", ..." if count > len(self.lines[reason]) else "")
            text += f"; {count} dropped: {reason} ({self.place} {where})"
        return text + (f"; {self.replaced} with U+FFFD in place of bytes that were not UTF-8" if self.replaced else "")


class Rows(NamedTuple, Generic[T]):
    """Rows of a store: the example of each row, and the values of each column: a `Column`, an array or a list."""

    items: Sequence[T]
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, found: Iterable[tuple[T, tuple[Any, ...]]], names: Iterable[str]) -> "Rows[T]":
        """Rows from (example, values) pairs."""
        items, values = tuple(zip(*found, strict=True)) or ((), ())
        return cls(items, dict(zip(names, zip(*values, strict=True), strict=bool(items))))

    def where(self, chosen: Array) -> "Rows[T]":
        """The rows for which `chosen` [N] is true."""
        if chosen.all():
            return self
        columns = {
            name: column.where(chosen) if isinstance(column, Column) else list(compress(column, chosen))
            for name, column in self.columns.items()
        }
        return Rows(list(compress(self.items, chosen)), columns)


class Encoding(Generic[T]):
    """The part of the preparation that differs between tasks, here for examples of one text. It holds the vocabularies.

    `names` are the file names of the vocabularies in the run folder; `noun` is the plural word for examples.
    """

    names: ClassVar[tuple[str, ...]]
    noun: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()  # other files of the run folder that a model needs

    def __init__(self, config: Any, corpus: Corpus[T], dev: Corpus[T] | None) -> None:
        self.config, self.corpus, self.dev = config, corpus, dev  # `dev`: validation files, if there are any
        self.vocabularies: list[Vocabulary] = []

    def texts(self, item: T) -> tuple[str, ...]:
        """The texts of an example. An example with a blank text is dropped; the first text decides what is held out."""
        return (item.text,)  # type: ignore[attr-defined]

    def columns(self, items: Sequence[T]) -> list[tuple[str, ...]]:
        """The first texts of all examples, their second texts, and so on."""
        return list(zip(*map(self.texts, items), strict=True))

    def size(self, items: Sequence[T]) -> int:
        """The bytes of examples in memory."""
        return sum(map(getsizeof, items)) + sum(sum(map(getsizeof, column)) for column in self.columns(items))

    def see(self, items: Iterable[T]) -> None:
        """Called with the examples of the first pass, in chunks."""

    def make(self, sample: Sequence[T]) -> None:
        """Make the vocabularies from examples of the training part."""
        self.vocabularies = [train_vocabulary((text for item in sample for text in self.texts(item)), self.config)]

    def load(self, folder: Path) -> None:
        """Load the vocabularies of a run folder."""
        self.vocabularies = [Vocabulary.load(folder, name) for name in self.names]

    def save(self, folder: Path, source: str) -> None:
        """Write the vocabularies; `source` is the fingerprint of their corpus."""
        for name, vocabulary in zip(self.names, self.vocabularies, strict=True):
            vocabulary.save(folder, name, source)

    def depends(self) -> list[str]:
        """Everything that the ids depend on besides the corpus, the settings and the vocabularies."""
        return []

    def sizes(self) -> dict[str, int]:
        """The model settings that depend on the data."""
        return {"vocabulary": len(self.vocabularies[0])}

    def column_types(self) -> dict[str, ColumnType]:
        """The columns of the store."""
        raise NotImplementedError

    def encode(self, items: Sequence[T], tally: Tally, tokenise: Tokenise) -> "Rows[T]":
        """The rows of the usable examples; the others are counted in `tally`."""
        raise NotImplementedError

    def shown(self, item: T) -> Sequence[Any]:
        """What to keep of a validation example besides its ids, as JSON: one value, or none."""
        return ()

    def open(self, columns: dict[str, Any], training: bool) -> Any:
        """The columns of the training or validation part as the task's dataset."""
        raise NotImplementedError

    def describe(self, train: Any, dev: Any) -> list[str]:
        """Notes about the prepared data for the user."""
        return [f"vocabulary: {len(self.vocabularies[0])}"]


def have_text(columns: Iterable[Sequence[str]]) -> list[bool]:
    """For each example, given as columns of texts, whether all its texts are non-blank."""
    return list(map(all, zip(*(map(str.strip, column) for column in columns), strict=True)))


def train_vocabulary(lines: Iterable[str], config: Any) -> Vocabulary:
    """A vocabulary with the settings of [data]."""
    names = ("byte_fallback", "coverage", "form", "lowercase", "min_count")
    how = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return Vocabulary.train(lines, getattr(config, "subwords", "word"), config.vocabulary, **how)


def fingerprint_of(parts: Sequence[Any]) -> str:
    """SHA-256 of `parts` as JSON."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
