"""Tokens of a sentence: what is shown, its position in the text, which word it belongs to, and which cell."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import DataError
from regard.symbols import SYMBOLS

SPECIAL = frozenset(
    (*(symbol for symbol in SYMBOLS if symbol != "<unk>"), "<bos>", "<eos>", "[CLS]", "[SEP]", "[PAD]", "<|endoftext|>")
)
_APOSTROPHES = "'\u2019"
_ENDINGS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))  # of English words, after an apostrophe


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
    topk: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        texts = (self.text, self.piece, *(text for text, _ in self.topk))
        whole = (self.start, self.end, 0 if self.word is None else self.word)
        numbers = (0.0 if self.logprob is None else self.logprob, *(value for _, value in self.topk))
        if not (
            all(isinstance(text, str) for text in texts)
            and all(map(is_whole, whole))
            and isinstance(self.special, bool)
        ):
            raise DataError(
                f"A token needs texts, whole numbers for places and True or False for special; got {self!r}."
            )
        if not all(map(is_number, numbers)):
            raise DataError(f"The log-probabilities of a token must be finite numbers; got {self!r}.")


def is_number(value: object) -> bool:
    """Whether `value` is a finite number (True and False are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number (True and False are not)."""
    return isinstance(value, int) and not isinstance(value, bool)


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
        if not isinstance(self.text, str):
            raise DataError(f"A sentence needs a text; got {type(self.text).__name__}.")
        for token in self.tokens:
            if not 0 <= token.start <= token.end <= len(self.text):
                raise DataError(
                    f"Token {token.piece!r} is at {token.start}..{token.end}, outside its text of "
                    f"{len(self.text)} code points."
                )


def share_cell(text: str, before: Token, after: Token, punctuation: bool) -> bool:
    """Whether two neighbouring tokens of `text` belong into one cell of a picture: pieces of one word.

    With `punctuation`, words and punctuation are separate cells, "L'accord" is "L'" and "accord", and the letters of
    scripts that are written without spaces form a cell for each token.
    """
    if before.special or after.special or before.word is None or before.word != after.word:
        return False
    at = after.start
    if not punctuation or before.start == before.end or not before.end <= at < after.end or text[at - 1].isspace():
        return True  # a byte or a bare space belongs to what follows
    left, right = _is_letter(text, at - 1), _is_letter(text, at)
    if left and right:
        return not (_is_wide(text[at - 1]) and _is_wide(text[at]))
    if not left and not right:
        return text[at - 1] == text[at]
    mark = at if left else at - 1  # the sign between the letters, if there are letters on both sides
    if not (_is_letter(text, mark - 1) and _is_letter(text, mark + 1)):
        return False
    if text[mark] in _APOSTROPHES:
        return left or _letters_from(text, at) in _ENDINGS
    return text[mark] in "-\u2010\u2011" or (
        text[mark] in ".,:" and text[mark - 1].isdigit() == text[mark + 1].isdigit()
    )


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and unicodedata.category(text[at])[0] in "LNM"


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in "WF" and unicodedata.category(letter) == "Lo"


def _letters_from(text: str, at: int) -> str:
    end = at
    while _is_letter(text, end):
        end += 1
    return text[at:end].lower()


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
        return Side("".join(_gaps(listed)), tuple(listed))
    for token in listed:
        if not isinstance(token, str):
            raise DataError(f"Tokens must be strings (or all of them Token); got {type(token).__name__}.")
    return _from_pieces(listed)


def _gaps(tokens: list[Token]) -> list[str]:
    """Characters of a text that holds every token at its offsets; what no token covers becomes a space."""
    text = [" "] * max((token.end for token in tokens), default=0)
    for token in tokens:
        if len(token.text) == token.end - token.start:
            text[token.start : token.end] = token.text
    return text


def _from_pieces(pieces: list[str]) -> Side:
    style = _style(pieces)
    text, word, tokens, glued = "", -1, [], False
    for piece in pieces:
        if piece in SPECIAL:
            tokens.append(Token(piece, piece, len(text), len(text), special=True))
            glued = False
            continue
        shown, begins = _read(piece, style, glued)
        glued = style == "@@" and piece.endswith("@@")
        if begins or word < 0:
            word += 1
            text += " " if text else ""
        start = len(text)
        text += shown
        tokens.append(Token(shown or piece, piece, start, len(text), word=word))
    return Side(text, tuple(tokens))


def _style(pieces: list[str]) -> str:
    for mark in ("▁", "Ġ"):
        if any(piece.startswith(mark) for piece in pieces):
            return mark
    if any(piece.startswith("##") and len(piece) > 2 for piece in pieces):
        return "##"
    return "@@" if any(piece.endswith("@@") and len(piece) > 2 for piece in pieces) else ""


def _read(piece: str, style: str, glued: bool) -> tuple[str, bool]:
    """What a piece shows, and whether it begins a word."""
    if style in ("▁", "Ġ"):
        return piece.replace(style, ""), piece.startswith(style)
    if style == "##":
        return (piece[2:], False) if piece.startswith("##") else (piece, True)
    if style == "@@":
        return piece.removesuffix("@@"), not glued
    return piece, True
