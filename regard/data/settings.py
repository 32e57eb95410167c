"""The [data] section: which corpus, how it is split into pieces, and what is left out."""

from dataclasses import dataclass
from typing import Any

from regard.config import check_range, setting
from regard.errors import ConfigError, DataError, unknown


def check_least(config: Any, **least: int) -> None:
    """Refuse a setting of [data] below its minimum."""
    for name, number in least.items():
        check_range("data", config, f"[{number}, inf)", name)


@dataclass(frozen=True)
class Reading:
    """How text files are read, in every task. The two limits bound the memory and the time that a file can take."""

    invalid: str = setting("refuse", "what to do with bytes that are not UTF-8", choices=("refuse", "replace"))
    max_line: int = setting(1 << 22, "most bytes of one line of a file, and most characters of one unit of a TMX file")
    max_unpacked: int = setting(1 << 36, "most bytes that one packed file (gz, bz2, xz or zst) may unpack to")

    def __post_init__(self) -> None:
        check_least(self, max_line=1, max_unpacked=1)


READING = Reading()


@dataclass(frozen=True)
class DataConfig(Reading):
    """Settings of a corpus and its vocabulary. Give `source` and `target`, or `tsv`, `tmx` or `corpus`."""

    source: str | tuple[str, ...] = setting(
        "", "file or list of files with the source sentences, one a line (plain, gz, bz2, xz or zst)"
    )
    target: str | tuple[str, ...] = setting(
        "", "file or list of files with the target sentences, line for line beside the source"
    )
    tsv: str | tuple[str, ...] = setting("", "file or list of files with source and target separated by a tab")
    tmx: str | tuple[str, ...] = setting(
        "", "translation memory or memories: TMX, XLIFF or PO (plain, gz, bz2, xz or zst)"
    )
    corpus: str = setting("", "name of a built-in corpus, which is generated (see `regard corpora`)")
    alignment: str | tuple[str, ...] = setting(
        "", "file or files of word links i-j, line for line beside the pairs, or gold for those of a built-in corpus"
    )
    size: int = setting(20_000, "sentence pairs generated for a built-in corpus")
    min_words: int = setting(3, "fewest source words of a generated sentence")
    max_words: int = setting(12, "most source words of a generated sentence")
    seed: int = setting(1, "seed of the generated corpus and of the held-out split")

    dev_source: str | tuple[str, ...] = setting(
        "", "file or files with source sentences for validation; none: a part is held out"
    )
    dev_target: str | tuple[str, ...] = setting("", "file or files with target sentences for validation")
    dev_tsv: str | tuple[str, ...] = setting("", "file or files of validation pairs separated by a tab")
    dev_tmx: str | tuple[str, ...] = setting("", "translation memory or memories (TMX, XLIFF or PO) for validation")
    held_out: int = setting(1_000, "pairs held out for validation where no files are given for it, at most a tenth")

    subwords: str = setting("bpe", "what a token is", choices=("bpe", "unigram", "word", "char"))
    vocabulary: int = setting(8_000, "most tokens in a vocabulary, the four symbols included")
    vocabulary_from: str = setting(
        "", "a run folder whose vocabularies are used instead of making new ones, as an ensemble needs"
    )
    joint: bool = setting(False, "one vocabulary for both languages")
    byte_fallback: bool = setting(True, "spell characters outside the vocabulary as bytes, so that none is unknown")
    coverage: float = setting(1.0, "share of the text's characters that subwords must hold (0.9995 for Chinese)")
    sampling: float = setting(
        0.0, "subword regularisation: how often another segmentation is sampled (0 = off, 0.1 usual)"
    )
    form: str = setting("none", "Unicode normal form applied before tokenising", choices=("none", "nfc", "nfkc"))
    lowercase: bool = setting(False, "lower-case the text before tokenising")

    max_length: int = setting(256, "most tokens of a sentence, its end not counted; longer pairs are dropped")
    max_ratio: float = setting(0.0, "most tokens on one side for each on the other; other pairs are dropped (0 = off)")
    source_language: str = setting("", "code of the source language, as in en; chooses it in a TMX file")
    target_language: str = setting("", "code of the target language, as in fr; chooses it in a TMX file")
    cache: str = setting("", "folder for tokenised corpora, shared by runs (none: inside the run folder)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, size=1, min_words=1, held_out=0, vocabulary=5, max_length=1)
        if self.max_words < self.min_words:
            raise ConfigError(
                f"data.max_words must be at least data.min_words ({self.min_words}); got {self.max_words}."
            )
        check_range("data", self, "(0, 1]", "coverage")
        check_range("data", self, "[0, 1)", "sampling")
        if self.max_ratio != 0 and self.max_ratio < 1:
            raise ConfigError(f"data.max_ratio is at least 1, or 0 for no limit; got {self.max_ratio}.")


def as_files(files: str | tuple[str, ...]) -> tuple[str, ...]:
    """One file or several, as a tuple; empty text is no file."""
    if isinstance(files, str):
        return (files,) if files else ()
    return tuple(files)


def named_files(config: Any, builtin: str, missing: str) -> tuple[str, ...]:
    """The files of a [data] section with `files` and `corpus`; none where it names the built-in corpus `builtin`.

    `missing` says in the error sentence what there is none of.
    """
    files = as_files(config.files)
    if config.corpus and files:
        raise ConfigError("Both data.corpus and data.files are given; give one of the two.")
    if config.corpus not in ("", builtin):
        raise DataError(unknown("built-in corpus", config.corpus, [builtin]))
    if not config.corpus and not files:
        raise ConfigError(f"There {missing}: give data.files, or data.corpus.")
    return files
