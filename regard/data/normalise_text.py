"""Text as the vocabulary sees it, with the way back: every character knows where it came from."""

import re
import unicodedata
from typing import Literal, NamedTuple, cast

Form = Literal["NFC", "NFKC"]
PUNCTUATION = "punctuation"
FORMS = ("none", "nfc", "nfkc", PUNCTUATION)

# ASCII for the marks of a printer. A single quotation mark may be an apostrophe: it quotes where it begins a word and
# another one ends a word. A quotation that does not end in its sentence begins with a capital; one that began before it
# ends after punctuation.
_PRINTED = "“”„‟‘’‚‛`´‐‑‒–—―−\u00a0\u2009\u202f"
_ASCII = str.maketrans(_PRINTED, '"' * 4 + "'" * 6 + "-" * 7 + " " * 3)
_SOME_PRINTED = re.compile(f"[{_PRINTED}]")
_QUOTED = re.compile(r"'(?<!\w.)(?=\S)((?:[^']|(?<=\w)'(?=\w))+?)(?<=\S)'(?!\w)")
_CUT_OFF = re.compile(r"'(?:(?<=\A.)|(?<=[:,] .))(?=[^\W\d_a-z])|'(?<=[.!?,].)(?!\w)")
_GUILLEMETS = re.compile(r"« ?| ?»")


class Rewritten(NamedTuple):
    """`text`, and for each of its characters the code points [start, end) of the original that it covers."""

    text: str
    starts: list[int] | None  # None: nothing moved, character i is character i
    ends: list[int] | None


def rewrite(text: str, form: str = "none", lowercase: bool = False) -> Rewritten:
    """Apply a Unicode normal form, or `PUNCTUATION`, and lower case. Lone surrogates, which no file can hold, become
    U+FFFD.

    `PUNCTUATION` writes quotation marks, apostrophes, dashes and spaces as ASCII: ‘new’ and « new » become "new". To a
    vocabulary, texts that differ in nothing else are the same. Lower-casing is character by character, so that it needs
    no context (a final sigma becomes a plain one).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    if form == PUNCTUATION:
        text = _straight(text)
    if text.isascii():
        return Rewritten(text.lower() if lowercase else text, None, None)
    if not lowercase and (form == "none" or (form == PUNCTUATION and "«" not in text and "»" not in text)):
        return Rewritten(text, None, None)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    start = 0
    for chunk in _chunks(text, form):
        part = _normal(chunk, form)
        if lowercase:
            part = "".join(character.lower() for character in part)
        parts.append(part)
        starts += [start] * len(part)
        ends += [start + len(chunk)] * len(part)
        start += len(chunk)
    return Rewritten("".join(parts), starts, ends)


def _straight(text: str) -> str:
    """Marks that have one character in ASCII; quoted text in double quotation marks."""
    if not text.isascii() and _SOME_PRINTED.search(text):
        text = text.translate(_ASCII)
    return _CUT_OFF.sub('"', _QUOTED.sub(r'"\1"', text)) if "'" in text else text


def _normal(chunk: str, form: str) -> str:
    if form == PUNCTUATION:
        return _GUILLEMETS.sub('"', chunk)
    return chunk if form == "none" else unicodedata.normalize(cast(Form, form.upper()), chunk)


def _chunks(text: str, form: str) -> list[str]:
    """Pieces of text that can be normalised alone: a new one begins where nothing joins across the border."""
    if form == "none":
        return list(text)
    if form == PUNCTUATION:
        return re.findall(rf"{_GUILLEMETS.pattern}|.", text, re.DOTALL)
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
