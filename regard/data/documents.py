"""Labelled documents: from JSON lines, TSV or memory, into words, sentences and classes, every document accounted for.

Nothing is padded and nothing is cut off: a document is as long as it is. A sentence of very many words is read as
several, since a recurrent net reads a sentence word after word.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import setting
from regard.data.builtin import reviews
from regard.data.corpus import choose_held_out, sentence_key
from regard.data.document_set import DocumentSet, load_sets, make_set, save_sets
from regard.data.plain import Plain
from regard.data.rewrite import rewrite
from regard.data.sentences import Span, split_sentences, split_words
from regard.data.settings import as_files, check_least
from regard.data.text import digest, is_blank, read_lines, write_atomically
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, DataError, unknown
from regard.symbols import SYMBOLS

BUILTIN = {"reviews": "film reviews by a small grammar, with the sentences that decide known"}


@dataclass(frozen=True)
class DocumentDataConfig:
    """Settings of labelled documents. Give `files`, or `corpus`."""

    files: str | tuple[str, ...] = setting(
        "", "file or files of documents: JSON lines (.jsonl) or label-tab-text (.tsv)"
    )
    dev_files: str | tuple[str, ...] = setting("", "file or files for validation; none: a part is held out")
    corpus: str = setting("", "name of a built-in corpus, generated on the spot: reviews")
    size: int = setting(4_000, "documents generated for a built-in corpus")
    seed: int = setting(1, "seed of the generated corpus and of the held-out split")
    held_out: int = setting(1_000, "documents held out for validation without files of their own, at most a tenth")
    text: str = setting("text", "field of a JSON object that holds the text")
    label: str = setting("label", "field of a JSON object that holds the label")
    classes: tuple[str, ...] = setting(
        (),
        "classes made of several labels, as in ['negative = 1 2 3 4', 'positive = 7 8 9 10']; none: each label is one",
    )
    vocabulary: int = setting(30_000, "most words in the vocabulary, the four symbols included")
    min_count: int = setting(1, "times that a word must occur to be in the vocabulary (6 in the paper)")
    lowercase: bool = setting(True, "lower-case the text before words are looked up")
    max_sentence: int = setting(100, "words after which a sentence is read as two; no word is lost")
    invalid: str = setting("refuse", "what to do with bytes that are not UTF-8", choices=("refuse", "replace"))

    def __post_init__(self) -> None:
        check_least(self, size=2, held_out=0, vocabulary=5, min_count=1, max_sentence=1)


class Labelled(NamedTuple):
    """A document as it was found."""

    line: int  # 1-based, over all files together
    text: str
    label: str
    deciding: tuple[int, ...] = ()  # sentences that decide the label, where that is known


# --- reading


def read_documents(config: DocumentDataConfig, files: tuple[str, ...]) -> Iterator[Labelled]:
    """The documents of the files, one a line. The name of a file says its kind, whatever packs it."""
    total = 0
    for path in files:
        name = Path(path).name
        for packed in (".gz", ".bz2", ".xz"):
            name = name.removesuffix(packed)
        kind = Path(name).suffix
        if kind not in (".jsonl", ".tsv"):
            raise DataError(f"{path} must be JSON lines (.jsonl) or label-tab-text (.tsv), packed or not.")
        for number, line in enumerate(read_lines(path, config.invalid), start=1):
            total += 1
            where = f"{path}, line {number}"
            text, label = _from_json(line, config, where) if kind == ".jsonl" else _from_tsv(line, where)
            yield Labelled(total, text, label)


def _from_json(line: str, config: DocumentDataConfig, where: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not a JSON object ({error}).") from None
    if not isinstance(entry, dict):
        raise DataError(f"{where}: a line must be a JSON object; got {type(entry).__name__}.")
    for field in (config.text, config.label):
        if field not in entry:
            raise DataError(f"{where}: {unknown('field', field, entry)} Set data.text and data.label to its fields.")
    text, label = entry[config.text], entry[config.label]
    if not isinstance(text, str) or not isinstance(label, str | int):
        raise DataError(f"{where}: '{config.text}' must be text and '{config.label}' text or a whole number.")
    return text, str(label)


def _from_tsv(line: str, where: str) -> tuple[str, str]:
    label, tab, text = line.partition("\t")
    if not tab or not label:
        raise DataError(f"{where}: a line needs a label, a tab and the text; got {line[:40]!r}.")
    return text, label


def find_documents(config: DocumentDataConfig) -> list[Labelled]:
    """The training documents that the settings name."""
    files = as_files(config.files)
    if config.corpus and files:
        raise ConfigError("Both data.corpus and data.files are given; give one of the two.")
    if config.corpus:
        if config.corpus not in BUILTIN:
            raise DataError(unknown("built-in corpus of documents", config.corpus, BUILTIN))
        generated = enumerate(reviews.generate(config.size, config.seed), start=1)
        return [Labelled(line, review.text, review.label, review.deciding) for line, review in generated]
    if not files:
        raise ConfigError("There are no documents: give data.files (.jsonl or .tsv), or data.corpus.")
    return list(read_documents(config, files))


# --- labels and words


def group_labels(config: DocumentDataConfig) -> dict[str, str]:
    """Label -> class, from data.classes; empty where each label is a class of its own."""
    groups: dict[str, str] = {}
    for entry in config.classes:
        name, equals, labels = entry.partition("=")
        if not equals or not name.strip(" ") or not labels.strip(" "):
            raise ConfigError(f"data.classes are written 'name = label label ...'; got {entry!r}.")
        for label in labels.split():
            if label in groups:
                raise ConfigError(f"data.classes name the label {label!r} twice; a label belongs to one class.")
            groups[label] = name.strip(" ")
    return groups


def class_of(label: str, classes: Sequence[str], groups: dict[str, str]) -> int:
    """The number of the class of a label; a label never seen is refused."""
    known = groups or {name: name for name in classes}
    if label not in known:
        raise DataError(f"{unknown('label', label, known)} The model cannot learn or be asked for another.")
    return classes.index(known[label])


def split_document(text: str, most: int) -> list[list[Span]]:
    """The words of each sentence of a text, at most `most` in one; sentences without words are left out."""
    found = []
    for sentence in split_sentences(text):
        words = split_words(text, sentence)
        found += [words[first : first + most] for first in range(0, len(words), most)]
    return found


def spell(text: str, sentences: list[list[Span]]) -> list[str]:
    """Each sentence as its words with single spaces between them, as the vocabulary takes it."""
    return [" ".join([text[start:end] for start, end in words]) for words in sentences]


def count_words(sentences: Iterable[str], config: DocumentDataConfig) -> Vocabulary:
    """The vocabulary of spelled sentences: their most frequent words, among equals the first in code-point order."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(rewrite(sentence, lowercase=config.lowercase).text.split(" "))
    ranked = sorted(
        (word for word in counts if counts[word] >= config.min_count), key=lambda word: (-counts[word], word)
    )
    if not ranked:
        raise DataError(f"No word occurs {config.min_count} times in the documents; set data.min_count lower.")
    tokens = [*SYMBOLS, *(word for word in ranked if word not in SYMBOLS)]
    return Vocabulary(Plain("word", tokens[: config.vocabulary]), "word", lowercase=config.lowercase)


# --- what training needs


@dataclass(frozen=True)
class PreparedDocuments:
    """A corpus ready for training. `dev_documents[i]` is document i of `dev` as it was found."""

    vocabulary: Vocabulary
    classes: list[str]
    train: DocumentSet
    dev: DocumentSet
    dev_documents: list[Labelled]
    notes: list[str]  # what a person should know of the data


def prepare_documents(config: DocumentDataConfig, folder: Path) -> PreparedDocuments:
    """Read, split, make or load vocabulary and classes; a pure function of the settings and the files.

    `folder` is the run folder: it receives words.json, classes.json, and the documents as numbers.
    """
    found = find_documents(config)
    written = [document for document in found if not is_blank(document.text)]
    if not written:
        raise DataError(f"None of the {len(found)} documents has a word; training needs documents with text.")
    sides = dict(zip(("train", "dev"), hold_out(config, written), strict=True))
    if not (folder / "classes.json").exists():
        _make_words(folder, config, sides["train"])
    vocabulary, classes = load_words(folder)
    fingerprint = _fingerprint(config, vocabulary, classes)
    sets = load_sets(folder / "documents.safetensors", fingerprint, tuple(sides))
    if sets is None:
        sets = {name: number_documents(side, vocabulary, classes, config) for name, side in sides.items()}
        save_sets(folder / "documents.safetensors", fingerprint, sets)
    empty, counts = len(found) - len(written), np.bincount(sets["train"].labels, minlength=len(classes))
    notes = [
        f"documents: {len(sets['train'])} to train on, {len(sets['dev'])} for validation, {empty} empty ones left out",
        "classes: " + ", ".join(f"{name} {count}" for name, count in zip(classes, counts.tolist(), strict=True)),
        f"vocabulary: {len(vocabulary)} words; the longest document has {int(sets['train'].sizes.max())}",
    ]
    return PreparedDocuments(vocabulary, classes, sets["train"], sets["dev"], sides["dev"], notes)


def number_documents(
    documents: Sequence[Labelled], vocabulary: Vocabulary, classes: Sequence[str], config: DocumentDataConfig
) -> DocumentSet:
    """Documents as numbers; a label that is no class is refused."""
    groups = group_labels(config)
    labels = [class_of(document.label, classes, groups) for document in documents]
    texts = (document.text for document in documents)
    rows = [vocabulary.encode_many(spell(text, split_document(text, config.max_sentence))) for text in texts]
    return make_set(rows, labels)


def _fingerprint(config: DocumentDataConfig, vocabulary: Vocabulary, classes: list[str]) -> str:
    files = [digest(path) for path in (*as_files(config.files), *as_files(config.dev_files))]
    whole = json.dumps([asdict(config), files, vocabulary.fingerprint, classes], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def load_words(folder: Path) -> tuple[Vocabulary, list[str]]:
    """The vocabulary and the classes of a run."""
    path = folder / "classes.json"
    try:
        classes = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is missing or damaged ({error}); the run folder is not complete.") from None
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise DataError(f"{path} must be a list of class names; the run folder is damaged.")
    return Vocabulary.load(folder, "words"), classes


def _make_words(folder: Path, config: DocumentDataConfig, train: list[Labelled]) -> None:
    groups = group_labels(config)
    names = dict.fromkeys(groups.values()) if groups else sorted({document.label for document in train}, key=_in_order)
    classes = list(names)
    if len(classes) < 2:
        raise DataError(f"There is one class alone, {classes[0]!r}; a classifier needs at least two.")
    texts = (document.text for document in train)
    sentences = (line for text in texts for line in spell(text, split_document(text, config.max_sentence)))
    count_words(sentences, config).save(folder, "words")
    write_atomically(folder / "classes.json", (json.dumps(classes) + "\n").encode())  # last: both are there, or none


def _in_order(label: str) -> tuple[int, int, str]:
    """Whole numbers by size, then everything else by letter."""
    return (0, int(label), "") if label.isascii() and label.isdigit() and len(label) < 10 else (1, 0, label)


def hold_out(config: DocumentDataConfig, written: list[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """Training and validation documents; the same text is never on both sides of a held-out split."""
    files = as_files(config.dev_files)
    if files:
        return written, [document for document in read_documents(config, files) if not is_blank(document.text)]
    keys = [sentence_key(document.text, config.seed) for document in written]
    chosen = choose_held_out(keys, config.held_out)
    sides: tuple[list[Labelled], list[Labelled]] = ([], [])
    for document, key in zip(written, keys, strict=True):
        sides[key in chosen].append(document)
    return sides
