"""DOCX, PPTX, ODT and EPUB: zip archives with members to translate; all other members stay byte for byte.

An archive is read as one text: the name and the content of each member to translate, with NUL between them, which XML
cannot contain. Nothing is extracted to the disk.
"""

import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from xml.parsers import expat

from regard.errors import DataError
from regard.files import html
from regard.files.segment import Builder, Part, framed, keep_outer_breaks

LARGEST = 256 << 20  # bytes of all members, uncompressed; they are copied in blocks
LARGEST_TEXT = 32 << 20  # bytes of the members to translate, which are in memory
MOST_MEMBERS = 10_000
_TAG = re.compile(r"</?([\w:]{1,100})")
_HYPHENS = {"w:noBreakHyphen": "-", "w:softHyphen": ""}  # elements that are characters
_OUTSIDE = re.compile(r"^[/\\]|(?:^|[/\\])\.\.(?:[/\\]|$)|[:\0]")


class Members(NamedTuple):
    """The members of an archive that are translated."""

    names: re.Pattern[str]
    xml: bool = True  # whether they must be well-formed XML without a document type


def unpack(data: bytes, members: Members) -> str:
    """The members to translate as one text."""
    parts: list[str] = []
    with _open(data) as archive:
        chosen = [info for info in archive.infolist() if members.names.fullmatch(info.filename)]
        if sum(info.file_size for info in chosen) > LARGEST_TEXT:
            raise DataError(f"the archive has more than {LARGEST_TEXT >> 20} MiB of text; split the file.")
        for info in chosen:
            content = archive.read(info)  # never more than its size says
            try:
                text = content.decode("utf-8")
                if "\0" in text or (members.xml and "<!DOCTYPE" in text):
                    raise DataError(f"{info.filename} has a document type or a NUL character; save the file again.")
                if members.xml:
                    expat.ParserCreate().Parse(content, True)
            except (UnicodeDecodeError, expat.ExpatError) as error:
                raise DataError(f"{info.filename} is damaged ({error}); save the file again.") from None
            parts += [info.filename, text]
    return "\0".join(parts)


def pack(data: bytes, text: str) -> bytes:
    """The archive `data` with the members of `text`."""
    parts = text.split("\0")
    written = dict(zip(parts[::2], parts[1::2], strict=True)) if text else {}
    out = io.BytesIO()
    with _open(data) as archive, zipfile.ZipFile(out, "w") as result:
        for info in archive.infolist():
            if info.filename in written:
                result.writestr(info, written[info.filename].encode("utf-8"), info.compress_type)
            else:
                with archive.open(info) as member, result.open(info, "w") as copy:
                    shutil.copyfileobj(member, copy)
    return out.getvalue()


@contextmanager
def _open(data: bytes) -> Iterator[zipfile.ZipFile]:
    """An archive whose names and sizes are accepted."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):  # a compound file, which Office makes of what has a password, too
        raise DataError("the file has a password, or an older format with a new ending; save it without a password.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            names = [info.filename for info in members]
            if len(set(names)) < len(names) or any(map(_OUTSIDE.search, names)):
                raise DataError("the archive has repeated names, or names of places outside it; save the file again.")
            if any(info.flag_bits & 1 for info in members):
                raise DataError("the archive is encrypted; save it without a password.")
            if len(members) > MOST_MEMBERS or sum(info.file_size for info in members) > LARGEST:
                limits = f"{MOST_MEMBERS} members or {LARGEST >> 20} MiB"
                raise DataError(f"the archive has more than {limits} when it is unpacked; split the file.")
            yield archive
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"the archive cannot be read ({error}); save the file again.") from None


def read_members(text: str, read: Callable[[str], Iterator[Part]]) -> Iterator[Part]:
    """The parts of all members."""
    for number, part in enumerate(text.split("\0")):
        yield "\0" if number else ""
        yield from read(part) if number % 2 else [part]


# --- OpenDocument and EPUB: text with inline tags, like HTML

_TEXT = html.Rules(
    inline=frozenset(f"text:{name}" for name in (
        "a", "bookmark", "bookmark-end", "bookmark-start", "date", "line-break", "note", "page-number",
        "reference-mark", "ruby", "s", "soft-page-break", "span", "tab", "time",
    )) | {"draw:frame", "office:annotation", "office:annotation-end"},
    kept=frozenset((
        "text:note", "draw:frame", "office:annotation", "office:automatic-styles", "office:styles", "office:scripts",
        "office:font-face-decls", "text:sequence-decls", "text:tracked-changes", "table:calculation-settings",
    )),
    void=(), raw=(), breaks=frozenset(("text:line-break", "text:s", "text:tab")),
    notes=frozenset(("text:note", "office:annotation")), ignore_case=False,
)  # fmt: skip
ODT = Members(re.compile(r"content\.xml|styles\.xml"))
read_odt = partial(read_members, read=partial(html.read, rules=_TEXT))
EPUB = Members(re.compile(r"\A(?!META-INF/).*\.x?html?"), xml=False)
read_epub = partial(read_members, read=html.read)


# --- Office Open XML: a paragraph is a list of runs, each with its properties and texts


class Names(NamedTuple):
    """The names of elements, for documents or presentations."""

    prefix: str
    space: str = ""  # attribute of a text that keeps its white space
    kept: tuple[str, ...] = ()  # elements that are not taken apart
    breaks: tuple[str, ...] = ()  # elements that are white space
    dropped: tuple[str, ...] = ()  # hints that belong to the words of the source

    def paragraphs(self, text: str) -> Iterator[Part]:
        """The parts of a member."""
        p = f"{self.prefix}:"
        rules = html.xml_rules(ignored=frozenset(f"{p}{name}" if ":" not in name else name for name in self.kept))
        paragraph: list[html.Markup] | None = None
        for token in _controls(html.join_kept(html.scan(text, rules), rules), f"{p}sdt"):
            if token.name == f"{p}p" and not token.empty:
                if paragraph is not None:
                    yield from self.segment(paragraph)
                paragraph = None if token.closing else []
                yield token.raw
            elif paragraph is None or (not paragraph and token.raw.startswith(f"<{p}pPr")):
                yield token.raw
            else:
                paragraph.append(token)
        yield "".join(token.raw for token in paragraph or ())

    def segment(self, tokens: list[html.Markup]) -> Iterator[Part]:
        """The runs of a paragraph as a segment. Every tag ends a run and begins another one."""
        p = f"{self.prefix}:"
        tail = len(tokens)
        while tail and tokens[tail - 1].raw.startswith(f"<{p}endParaRPr"):
            tail -= 1
        raw, end = "".join(token.raw for token in tokens[:tail]), "".join(token.raw for token in tokens[tail:])
        text = f"<{p}t{self.space}>"
        close = f"</{p}t></{p}r>"
        base: str | None = None  # the properties of the first run with text
        builder = Builder()
        for run in _runs(map(_spelled, tokens[:tail]), f"{p}r"):
            texts = [token for token in run if token.name is None]
            if len(run) > 1 and texts:
                properties = next((token.raw for token in run if token.raw.startswith(f"<{p}rPr")), "")
                base = properties if base is None else base
                begin, other = f"<{p}r>{base}{text}", properties != base
                if other:
                    builder.open(f"{close}<{p}r>{properties}{text}", "run")
                for token in run[1:-1]:
                    bare = (token.name or "").removeprefix(p)
                    if token.name is None:
                        builder.words(html.unescape(token.raw))
                    elif token.empty and bare in self.breaks:
                        builder.mark(f"</{p}t>{token.raw}{text}", "break")
                    elif bare != "t" and token.raw != properties and bare not in self.dropped:
                        builder.mark(f"</{p}t>{token.raw}{text}", "void")
                if other:
                    builder.close(close + begin, "run")
                continue
            whole, (first, *_) = "".join(token.raw for token in run), run
            tag = _TAG.match(whole)  # an element that is kept whole has no name
            name = tag[1].removeprefix(p) if tag else ""
            if name in self.dropped or (first.name is None and not whole.strip()):
                continue
            begin = f"<{p}r>\0{text}"  # the properties are not known yet
            if len(run) == 1 and first.name and not first.empty:
                (builder.close if first.closing else builder.open)(close + whole + begin, first.name)
            else:
                inside = [token for token in run[1:-1] if not token.raw.startswith(f"<{p}rPr")] or [first]
                broken = all(token.empty and (token.name or "").removeprefix(p) in self.breaks for token in inside)
                builder.mark(close + whole + begin, "break" if broken or name in self.breaks else "void")
        opening, empty = f"<{p}r>{base}{text}", f"<{p}r>{base}{text}{close}"

        def wrap(inner: str) -> str:
            """An unchanged paragraph as it was, otherwise without empty runs."""
            return raw if inner == raw else (opening + inner.replace("\0", base or "") + close).replace(empty, "")

        yield from framed(raw, 0, len(raw), keep_outer_breaks(builder.build(raw, html.escape, wrap)))
        yield end


def _controls(tokens: Iterable[html.Markup], name: str) -> Iterator[html.Markup]:
    """The tokens, with each end of a content control as one tag, so that its properties stay at its begin."""
    found = list(tokens)
    ends: dict[int, int] = {}  # the first and the last of the tokens that become one
    opened: list[tuple[int, int]] = []  # where each open element begins, and the control whose content it is
    fresh = -1  # the open control of which nothing but its properties has been read
    for at, token in enumerate(found):
        if token.name and token.closing:
            begin, control = opened.pop() if opened else (0, -1)
            after = at + 1
            while after < len(found) and found[after].name is None and not found[after].raw.strip():
                after += 1
            if control >= 0 and after < len(found) and found[after].closing and found[after].name == name:
                ends[control], ends[at] = begin, after
            fresh = -1
        elif token.name and not token.empty:
            opened.append((at, fresh if token.name == f"{name}Content" else -1))
            fresh = at if token.name == name else -1
        elif token.name is None and token.raw.strip():
            fresh = -1
    at = 0
    while at < len(found):
        last = ends.get(at, at)
        raw = "".join(token.raw for token in found[at : last + 1])
        yield found[at]._replace(raw=raw, name=name) if last > at else found[at]
        at = last + 1


def _spelled(token: html.Markup) -> html.Markup:
    """The token, or the character that it stands for."""
    if token.name not in _HYPHENS:
        return token
    return html.Markup("" if token.closing else _HYPHENS[token.name])


def _runs(tokens: Iterable[html.Markup], name: str) -> Iterator[list[html.Markup]]:
    """The tokens of each run together, and all others alone."""
    run: list[html.Markup] = []
    for token in tokens:
        run.append(token)
        if (token.name == name and token.closing) or run[0].name != name or run[0].empty:
            yield run
            run = []
    if run:
        yield run


_WORD = Names(
    "w", ' xml:space="preserve"',
    ("pPr", "rPr", "sdtPr", "sdtEndPr", "drawing", "pict", "object", "mc:AlternateContent", "del", "moveFrom",
     "instrText", "fldData", "m:oMath", "m:oMathPara", "ruby"),
    ("br", "cr", "tab"), ("proofErr", "lastRenderedPageBreak"),
)  # fmt: skip
_SLIDE = Names("a", kept=("pPr", "rPr", "br", "fld", "endParaRPr"), breaks=("br",))
DOCX = Members(re.compile(r"word/(?:document|(?:header|footer)\d*|footnotes|endnotes|comments)\.xml"))
read_docx = partial(read_members, read=_WORD.paragraphs)
PPTX = Members(re.compile(r"ppt/(?:slides|notesSlides)/[^/]+\.xml"))
read_pptx = partial(read_members, read=_SLIDE.paragraphs)
