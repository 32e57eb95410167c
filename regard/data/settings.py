"""The [data] section: the corpus, its vocabulary, and which pairs to drop."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.config import setting
from regard.errors import ConfigError, brief
from regard.text.lines import Reading
from regard.text.normalise import FORMS

_HELD_OUT = "number of {} to hold out for validation if no files are given, at most a tenth"
_KINDS = ("bpe", "unigram", "word", "char")
_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")  # of a language, with script, region and variants


@dataclass(frozen=True)
class DataConfig(Reading):
    """Settings of a corpus and its vocabulary. Set `source` and `target`, or `tsv`, `tmx` or `corpus`."""

    source: str | tuple[str, ...] = setting(
        "", "file or list of files with the source sentences, one per line (plain, gz, bz2, xz or zst)"
    )
    target: str | tuple[str, ...] = setting(
        "", "file or list of files with the target sentences, line by line parallel to the source"
    )
    tsv: str | tuple[str, ...] = setting("", "file or list of files with tab-separated source and target")
    tmx: str | tuple[str, ...] = setting(
        "", "translation memory or list of them: TMX, XLIFF or PO (plain, gz, bz2, xz or zst)"
    )
    corpus: str = setting("", "name of a built-in, generated corpus (see `regard corpora`)")
    alignment: str | tuple[str, ...] = setting(
        "", "file or list of files with word links i-j, one line per pair; gold = those of a built-in corpus"
    )
    size: int = setting(20_000, "number of sentence pairs to generate for a built-in corpus", "[1, 1e8]")
    min_words: int = setting(3, "minimum number of source words in a generated sentence", "[1, inf)")
    max_words: int = setting(12, "maximum number of source words in a generated sentence")
    seed: int = setting(1, "seed for the generated corpus and the held-out split")

    dev_source: str | tuple[str, ...] = setting(
        "", "file or list of files with validation sources; default: hold out a part of the corpus"
    )
    dev_target: str | tuple[str, ...] = setting("", "file or list of files with validation targets")
    dev_tsv: str | tuple[str, ...] = setting("", "file or list of files with tab-separated validation pairs")
    dev_tmx: str | tuple[str, ...] = setting("", "translation memory or list of them (TMX, XLIFF or PO) for validation")
    held_out: int = setting(1_000, _HELD_OUT.format("pairs"), "[0, inf)")

    subwords: str = setting("bpe", "type of token", _KINDS)
    vocabulary: int = setting(8_000, "maximum vocabulary size, including the four symbols", "[5, inf)")
    vocabulary_from: str = setting(
        "", "run folder whose vocabularies to use instead of making new ones, as an ensemble needs"
    )
    joint: bool = setting(False, "one vocabulary for both languages")
    byte_fallback: bool = setting(True, "encode characters outside the vocabulary as bytes, so that none is unknown")
    coverage: float = setting(1.0, "fraction of the characters that subwords must cover (0.9995 for Chinese)", "(0, 1]")
    sampling: float = setting(
        0.0, "subword regularisation: probability of another segmentation (0 = off, 0.1 usual)", "[0, 1)"
    )
    form: str = setting("none", "before tokenising: a Unicode normal form, or punctuation or quotes as ASCII", FORMS)
    lowercase: bool = setting(False, "lower-case the text before tokenising")

    every: int = setting(1, "use every Nth pair of the corpus and leave out the rest (1 = use all)", "[1, inf)")
    max_length: int = setting(
        256, "maximum number of tokens in a sentence, without its end; longer pairs are dropped", "[1, inf)"
    )
    max_ratio: float = setting(0.0, "maximum ratio of the lengths of the two sides; other pairs are dropped (0 = off)")
    source_language: str = setting("", "code of the source language, such as en; selects it in a TMX file")
    target_language: str = setting("", "code of the target language, such as fr; selects it in a TMX file")
    cache: str = setting("", "folder for tokenised corpora, shared by runs (default: inside the run folder)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_words < self.min_words:
            raise ConfigError(
                f"data.max_words must be at least data.min_words ({self.min_words}); got {self.max_words}."
            )
        if self.max_ratio != 0 and self.max_ratio < 1:
            raise ConfigError(f"data.max_ratio must be at least 1, or 0 for no limit; got {self.max_ratio}.")


@dataclass(frozen=True)
class CaptionConfig(Reading):
    """The [data] section of captioning. Set `images` (and `captions`), or `corpus`."""

    images: str = setting("", "tar file or folder of JPEG, PNG or WebP pictures")
    captions: str = setting(
        "", "JSON lines with image and captions (plain, gz, bz2, xz or zst); default: NAME.txt next to each picture"
    )
    dev_images: str = setting("", "tar file or folder of validation pictures; default: hold out a part")
    dev_captions: str = setting("", "JSON lines with the captions of the validation pictures")
    corpus: str = setting("", "name of a built-in, generated corpus", ("", "shapes"))
    size: int = setting(6_000, "number of pictures to draw for a built-in corpus", "[2, inf)")
    seed: int = setting(1, "seed for the drawn pictures and the held-out split")
    held_out: int = setting(500, _HELD_OUT.format("pictures"), "[0, inf)")

    subwords: str = setting("word", "type of token", _KINDS)
    vocabulary: int = setting(10_000, "maximum vocabulary size, including the four symbols", "[5, inf)")
    lowercase: bool = setting(True, "lower-case the captions")
    bare: bool = setting(True, "remove punctuation, as is usual when captions are scored")
    max_length: int = setting(
        60, "maximum number of tokens in a caption, without its end; longer ones are dropped", "[1, inf)"
    )
    cache: str = setting("", "folder for picture features, shared by runs (default: inside the run folder)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images and self.corpus:
            raise ConfigError("Both data.images and data.corpus are set; set one of the two.")
        if self.dev_captions and not self.dev_images:
            raise ConfigError("data.dev_captions is set without data.dev_images; set both.")


@dataclass(frozen=True)
class DocumentDataConfig(Reading):
    """Settings of labelled documents. Set `files` or `corpus`."""

    files: str | tuple[str, ...] = setting(
        "", "file or list of files of documents: JSON lines (.jsonl) or label-tab-text (.tsv)"
    )
    dev_files: str | tuple[str, ...] = setting("", "file or list of files for validation; default: hold out a part")
    corpus: str = setting("", "name of a built-in, generated corpus: reviews")
    size: int = setting(4_000, "number of documents to generate for a built-in corpus", "[2, inf)")
    seed: int = setting(1, "seed for the generated corpus and the held-out split")
    held_out: int = setting(1_000, _HELD_OUT.format("documents"), "[0, inf)")
    text: str = setting("text", "name of the JSON field with the text")
    label: str = setting("label", "name of the JSON field with the label")
    classes: tuple[str, ...] = setting(
        (),
        "classes of several labels, such as ['negative = 1 2 3 4', 'positive = 7 8 9 10']; default: one per label",
    )
    vocabulary: int = setting(30_000, "maximum vocabulary size, including the four symbols", "[5, inf)")
    min_count: int = setting(
        1, "minimum number of occurrences of a word in the vocabulary (6 in the paper)", "[1, inf)"
    )
    lowercase: bool = setting(True, "lower-case the text before words are looked up")
    vectors: str = setting("", "file of word vectors (word2vec's text form) that the embeddings start from")
    max_sentence: int = setting(
        100, "maximum number of words in a sentence; a longer one is read as several", "[1, inf)"
    )


@dataclass(frozen=True)
class TextDataConfig(Reading):
    """Settings of a text. Set `files` or `corpus`."""

    files: str | tuple[str, ...] = setting("", "file or list of text files, one sentence or paragraph per line")
    dev_files: str | tuple[str, ...] = setting("", "file or list of files for validation; default: hold out a part")
    corpus: str = setting("", "name of a built-in, generated text: tales")
    size: int = setting(8_000, "number of lines to generate for a built-in text", "[2, inf)")
    seed: int = setting(1, "seed for the generated text and the held-out split")
    held_out: int = setting(1_000, _HELD_OUT.format("lines"), "[0, inf)")
    subwords: str = setting("bpe", "type of token", _KINDS)
    vocabulary: int = setting(8_000, "maximum vocabulary size, including the four symbols", "[5, inf)")
    byte_fallback: bool = setting(True, "encode characters outside the vocabulary as bytes, so that none is unknown")
    form: str = setting("none", "before tokenising: a Unicode normal form, or punctuation or quotes as ASCII", FORMS)
    lowercase: bool = setting(False, "lower-case the text before tokenising")
    max_length: int = setting(
        256, "maximum number of tokens in a row; longer lines are read as several rows", "[1, inf)"
    )
    context: int = setting(
        0, "join the lines and cut them into rows of this many tokens; 0 = one row per line", "[0, inf)"
    )
    streams: int = setting(
        0,
        "read the joined text as this many parts, side by side, with the state carried from row to row; 0 = off",
        "[0, inf)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.streams and not self.context:
            raise ConfigError("data.streams needs data.context, the number of tokens in a row; 35 is usual.")


def check_codes(data: Mapping[str, Any]) -> None:
    """Refuse a language name in place of a code, for a new corpus or a server. A translation memory has its own codes,
    and the settings of an existing run are not checked."""
    for side in ("source_language", "target_language"):
        code = data.get(side, "")
        if code and isinstance(code, str) and not data.get("tmx") and not _CODE.fullmatch(code):
            raise ConfigError(f"data.{side} must be a language code such as en or pt-BR; got {brief(repr(code))}.")


def as_files(files: str | tuple[str, ...]) -> tuple[str, ...]:
    """One file or several, as a tuple; an empty string is no file."""
    if isinstance(files, str):
        return (files,) if files else ()
    return tuple(files)
