"""Tokens of a sentence: what is shown, its position in the text, and which word it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import DataError
from regard.symbols import SYMBOLS

SPECIAL = frozenset(
    (*(symbol for symbol in SYMBOLS if symbol != "<unk>"), "<bos>", "<eos>", "[CLS]", "[SEP]", "[PAD]", "<|endoftext|>")
)


@dataclass(frozen=True)
class Token:
    """One token. `piece` is the vocabulary's spelling, `text` what is shown; `start` and `end` are code points
    of the sentence's text; pieces of one word share `word`; special tokens belong to no word.

    >>> regard.look.Token("cat", "▁cat", start=4, end=7, word=1).text
    'cat'
    """

    text: str
    piece: str
    start: int = 0
    end: int = 0
    special: bool = False
    word: int | None = None
    logprob: float | None = None
    confidence: float | None = None  # of its word, if the model is calibrated
    topk: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Side:
    """One side of a trace: a text and its tokens in order.

    >>> words = regard.look.Token("the", "▁the", 0, 3, word=0), regard.look.Token("cat", "▁cat", 4, 7, word=1)
    >>> side = regard.look.Side("the cat", words)
    >>> [side.text[token.start : token.end] for token in side.tokens]
    ['the', 'cat']
    """

    text: str
    tokens: tuple[Token, ...]

    def __post_init__(self) -> None:
        for token in self.tokens:
            if not 0 <= token.start <= token.end <= len(self.text):
                raise DataError(
                    f"Token {token.piece!r} is at {token.start}..{token.end}, outside its text of "
                    f"{len(self.text)} code points."
                )


def as_side(tokens: "Side | Sequence[str | Token]") -> Side:
    """A `Side` of tokens or of strings, in which the marks of subword vocabularies are understood.

    Strings are pieces: "▁" or "Ġ" begins a word, "##" or a preceding "@@" continues one; without any such mark each
    string is a word. SPECIAL names such as "</s>" are special.
    """
    if isinstance(tokens, Side):
        return tokens
    if isinstance(tokens, str):
        raise DataError(f"Tokens must be a list of strings, one each; got one string of {len(tokens)} characters.")
    listed: list[Any] = list(tokens)
    if listed and all(isinstance(token, Token) for token in listed):
        characters = [" "] * max(token.end for token in listed)  # what no token covers is a space
        for token in listed:
            if len(token.text) == token.end - token.start:
                characters[token.start : token.end] = token.text
        return Side("".join(characters), tuple(listed))
    for token in listed:
        if not isinstance(token, str):
            raise DataError(f"Tokens must be strings (or all of them Token); got {type(token).__name__}.")
    style = _style(listed)
    text, word, read, glued = "", -1, list[Token](), False
    for piece in listed:
        if piece in SPECIAL:
            read.append(Token(piece, piece, len(text), len(text), special=True))
            glued = False
            continue
        if style in ("▁", "Ġ"):
            shown, begins = piece.replace(style, ""), piece.startswith(style)
        elif style == "##":
            shown, begins = piece.removeprefix("##"), not piece.startswith("##")
        else:
            shown, begins = piece.removesuffix(style), not glued
        glued = style == "@@" and piece.endswith("@@")
        if begins or word < 0:
            word += 1
            text += " " if text else ""
        start = len(text)
        text += shown
        read.append(Token(shown or piece, piece, start, len(text), word=word))
    return Side(text, tuple(read))


def _style(pieces: list[str]) -> str:
    """The mark of the vocabulary that these pieces are from; empty without any."""
    for mark in ("▁", "Ġ"):
        if any(piece.startswith(mark) for piece in pieces):
            return mark
    if any(piece.startswith("##") and len(piece) > 2 for piece in pieces):
        return "##"
    return "@@" if any(piece.endswith("@@") and len(piece) > 2 for piece in pieces) else ""
