"""Text to ids and back, with the span of each piece in the original text."""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from regard.data.segmentations import Segmentations
from regard.data.subwords import Subwords, train_subwords
from regard.data.word_vocabulary import Plain, count_plain
from regard.errors import DataError, brief
from regard.sealed import read_small, write_atomically
from regard.symbols import UNKNOWN
from regard.text.normalise import FORMS, PUNCTUATION, QUOTES, Rewritten, fold_marks, rewrite, rewrite_all
from regard.text.sentences import Span

_FORMAT = 1
_WORD = re.compile(r"\S+")


class Tokenised(NamedTuple):
    """A text in pieces, without END: `spans` are code points [start, end) of `text`."""

    ids: list[int]
    pieces: list[str]
    spans: list[Span]
    text: str

    @property
    def words(self) -> list[int]:
        """The index of the white-space word of each piece.

        A piece of only white space belongs to the next word, or to the last one; without words the index is -1.
        """
        ends = [match.end() for match in _WORD.finditer(self.text)]
        return [min(bisect_right(ends, start), len(ends) - 1) for start, _ in self.spans]


class Vocabulary:
    """The tokens and their ids; the first four are PAD, START, END and UNKNOWN.

    `kind` is bpe, unigram, word or char. `form` and `lowercase` rewrite the text first; they belong to the vocabulary,
    so that a sentence to translate is treated like the training text.
    """

    def __init__(self, tokens: Subwords | Plain, kind: str, form: str = "none", lowercase: bool = False) -> None:
        self.tokens, self.kind, self.form, self.lowercase = tokens, kind, form, lowercase

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str = "bpe",
        size: int = 8_000,
        byte_fallback: bool = True,
        coverage: float = 1.0,
        form: str = "none",
        lowercase: bool = False,
        min_count: int = 1,
    ) -> "Vocabulary":
        """Make a vocabulary of at most `size` tokens from lines of text; `len` gives the actual size."""
        rewritten = rewrite_all(lines, form, lowercase)
        tokens: Subwords | Plain
        if kind in ("bpe", "unigram"):
            tokens = train_subwords(rewritten, kind, size, byte_fallback, coverage)
        else:
            tokens = count_plain(rewritten, kind, size, min_count)
        return cls(tokens, kind, form, lowercase)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Tokenised:
        """The pieces of a sentence, without END."""
        written = rewrite(text, self.form, self.lowercase)
        ids, pieces, spans = self.tokens.split(written.text)
        if written.starts is not None:
            spans = [written.original(*span) for span in spans]
        return Tokenised(ids, pieces, spans, text)

    def tokenised(self, ids: list[int]) -> Tokenised:
        """The same for the ids of a model's output.

        A model may write a word in other pieces than `encode`; then each piece ends where the text of the pieces up to
        it ends.
        """
        text = self.decode(ids)
        encoded = self.encode(text)
        if encoded.ids == ids:
            return encoded
        ends = [min(len(self.decode(ids[: count + 1])), len(text)) for count in range(len(ids))]
        spans = list(pairwise(accumulate([0, *ends], max)))
        return Tokenised(ids, self.pieces(ids), spans, text)

    def encode_many(self, texts: Iterable[str], end: bool = False) -> list[list[int]]:
        """The ids of many sentences, faster than `encode`; with `end`, each ends with END."""
        return self.tokens.many(rewrite_all(texts, self.form, self.lowercase), end)

    def comparable(self, text: str) -> Rewritten:
        """A text normalised for comparing words, whatever kind of quotes and dashes it uses."""
        return rewrite(fold_marks(text), "none" if self.form in (PUNCTUATION, QUOTES) else self.form)

    def in_form(self, text: str) -> Rewritten:
        """A text in the form of this vocabulary, with its capitals."""
        return rewrite(text, self.form)

    def sampler(self, amount: float) -> Segmentations | None:
        """A sampler of other segmentations; None if there is only one segmentation."""
        return Segmentations(self.tokens, amount) if isinstance(self.tokens, Subwords) and amount else None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sentence: one line, without PAD, START and END."""
        return self.tokens.join([index for index in self._checked(ids) if index >= UNKNOWN]).replace("\n", " ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id; symbols have names such as </s>."""
        return [self.tokens.pieces[index] for index in self._checked(ids)]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The id of each piece."""
        return {piece: index for index, piece in enumerate(self.pieces(range(len(self))))}

    def words_of(self, ids: Iterable[int]) -> list[int]:
        """The index of the white-space word of each id, like `Tokenised.words`, from the ids only.

        The bytes of a character outside the vocabulary belong to its word.
        """
        surfaces = self.tokens.surfaces(self._checked(ids))
        text = b"".join(surfaces).decode("utf-8", "replace")
        ends, place, reached = [], 0, 0
        for match in _WORD.finditer(text):
            place += len(text[reached : match.end()].encode())
            reached = match.end()
            ends.append(place)
        starts = accumulate((len(surface) for surface in surfaces[:-1]), initial=0)
        return [min(bisect_right(ends, start), len(ends) - 1) for start in starts] if surfaces else []

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked, size = list(map(int, ids)), len(self.tokens.pieces)
        if checked and not (min(checked) >= 0 and max(checked) < size):
            wrong = next(index for index in checked if not 0 <= index < size)
            raise DataError(f"There is no token {wrong}: the ids of this vocabulary go from 0 to {size - 1}.")
        return checked

    def _header(self) -> dict[str, object]:
        return {"format": _FORMAT, "kind": self.kind, "form": self.form, "lowercase": self.lowercase}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text."""
        header = json.dumps(self._header(), sort_keys=True).encode()
        return hashlib.sha256(header + b"\0" + self.tokens.content).hexdigest()

    def contents(self, name: str, source: str = "") -> dict[str, bytes]:
        """The files of a vocabulary called `name`: `name`.json, and for SentencePiece `name`.model.

        `source` is the fingerprint of the text it was made from.
        """
        header: dict[str, object] = {**self._header(), "fingerprint": self.fingerprint, "made_from": source}
        model = {f"{name}.model": self.tokens.content} if isinstance(self.tokens, Subwords) else {}
        if isinstance(self.tokens, Plain):
            header["tokens"] = self.tokens.pieces
        return {**model, f"{name}.json": (json.dumps(header, ensure_ascii=True) + "\n").encode()}

    def save(self, folder: Path, name: str, source: str = "") -> list[Path]:
        """Write the files; returns their paths."""
        return [write_atomically(folder / file, content) for file, content in self.contents(name, source).items()]

    @classmethod
    def load(cls, folder: Path, name: str) -> "Vocabulary":
        """Read what `save` wrote. A file that was changed or belongs to another vocabulary is refused."""
        path = folder / f"{name}.json"
        try:
            header = json.loads(read_small(path))
            kind, form, lowercase = header["kind"], header["form"], header["lowercase"]
            known = header["format"] == _FORMAT and kind in ("bpe", "unigram", "word", "char")
            if not known or form not in FORMS or not isinstance(lowercase, bool):
                raise DataError(f"{path} has a kind or version that this version of regard does not know; train again.")
            tokens: Subwords | Plain
            if kind in ("bpe", "unigram"):
                path = folder / f"{name}.model"
                tokens = Subwords(read_small(path))
            else:
                listed = header["tokens"]
                if not isinstance(listed, list) or not all(isinstance(token, str) for token in listed):
                    raise ValueError("its tokens are not a list of text")
                tokens = Plain(kind, listed)
        except FileNotFoundError:
            raise DataError(f"There is no vocabulary file {path}; the run folder is incomplete.") from None
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path} is not a vocabulary, or is damaged: {brief(error)}.") from None
        vocabulary = cls(tokens, kind, form, lowercase)
        if vocabulary.fingerprint != header.get("fingerprint"):
            raise DataError(f"{path} does not match its fingerprint; it was changed or replaced by another.")
        return vocabulary


def made_from(folder: Path, name: str) -> str:
    """The fingerprint of the text that a saved vocabulary was made from; empty if it is not known."""
    try:
        return str(json.loads((folder / f"{name}.json").read_bytes())["made_from"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
