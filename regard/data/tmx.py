"""Translation memories: TMX, PO and XLIFF files are read as a stream of units; TMX 1.4 is written.

Units that are far too long for sentences are refused before they fill the memory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from regard.errors import DataError, counted
from regard.files.document import LARGEST, decode_file, format_of
from regard.files.xml import InertXML
from regard.text.lines import READING, UNREADABLE, Digests, Reading, damaged, read_blocks, read_whole
from regard.version import __version__

KINDS = 10_000  # names of elements and attributes; TMX has about fifty
FIRST_UNITS = 50_000  # units of a file in which to look for its languages
_PRICE = 100  # characters that are charged for each text, even if it is empty
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut", "sub"))  # markup of the original document, not its words
_BREAKS = re.compile(r"[\t\r\n]+")
_ILLEGAL = dict.fromkeys(code for code in range(32) if chr(code) not in "\t\n\r")  # control characters, in XML


class Unit(NamedTuple):
    """A translation unit: its source language, if the file names it, and its text in each language."""

    written_in: str
    texts: dict[str, str]


def read_units(path: str, reading: Reading = READING, digests: Digests | None = None) -> Iterator[Unit]:
    """The units of a TMX file, plain or compressed, in UTF-8, UTF-16 or a one-byte encoding. Tags are like en-gb.

    PO and XLIFF files, recognised by their extension, are read too. `digests` as in `read_blocks`.
    """
    form = format_of(path)
    if form is not None and form.pairs is not None:
        text, _, _ = decode_file(read_whole(path, LARGEST, reading, digests), path, form)
        try:
            languages, pairs = form.pairs(text)
            tags = tuple(map(plain_tag, languages))
            for pair in pairs:  # each text as one line
                texts = {tag: _BREAKS.sub(" ", text).strip() for tag, text in zip(tags, pair, strict=True)}
                yield Unit(tags[0], {tag: text for tag, text in texts.items() if text})
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        return
    found = _Found(path, reading.max_line)
    blocks, block = read_blocks(path, reading, digests), b"-"
    while block:
        try:
            block = next(blocks, b"")
            found.unanswered += len(block)
            found.parser.Parse(block, not block)
        except UNREADABLE as error:
            raise DataError(damaged(path, error, counted(found.count, "unit") if found.count else "")) from None
        except expat.ExpatError as error:
            raise found.broken(f"{expat.ErrorString(error.code)} in line {error.lineno}") from None
        except DataError:
            raise
        except (LookupError, ValueError) as error:  # from an encoding that expat leaves to Python
            raise found.broken(str(error)) from None
        if found.unanswered > found.most:
            raise found.refusal(f"a tag or comment of more than {found.most} bytes")
        if len(found.parser.intern) > KINDS:
            raise found.refusal(f"more than {KINDS} names of elements and attributes")
        yield from found.units
        found.units.clear()


class _Found(InertXML):
    """Collects units from the events of expat."""

    root = "tmx"

    def __init__(self, file: str, most: int) -> None:
        super().__init__()
        self.file = file
        self.most = most  # characters of a unit, and bytes of one tag or comment
        self.units: list[Unit] = []  # complete and not yet taken
        self.count = 0  # units begun
        self.unanswered = 0  # bytes since the last event of expat
        self.written_in = ["", ""]  # of the file, of the unit
        self.texts: dict[str, str] = {}  # of the unit
        self.size = 0  # characters kept of the unit
        self.language = ""
        self.segment: list[str] | None = None  # the parts of its text; None outside a <seg>
        self.codes = 0  # open elements from the outermost inline code on
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self.text

    def where(self) -> str:
        return f"{self.file}, unit {self.count}: "

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        self.unanswered = 0
        if self.segment is not None:
            if name in ("seg", "tuv", "tu"):
                raise self.refusal(f"a <{name}> inside a <seg>")
            self.codes += bool(self.codes or name in _CODES)
        elif name == "header":
            self.written_in[0] = plain_tag(attributes.get("srclang", ""))
        elif name == "tu":
            self.count += 1
            self.written_in[1] = plain_tag(attributes.get("srclang", "")) or self.written_in[0]
            self.texts, self.size = {}, 0
        elif name == "tuv":
            self.language = plain_tag(attributes.get("xml:lang") or attributes.get("lang", ""))
            self.grow(len(self.language) + _PRICE)
        elif name == "seg":
            self.segment = []

    def end(self, name: str) -> None:
        self.unanswered = 0
        if self.codes:
            self.codes -= 1
        elif name == "seg" and self.segment is not None:
            self.texts.setdefault(self.language, _BREAKS.sub(" ", "".join(self.segment)))
            self.segment = None
        elif name == "tu":
            self.units.append(Unit(self.written_in[1], self.texts))

    def text(self, text: str) -> None:
        self.unanswered = 0
        if self.segment is not None and not self.codes:
            self.grow(len(text))
            self.segment.append(text)

    def grow(self, size: int) -> None:
        self.size += size
        if self.size > self.most:
            raise self.refusal(f"more than {self.most} characters")

    def refusal(self, what: str) -> DataError:
        return DataError(f"{self.where()}{what}, which is not a translation unit; remove it from the file.")

    def broken(self, what: str) -> DataError:
        if not self.path and not self.count:
            return DataError(
                f"{self.file} cannot be read as TMX, which is XML with the root element <tmx>: {what}; "
                "export the memory again, as TMX in UTF-8."
            )
        return DataError(
            f"{self.file} is broken in or after unit {self.count}: {what}; it must be complete XML in the encoding "
            "that its first line names, so export the memory again, or fix that line."
        )


def plain_tag(language: str) -> str:
    """A language code normalised for comparison: en_GB and EN-gb are en-gb."""
    return language.replace("_", "-").lower()


def find_tag(tags: Mapping[str, str], language: str) -> str:
    """The tag of a unit's text in a language: the exact one, or the first variety of it; empty if there is none."""
    wanted = plain_tag(language)
    return wanted if wanted in tags else next((tag for tag in tags if are_varieties(tag, wanted)), "")


def are_varieties(one: str, other: str) -> bool:
    """Whether one tag is the other or a variety of it: en and en-gb are, en-gb and en-us are not."""
    return f"{one}-".startswith(f"{other}-") or f"{other}-".startswith(f"{one}-")


def choose_languages(files: Sequence[str], source: str, target: str, *, reading: Reading = READING) -> tuple[str, str]:
    """The source and target language: the named ones, or those of a memory that has exactly two.

    In that case the source is the header's srclang. Only the first units of each file are read.
    """
    if source and target:
        return source, target
    tags: set[str] = set()
    written_in: set[str] = set()
    for path in files:
        for unit in islice(read_units(path, reading), FIRST_UNITS):
            tags.update(filter(None, unit.texts))
            written_in.add(unit.written_in)
    plain = {tag.partition("-")[0] for tag in tags}
    two = sorted(plain if len(plain) == 2 else tags)
    known = (source, target) if source or target else (written_in.pop() if len(written_in) == 1 else "", "")
    for one, other in (two, two[::-1]) if len(two) == 2 else ():
        if are_varieties(plain_tag(known[0]), one) or are_varieties(plain_tag(known[1]), other):
            return source or one, target or other
    raise DataError(
        f"The languages to translate between are ambiguous; {list_languages(files, tags)}: set "
        "data.source_language and data.target_language to two of these."
    )


def list_languages(files: Sequence[str], tags: set[str]) -> str:
    """The languages of the files, for an error message; a memory without any is refused."""
    if not tags:
        raise DataError(
            f"{', '.join(files)} has no sentence in any language; a memory needs units such as "
            '<tu><tuv xml:lang="en"><seg>...</seg></tuv> ... </tu>.'
        )
    return f"{', '.join(files)} holds {', '.join(sorted(tags)[:40])}{', ...' if len(tags) > 40 else ''}"


# --- writing

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="regard" creationtoolversion={version} segtype="paragraph" o-tmf="regard" adminlang="en" \
srclang={source} datatype="plaintext"/>
<body>
"""


def write_memory(pairs: Iterable[tuple[str, str]], source: str, target: str) -> bytes:
    """(source, target) texts as a TMX file."""
    languages = quoteattr(source or "und"), quoteattr(target or "und")
    parts = [_HEAD.format(version=quoteattr(__version__), source=languages[0])]
    for pair in pairs:
        sides = (
            f"<tuv xml:lang={language}><seg>{escape(text.translate(_ILLEGAL))}</seg></tuv>"
            for language, text in zip(languages, pair, strict=True)
        )
        parts.append(f"<tu>{''.join(sides)}</tu>\n")
    parts.append("</body>\n</tmx>\n")
    return "".join(parts).encode("utf-8")
