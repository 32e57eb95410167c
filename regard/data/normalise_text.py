"""Text as the vocabulary sees it, with the way back: every character knows where it came from."""

import unicodedata
from typing import Literal, NamedTuple, cast

Form = Literal["NFC", "NFKC"]


class Rewritten(NamedTuple):
    """`text`, and for each of its characters the code points [start, end) of the original that it covers."""

    text: str
    starts: list[int] | None  # None: nothing moved, character i is character i
    ends: list[int] | None


def rewrite(text: str, form: str = "none", lowercase: bool = False) -> Rewritten:
    """Apply a Unicode normal form and lower case. Lone surrogates, which no file can hold, become U+FFFD.

    Lower-casing is character by character, so that it needs no context (a final sigma becomes a plain one).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    if text.isascii():
        return Rewritten(text.lower() if lowercase else text, None, None)
    if form == "none" and not lowercase:
        return Rewritten(text, None, None)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    start = 0
    for chunk in _chunks(text, form):
        part = chunk if form == "none" else unicodedata.normalize(cast(Form, form.upper()), chunk)
        if lowercase:
            part = "".join(character.lower() for character in part)
        parts.append(part)
        starts += [start] * len(part)
        ends += [start + len(chunk)] * len(part)
        start += len(chunk)
    return Rewritten("".join(parts), starts, ends)


def _chunks(text: str, form: str) -> list[str]:
    """Pieces of text that can be normalised alone: a new one begins where nothing joins across the border."""
    if form == "none":
        return list(text)
    kind = cast(Form, form.upper())
    chunks: list[str] = []
    chunk = ""
    for character in text:
        if chunk and not _joins(chunk, character, kind):
            chunks.append(chunk)
            chunk = ""
        chunk += character
    return [*chunks, chunk]


def _joins(chunk: str, character: str, form: Form) -> bool:
    if unicodedata.combining(character):
        return True
    if character.isascii():
        return False
    alone = unicodedata.normalize(form, character)
    if unicodedata.combining(alone[0]):
        return True  # a few characters decompose into marks
    return unicodedata.normalize(form, chunk + character) != unicodedata.normalize(form, chunk) + alone
