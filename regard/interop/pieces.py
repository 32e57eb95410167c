"""SentencePiece models with reordered pieces, so that the symbols have regard's ids.

A SentencePiece model is a protocol buffer: a field 1 for each piece (text, score and type), in the order of the ids,
then the settings of the trainer and the normaliser. Only the list of pieces is rewritten here.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError
from regard.symbols import SYMBOLS, UNKNOWN

NORMAL, UNKNOWN_TYPE, CONTROL, UNUSED = 1, 2, 3, 5  # types of a piece
MOST_PIECES = 1_000_000
NEVER = -10_000.0  # bias of a token that the original does not have: its probability is exactly 0


class SubwordPiece(NamedTuple):
    """A piece of a vocabulary; an unused one is never produced from text, but a model can still write it."""

    text: str
    score: float = 0.0
    type: int = NORMAL


class Pieces(NamedTuple):
    """The pieces of a SentencePiece model in the order of their ids, and the rest of the file."""

    pieces: list[SubwordPiece]
    rest: bytes

    @property
    def kind(self) -> str:
        """bpe or unigram: field 3 of the trainer's settings, which are field 2."""
        trainer = next((value for number, _, value in _fields(self.rest) if number == 2), b"")
        settings = _fields(trainer) if isinstance(trainer, bytes) else iter(())
        return "bpe" if any(number == 3 and value == 2 for number, _, value in settings) else "unigram"


def read_pieces(content: bytes, where: object) -> Pieces:
    """Parse a SentencePiece model."""
    pieces: list[SubwordPiece] = []
    rest = b""
    try:
        for number, kind, value in _fields(content):
            if number == 1 and isinstance(value, bytes):
                pieces.append(_unpacked(value))
            elif isinstance(value, bytes):
                rest += _field(number, value)
            else:
                raise ValueError(f"field {number} of kind {kind}")
        if not 1 <= len(pieces) <= MOST_PIECES:
            raise ValueError(f"{len(pieces)} pieces")
    except (ValueError, IndexError, struct.error) as error:
        raise DataError(f"{where} is not a SentencePiece model, or is damaged: {error}.") from None
    return Pieces(pieces, rest)


def begin_with_symbols(pieces: Sequence[SubwordPiece]) -> list[SubwordPiece]:
    """`pieces` with the first four replaced by PAD, START, END and UNKNOWN; later ones with these names are renamed."""
    begin = [
        SubwordPiece(name, 0.0, UNKNOWN_TYPE if index == UNKNOWN else CONTROL) for index, name in enumerate(SYMBOLS)
    ]
    rest = [
        SubwordPiece(f"<other {one.text[1:]}", 0.0, CONTROL) if one.text in SYMBOLS else one
        for one in pieces[len(begin) :]
    ]
    return begin + rest


class RowOrder(NamedTuple):
    """The rows of an embedding in regard's order."""

    tokens: list[str]  # the first four are the symbols
    order: list[int]  # the original row; -1 for a new one
    known: int  # tokens of the original; later ones are read as <unk>

    def vocabulary(self, spm: Pieces) -> bytes:
        """The SentencePiece model `spm` with the pieces of the table."""
        own = {piece.text: piece for piece in spm.pieces}
        pieces = [own.get(token, SubwordPiece(token, 0.0, UNUSED)) for token in self.tokens]
        codes = [_code(token) or piece for token, piece in zip(self.tokens, pieces, strict=True)]
        return b"".join(_field(1, _packed(piece)) for piece in begin_with_symbols(codes)) + spm.rest

    def embedding(self, rows: Tensor, where: object) -> Tensor:
        """Embeddings in the new order."""
        if rows.dim() != 2 or len(rows) <= max(self.order):
            raise DataError(
                f"{where} has a table [{', '.join(map(str, rows.shape))}] for a vocabulary of {max(self.order) + 1}; "
                f"check that they belong together."
            )
        return _reorder(rows, self.order)

    def bias(self, numbers: Tensor) -> Tensor:
        """Output biases in the new order; words that the original does not have are never written."""
        order = [*self.order[: self.known], *[-1] * (len(self.order) - self.known)]
        return _reorder(numbers.flatten(), order, NEVER)


def _reorder(rows: Tensor, order: Sequence[int], fill: float = 0.0) -> Tensor:
    """Row `order[i]` of `rows` as row i; -1 makes a row of `fill`."""
    index = torch.tensor(order)
    moved = rows[index.clamp_min(0)]
    moved[index < 0] = fill
    return moved


def order_rows(names: Mapping[int, str], first: Sequence[int], spms: Sequence[Pieces]) -> RowOrder:
    """regard's order of the tokens `names` by row, followed by those that only the SentencePiece models have.

    `first` are the rows of PAD, START, END and UNKNOWN; -1 if there is none.
    """
    rest = [index for index in range(max(names) + 1) if index not in first]
    known = set(names.values())
    unlisted = (piece.text for spm in spms for piece in spm.pieces if piece.text not in known)
    extra = [text for text in dict.fromkeys(unlisted) if text not in ("<s>", "<pad>")]
    order = [*first, *rest]
    tokens = [names.get(index, f"<{index}>") if index >= 0 else "" for index in order]
    return RowOrder([*tokens, *extra], [*order, *[first[UNKNOWN]] * len(extra)], len(order))


def _code(token: str) -> SubwordPiece | None:
    """The piece of a language code such as `>>fra<<`, which begins the text for a multilingual model."""
    return SubwordPiece("▁" + token, 0.0, NORMAL) if token.startswith(">>") and token.endswith("<<") else None


def _fields(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire kind, value) of each field."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield number, kind, value
            continue
        if kind == 2:
            size, place = _varint(content, place)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or place + size > len(content):
            raise ValueError(f"a field of {size} bytes at byte {place}")
        yield number, kind, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError(f"a number without end at byte {place}")


def _unpacked(content: bytes) -> SubwordPiece:
    text, score, type_ = "", 0.0, NORMAL
    for number, _, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif number == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            type_ = value
    return SubwordPiece(text, score, type_)


def _packed(piece: SubwordPiece) -> bytes:
    score = b"\x15" + struct.pack("<f", piece.score)  # field 2, four bytes
    return _field(1, piece.text.encode()) + score + b"\x18" + _as_varint(piece.type)  # field 3, a number


def _field(number: int, value: bytes) -> bytes:
    return _as_varint(number << 3 | 2) + _as_varint(len(value)) + value


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
