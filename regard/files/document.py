"""A file, split by its format and written back; PO and XLIFF also as translation memories."""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import PurePath
from typing import NamedTuple

from regard.errors import DataError, unknown
from regard.files import archives, html, markdown, po, subtitles, xliff
from regard.files.segment import REVIEW, Builder, Part, Review, Segment, framed
from regard.text.lines import bare_name

LARGEST = 64 << 20  # bytes of a file
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD = 4096  # bytes in which to look for the name of the encoding


Read = Callable[[str], Iterator[Part]]


class Format(NamedTuple):
    """A file format.

    `reads` are applied in turn: each one reads the translation written after the previous one, for text inside markup.
    """

    name: str
    reads: tuple[Read, ...]
    charset: re.Pattern[bytes] | None = None  # finds the name of the encoding
    outside: str = "strict"  # error handler for characters outside the encoding
    markup: bool = True  # whether it has more than words
    members: archives.Members | None = None  # of an archive
    # For a bilingual format: the codes of both languages, and the words of each unit.
    pairs: Callable[[str], tuple[tuple[str, str], Iterator[tuple[str, str]]]] | None = None
    # (source, translation, target language, review) -> the translation, with the language and states that it declares
    finish: Callable[[str, str, str, Review], str] = lambda before, after, language, review: after
    rates: bool = False  # whether it has a place for the confidence of a translation


def read_lines(text: str) -> Iterator[Part]:
    """Plain text: every line is a segment. Line ends and white space at both ends of a line stay."""
    for found in re.finditer(r"[^\n]+|\n", text):
        line = found[0]
        core, builder = line.strip(), Builder()
        builder.words(core)
        start = line.index(core)
        yield from framed(line, start, start + len(core), builder.build(core))


_HTML = Format("HTML", (html.read, html.read_attributes), html.CHARSET, "xmlcharrefreplace", finish=html.finish)
_XLIFF = Format(
    "XLIFF", (xliff.read,), xliff.CHARSET, "xmlcharrefreplace", pairs=xliff.pairs, finish=xliff.finish, rates=True
)
_PO = Format("PO", (po.read,), po.CHARSET, pairs=po.pairs, finish=po.finish)
FORMATS: dict[str, Format] = {
    "txt": Format("plain text", (read_lines,), markup=False),
    "html": _HTML,
    "htm": _HTML,
    "xhtml": _HTML,
    "md": Format("Markdown", (markdown.read,)),
    "markdown": Format("Markdown", (markdown.read,)),
    "srt": Format("SRT", (subtitles.read,)),
    "vtt": Format("WebVTT", (partial(subtitles.read, unescape=html.unescape, escape=html.escape),)),
    "docx": Format("DOCX", (archives.read_docx,), members=archives.DOCX),
    "pptx": Format("PPTX", (archives.read_pptx,), members=archives.PPTX),
    "odt": Format("ODT", (archives.read_odt,), members=archives.ODT),
    "epub": Format("EPUB", (archives.read_epub,), outside="xmlcharrefreplace", members=archives.EPUB),
    "po": _PO,
    "pot": _PO,
    "xlf": _XLIFF,
    "xliff": _XLIFF,
}


_UNSUPPORTED = {"doc": "DOCX or HTML", "ppt": "PPTX or HTML", "rtf": "DOCX or HTML", "pdf": "HTML", "xlsx": "HTML"}
_UNSUPPORTED |= {"xls": "HTML", "ods": "HTML", "odp": "PPTX or HTML", "pages": "DOCX or HTML"}


def find_format(name: str, *others: str) -> Format:
    """The format of a file name; `others` are further extensions for the error message."""
    ending = PurePath(name).suffix.lower().removeprefix(".")
    if ending in _UNSUPPORTED:
        raise DataError(f"{PurePath(name).name}: .{ending} files are not supported; save it as {_UNSUPPORTED[ending]}.")
    if ending not in FORMATS:
        sentence = unknown("file ending", ending, [*FORMATS, *others])
        raise DataError(f"{sentence} Name plain text {PurePath(name).stem}.txt.")
    return FORMATS[ending]


def format_of(name: str) -> Format | None:
    """The format of a file name, compressed or not; None if it has none."""
    return FORMATS.get(PurePath(bare_name(name)).suffix.lower().removeprefix("."))


@dataclass(frozen=True)
class Document:
    """The text of a file, and its encoding."""

    data: bytes
    text: str
    encoding: str
    mark: bytes  # byte order mark
    form: Format
    name: str
    reader: Read

    def read(self) -> Iterator[Part]:
        """The parts of the file in order, one at a time: all of them can take many times the memory of the file."""
        try:
            yield from (part for part in self.reader(self.text) if part != "")
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from None

    @cached_property
    def parts(self) -> list[Part]:
        """All parts."""
        return list(self.read())

    @property
    def segments(self) -> list[Segment]:
        """The segments to translate, in order."""
        return [part for part in self.parts if isinstance(part, Segment)]

    def write(self, inner: list[str], language: str | None = None, review: Review = REVIEW) -> bytes:
        """The file with its segments translated; `inner` is the result of `place_tags` for each segment."""
        each = iter(inner)
        text = "".join(part if isinstance(part, str) else part.wrap(next(each)) for part in self.parts)
        return self.encode(text, language, review)

    def encode(self, text: str, language: str | None = None, review: Review = REVIEW) -> bytes:
        """A text in the encoding of the file. With the `language` of the translation ("" if it is not known), the file
        declares it, and PO and XLIFF files mark the new translations as `review` says."""
        text = self.form.finish(self.text, text, language, review) if language is not None else text
        if self.form.members:
            return archives.pack(self.data, text)
        try:
            return self.mark + text.encode(self.encoding, self.form.outside)
        except UnicodeEncodeError as error:
            raise DataError(
                f"The translation of {self.name} has the character {text[error.start]!r}, which its encoding "
                f"{self.encoding} cannot write; convert the file to UTF-8 first."
            ) from None


def open_document(data: bytes, name: str, read: Read | None = None) -> Document:
    """The document in a file of this name, whose parts have not been read; DataError if it cannot be decoded."""
    form = find_format(name)
    text, encoding, mark = decode_file(data, name, form)
    return Document(data, text, encoding, mark, form, name, read or form.reads[0])


def read_document(data: bytes, name: str, read: Read | None = None) -> Document:
    """The document in a file of this name, with its parts; DataError if it cannot be read."""
    document = open_document(data, name, read)
    document.parts  # noqa: B018 - reads them
    return document


def decode_file(data: bytes, name: str, form: Format) -> tuple[str, str, bytes]:
    """The text of a file, its encoding (from its byte order mark, its declaration, or UTF-8), and that mark."""
    if form.members:
        try:
            return archives.unpack(data, form.members), "utf-8", b""
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
    mark, encoding = next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", ""))
    data = data[len(mark) :]
    named = form.charset.search(data[:_HEAD]) if form.charset else None
    encoding = encoding or (named[1].decode("ascii") if named else "utf-8")
    try:
        info = codecs.lookup(encoding)
    except LookupError:
        raise DataError(f"{name} names an unknown encoding, {encoding[:40]!r}; save it as UTF-8.") from None
    if not info._is_text_encoding:
        raise DataError(f"{name} names {encoding[:40]!r}, which is not a text encoding; save it as UTF-8.")
    encoding = info.name
    try:
        text = data.decode(encoding)
        if text.encode(encoding) != data:
            raise UnicodeError("it cannot be written back unchanged")
    except UnicodeError as error:
        what = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
        raise DataError(f"{name} is not valid {encoding} ({what}); save the file as UTF-8.") from None
    if "\0" in text:
        raise DataError(
            f"{name} has NUL characters, as UTF-16 and UTF-32 without a byte order mark; save the file as UTF-8."
        )
    return text, encoding, mark
