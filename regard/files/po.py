r"""Gettext PO: the lines of every message without a translation are segments; everything else stays.

A plural message has one translation per form. A fuzzy translation counts as missing and is replaced. New translations
are marked as fuzzy, so that a person reviews them. Obsolete messages (#~) stay.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

from regard.errors import DataError
from regard.files import html
from regard.files.place import spell
from regard.files.segment import SIZED, Builder, Part, Review, Segment, as_it_is, find_placeholders, framed
from regard.text.sentences import after_label, has_words

_LINE = re.compile(r'\s*(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)\s*)?"((?:[^"\\]|\\.)*)"\s*')
_ESCAPED = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', **{shown: f"\\{letter}" for letter, shown in _LETTERS.items()}})
_SIZED = re.compile(SIZED)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# The sign before the letter of a menu's item that a key selects, as in "&Open", "Save _As" and "Sa&ve", but not "R&D".
_ACCESS = re.compile(
    r"(?<![^\s(])&(?=[^\W\d_]+(?![\w;]))|(?<=[a-z])&(?=[a-z]+(?![\w;=]))|(?<![^\s(])_(?=[A-Z][a-z]*\b(?!_))"
)
_KEYS = re.compile(r"\t(?:(?:Ctrl|Alt|Shift|Cmd|Meta)\+)*+\S{1,12}$")  # after an item, the keys that do the same
_LETTER = re.compile(r"[^\W\d_]")
CHARSET = re.compile(rb"charset=(?!CHARSET\b)([A-Za-z0-9_.:-]+)")  # a template has CHARSET
_LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
SOURCE = "en"  # gettext recommends English messages; the header names the target language
_PLURALS = {  # languages with two forms, and which of them a number takes
    "n != 1": "en de es it nl pt sv da nb nn no fi et hu el bg ca eu gl he eo fy hi",
    "n > 1": "fr oc br pt_BR tr wa mg",
}


class Field(NamedTuple):
    """The text of a keyword, and its lines [first, last)."""

    text: str
    first: int
    last: int


class Message(NamedTuple):
    """One message: its texts, and its translations with their lines."""

    first: int  # line
    text: str
    plural: str
    translations: dict[int, Field]  # by the number of the form
    flags: list[str]
    flagged: int | None  # the line of its flags

    @property
    def fuzzy(self) -> bool:
        return "fuzzy" in self.flags

    def sources(self) -> Iterator[tuple[str, Field]]:
        """The source of each translation, in the order of the file."""
        for form, written in sorted(self.translations.items(), key=lambda one: one[1].first):
            yield self.plural if self.plural and form else self.text, written


def read(text: str) -> Iterator[Part]:
    """The parts of a file: every line of a message is a segment, since its line breaks stay."""
    lines = text.split("\n")
    reached = 0  # lines that were yielded
    for message in messages(lines):
        for source, written in message.sources() if message.text else ():
            if written.text and not message.fuzzy:
                continue
            end = "\r" if lines[written.first].endswith("\r") else ""
            parts = list(literals(source, message.flags, end + "\n"))
            if any(isinstance(part, Segment) for part in parts):
                yield "\n".join([*lines[reached : written.first], lines[written.first].partition('"')[0]])
                yield from parts
                yield end + ("\n" if written.last < len(lines) else "")
                reached = written.last
    yield "\n".join(lines[reached:])


def literals(source: str, flags: list[str], newline: str) -> Iterator[Part]:
    """The string literals of a translation: one, or one for each line of the source."""
    rows = re.findall(r"[^\n]*\n|[^\n]+", source)
    directives = bool({"c-format", "python-format", "php-format", "objc-format"} & set(flags))
    yield f'""{newline}' if len(rows) > 1 else ""
    for number, row in enumerate(rows):
        core = _KEYS.sub("", row.strip())
        start = row.index(core)
        escape = (lambda words: words.replace("%", "%%")) if directives else as_it_is
        built = words_of(core, directives).build(core, escape, wrap=_escape)
        if len(_ACCESS.findall(core)) == 1 and not built.tags:
            built = words_of(_ACCESS.sub("", core), directives).build(core, escape, partial(_selected, core))
        yield newline + '"' if number else '"'
        for part in framed(row, start, start + len(core), built):
            yield _escape(part) if isinstance(part, str) else part
        yield '"'


def _selected(source: str, text: str) -> str:
    """The translation of an item of a menu: a key selects its first letter."""
    if text == source:
        return _escape(text)
    sign, (start, _) = _ACCESS.findall(source)[0], after_label(text, (0, len(text)))
    return _escape(text[:start] + _LETTER.sub(lambda letter: sign + letter[0], text[start:], count=1))


def words_of(text: str, directives: bool = False) -> Builder:
    """The words of a message; its placeholders, tags and references such as &amp; are protected."""
    builder = Builder(find=partial(find_placeholders, directives=directives))
    for plain, tokens in groupby(
        html.scan(text), lambda token: token.name is None or bool(_SIZED.fullmatch(token.raw))
    ):
        if plain:
            builder.words_around("".join(token.raw for token in tokens), _ENTITY, "word")
            continue
        for token in tokens:
            html.add_tag(builder, token)
    return builder


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages of a file, including the header, whose text is empty. Obsolete ones are skipped."""
    fields: dict[str, Field] = {}
    flags: list[str] = []
    flagged = None
    for name, field in strings(lines):
        begins = not name or (name in ("msgctxt", "msgid") and "msgid" in fields)
        if begins and any(one.startswith("msgstr") for one in fields):
            if "msgid" in fields:
                forms = {int(one[7:-1] or 0): found for one, found in fields.items() if one.startswith("msgstr")}
                first = min(one.first for one in fields.values())
                plural = fields["msgid_plural"].text if "msgid_plural" in fields else ""
                yield Message(first, fields["msgid"].text, plural, forms, flags, flagged)
            fields, flags, flagged = {}, [], None
        if not name:
            if field.text.startswith("#,"):
                flags = [*flags, *(flag.strip() for flag in field.text[2:].split(","))]
                flagged = field.first
        elif name in fields:
            raise DataError(f"Line {field.first + 1} of the PO file repeats {name} within one message.")
        else:
            fields[name] = field
    if fields:
        line = min(one.first for one in fields.values()) + 1
        raise DataError(f"The message in line {line} of the PO file has no msgstr; the file is incomplete.")


def strings(lines: Iterable[str]) -> Iterator[tuple[str, Field]]:
    """Every string with its keyword and lines; comments, empty lines and the end of the file have no keyword."""
    name, parts, first, at = "", list[str](), 0, -1  # the string that is being read
    for at, line in enumerate(lines):
        found = _string(line, at)
        if name and found and not found[1]:
            parts.append(found[2])
            continue
        if name:
            yield name, Field(unquote("".join(parts)), first, at)
        name, parts, first = "", [], at
        if found is None:
            yield "", Field(line.strip(), at, at + 1)
        elif not found[1]:
            raise DataError(f"Line {at + 1} of the PO file is a string without a keyword such as msgid.")
        else:
            name, parts = found[1], [found[2]]
    if name:
        yield name, Field(unquote("".join(parts)), first, at + 1)
    yield "", Field("", at + 1, at + 1)


def _string(line: str, number: int) -> re.Match[str] | None:
    """The keyword and the string of a line; None for a comment and for an empty line."""
    bare = line.strip()
    found = None if not bare or bare[0] == "#" else _LINE.fullmatch(line)
    if bare and bare[0] != "#" and found is None:
        raise DataError(f"Line {number + 1} of the PO file must be a comment or a string; got {bare[:60]!r}.")
    return found


def finish(before: str, after: str, language: str, review: Review) -> str:
    """Mark the new translations of a file as fuzzy (or as not), and name the language and its plural forms."""
    lines = after.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))  # the first character of each line
    end = "\r" if lines[0].endswith("\r") else ""
    written: list[str] = []
    reached = 0  # lines that are written
    headed = named = False  # whether the header was seen, and whether a new translation comes before it
    earlier = (found[0] for found in re.finditer(r"(?m)^[^\n]*", before))  # one at a time
    for old, new in zip(messages(earlier), messages(lines), strict=True):
        fresh = old.fuzzy or [one.text for one in old.translations.values()] != [
            one.text for one in new.translations.values()
        ]
        fresh = fresh and all(one.text for one in new.translations.values())
        if new.text and not fresh:
            continue
        flags = [flag for flag in new.flags if flag != "fuzzy"]
        last = max(one.last for one in new.translations.values())
        flags = ["fuzzy", *flags] if new.text and review.marks(starts[new.first], starts[last]) else flags
        at = new.first if new.flagged is None else new.flagged
        if flags or new.flagged is not None:
            written += [*lines[reached:at], *([f"#, {', '.join(flags)}{end}"] if flags else [])]
            reached = at + (new.flagged is not None)
        if new.text:
            named = named or not headed
        else:
            headed, field = True, new.translations[0]
            header = "msgstr " + quote(_header(field.text, language))
            written += [*lines[reached : field.first], *(line + end for line in header.split("\n"))]
            reached = field.last
    if named:
        head = 'msgid ""\nmsgstr ' + quote(_header("Content-Type: text/plain; charset=UTF-8\n", language))
        written[:0] = [line + end for line in [*head.split("\n"), ""]]
    return "\n".join([*written, *lines[reached:]])


def _header(text: str, language: str) -> str:
    """A header that names its language and the plural forms of it, if they are two."""
    fields = [line.split(":", 1) for line in text.split("\n") if ":" in line]
    values = {name.strip(): value.strip() for name, value in fields}
    named = values.get("Language", "")
    if language and re.split("[-_]", named)[0].lower() != re.split("[-_]", language)[0].lower():
        named = values["Language"] = language.replace("-", "_")
    rule = next((rule for rule, some in _PLURALS.items() if named in some.split()), None)
    rule = rule or next((rule for rule, some in _PLURALS.items() if named.split("_")[0] in some.split()), None)
    known = re.match(r"nplurals\s*=\s*\d", values.get("Plural-Forms", ""))
    if rule and not known:
        values["Plural-Forms"] = f"nplurals=2; plural=({rule});"
    if "charset=CHARSET" in values.get("Content-Type", ""):
        values["Content-Type"] = "text/plain; charset=UTF-8"
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def pairs(text: str) -> tuple[tuple[str, str], Iterator[tuple[str, str]]]:
    """The languages of a file, and the words of its messages in both. Fuzzy translations count as missing."""
    lines = text.split("\n")
    header = next((one for one in messages(lines) if not one.text), None)
    language = _LANGUAGE.search(header.translations[0].text) if header and 0 in header.translations else None
    if not language:
        raise DataError("the header does not name the target language; add a line such as Language: fr.")

    def words(text: str) -> str:
        built = words_of(text).build(text)
        return spell(built) if has_words(built.text) else ""

    def units() -> Iterator[tuple[str, str]]:
        for message in messages(lines):
            for source, written in message.sources() if message.text else ():
                yield words(source), "" if message.fuzzy else words(written.text)

    return (SOURCE, language[1]), units()


def unquote(text: str) -> str:
    """The text of a string literal."""

    def one(found: re.Match[str]) -> str:
        letter, octal, hexadecimal, other = found.groups()
        if letter:
            return _LETTERS.get(letter, letter)
        return chr(int(octal, 8) if octal else int(hexadecimal, 16)) if octal or hexadecimal else "\\" + other

    return _ESCAPED.sub(one, text)


def quote(text: str) -> str:
    """A text as string literals: one, or one per line of the text."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
    escaped = ['"' + _escape(line) + '"' for line in lines]
    return escaped[0] if len(escaped) == 1 else "\n".join(['""', *escaped])


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
