"""SentencePiece models with reordered pieces, so that the symbols have regard's ids.

A SentencePiece model is a protocol buffer, read and written by the module that comes with sentencepiece. Its pieces are
in the order of their ids; only this list is rewritten here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError, brief, need
from regard.symbols import SYMBOLS, UNKNOWN

NORMAL, UNKNOWN_TYPE, CONTROL, UNUSED = 1, 2, 3, 5  # types of a piece; an unused one is written, but never read
BPE = 2  # type of a model; the others are read as unigram
MOST_PIECES, MOST_BYTES = 1_000_000, 2**25
NEVER = -10_000.0  # bias of a token that the original does not have: its probability is exactly 0

Pieces = Any  # a ModelProto: `pieces`, each with `piece`, `score` and `type`, and the settings


def read_pieces(content: bytes, where: object) -> Pieces:
    """Parse a SentencePiece model."""
    missing = "Importing a model needs protobuf; install it: pip install 'regard[import]'."
    proto = need("sentencepiece.sentencepiece_model_pb2", missing, DataError)
    error_type = need("google.protobuf.message", missing, DataError).DecodeError
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"{len(content)} bytes")
        model = proto.ModelProto.FromString(content)
        if not 1 <= len(model.pieces) <= MOST_PIECES:
            raise ValueError(f"{len(model.pieces)} pieces")
        if not all(isinstance(piece.piece, str) for piece in model.pieces):  # protobuf gives bytes instead
            raise ValueError("a piece that is not UTF-8")
    except (error_type, ValueError) as error:
        raise DataError(f"{where} is not a SentencePiece model, or is damaged: {brief(error)}.") from None
    return model


def kind_of(model: Pieces) -> str:
    """bpe or unigram."""
    return "bpe" if model.trainer_spec.model_type == BPE else "unigram"


class RowOrder(NamedTuple):
    """The rows of an embedding in regard's order."""

    tokens: list[str]  # the first four are the symbols
    order: list[int]  # the original row; -1 for a new one
    known: int  # tokens of the original; later ones are read as <unk>

    def vocabulary(self, spm: Pieces) -> bytes:
        """The SentencePiece model `spm` with the tokens of the table, the first four named as regard's symbols."""
        own = {piece.piece: piece for piece in spm.pieces}
        model = type(spm)()
        model.CopyFrom(spm)
        del model.pieces[:]
        for index, token in enumerate(self.tokens):
            if index < len(SYMBOLS):
                type_ = UNKNOWN_TYPE if index == UNKNOWN else CONTROL
                model.pieces.add(piece=SYMBOLS[index], score=0.0, type=type_)
            elif token in SYMBOLS:  # a second token of this name
                model.pieces.add(piece=f"<other {token[1:]}", score=0.0, type=CONTROL)
            elif token.startswith(">>") and token.endswith("<<"):  # a language code, which begins the text
                model.pieces.add(piece="▁" + token, score=0.0, type=NORMAL)
            elif token in own:
                model.pieces.append(own[token])
            else:
                model.pieces.add(piece=token, score=0.0, type=UNUSED)
        return model.SerializeToString()

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
    unlisted = (piece.piece for spm in spms for piece in spm.pieces if piece.piece not in known)
    extra = [text for text in dict.fromkeys(unlisted) if text not in ("<s>", "<pad>")]
    order = [*first, *rest]
    tokens = [names.get(index, f"<{index}>") if index >= 0 else "" for index in order]
    if any("\ud800" <= character <= "\udfff" for token in tokens for character in token):
        raise DataError("A token of the vocabulary has half of a surrogate pair, which is not a character.")
    return RowOrder([*tokens, *extra], [*order, *[first[UNKNOWN]] * len(extra)], len(order))
