r"""Gettext PO: every message without a translation is a segment; comments, references and translated messages stay.

A plural message has one segment per form. A fuzzy translation counts as missing and is replaced, and the message stays
fuzzy. Obsolete messages (#~) stay.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from regard.errors import DataError
from regard.files import html
from regard.files.place import spell
from regard.files.segment import Builder, Part, Segment, has_words

_LINE = re.compile(r'\s*(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)\s*)?"((?:[^"\\]|\\.)*)"\s*')
_ESCAPED = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', **{shown: f"\\{letter}" for letter, shown in _LETTERS.items()}})
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
CHARSET = re.compile(rb"charset=(?!CHARSET\b)([A-Za-z0-9_.:-]+)")  # a template has CHARSET
_LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
SOURCE = "en"  # gettext recommends English messages; the header names the target language
Field = tuple[str, int, int]  # its text and its lines [first, last)


class Message(NamedTuple):
    """One message: its texts, and its translations with their lines."""

    text: str
    plural: str
    translations: dict[int, Field]  # by the number of the form
    fuzzy: bool


def read(text: str) -> Iterator[Part]:
    """The parts of a file."""
    lines = text.split("\n")
    reached = 0  # lines that were yielded
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
    """The messages of a file, including the header, whose text is empty. Obsolete ones are skipped."""
    fields: dict[str, Field] = {}
    fuzzy = False
    for name, field in strings(lines):
        begins = field is None or (name in ("msgctxt", "msgid") and "msgid" in fields)
        if begins and any(one.startswith("msgstr") for one in fields):
            if "msgid" in fields:
                forms = {int(one[7:-1] or 0): found for one, found in fields.items() if one.startswith("msgstr")}
                yield Message(fields["msgid"][0], fields.get("msgid_plural", ("",))[0], forms, fuzzy)
            fields, fuzzy = {}, False
        if field is None:
            fuzzy = fuzzy or (name.startswith("#,") and "fuzzy" in name)
        elif name in fields:
            raise DataError(f"Line {field[1] + 1} of the PO file repeats {name} within one message.")
        else:
            fields[name] = field
    if fields:
        line = min(first for _, first, _ in fields.values()) + 1
        raise DataError(f"The message in line {line} of the PO file has no msgstr; the file is incomplete.")


def strings(lines: list[str]) -> Iterator[tuple[str, Field | None]]:
    """Every string with its keyword and lines; comments and empty lines have no field, nor has the end of the file."""
    at = 0
    while at < len(lines):
        found, first = _string(lines[at], at), at
        at += 1
        if found is None:
            yield lines[first].strip(), None
            continue
        if not found[1]:
            raise DataError(f"Line {at} of the PO file is a string without a keyword such as msgid.")
        parts = [found[2]]
        while at < len(lines) and (more := _string(lines[at], at)) and not more[1]:
            parts.append(more[2])
            at += 1
        yield found[1], (unquote("".join(parts)), first, at)
    yield "", None


def _string(line: str, number: int) -> re.Match[str] | None:
    """The keyword and the string of a line; None for a comment and for an empty line."""
    bare = line.strip()
    found = None if not bare or bare[0] == "#" else _LINE.fullmatch(line)
    if bare and bare[0] != "#" and found is None:
        raise DataError(f"Line {number + 1} of the PO file must be a comment or a string; got {bare[:60]!r}.")
    return found


def language_of(lines: list[str]) -> str:
    """The language in the header, or an empty string."""
    header = next((one for one in messages(lines) if not one.text), None)
    found = _LANGUAGE.search(header.translations[0][0]) if header and 0 in header.translations else None
    return found[1] if found else ""


def pairs(text: str) -> tuple[tuple[str, str], Iterator[tuple[str, str]]]:
    """The languages of a file, and the words of its messages in both. Fuzzy translations count as missing."""
    lines = text.split("\n")
    language = language_of(lines)
    if not language:
        raise DataError("the header does not name the target language; add a line such as Language: fr.")

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
    escaped = ['"' + line.translate(_ESCAPES) + '"' for line in lines]
    return escaped[0] if len(escaped) == 1 else "\n".join(['""', *escaped])
