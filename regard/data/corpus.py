"""Sentence pairs from parallel files, TSV, TMX or memory, with word links if they are known."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.corpora import Example
from regard.corpora.registry import find_builtin
from regard.data.encoding import Corpus
from regard.data.settings import DataConfig, as_files
from regard.data.tmx import are_varieties, choose_languages, find_tag, list_languages, plain_tag, read_units
from regard.errors import ConfigError, DataError, check_file, counted
from regard.files.document import format_of
from regard.text.lines import READING, Digests, Reading, bare_name, language_of, read_files, read_lines
from regard.text.pharaoh import Link, parse_pharaoh

Files = tuple[str, ...]
GOLD = "gold"  # the links that come with a built-in corpus
SIDES = ("source", "target")


class Pair(NamedTuple):
    """A sentence and its translation; `line` counts from 1 over all files."""

    line: int
    source: str
    target: str
    unfit: str = ""  # why it cannot be used, apart from its text
    links: tuple[Link, ...] = ()  # of its words, if they are known


def parallel_files(sources: Files, targets: Files, reading: Reading = READING) -> Corpus[Pair]:
    """Source files and target files, in which line n is parallel to line n. Several files are read in order."""

    def read(digests: Digests) -> Iterator[Pair]:
        if len(sources) != len(targets):
            raise DataError(f"Each source file needs one target file; got {len(sources)} and {len(targets)}.")
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
                    raise DataError(f"{path}, line {number}: expected source, tab and target; there is no tab.")
                line += 1
                yield Pair(line, columns[0], columns[1])

    return Corpus(read, files, ("tsv", reading.invalid))


def translation_memory(
    files: Files, source_language: str, target_language: str, reading: Reading = READING
) -> Corpus[Pair]:
    """TMX files: unit n is line n, also if it lacks one of the two languages and cannot be used."""

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
    """The files of the settings, or with the prefix "dev_" those for validation; None if there are none.

    Missing files are refused here, before any long work.
    """
    source, target, tsv, tmx = (as_files(getattr(config, prefix + name)) for name in ("source", "target", "tsv", "tmx"))
    for path in (*source, *target, *tsv, *tmx):
        check_file(path)
    kinds = {"tsv": tsv, "tmx": tmx, "source/target": source or target}
    named = [kind for kind, files in kinds.items() if files]
    if len(named) > 1:
        raise DataError(f"Both {named[0]} and {named[1]} are set; set one of the two.")
    if tmx:
        languages = choose_languages(tmx, config.source_language, config.target_language, reading=config)
        return translation_memory(tmx, *languages, config)
    if tsv:
        return tab_separated(tsv, config)
    if bool(source) != bool(target):
        names = [f"data.{prefix}{side}" for side in ("source", "target")]
        there, missing = names if source else names[::-1]
        raise DataError(f"Only {there} is set; a parallel corpus needs {missing} too.")
    return parallel_files(source, target, config) if source else None


def find_corpus(config: DataConfig) -> Corpus[Pair]:
    """The training corpus of the settings."""
    paired, tsv, tmx = as_files(config.source) + as_files(config.target), as_files(config.tsv), as_files(config.tmx)
    if config.corpus and (paired or tsv or tmx):
        raise ConfigError("Both data.corpus and files are set; set one of the two.")
    if config.corpus:
        made = find_builtin(config.corpus)
        return pairs_in_memory(made.generate(config.size, config.seed, config.min_words, config.max_words))
    for kind, others in (("tsv", paired), ("tmx", paired + tsv)):
        if any(bare_name(path).lower().endswith(f".{kind}") for path in others):
            raise ConfigError(f"A {kind.upper()} file holds both sides of a corpus: set only data.{kind}.")
    for path in paired + tsv:
        found = format_of(path)
        if found is not None and found.markup:
            instead = "set only data.tmx, which reads it" if found.pairs else "use plain text, one sentence per line"
            raise ConfigError(f"{path} is {found.name}, with markup: {instead}.")
    corpus = open_corpus(config)
    if corpus is None:
        raise ConfigError("There is no corpus: set data.source and data.target, data.tsv, data.tmx or data.corpus.")
    return corpus


def every_nth(corpus: Corpus[Pair], number: int) -> Corpus[Pair]:
    """The corpus with every Nth pair; the others are empty and marked as unfit."""

    def read(digests: Digests) -> Iterator[Pair]:
        for pair in corpus.read(digests):
            yield pair if (pair.line - 1) % number == 0 else Pair(pair.line, "", "", "data.every")

    return Corpus(read, corpus.files, [*corpus.parts, f"every {number}"], corpus.place)


def with_links(corpus: Corpus[Pair], files: tuple[str, ...], reading: Reading) -> Corpus[Pair]:
    """The pairs of a corpus with the links of alignment files, whose line n belongs to pair n."""
    for path in files:
        if path == GOLD and not Path(path).exists():
            raise ConfigError("data.alignment = 'gold' needs a built-in corpus; set it to a file of links i-j.")
        if not Path(path).exists():
            raise DataError(f"There is no alignment file {path}; check data.alignment.")

    def read(digests: Digests) -> Iterator[Pair]:
        lines = ((path, *line) for path in files for line in enumerate(read_lines(path, reading), 1))
        both = zip_longest(corpus.read(digests), lines)
        for count, (pair, line) in enumerate(both):
            if pair is None or line is None:
                longer = count + 1 + sum(1 for _ in both)
                counts = (longer, count) if pair is None else (count, longer)
                raise DataError(
                    f"The alignment {', '.join(files)} has {counted(counts[0], 'line')} and the corpus "
                    f"{counted(counts[1], 'pair')}; line n must hold the links of pair n, and be empty if it has none."
                )
            where = f"{line[0]}, line {line[1]},"
            links = sorted(parse_pharaoh(line[2], where))
            S, T = len(pair.source.split()), len(pair.target.split())
            for source, target in links if S and T else ():
                if source >= S or target >= T:
                    raise DataError(
                        f"{where} links words {source}-{target}, but its pair has {counted(S, 'source word')} and "
                        f"{counted(T, 'target word')}, counted from 0; is it the alignment of another corpus?"
                    )
            yield pair._replace(links=tuple(links))

    return Corpus(read, corpus.files, corpus.parts, corpus.place)


def note_files(config: DataConfig) -> list[str]:
    """A note if a file is both source and target, or if its name ends with the code of the other language."""
    if both := set(as_files(config.source)) & set(as_files(config.target)):
        return [f"{min(both)} is both source and target. Check the names of the files."]
    languages = [plain_tag(getattr(config, f"{side}_language")) for side in SIDES]
    odd = []
    for side, wanted, other in zip(SIDES, languages, reversed(languages), strict=True):
        for path in as_files(getattr(config, side)) + as_files(getattr(config, f"dev_{side}")):
            named = language_of(path)
            if named and wanted and other and are_varieties(named, other) and not are_varieties(named, wanted):
                odd.append(f"{path} is a {side} file, but the {side} language is {wanted}")
                break
    note = f"file names contradict the languages: {'; '.join(odd)}. Check that source and target are not swapped."
    return [note] if odd else []
