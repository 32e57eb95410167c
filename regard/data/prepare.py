"""From the [data] settings to what training needs: vocabularies, tokenised pairs, validation text, a report.

The whole is a pure function of the settings and the files. Vocabularies are saved in the run folder and loaded from
there the next time; the tokenised corpus is kept under a fingerprint of the files, the vocabularies and the settings.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.builtin.registry import find_builtin
from regard.data.corpus import Corpus, InMemory, Pair, Report, choose_held_out, open_corpus, sentence_key
from regard.data.links import LinkReader, Links, same_words
from regard.data.pharaoh import Link
from regard.data.settings import DataConfig, as_files
from regard.data.store import STORE_FORMAT, Resampled, Rows, Store, Tokenised, open_store, write_store
from regard.data.text import is_blank
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError

Stages = Callable[[str, int, int | None], None]  # (what is being done, done, total or None)
VOCABULARY_PAIRS = 500_000  # a vocabulary is made from at most so many pairs, evenly spread over the corpus
_BLOCK = 2_000  # pairs tokenised at once


@dataclass(frozen=True)
class Prepared:
    """A corpus ready for training. `dev_source[i]` and `dev_target[i]` are the text of pair i of `dev`."""

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    train: Store | Resampled
    dev: Rows
    dev_source: list[str]
    dev_target: list[str]
    report: Report
    dev_report: Report | None  # of validation files of their own
    fingerprint: str  # of the files, the vocabularies and the settings that choose pairs
    links: Links | None = None  # which pieces of the training pairs belong together, where the corpus is aligned


def find_corpus(config: DataConfig) -> Corpus:
    """The training corpus that the settings name."""
    source, target = as_files(config.source), as_files(config.target)
    tsv, tmx = as_files(config.tsv), as_files(config.tmx)
    if config.corpus and (source or target or tsv or tmx):
        raise ConfigError("Both data.corpus and files are given; give one of the two.")
    if config.corpus:
        generated = find_builtin(config.corpus).generate(config.size, config.seed, config.min_words, config.max_words)
        pairs = [(example.source, example.target) for example in generated]
        return InMemory(pairs, [example.alignment for example in generated])
    if not (source or target or tsv or tmx):
        raise ConfigError("There is no corpus: give data.source and data.target, data.tsv, data.tmx, or data.corpus.")
    for kind, others in (("tsv", (*source, *target)), ("tmx", (*source, *target, *tsv))):
        if any(re.search(rf"\.{kind}(\.(gz|bz2|xz))?$", path, re.IGNORECASE) for path in others):
            raise ConfigError(f"A {kind.upper()} file holds both sides of a corpus: give it as data.{kind}, alone.")
    return open_corpus(source, target, tsv, config.invalid, tmx, (config.source_language, config.target_language))


def find_dev(config: DataConfig) -> Corpus | None:
    """The validation corpus that the settings name, if it has files of its own."""
    source, target = as_files(config.dev_source), as_files(config.dev_target)
    tsv, tmx = as_files(config.dev_tsv), as_files(config.dev_tmx)
    languages = config.source_language, config.target_language
    return open_corpus(source, target, tsv, config.invalid, tmx, languages) if source or target or tsv or tmx else None


def prepare(config: DataConfig, folder: Path, progress: Stages | None = None) -> Prepared:
    """Read, split, make or load the vocabularies, tokenise; `folder` is the run folder.

    Called again it gives the same without doing the work twice. With several processes let one call it first.
    """
    tell = progress or (lambda stage, done, total: None)
    corpus, dev = find_corpus(config), find_dev(config)
    files = as_files(config.alignment)
    reader = LinkReader(files, corpus) if files else None
    split = _Split(corpus, 0 if dev else config.held_out, config.seed, tell)
    vocabularies = _load_vocabularies(folder) or _find_vocabularies(config, folder, split, tell)
    fingerprint = _fingerprint(config, corpus, dev, reader, vocabularies)
    place = Path(config.cache) / fingerprint[:16] if config.cache else folder / "corpus"
    store = open_store(place, fingerprint)
    if store is None:
        store = _tokenise(config, split, dev, reader, vocabularies, place, fingerprint, tell)
    report = Report(**store.about["report"])
    if not len(store):
        raise DataError(f"No pair is left to train on: {report}.")
    texts = [[pair[side] for pair in store.about["dev"]] for side in (0, 1)]
    encoded = [vocabulary.encode_many(side) for vocabulary, side in zip(vocabularies, texts, strict=True)]
    train: Store | Resampled = store
    if config.sampling:
        train = Resampled(store, vocabularies, config.sampling, config.seed, config.max_length)
    dev_report = store.about["dev_report"]
    return Prepared(
        source_vocabulary=vocabularies[0],
        target_vocabulary=vocabularies[1],
        train=train,
        dev=Rows(list(zip(*encoded, strict=True))),
        dev_source=texts[0],
        dev_target=texts[1],
        report=report,
        dev_report=Report(**dev_report) if dev_report else None,
        fingerprint=fingerprint,
        links=Links(store, vocabularies) if reader else None,
    )


class _Split:
    """A corpus and which of its sentences are held out; found at the first need, since a second run needs neither."""

    def __init__(self, corpus: Corpus, count: int, seed: int, tell: Stages) -> None:
        self.corpus = corpus
        self.count = count
        self.seed = seed
        self.tell = tell
        self.total = 0
        self._chosen: set[int] | None = None

    def measure(self) -> None:
        """Read the corpus once: count its usable pairs and choose the sentences to hold out."""
        if self._chosen is not None:
            return
        keys = array("Q")
        for pair in self.corpus:
            self.total = pair.line
            if pair.line % 10_000 == 0:
                self.tell("reading", pair.line, None)
            if not is_blank(pair.source) and not is_blank(pair.target):
                keys.append(sentence_key(pair.source, self.seed))
        if not keys:
            empty = "it has no line" if not self.total else f"each of its {self.total} pairs has an empty side"
            raise DataError(f"The corpus is empty: {empty}; training needs sentence pairs.")
        self._chosen = choose_held_out(keys, self.count)

    def holds_out(self, pair: Pair) -> bool:
        self.measure()
        assert self._chosen is not None
        return bool(self._chosen) and sentence_key(pair.source, self.seed) in self._chosen

    def lines(self, sides: tuple[int, ...]) -> Iterator[str]:
        """Training text of the sides asked for (0 source, 1 target), at most VOCABULARY_PAIRS pairs, evenly spread."""
        self.measure()
        stride = -(-self.total // VOCABULARY_PAIRS)
        for pair in islice(self.corpus, 0, None, stride):
            if pair.line % 10_000 < stride:
                self.tell("vocabulary", pair.line, self.total)
            if not self.holds_out(pair):
                for side in sides:
                    yield (pair.source, pair.target)[side]


def _load_vocabularies(folder: Path) -> tuple[Vocabulary, Vocabulary] | None:
    if not all((folder / f"{side}.json").exists() for side in ("source", "target")):
        return None
    source, target = (Vocabulary.load(folder, side) for side in ("source", "target"))
    return (source, source) if source.fingerprint == target.fingerprint else (source, target)


def _find_vocabularies(config: DataConfig, folder: Path, split: _Split, tell: Stages) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of another run or new ones, saved in `folder`."""
    made = _load_vocabularies(Path(config.vocabulary_from)) if config.vocabulary_from else None
    if config.vocabulary_from and made is None:
        raise DataError(f"data.vocabulary_from names {config.vocabulary_from}, which holds no vocabularies.")
    made = made or _make_vocabularies(config, split, tell)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The folder {folder} could not be made: {error.strerror or error}.") from None
    for vocabulary, side in zip(made, ("source", "target"), strict=True):
        vocabulary.save(folder, side)
    return made


def _make_vocabularies(config: DataConfig, split: _Split, tell: Stages) -> tuple[Vocabulary, Vocabulary]:
    def make(sides: tuple[int, ...]) -> Vocabulary:
        return Vocabulary.train(
            split.lines(sides),
            config.subwords,
            config.vocabulary,
            config.byte_fallback,
            config.coverage,
            config.form,
            config.lowercase,
        )

    tell("vocabulary", 0, None)
    if config.joint:
        joint = make((0, 1))
        return joint, joint
    return make((0,)), make((1,))


def _fingerprint(
    config: DataConfig,
    corpus: Corpus,
    dev: Corpus | None,
    reader: LinkReader | None,
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> str:
    parts: list[Any] = [STORE_FORMAT, corpus.fingerprint(), dev.fingerprint() if dev else config.held_out]
    parts += [vocabulary.fingerprint for vocabulary in vocabularies]
    parts += [config.seed, config.max_length, config.max_ratio]
    parts += reader.fingerprint() if reader else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _tokenise(
    config: DataConfig,
    split: _Split,
    dev: Corpus | None,
    reader: LinkReader | None,
    vocabularies: tuple[Vocabulary, Vocabulary],
    place: Path,
    fingerprint: str,
    tell: Stages,
) -> Store:
    split.measure()
    report, dev_report = Report(place=split.corpus.place), Report(place=dev.place) if dev else None
    held: list[tuple[str, str]] = []
    reading = reader.reading(split.total) if reader else None

    def links(pair: Pair, ids: tuple[list[int], list[int]]) -> tuple[Link, ...]:
        if reading is None:
            return ()
        found = reading.of(pair.line, pair.source, pair.target)
        sides = zip(vocabularies, ids, (pair.source, pair.target), strict=True)
        return found if all(same_words(*side) for side in sides) else ()

    def rows() -> Iterator[Tokenised]:
        for pair, source, target in _keep(split.corpus, config, vocabularies, report):
            if pair.line % 10_000 == 0:
                tell("tokenising", pair.line, split.total)
            if split.holds_out(pair):
                held.append((pair.source, pair.target))
                report.held_out += 1
            else:
                report.kept += 1
                yield Tokenised(pair.line, source, target, links(pair, (source, target)))
        if reading:
            reading.finish()

    def about() -> dict[str, Any]:
        if dev and dev_report:
            for pair, _, _ in _keep(dev, config, vocabularies, dev_report):
                held.append((pair.source, pair.target))
                dev_report.kept += 1
        return {"report": asdict(report), "dev_report": dev_report and asdict(dev_report), "dev": held}

    return write_store(place, fingerprint, rows(), max(map(len, vocabularies)), about, aligned=reader is not None)


def _keep(
    corpus: Corpus, config: DataConfig, vocabularies: tuple[Vocabulary, Vocabulary], report: Report
) -> Iterator[tuple[Pair, list[int], list[int]]]:
    """The pairs fit for use with their ids, END not among them; the others are counted in `report`."""
    pairs = iter(corpus)
    while block := list(islice(pairs, _BLOCK)):
        sources = vocabularies[0].encode_many(pair.source for pair in block)
        targets = vocabularies[1].encode_many(pair.target for pair in block)
        for pair, source, target in zip(block, sources, targets, strict=True):
            reason = _reason(config, pair, len(source), len(target))
            if reason:
                report.drop(reason, pair.line)
            else:
                yield pair, source, target


def _reason(config: DataConfig, pair: Pair, source: int, target: int) -> str:
    """Why a pair of these token counts is not used; empty if it is."""
    if pair.unfit:
        return pair.unfit
    if is_blank(pair.source) or is_blank(pair.target) or not source or not target:
        return "empty"
    if max(source, target) > config.max_length:
        return "too long"
    if config.max_ratio and max(source, target) > config.max_ratio * min(source, target):
        return "ratio"
    return ""
