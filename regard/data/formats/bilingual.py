"""PO and XLIFF files as translation memories: the words of every translated unit, without markup and codes."""

from collections.abc import Iterator
from typing import NamedTuple

from regard.data.files import bare_name
from regard.data.formats import po, xliff
from regard.data.formats.document import decode_file, find_format
from regard.data.formats.place import spell
from regard.errors import DataError

SOURCE_OF_PO = "en"  # the messages of a program are English, as gettext recommends; the header names the target


class Texts(NamedTuple):
    """A unit: its language codes and texts; `target` is empty where it has no translation."""

    languages: tuple[str, str]
    source: str
    target: str


def read_bilingual(data: bytes, name: str) -> Iterator[Texts]:
    """The units of a PO or XLIFF file. Fuzzy translations count as missing."""
    bare = bare_name(name)
    text, _, _ = decode_file(data, bare, find_format(bare))
    try:
        yield from _read_po(text) if find_format(bare).name == "PO" else _read_xliff(text)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _read_po(text: str) -> Iterator[Texts]:
    lines = text.split("\n")
    language = po.language_of(lines)
    if not language:
        raise DataError("the header names no language of the translations; add a line such as Language: fr.")
    for message in po.messages(lines):
        for form, (written, _, _) in sorted(message.translations.items()) if message.text else ():
            source = message.plural if message.plural and form else message.text
            both = (_words(source), "" if message.fuzzy else _words(written))
            yield Texts((SOURCE_OF_PO, language), *both)


def _words(text: str) -> str:
    found = po.segment(text, "")
    return spell(found) if found else ""


def _read_xliff(text: str) -> Iterator[Texts]:
    languages, units = xliff.units(text)
    if not all(languages):
        raise DataError("the file names no two languages; its source and target language are attributes.")
    for unit in units:
        yield Texts(languages, *unit)
