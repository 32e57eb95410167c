"""XLIFF 1.2 and 2.0: every unit without a target is a segment; all other bytes stay unchanged.

Expat gives the position of each element, so that only the targets are rewritten.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from regard.errors import DataError
from regard.files import html
from regard.files.segment import Builder, Part, Review, Segment
from regard.files.xml import InertXML
from regard.text.sentences import has_words

_UNITS = ("trans-unit", "segment")  # 1.2, 2.0
_UNTRANSLATABLE = frozenset(("alt-trans", "matches", "glossary", "notes"))  # contain sources that are not translated
_CODES = frozenset(("ph", "it", "bpt", "ept", "ut"))  # in 1.2 their content is code, not words
_OPENS = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # pairs whose two ends are separate elements
_CLOSES = {close: open for open, close in _OPENS.items()}
_ATTRIBUTE = re.compile(r"""(?<![\w:.-])([\w:.-]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""")
CHARSET = re.compile(rb"""<\?xml[^>]{1,200}encoding\s*=\s*["']([A-Za-z0-9_.:-]+)""")
_BLOCK = 1 << 12  # bytes that are parsed together
_EMPTY = re.compile(r"<mrk\b[^<>]*(?:/>|>\s*</mrk>)")  # a segment that is not translated yet
_UNTRANSLATED = frozenset(("new", "needs-translation", "initial"))  # states of a target that is not a translation
_PROTECTED = re.compile(r"""\smtype\s*=\s*["']protected["']""")
_LINE_BREAK = re.compile(r"\n\s*+")
_MATCHES = 'xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'
_DATA = re.compile(r"""\sdataRef(?:Start|End)?=(?:"[^"]*"|'[^']*')""")
INLINE = html.xml_rules()


Place = tuple[int, int]  # bytes [start, end) of the file


@dataclass
class Unit:
    """A unit and the positions of its texts."""

    begin: int  # byte of its tag
    translate: bool
    state: str
    preserve: bool = False  # whether its line breaks count
    name: str = "source"  # of the source element, with its prefix
    source: Place = (0, 0)  # of the content
    target: Place = (0, 0)  # of the whole element; without one, where it goes
    target_content: Place = (0, 0)
    filled: bool = False  # whether there is a target
    id: str = ""  # of a segment
    holder: int = 0  # byte of the tag of its `unit`, or of the `matches` of that
    matched: bool = False  # whether it has such


class Reader(InertXML):
    """Finds the units and the languages of a file in UTF-8 from the events of expat."""

    root = "xliff"

    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8")
        self.data = data
        self.units: list[Unit] = []
        self.languages = "", ""
        self.version = ""
        self.unnamed: list[int] = []  # bytes of the tags that should name the target language and do not
        self.stays: list[bool] = []  # whether each open element has translate="no"
        self.preserves: list[bool] = []  # whether each has xml:space="preserve"
        self.unit: Unit | None = None
        self.inner = ""  # source or target, while inside
        self.begun = 0
        self.holder, self.matched = 0, False  # as in `Unit`

    def read(self) -> Iterator[Unit]:
        """The units, a few at a time: all of them can take many times the memory of the file."""
        try:
            for at in range(0, len(self.data) + 1, _BLOCK):
                block = self.data[at : at + _BLOCK]
                self.parser.Parse(block, len(block) < _BLOCK)
                yield from self.units
                self.units = []
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise DataError(f"The XML is not valid: {what} in line {error.lineno}; export the file again.") from None

    def begin(self, full: str, attributes: dict[str, str]) -> None:
        name = full.rpartition(":")[2]
        source = attributes.get("srcLang", attributes.get("source-language", ""))
        target = attributes.get("trgLang", attributes.get("target-language", ""))
        if name in ("xliff", "file") and (source or target):
            self.languages = source or self.languages[0], target or self.languages[1]
        if name == "xliff":
            self.version = attributes.get("version", "")
        if name == ("xliff" if self.version.startswith("2") else "file") and not target:
            self.unnamed.append(self.parser.CurrentByteIndex)
        says = attributes.get("translate")
        stays = says == "no" if says else bool(self.stays and self.stays[-1])
        space = attributes.get("xml:space")
        preserves = space == "preserve" if space else bool(self.preserves and self.preserves[-1])
        skipped = not _UNTRANSLATABLE.isdisjoint(self.path)
        if name == "unit" or (name == "matches" and self.path[-1] == "unit"):
            self.holder, self.matched = self.parser.CurrentByteIndex, name == "matches"
        if name in _UNITS and not skipped:
            self.unit = Unit(self.parser.CurrentByteIndex, not stays, attributes.get("state", ""), preserves)
            self.unit.id, self.unit.holder, self.unit.matched = attributes.get("id", ""), self.holder, self.matched
        elif self.unit and not skipped and self.path[-1] in _UNITS and name in ("source", "target", "seg-source"):
            self.inner, self.begun = name, self.parser.CurrentByteIndex
            if name == "target":
                self.unit.state = attributes.get("state", self.unit.state)
            elif name == "source":
                self.unit.name, self.unit.preserve = full, preserves
        self.stays.append(stays)
        self.preserves.append(preserves)

    def end(self, full: str) -> None:
        name = full.rpartition(":")[2]
        self.stays.pop()
        self.preserves.pop()
        unit = self.unit
        if unit is None:
            return
        if name in _UNITS and not self.inner:
            if unit.source[1]:
                self.units.append(unit)
            self.unit = None
        elif name == self.inner and self.path[-1] in _UNITS:
            content, whole = _find(self.data, (self.begun, self.parser.CurrentByteIndex))
            self.inner = ""
            if name == "target":
                unit.target_content, unit.target, unit.filled = content, whole, True
                return
            if name == "source" or content[0] < content[1]:  # a seg-source has the same words, with marks of segments
                unit.source = content
            if not unit.filled:
                unit.target_content = unit.target = whole[1], whole[1]


def _find(data: bytes, element: Place) -> tuple[Place, Place]:
    """The content of an element and the whole element, from the positions that expat reported."""
    begin, closing = element
    opened = _tag_end(data, begin)
    empty = data[opened - 2 : opened] == b"/>"
    return (opened, opened if empty else closing), (begin, opened if empty else _tag_end(data, closing))


def _tag_end(data: bytes, at: int) -> int:
    quote = 0
    for place in range(at, len(data)):
        byte = data[place]
        if quote:
            quote = 0 if byte == quote else quote
        elif byte in b"\"'":
            quote = byte
        elif byte == 0x3E:
            return place + 1
    return len(data)


def read(text: str) -> Iterator[Part]:
    """The parts of a file."""
    data = text.encode("utf-8")
    reached = 0
    for unit in Reader(data).read():
        found = segment(data, unit)
        if found is None:
            continue
        yield data[reached : unit.target[0]].decode("utf-8")
        yield found
        reached = unit.target[1]
    yield data[reached:].decode("utf-8")


def segment(data: bytes, unit: Unit) -> Segment | None:
    """The segment of a unit; None if it is already translated, has no words, or must not be translated."""
    if not unit.translate:
        return None
    raw, element, old = (
        data[slice(*place)].decode("utf-8") for place in (unit.source, unit.target, unit.target_content)
    )
    if _EMPTY.sub("", old).strip() and unit.state not in _UNTRANSLATED:
        return None
    core = raw.strip(" \t\r\n")
    built = inline(core, unit.preserve).build(core, html.escape)
    if not has_words(built.text):
        return None
    start = raw.index(core) if core else 0
    lead, tail = raw[:start], raw[start + len(core) :]
    name = unit.name.removesuffix("source") + "target"
    begin, end = unit.target[0], _tag_end(data, unit.target[0])
    opening = data[begin:end].decode("utf-8").removesuffix(">").removesuffix("/").rstrip() if element else f"<{name}"
    place = data.rfind(b"<", 0, unit.source[0])
    # The line break and indentation before the source are repeated before a new target.
    space = re.search(r"\r?\n[ \t]*$", data[max(0, place - 200) : place].decode("utf-8", "ignore"))
    before = space[0] if space and not element else ""
    return built._replace(wrap=lambda inner: f"{before}{opening}>{lead}{inner}{tail}</{name}>")


def finish(before: str, after: str, language: str, review: Review) -> str:
    """Give every new target the state of a machine translation that needs a review (or of a translation), the match
    quality that is its confidence, and name the target language."""
    data, old = after.encode("utf-8"), before.encode("utf-8")
    review = review._replace(rated=_in_bytes(after, review.rated))
    found = Reader(data)
    changed: list[Unit] = []
    for was, now in zip(Reader(old).read(), found.read(), strict=True):
        if old[slice(*was.target_content)] != data[slice(*now.target_content)]:
            changed.append(now)
    version_2 = found.version.startswith("2")
    edits: list[tuple[int, int, str]] = []  # bytes [begin, end) that are replaced
    for at in found.unnamed if language else ():
        edits.append(_edit(data, at, {"trgLang" if version_2 else "target-language": language}))
    matches: dict[tuple[int, bool], list[str]] = {}  # by their holder
    for number, unit in enumerate(changed):
        reviewed, sure = review.marks(*unit.target), review.sure(*unit.target) if review.written else None
        marks: dict[str, str | None] = {"state": "translated", "subState": "mt:review" if reviewed else None}
        if version_2 and sure is not None:
            if not unit.id:
                unit.id = marks["id"] = f"regard-{number}"
            matches.setdefault((unit.holder, unit.matched), []).append(_match(data, unit, sure))
        elif sure is not None:
            edits.append((unit.target[1], unit.target[1], _alternative(data, unit, sure)))
        if not version_2:
            marks = {"state": "translated", "state-qualifier": None}
            if reviewed:
                marks = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
                edits.append(_edit(data, unit.begin, {"approved": None}))
        edits.append(_edit(data, unit.begin if version_2 else unit.target[0], marks))
    for (holder, matched), some in matches.items():
        at, inner = _tag_end(data, holder), "".join(some)
        edits.append((at, at, inner if matched else f"<mtc:matches {_MATCHES}>{inner}</mtc:matches>"))
    parts, reached = list[str](), 0
    for begin, end, text in sorted(edits):
        parts += [data[reached:begin].decode("utf-8"), text]
        reached = end
    return "".join([*parts, data[reached:].decode("utf-8")])


def _in_bytes(text: str, rated: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The places of confidences in a text, as bytes of it in UTF-8."""
    found, reached, size = list[tuple[int, float]](), 0, 0
    for at, sure in rated:
        reached, size = at, size + len(text[reached:at].encode("utf-8"))
        found.append((size, sure))
    return found


def _edit(data: bytes, at: int, values: dict[str, str | None]) -> tuple[int, int, str]:
    """A tag with these values of attributes; None: without it."""
    end = _tag_end(data, at)
    tag = data[at:end].decode("utf-8")
    for name, value in values.items():
        tag = re.sub(rf"""(?<!\s)\s++{name}\s*+=\s*+(?:"[^"]*"|'[^']*')""", "", tag)
        if value is not None:
            bare = tag.removesuffix(">").removesuffix("/").rstrip()
            tag = f'{bare} {name}="{value}"{tag[len(bare) :]}'
    return at, end, tag


def _alternative(data: bytes, unit: Unit, sure: float) -> str:
    """XLIFF 1.2: the translation once more as a match, the only element that has a quality."""
    prefix, inner = unit.name.removesuffix("source"), data[slice(*unit.target_content)].decode("utf-8")
    name = f"{prefix}alt-trans"
    return f'<{name} match-quality="{sure:.0%}" origin="regard"><{prefix}target>{inner}</{prefix}target></{name}>'


def _match(data: bytes, unit: Unit, sure: float) -> str:
    """XLIFF 2: the translation as a candidate for the segment. Codes are without the data that only a unit holds."""
    source, target = (
        _DATA.sub("", data[slice(*place)].decode("utf-8")) for place in (unit.source, unit.target_content)
    )
    name = unit.name.removesuffix("source") + "target"
    return (
        f'<mtc:match {_MATCHES} ref={quoteattr("#" + unit.id)} matchQuality="{100 * sure:.1f}" origin="regard" '
        f'type="mt"><{unit.name}>{source}</{unit.name}><{name}>{target}</{name}></mtc:match>'
    )


def inline(raw: str, preserve: bool = False) -> Builder:
    """The words and codes of a source or target, whose line breaks count with `preserve`."""
    builder = Builder(collapse=True)
    pending: list[str] = []  # a code with its content
    code, depth = "", 0
    for token in html.join_kept(html.scan(raw, INLINE), INLINE):
        name = (token.name or "").rpartition(":")[2]
        if code:
            pending.append(token.raw)
            depth += 0 if name != code or token.empty else -1 if token.closing else 1
            if not depth:
                _code(builder, "".join(pending), code)
                code = ""
        elif token.name is None or token.raw.startswith("<![CDATA["):
            text = html.unescape(token.raw) if token.name is None else token.raw[9:].removesuffix("]]>")
            for part in html.scan(text):  # tags of HTML that are written as text
                if part.name is not None:
                    html.add_tag(builder, part._replace(raw=html.escape(part.raw)))
                elif preserve:
                    builder.words_around(part.raw, _LINE_BREAK, "break")
                else:
                    builder.words(part.raw)
        elif (
            (name in _CODES or (name == "mrk" and _PROTECTED.search(token.raw)))
            and not token.empty
            and not token.closing
        ):
            code, depth, pending = name, 1, [token.raw]
        elif token.empty or not name:
            _code(builder, token.raw, name)
        else:
            (builder.close if token.closing else builder.open)(token.raw, name)
    return builder


def _code(builder: Builder, raw: str, name: str) -> None:
    """Add a code without words: one end of a pair, or a placeholder."""
    values = {key: first or second for key, first, second in _ATTRIBUTE.findall(raw[:2000])}
    if name in _OPENS:
        builder.open(raw, f"{name} {values.get('rid') or values.get('i') or values.get('id', '')}")
    elif name in _CLOSES:
        builder.close(raw, f"{_CLOSES[name]} {values.get('rid') or values.get('startRef') or values.get('id', '')}")
    else:
        builder.mark(raw, "word" if name in ("ph", "x") else "void")


def pairs(text: str) -> tuple[tuple[str, str], Iterator[tuple[str, str]]]:
    """The languages of a file, and the words of its units in both, without codes."""
    data = text.encode("utf-8")
    found = Reader(data)
    units = list(found.read())
    if not all(found.languages):
        raise DataError(
            "the file must name its languages, as source-language and target-language or srcLang and trgLang."
        )

    def words(side: Place) -> str:
        return inline(data[slice(*side)].decode("utf-8")).build("").text.strip()

    return found.languages, ((words(unit.source), words(unit.target_content)) for unit in units)
