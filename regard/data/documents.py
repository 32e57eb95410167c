"""Labelled documents: from JSON lines, TSV or memory, into words, sentences and classes.

Documents are neither padded nor truncated. A very long sentence is split, since a recurrent net reads it word by word.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.corpora import reviews
from regard.data.encoding import Corpus, Encoding, Rows, Tally, named_files, train_vocabulary
from regard.data.prepare import survey
from regard.data.settings import DocumentDataConfig, as_files
from regard.data.store import Array, Column, ColumnType, id_type
from regard.data.tokenisers import Tokenise
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, check_file, unknown
from regard.sealed import read_small, write_atomically
from regard.text.lines import Digests, bare_name, is_blank, read_lines
from regard.text.sentences import Span, split_sentences, split_words

SHOWN_CHARACTERS = 80  # of a validation document, kept for display


class Labelled(NamedTuple):
    """A document and its label."""

    line: int  # from 1, over all files
    text: str
    label: str
    deciding: tuple[int, ...] = ()  # sentences that decide the label, if they are known


# --- reading


def document_files(config: DocumentDataConfig, files: tuple[str, ...]) -> Corpus[Labelled]:
    """The documents of files, one per line. The extension selects the format, for compressed files too."""

    def read(digests: Digests) -> Iterator[Labelled]:
        total = 0
        for path in files:
            check_file(path)
            kind = Path(bare_name(path)).suffix
            if kind not in (".jsonl", ".tsv"):
                raise DataError(f"{path} must be JSON lines (.jsonl) or label-tab-text (.tsv), compressed or not.")
            for number, line in enumerate(read_lines(path, config, digests), start=1):
                total += 1
                where = f"{path}, line {number}"
                if kind == ".jsonl":
                    text, label = _from_json(line, config, where)
                else:
                    label, tab, text = line.partition("\t")
                    if not tab or not label:
                        raise DataError(f"{where}: expected label, tab and text; got {line[:40]!r}.")
                yield Labelled(total, text, label)

    return Corpus(read, files, [config.invalid])


def _from_json(line: str, config: DocumentDataConfig, where: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not a JSON object ({error}).") from None
    if not isinstance(entry, dict):
        raise DataError(f"{where}: a line must be a JSON object; got {type(entry).__name__}.")
    for name in (config.text, config.label):
        if name not in entry:
            raise DataError(f"{where}: {unknown('field', name, entry)} Set data.text and data.label to its fields.")
    text, label = entry[config.text], entry[config.label]
    if not isinstance(text, str) or not isinstance(label, str | int):
        raise DataError(f"{where}: '{config.text}' must be text and '{config.label}' text or an integer.")
    return text, str(label)


def find_documents(config: DocumentDataConfig) -> Corpus[Labelled]:
    """The training documents of the settings."""
    files = named_files(config, "reviews", "are no documents")
    if files:
        return document_files(config, files)
    made = enumerate(reviews.generate(config.size, config.seed), start=1)
    documents = [Labelled(line, review.text, review.label, review.deciding) for line, review in made]
    return Corpus(lambda digests: documents, (), [f"{one.label}\t{one.text}" for one in documents])


# --- labels and words


def group_labels(config: DocumentDataConfig) -> dict[str, str]:
    """Label -> class, from data.classes; empty if each label is a class."""
    groups: dict[str, str] = {}
    for entry in config.classes:
        name, equals, labels = entry.partition("=")
        if not equals or not name.strip(" ") or not labels.strip(" "):
            raise ConfigError(f"data.classes must be 'name = label label ...'; got {entry!r}.")
        for label in labels.split():
            if label in groups:
                raise ConfigError(f"data.classes has the label {label!r} twice; a label belongs to one class.")
            groups[label] = name.strip(" ")
    return groups


def class_of(label: str, classes: Sequence[str], groups: dict[str, str]) -> int:
    """The index of the class of a label; an unknown label is refused."""
    known = groups or {name: name for name in classes}
    if label not in known:
        raise DataError(unknown("label", label, known))
    return classes.index(known[label])


def split_document(text: str, most: int) -> list[list[Span]]:
    """The words of each sentence of a text, at most `most` per sentence; sentences without words are skipped."""
    found = []
    for sentence in split_sentences(text):
        words = split_words(text, sentence)
        found += [words[first : first + most] for first in range(0, len(words), most)]
    return found


def spell(text: str, sentences: list[list[Span]]) -> list[str]:
    """Each sentence as words joined by single spaces, the input of the vocabulary."""
    return [" ".join([text[start:end] for start, end in words]) for words in sentences]


def number_document(text: str, vocabulary: Vocabulary, most: int) -> list[list[int]]:
    """The word ids of each sentence of a text."""
    return vocabulary.encode_many(spell(text, split_document(text, most)))


def load_words(folder: Path) -> tuple[Vocabulary, list[str]]:
    """The vocabulary and the classes of a run."""
    path = folder / "classes.json"
    try:
        classes = json.loads(read_small(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is missing or damaged ({error}); the run folder is incomplete.") from None
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise DataError(f"{path} must be a list of class names; the run folder is damaged.")
    return Vocabulary.load(folder, "words"), classes


def _in_order(label: str) -> tuple[int, int, str]:
    """Sort key: integers by value, then everything else alphabetically."""
    return (0, int(label), "") if label.isascii() and label.isdigit() and len(label) < 10 else (1, 0, label)


# --- numbers


class DocumentBatch(NamedTuple):
    """The input of `models.document`, without padding."""

    words: Tensor  # [M] ids of all words of all sentences of all documents
    lengths: Tensor  # [N] words of each sentence
    counts: Tensor  # [B] sentences of each document
    labels: Tensor  # [B] class of each document


class DocumentSet:
    """Concatenated documents: words [M], sentence lengths [N], sentence counts [D], labels [D]."""

    def __init__(self, words: Column, lengths: Column, label: Array) -> None:
        self._words, self._lengths = words, lengths
        self.words, self.lengths, self.labels = words.values, lengths.values, label
        self.counts = lengths.lengths[:]
        self.sizes = words.lengths[:]  # [D] words of each document
        self.sides = self.sizes, self.sizes

    def __len__(self) -> int:
        return len(self.counts)

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> DocumentBatch:
        """These documents, in that order."""
        chosen = [int(number) for number in numbers]
        words, lengths = ([column.row(k) for k in chosen] for column in (self._words, self._lengths))
        nothing = np.zeros(0, np.int64)  # there may be no documents
        joined = [np.concatenate([nothing, *rows]) for rows in (words, lengths)]
        parts = (*joined, self.counts[chosen], self.labels[chosen])
        return DocumentBatch(*(torch.from_numpy(part.astype(np.int64)) for part in parts))


def make_set(documents: Sequence[list[list[int]]], labels: Sequence[int]) -> DocumentSet:
    """Documents given as lists of sentences of word ids."""
    words = Column.of([[word for sentence in document for word in sentence] for document in documents])
    return DocumentSet(
        words, Column.of([list(map(len, document)) for document in documents]), np.array(labels, "int32")
    )


class DocumentEncoding(Encoding[Labelled]):
    """Documents into the word ids of their sentences, and labels into classes."""

    noun, names, also = "documents", ("words",), ("classes",)

    def __init__(self, config: DocumentDataConfig) -> None:
        dev = as_files(config.dev_files)
        super().__init__(config, find_documents(config), document_files(config, dev) if dev else None)
        self.groups = group_labels(config)
        self.labels: set[str] = set()
        self.classes: list[str] = []

    def see(self, items: Iterable[Labelled]) -> None:
        self.labels.update(item.label for item in items)

    def make(self, sample: Sequence[Labelled]) -> None:
        named = list(dict.fromkeys(self.groups.values()))
        self.classes = named or sorted(self.labels, key=_in_order)
        if len(self.classes) < 2:
            raise DataError(f"There is only one class, {self.classes[0]!r}; a classifier needs at least two.")
        split = ((one.text, split_document(one.text, self.config.max_sentence)) for one in sample)
        self.vocabularies = [train_vocabulary((line for each in split for line in spell(*each)), self.config)]

    def load(self, folder: Path) -> None:
        vocabulary, self.classes = load_words(folder)
        self.vocabularies = [vocabulary]

    def save(self, folder: Path, source: str) -> None:
        write_atomically(folder / "classes.json", (json.dumps(self.classes) + "\n").encode())
        super().save(folder, source)  # last: its header names the corpus of both

    def depends(self) -> list[str]:
        return self.classes

    def column_types(self) -> dict[str, ColumnType]:
        words = id_type(len(self.vocabularies[0]))
        return {"words": words, "lengths": ColumnType("int32"), "label": ColumnType("int32", ragged=False)}

    def encode(self, items: Sequence[Labelled], tally: Tally, tokenise: Tokenise) -> Rows[Labelled]:
        found: list[tuple[Labelled, tuple[Any, ...]]] = []
        for item in items:
            if is_blank(item.text):
                tally.drop("empty", item.line)
                continue
            sentences = number_document(item.text, self.vocabularies[0], self.config.max_sentence)
            words = [word for sentence in sentences for word in sentence]
            found.append((item, (words, list(map(len, sentences)), class_of(item.label, self.classes, self.groups))))
        return Rows.of(found, self.column_types())

    def shown(self, item: Labelled) -> Sequence[Any]:
        """Its first characters, and the deciding sentences, if known."""
        return [(item.text[:SHOWN_CHARACTERS], item.deciding)]

    def sizes(self) -> dict[str, int]:
        return {**super().sizes(), "classes": len(self.classes)}

    def open(self, columns: dict[str, Any], training: bool) -> DocumentSet:
        return DocumentSet(**columns)

    def describe(self, train: DocumentSet, dev: DocumentSet) -> list[str]:
        counts = np.bincount(train.labels, minlength=len(self.classes)).tolist()
        return [
            "classes: " + ", ".join(f"{name} {count}" for name, count in zip(self.classes, counts, strict=True)),
            f"vocabulary: {len(self.vocabularies[0])} words; the longest document has {train.sizes.max()}",
        ]


def training_documents(config: DocumentDataConfig) -> Iterator[Labelled]:
    """The training documents of a run with these settings, without those held out."""
    encoding = DocumentEncoding(config)
    found = survey(encoding)
    return (one for one in encoding.corpus if not is_blank(one.text) and not found.holds_out(one))
