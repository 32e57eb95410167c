"""Sentence pairs from parallel files, TSV, TMX or memory."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from regard.data.builtin import Example
from regard.data.encoding import Corpus
from regard.data.files import Digests, check_file, read_files
from regard.data.pharaoh import Link
from regard.data.settings import READING, DataConfig, Reading, as_files
from regard.data.tmx import choose_languages, find_tag, list_languages, read_units
from regard.errors import DataError, counted

Files = tuple[str, ...]


class Pair(NamedTuple):
    """A sentence and its translation, with the line it came from (1-based, over all files together)."""

    line: int
    source: str
    target: str
    unfit: str = ""  # why it cannot be used, where the file says so and not the text
    links: tuple[Link, ...] = ()  # of its words, where they are known


def parallel_files(sources: Files, targets: Files, reading: Reading = READING) -> Corpus[Pair]:
    """Source files and target files, line n beside line n. Several files count as one after the other."""

    def read(digests: Digests) -> Iterator[Pair]:
        if len(sources) != len(targets):
            raise DataError(f"Each source file needs its target file; got {len(sources)} and {len(targets)}.")
        line = 0
        files = (read_files(paths, reading, digests) for paths in (sources, targets))
        for source, target, *lines in zip(sources, targets, *files, strict=True):
            sides = zip_longest(*lines)
            for number, (left, right) in enumerate(sides, start=1):
                if left is None or right is None:
                    longer = number + sum(1 for _ in sides)
                    counts = (number - 1, longer) if left is None else (longer, number - 1)
                    raise DataError(
                        f"{source} has {counted(counts[0], 'line')} and {target} has {counts[1]}; "
                        "parallel files need the same number of lines."
                    )
                line += 1
                yield Pair(line, left, right)

    return Corpus(read, (*sources, *targets), ("files", reading.invalid, str(len(sources))))


def tab_separated(files: Files, reading: Reading = READING) -> Corpus[Pair]:
    """Files with source, tab, target on each line; further columns are ignored, and quotes are plain characters."""

    def read(digests: Digests) -> Iterator[Pair]:
        line = 0
        for path, texts in zip(files, read_files(files, reading, digests), strict=True):
            for number, text in enumerate(texts, start=1):
                columns = text.split("\t", 2)
                if len(columns) < 2:
                    raise DataError(f"{path}, line {number}: a line needs source, tab and target; it has no tab.")
                line += 1
                yield Pair(line, columns[0], columns[1])

    return Corpus(read, files, ("tsv", reading.invalid))


def translation_memory(
    files: Files, source_language: str, target_language: str, reading: Reading = READING
) -> Corpus[Pair]:
    """TMX files: unit n is line n, and stays so where a unit lacks one of the two languages and is unfit."""

    def read(digests: Digests) -> Iterator[Pair]:
        tags: set[str] = set()
        fit = line = 0
        for path in files:
            for _, texts in read_units(path, reading, digests):
                line += 1
                tags.update(filter(None, texts))
                source, target = find_tag(texts, source_language), find_tag(texts, target_language)
                if source and target and source != target:
                    fit += 1
                    yield Pair(line, texts[source], texts[target])
                else:
                    yield Pair(line, "", "", f"no {target_language if source else source_language}")
        if not fit:
            raise DataError(
                f"No unit has texts in both {source_language} and {target_language}; {list_languages(files, tags)}: "
                "set data.source_language and data.target_language to two of these."
            )

    return Corpus(read, files, ("tmx", source_language, target_language), "unit")


def pairs_in_memory(examples: Sequence[Example]) -> Corpus[Pair]:
    """The pairs of a built-in corpus."""
    items = [Pair(line, one.source, one.target, links=one.alignment) for line, one in enumerate(examples, start=1)]
    return Corpus(lambda digests: items, (), [text for one in items for text in (one.source, one.target)])


def open_corpus(config: DataConfig, prefix: str = "") -> Corpus[Pair] | None:
    """The files that the settings name, or with "dev_" as prefix those for validation; None where they name none.

    Missing files are refused here, before anything long begins.
    """
    source, target, tsv, tmx = (as_files(getattr(config, prefix + name)) for name in ("source", "target", "tsv", "tmx"))
    for path in (*source, *target, *tsv, *tmx):
        check_file(path)
    kinds = {"tsv": tsv, "tmx": tmx, "source/target": source or target}
    given = [kind for kind, files in kinds.items() if files]
    if len(given) > 1:
        raise DataError(f"Both {given[0]} and {given[1]} are given; give one of the two.")
    if tmx:
        languages = choose_languages(tmx, config.source_language, config.target_language, reading=config)
        return translation_memory(tmx, *languages, config)
    if tsv:
        return tab_separated(tsv, config)
    if bool(source) != bool(target):
        names = [f"data.{prefix}{side}" for side in ("source", "target")]
        there, missing = names if source else names[::-1]
        raise DataError(f"Only {there} is given; a parallel corpus needs {missing} too.")
    return parallel_files(source, target, config) if source else None
