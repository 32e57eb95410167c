"""Text normalised for a vocabulary, with the position of each character in the original."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

from regard.errors import DataError

Form = Literal["NFC", "NFKC"]
UNICODE = ("nfc", "nfkc")
PUNCTUATION, QUOTES = "punctuation", "quotes"
FORMS = ("none", *UNICODE, PUNCTUATION, QUOTES)

# Typographic marks and their ASCII, character by character, so that positions stay. A long dash inside a word stays.
_MARKS = "“”„‟«»‘’‚‛´‐‑‒–−\u00a0\u2009\u202f"
ASCII = dict(zip(_MARKS, '"' * 6 + "'" * 5 + "-" * 5 + " " * 3, strict=True))
_MARK = re.compile(f"[{_MARKS}]")  # faster than `str.translate` for rare marks
QUOTE_MARKS = {mark: ASCII[mark] for mark in "“”„‟‘’‚‛´‐‑"} | dict.fromkeys("\u2009\u202f", "\u00a0")
_QUOTE = re.compile(f"[{''.join(QUOTE_MARKS)}]")
_FOLDED = str.maketrans('"—―', "'--")
_SURROGATE = re.compile("[\ud800-\udfff]")
_DASH = re.compile(r"(?<!\w)[—―]|[—―](?!\w)")
# A single quotation mark may be an apostrophe: it quotes if it begins a word and another one ends a word. A quotation
# that continues in the next sentence begins with a capital; one that began in an earlier sentence ends after
# punctuation.
_BORDER = re.compile(r"'(?:(?<!\w.)|(?!\w))")  # without a ' at the border of a word, nothing is quoted
_ELIDED = r"(?!\d|(?i:n|s|t|em|ne|til|tis|twas)\b)"  # 'n', 's avonds, 'tis: words, not quotations
_QUOTED = re.compile(rf"'(?<!\w.)(?=\S){_ELIDED}((?:[^']|(?<=\w)'(?=\w))+?)(?<=\S)'(?!\w)")
_CUT_OFF = re.compile(rf"'(?:(?<=\A.)|(?<=[:,] .)){_ELIDED}(?=[A-ZÀ-ÖØ-Þ])|'(?<=[.!?,].)(?!\w)")


class Rewritten(NamedTuple):
    """`text`, and the code points [start, end) of the original that each of its characters covers."""

    text: str
    starts: list[int] | None  # None: character i is character i of the original
    ends: list[int] | None

    def is_whole(self, start: int, end: int) -> bool:
        """Whether the characters [start, end) cover whole characters of the original."""
        starts = self.starts
        return starts is None or all(starts[at - 1] != starts[at] for at in (start, end) if 0 < at < len(starts))

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The code points of the original that the characters [start, end) cover."""
        if self.starts is None or self.ends is None:
            return start, end
        first = self.starts[start] if start < len(self.starts) else max(self.ends, default=0)
        return first, self.ends[end - 1] if end > start else first


def rewrite(text: str, form: str = "none", lowercase: bool = False) -> Rewritten:
    """Apply a Unicode normal form, `PUNCTUATION` or `QUOTES`, and lower case. Lone surrogates become U+FFFD.

    `PUNCTUATION` writes quotation marks, apostrophes, dashes and spaces as ASCII, character by character: ‘new’ and
    «new» become "new". `QUOTES` does the same but leaves « », dashes and no-break spaces, which a French text needs;
    narrow and thin spaces become no-break spaces. Their rules for ' were made for English and French. Lower-casing is
    also character by character, without context (a final sigma becomes a plain one).
    """
    text = well_formed(text)
    if form in (PUNCTUATION, QUOTES):
        text = _straight(text, form)
    if text.isascii():
        return Rewritten(text.lower() if lowercase else text, None, None)
    if form not in UNICODE and not lowercase:
        return Rewritten(text, None, None)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    start = 0
    for chunk in _chunks(text, form):
        part = unicodedata.normalize(cast(Form, form.upper()), chunk) if form in UNICODE else chunk
        if lowercase:
            part = "".join(character.lower() for character in part)
        parts.append(part)
        starts += [start] * len(part)
        ends += [start + len(chunk)] * len(part)
        start += len(chunk)
    return Rewritten("".join(parts), starts, ends)


def one_line(text: str) -> str:
    """A sentence as one line of valid Unicode: line breaks become spaces, lone surrogates the replacement character."""
    if not isinstance(text, str):
        raise DataError(f"A sentence is text; got {type(text).__name__}.")
    return well_formed(text.replace("\n", " "))


def rewrite_all(texts: Iterable[str], form: str, lowercase: bool) -> list[str]:
    """`rewrite` for many texts, without positions."""
    texts = list(texts)
    if form in UNICODE or lowercase or _SURROGATE.search("".join(texts)):
        return [rewrite(text, form, lowercase).text for text in texts]
    return [_straight(text, form) for text in texts] if form in (PUNCTUATION, QUOTES) else texts


def well_formed(text: str) -> str:
    """The text with lone surrogates, which cannot be written as UTF-8, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _straight(text: str, form: str) -> str:
    """Punctuation as ASCII, in the same number of characters; quoted text in double quotation marks."""
    if not text.isascii():
        pattern, marks = (_MARK, ASCII) if form == PUNCTUATION else (_QUOTE, QUOTE_MARKS)
        text = pattern.sub(lambda found: marks[found[0]], text)
        if form == PUNCTUATION and ("—" in text or "―" in text):
            text = _DASH.sub("-", text)
    return _CUT_OFF.sub('"', _QUOTED.sub(r'"\1"', text)) if _BORDER.search(text) else text


def fold_marks(text: str) -> str:
    """All quotation marks and apostrophes as ', dashes and spaces in ASCII, character by character.

    Unlike `PUNCTUATION`, it does not depend on the context, so that parts of texts can be compared.
    """
    return _MARK.sub(lambda found: ASCII[found[0]], text).translate(_FOLDED)


def _chunks(text: str, form: str) -> list[str]:
    """Split text into chunks that can be normalised independently."""
    if form not in UNICODE:
        return list(text)
    kind = cast(Form, form.upper())
    chunks: list[str] = []
    chunk = ""
    for character in text:
        joins = bool(unicodedata.combining(character))
        if chunk and not joins and not character.isascii():
            alone = unicodedata.normalize(kind, character)
            apart = unicodedata.normalize(kind, chunk) + alone
            # A few characters decompose into combining marks.
            joins = bool(unicodedata.combining(alone[0])) or unicodedata.normalize(kind, chunk + character) != apart
        if chunk and not joins:
            chunks.append(chunk)
            chunk = ""
        chunk += character
    return [*chunks, chunk]
