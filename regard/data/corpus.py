"""Sentence pairs: from parallel files, TSV, TMX or the computer's memory; every pair accounted for; a part held out."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from regard.data.pharaoh import Link
from regard.data.text import digest, read_lines
from regard.data.tmx import choose_languages, find_tag, list_languages, read_units
from regard.errors import DataError

FIRST_LINES = 5  # how many line numbers a report keeps for each reason


class Pair(NamedTuple):
    """A sentence and its translation, with the line it came from (1-based, over all files together)."""

    line: int
    source: str
    target: str
    unfit: str = ""  # why it cannot be used, where the file says so and not the text


class Corpus(Protocol):
    """Pairs that can be read again and again, always the same."""

    place: ClassVar[str]  # what `Pair.line` counts, as a person calls it

    def __iter__(self) -> Iterator[Pair]: ...

    def fingerprint(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        ...


@dataclass(frozen=True)
class ParallelFiles:
    """Source files and target files, line n beside line n. Several files count as one after the other."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    invalid: str = "refuse"
    place: ClassVar[str] = "line"

    def __iter__(self) -> Iterator[Pair]:
        if len(self.source) != len(self.target):
            raise DataError(
                f"There are {len(self.source)} source files and {len(self.target)} target files; "
                "each source file needs its target file."
            )
        line = 0
        for source, target in zip(self.source, self.target, strict=True):
            sides = zip_longest(read_lines(source, self.invalid), read_lines(target, self.invalid))
            for number, (left, right) in enumerate(sides, start=1):
                if left is None or right is None:
                    longer = number + sum(1 for _ in sides)
                    counts = (number - 1, longer) if left is None else (longer, number - 1)
                    raise DataError(
                        f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
                        "parallel files need the same number of lines."
                    )
                line += 1
                yield Pair(line, left, right)

    def fingerprint(self) -> str:
        return _combine(["files", self.invalid, *map(digest, self.source), "|", *map(digest, self.target)])


@dataclass(frozen=True)
class TabSeparated:
    """Files with source, tab, target on each line; further columns are ignored, and quotes are plain characters."""

    files: tuple[str, ...]
    invalid: str = "refuse"
    place: ClassVar[str] = "line"

    def __iter__(self) -> Iterator[Pair]:
        line = 0
        for path in self.files:
            for number, text in enumerate(read_lines(path, self.invalid), start=1):
                columns = text.split("\t", 2)
                if len(columns) < 2:
                    raise DataError(f"{path}, line {number}: a line needs source, tab and target; it has no tab.")
                line += 1
                yield Pair(line, columns[0], columns[1])

    def fingerprint(self) -> str:
        return _combine(["tsv", self.invalid, *map(digest, self.files)])


@dataclass(frozen=True)
class TranslationMemory:
    """TMX files: unit n is line n, and stays so where a unit lacks one of the two languages and is unfit."""

    files: tuple[str, ...]
    source: str  # codes of languages
    target: str
    place: ClassVar[str] = "unit"

    def __iter__(self) -> Iterator[Pair]:
        tags: set[str] = set()
        fit = line = 0
        for path in self.files:
            for _, texts in read_units(path):
                line += 1
                tags.update(filter(None, texts))
                source, target = find_tag(texts, self.source), find_tag(texts, self.target)
                if source and target and source != target:
                    fit += 1
                    yield Pair(line, texts[source], texts[target])
                else:
                    yield Pair(line, "", "", f"no {self.target if source else self.source}")
        if not fit:
            raise DataError(
                f"No unit has texts in both {self.source} and {self.target}; {list_languages(self.files, tags)}: set "
                "data.source_language and data.target_language to two of these."
            )

    def fingerprint(self) -> str:
        return _combine(["tmx", self.source, self.target, *map(digest, self.files)])


@dataclass(frozen=True)
class InMemory:
    """Pairs that are already here, as those of a built-in corpus, which knows which words belong together."""

    pairs: list[tuple[str, str]]
    links: list[tuple[Link, ...]] = field(default_factory=list)
    place: ClassVar[str] = "line"

    def __iter__(self) -> Iterator[Pair]:
        for line, (source, target) in enumerate(self.pairs, start=1):
            yield Pair(line, source, target)

    def fingerprint(self) -> str:
        return _combine(part for pair in self.pairs for part in pair)


def open_corpus(
    source: tuple[str, ...],
    target: tuple[str, ...],
    tsv: tuple[str, ...],
    invalid: str,
    tmx: tuple[str, ...] = (),
    languages: tuple[str, str] = ("", ""),
) -> Corpus:
    """The corpus that the file names ask for; missing files are refused here, before anything long begins."""
    for path in (*source, *target, *tsv, *tmx):
        if Path(path).is_dir():
            raise DataError(f"{path} is a folder; give a text file, or a list of files.")
        if not Path(path).exists():
            raise DataError(f"There is no file {path}; check the path.")
    kinds = {"tsv": tsv, "tmx": tmx, "source/target": source or target}
    given = [kind for kind, files in kinds.items() if files]
    if len(given) > 1:
        raise DataError(f"Both {given[0]} and {given[1]} are given; give one of the two.")
    if tmx:
        return TranslationMemory(tmx, *choose_languages(tmx, *languages))
    if tsv:
        return TabSeparated(tsv, invalid)
    if bool(source) != bool(target):
        raise DataError(f"Only the {'source' if source else 'target'} file is given; a parallel corpus needs both.")
    return ParallelFiles(source, target, invalid)


def _combine(parts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        whole.update(f"{len(content)}:".encode())
        whole.update(content)
    return whole.hexdigest()


@dataclass
class Report:
    """What became of every pair: `kept`, `held_out` for validation, or `dropped` by reason; together `total`."""

    kept: int = 0
    held_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)  # the first line numbers of each reason
    place: str = "line"  # what they count

    @property
    def total(self) -> int:
        return self.kept + self.held_out + sum(self.dropped.values())

    def drop(self, reason: str, line: int) -> None:
        """Count one dropped pair."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        first = self.lines.setdefault(reason, [])
        if len(first) < FIRST_LINES:
            first.append(line)

    def __str__(self) -> str:
        text = f"{self.kept} of {self.total} pairs kept"
        text += f", {self.held_out} held out" if self.held_out else ""
        for reason, count in self.dropped.items():
            where = ", ".join(map(str, self.lines[reason])) + (", ..." if count > len(self.lines[reason]) else "")
            text += f"; {count} dropped: {reason} ({self.place} {where})"
        return text


def sentence_key(text: str, seed: int) -> int:
    """A number drawn from a sentence: always the same for the same text and seed, and evenly spread."""
    content = f"{seed}:{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def choose_held_out(keys: Iterable[int], count: int) -> set[int]:
    """The keys of the source sentences to hold out: about `count` pairs, at most a tenth of them, at least one.

    Whole sentences are chosen, smallest key first, so that no source sentence is on both sides of the split; if a
    sentence occurs often, all its pairs go together and may be a few more than asked.
    """
    values, pairs = np.unique(np.fromiter(keys, dtype=np.uint64), return_counts=True)
    total = int(pairs.sum())
    if count == 0 or total == 0:
        return set()
    if len(values) < 2:
        raise DataError(
            f"The corpus has {total} usable pair{'s' if total > 1 else ''} with one source sentence; one must be held "
            "out and one trained on, so give more pairs, files for validation, or data.held_out=0."
        )
    wanted = min(count, max(1, total // 10))
    needed = int(np.searchsorted(np.cumsum(pairs), wanted)) + 1
    return set(values[: min(needed, len(values) - 1)].tolist())
