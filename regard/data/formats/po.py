r"""Gettext PO: every message without a translation is a segment; comments, references and translated messages stay.

A plural message has a segment for each of its forms. A fuzzy translation is a guess for the translator: it counts as
missing and is replaced, and the message stays fuzzy. Obsolete messages (#~) stay.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from regard.data.formats import html
from regard.data.formats.place import spell
from regard.data.formats.segment import Builder, Part, Segment, has_words
from regard.errors import DataError

_LINE = re.compile(r'\s*(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d{1,3})\])?)\s*)?"((?:[^"\\]|\\.)*)"\s*')
_ESCAPED = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', **{shown: f"\\{letter}" for letter, shown in _LETTERS.items()}})
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
CHARSET = re.compile(rb"charset=(?!CHARSET\b)([A-Za-z0-9_.:-]+)")  # a template says CHARSET
_LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
SOURCE = "en"  # the messages of a program are English, as gettext recommends; the header names the target
Field = tuple[str, int, int]  # its text, and the lines that it is written on [first, last)


class Message(NamedTuple):
    """One message: its texts, and its translations with the lines that they are on."""

    text: str
    plural: str
    translations: dict[int, Field]  # by the number of the form
    fuzzy: bool
    line: int


def read(text: str) -> Iterator[Part]:
    """The parts of a file."""
    lines = text.split("\n")
    reached = 0  # lines that were given
    for message in messages(lines):
        for form, (written, first, last) in sorted(message.translations.items(), key=lambda one: one[1][1]):
            if (written and not message.fuzzy) or not message.text:
                continue
            held = "\n".join(lines[first:last])
            keyword, _, old = held.partition('"')
            source = message.plural if message.plural and form else message.text
            found = segment(source, '"' + old)
            if found is None:
                continue
            yield "\n".join([*lines[reached:first], keyword])
            yield found
            yield "\n" if last < len(lines) else ""
            reached = last
    yield "\n".join(lines[reached:])


def segment(source: str, held: str) -> Segment | None:
    """The segment of a message; None if it has no words."""
    builder = Builder()
    for token in html.scan(source):
        if token.name is None:
            builder.words_around(token.raw, _ENTITY, "word")
        else:
            html.add_tag(builder, token)
    carriage = "\r" if held.endswith("\r") else ""
    built = builder.build(source, held, wrap=lambda inner: quote(inner).replace("\n", carriage + "\n") + carriage)
    return built if has_words(built.text) else None


def messages(lines: list[str]) -> Iterator[Message]:
    """The messages of a file; the header, whose text is empty, is one of them. Obsolete ones are left out."""
    fields: dict[str, Field] = {}
    parts: list[str] = []
    name, fuzzy, begun = "", False, 0

    def done() -> Message | None:
        if "msgid" not in fields:
            return None
        forms = {int(key[6:] or 0): field for key, field in fields.items() if key.startswith("msgstr")}
        plural = fields["msgid_plural"][0] if "msgid_plural" in fields else ""
        return Message(fields["msgid"][0], plural, forms, fuzzy, begun + 1)

    for number, line in enumerate([*lines, ""]):
        bare = line.strip()
        match = None if not bare or bare[0] == "#" else _LINE.fullmatch(line)
        if bare and bare[0] != "#" and match is None:
            raise DataError(
                f"Line {number + 1} is no line of a PO file: {bare[:60]!r}; expected a comment or a string."
            )
        if match and not match[1]:
            if not name:
                raise DataError(f"Line {number + 1} of the PO file continues a string that did not begin.")
            parts.append(match[3])
            continue
        if name:
            fields[name] = unquote("".join(parts)), fields[name][1], number
            name = ""
        begins = match is not None and match[1] in ("msgctxt", "msgid")
        if fields and (match is None or (begins and "msgid" in fields)) and any(k.startswith("msgstr") for k in fields):
            found = done()
            if found:
                yield found
            fields, fuzzy = {}, False
        if match:
            begun = begun if fields else number
            name = "msgstr" + (match[2] or "") if match[1].startswith("msgstr") else match[1]
            if name in fields:
                raise DataError(f"Line {number + 1} of the PO file repeats {match[1]} within one message.")
            fields[name] = "", number, number
            parts = [match[3]]
        elif bare.startswith("#,"):
            fuzzy = fuzzy or "fuzzy" in bare
    if fields:
        raise DataError(f"The message in line {begun + 1} of the PO file has no msgstr; the file is not complete.")


def language_of(lines: list[str]) -> str:
    """The language that the header names, or an empty string."""
    header = next((one for one in messages(lines) if not one.text), None)
    found = _LANGUAGE.search(header.translations[0][0]) if header and 0 in header.translations else None
    return found[1] if found else ""


def pairs(text: str) -> tuple[tuple[str, str], Iterator[tuple[str, str]]]:
    """The languages of a file, and the words of its messages in both. Fuzzy translations count as missing."""
    lines = text.split("\n")
    language = language_of(lines)
    if not language:
        raise DataError("the header names no language of the translations; add a line such as Language: fr.")

    def words(text: str) -> str:
        found = segment(text, "")
        return spell(found) if found else ""

    def units() -> Iterator[tuple[str, str]]:
        for message in messages(lines):
            for form, (written, _, _) in sorted(message.translations.items()) if message.text else ():
                source = message.plural if message.plural and form else message.text
                yield words(source), "" if message.fuzzy else words(written)

    return (SOURCE, language), units()


def unquote(text: str) -> str:
    """The characters of a string as it is written in the file."""

    def one(found: re.Match[str]) -> str:
        letter, octal, hexadecimal, other = found.groups()
        if letter:
            return _LETTERS.get(letter, letter)
        return chr(int(octal, 8) if octal else int(hexadecimal, 16)) if octal or hexadecimal else "\\" + other

    return _ESCAPED.sub(one, text)


def quote(text: str) -> str:
    """A text as strings of a PO file: on one line, or one for each line of the text."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
    escaped = ['"' + line.translate(_ESCAPES) + '"' for line in lines]
    return escaped[0] if len(escaped) == 1 else "\n".join(['""', *escaped])
