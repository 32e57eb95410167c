"""The input that a translator expects: languages, case, tokenised or raw, form, longest sentence, corpus."""

from pathlib import PurePath
from typing import Any

from regard.data.settings import DataConfig, as_files
from regard.data.subwords import SPACE
from regard.data.vocabulary import Vocabulary
from regard.symbols import UNKNOWN

_EARLY = 300  # merges: those of a tokenised text begin with " ," and " ."


def expectations(data: DataConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The expected input, from the data settings and the source vocabulary, as plain values for a manifest."""
    source, target = languages_of(data)
    files = [name for part in (data.source, data.tsv, data.tmx) for name in as_files(part)]
    return {
        "source_language": source,
        "target_language": target,
        "case": "lower" if knows_no_capitals(vocabulary) else "any",
        "text": "tokenised" if is_tokenised(vocabulary) else "raw",
        "form": vocabulary.form,
        "longest": data.max_length,
        "corpus": data.corpus or ", ".join(PurePath(name).name for name in files),
    }


def languages_of(data: DataConfig) -> tuple[str, str]:
    """The codes of the source and target language, from the settings or the built-in corpus."""
    source, target = data.source_language, data.target_language
    if data.corpus and not (source and target):
        from regard.corpora.registry import find_builtin  # not for every translator: it imports all built-in corpora

        made = find_builtin(data.corpus)
        source, target = source or made.source_language, target or made.target_language
    return source, target


def knows_no_capitals(vocabulary: Vocabulary) -> bool:
    """Whether the training text was lower case: the vocabulary lower-cases, or has letters but no capitals."""
    text = "".join(_pieces(vocabulary))
    return vocabulary.lowercase or text.lower() == text != text.upper()


def is_tokenised(vocabulary: Vocabulary) -> bool:
    """Whether punctuation was separated from words in the training text."""
    if vocabulary.kind == "char":
        return False
    pieces = _pieces(vocabulary)
    if vocabulary.kind == "word":
        return any(mark in pieces for mark in (".", ","))
    early = {piece: place for place, piece in enumerate(pieces[:_EARLY])}
    late = len(pieces)  # a unigram model of raw text has both, the bare mark first
    return any(early.get(SPACE + mark, late) < early.get(mark, late) for mark in (".", ","))


def _pieces(vocabulary: Vocabulary) -> list[str]:
    """The pieces of the vocabulary in order, without symbols and bytes."""
    pieces = vocabulary.pieces(range(UNKNOWN + 1, len(vocabulary)))
    return [piece for piece in pieces if not piece.startswith("<0x")]
