"""Subwords by SentencePiece: byte-pair encoding and unigram, lossless, with spans in the text."""

import io
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import sentencepiece

from regard.errors import DataError, brief
from regard.symbols import END, PAD, START, SYMBOLS, UNKNOWN

SPACE = "▁"  # a space in a piece
_RESERVED = re.compile("[\t\0▁▅]")  # the trainer skips lines with one of these
_LINE = 1_000  # characters of a line to train on: the trainer skips lines of more than 4192 bytes


class Subwords:
    """A SentencePiece model. Models trained by regard neither normalise nor trim, so that joining restores the text; an
    imported model may do both."""

    def __init__(self, model: bytes) -> None:
        self.content = model
        try:
            self.processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
            # Read all pieces now: those of a damaged model may not be UTF-8.
            self.pieces: list[str] = self.processor.id_to_piece(list(range(self.processor.vocab_size())))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise DataError(f"The vocabulary is not a SentencePiece model, or is damaged: {brief(error)}.") from None
        symbols = tuple(self.pieces[: len(SYMBOLS)])
        if symbols != SYMBOLS:
            raise DataError(f"The SentencePiece model must begin with {SYMBOLS}; got {symbols}.")

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def byte_of(self) -> dict[int, bytes]:
        """The ids of byte pieces, for characters outside the vocabulary, and their bytes."""
        some = (index for index in range(len(self)) if self.processor.is_byte(index))
        return {index: bytes([int(self.pieces[index][3:5], 16)]) for index in some}

    def many(self, texts: list[str], end: bool) -> list[list[int]]:
        known = self.processor.eos_id() == END  # an imported model may have another end symbol
        rows = list(self.processor.encode(texts, out_type=int, add_eos=end and known, num_threads=1))
        return [[*row, END] for row in rows] if end and not known else rows

    def split(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        """Ids, pieces, and the characters [start, end) of `text` that each piece covers.

        The leading space of a piece is not part of its span, unless the piece is only a space. All bytes of a character
        have the span of that character.
        """
        ids: list[int] = list(self.processor.encode(text, out_type=int))
        # Only the processor knows the surface of an unknown piece.
        surfaces = (
            self.processor.encode(text, out_type=str) if UNKNOWN in ids else [self.pieces[index] for index in ids]
        )
        written, places = self.processor.normalize(text, with_offsets=True)  # places: of each character in `text`
        places = [*places[: len(written)], len(text)]
        spans: list[tuple[int, int]] = []
        place, spelled = 0, 0
        for index, surface in zip(ids, surfaces, strict=True):
            if index in self.byte_of:
                spans.append((places[place], places[place + 1]))
                spelled += 1
                if spelled == len(written[place].encode("utf-8")):
                    place, spelled = place + 1, 0
                continue
            letters = surface.lstrip(SPACE)
            end = place + len(surface)
            spans.append((places[end - len(letters) if letters else place], places[end]))
            place = end
        return ids, surfaces, spans

    def join(self, ids: list[int]) -> str:
        return str(self.processor.decode(ids))

    def surfaces(self, ids: list[int]) -> list[bytes]:
        """What each id adds to the text, as UTF-8, including the space before the text."""
        return [self.byte_of.get(index) or self.pieces[index].replace(SPACE, " ").encode() for index in ids]


def train_subwords(
    lines: Iterable[str], kind: str, size: int, byte_fallback: bool = True, coverage: float = 1.0
) -> Subwords:
    """Train on lines of text, deterministically. If the text is too small for `size`, the vocabulary is smaller."""
    model = io.BytesIO()
    options: dict[str, Any] = {
        **dict(zip(("pad_id", "bos_id", "eos_id", "unk_id"), (PAD, START, END, UNKNOWN), strict=True)),
        **dict(zip(("pad_piece", "bos_piece", "eos_piece", "unk_piece"), SYMBOLS, strict=True)),
        "unk_surface": SYMBOLS[UNKNOWN],
        "model_type": kind,
        "vocab_size": size,
        "hard_vocab_limit": False,
        "byte_fallback": byte_fallback,
        "character_coverage": coverage,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "num_threads": 1,
        "minloglevel": 3,
    }
    try:
        texts = (_RESERVED.sub(" ", line[:_LINE]) for line in lines)
        some = (text for text in texts if text and not text.isspace())
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=some, model_writer=model, **options)
    except RuntimeError as error:
        raise DataError(_explain(str(error), size)) from None
    return Subwords(model.getvalue())


def _explain(error: str, size: int) -> str:
    found = re.search(r"required_chars\. \d+ vs (\d+)", error)
    if found:
        return (
            f"A vocabulary of {size} is too small for this text, which has {found[1]} characters and symbols; "
            "set data.vocabulary higher, data.byte_fallback=false, or data.coverage lower."
        )
    if "sentences_.empty()" in error:
        return "There is no text to make a vocabulary from; the corpus is empty."
    return f"SentencePiece could not make a vocabulary of {size}: {error}"
