"""Texts and files into sentences and back; tags are taken out and placed again.

All but short plain texts are read and written by functions that `Reader` calls in a separate process. The server can
end that process: while a regular expression runs, no other thread of a process does.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DataError
from regard.files.document import Document, find_format, read_document
from regard.files.place import place_tags
from regard.files.segment import Link, Part, Segment, Sentence, Sentences
from regard.serve.limits import RefusedError
from regard.serve.queue import TranslatedText
from regard.text.sentences import Span, has_words

if sys.platform != "win32":
    import resource

TOO_MANY = "The texts have too many lines or sentences; send fewer at once."
ROOM = 1 << 30  # bytes that one text or file may take while it is read
Read = Callable[[str], Iterable[Part]]


class Layout:
    """The parts of a text: `sentences` to translate, and `write` to put their translations in place.

    A sentence of more than `line` characters is split; more than `most` sentences are refused. Tags are placed by
    attention; comments, scripts and code are copied unchanged.
    """

    def __init__(self, parts: Iterable[Part], line: int = 500, most: int = 1 << 20) -> None:
        self._parts = list(at_most(most, parts))
        self._segments = [part for part in self._parts if isinstance(part, Segment)]
        self._found = Sentences(self._segments, line)
        self.sentences = self._found.texts
        if len(self.sentences) > most:
            raise RefusedError(413, TOO_MANY)
        self.spans = [span for _, span in self._found.owners]  # of the sentences within their segments
        self.tagged = any(one.tags for one in self._segments)

    def write(self, results: Sequence[TranslatedText]) -> str:
        """The text with every sentence replaced by its translation."""
        joined = self._found.join(Sentence(one.text, one.links) for one in results)
        each = iter(place_tags(*pair) for pair in zip(self._segments, joined, strict=True))
        return "".join(part if isinstance(part, str) else part.wrap(next(each)) for part in self._parts)

    def links(self, results: Sequence[TranslatedText]) -> list[Link]:
        """The word links between a plain text and its translation, from attention."""
        joined = self._found.join(Sentence(one.text, one.links) for one in results)
        return [link for one in joined for link in one.links if link.weight]

    def alternatives(self, results: Sequence[TranslatedText]) -> list[str]:
        """The second-best translation of every sentence, then the third-best, and so on; a text with tags has none."""
        deepest = 0 if self.tagged else max((len(one.others) for one in results), default=0)

        def ranked(rank: int) -> str:
            return self.write([one._replace(text=[one.text, *one.others[1:]][: rank + 1][-1]) for one in results])

        return [text for text in dict.fromkeys(map(ranked, range(1, deepest))) if text != ranked(0)]


def at_most(sentences: int, parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, until they surely have more sentences: a format is not read further."""
    for part in parts:
        sentences -= isinstance(part, Segment) and has_words(part.text)
        if sentences < 0:
            raise RefusedError(413, TOO_MANY)
        yield part


def read_plain(text: str) -> list[Part]:
    """A text without tags, as one segment: its spans are those of the text."""
    return [Segment(text, (), text)]


# --- what the reader does


class Split(NamedTuple):
    """What a text has to translate: its sentences and their spans; and whether it has tags."""

    sentences: list[str]
    spans: list[Span]
    tagged: bool


class Joined(NamedTuple):
    """A translated text, its alternatives if there are any, and the word links of a plain text."""

    text: str
    alternatives: list[str]
    links: list[Link]


def split_texts(texts: Sequence[str], read: Read, line: int, most: int) -> list[Split]:
    """The sentences of texts that are split by `read`; `most` bounds their number over all texts."""
    found: list[Split] = []
    for text in texts:
        layout = Layout(read(text), line, most - sum(len(one.sentences) for one in found))
        found.append(Split(layout.sentences, layout.spans, layout.tagged))
    return found


def join_texts(texts: Sequence[str], read: Read, line: int, results: Sequence[list[TranslatedText]]) -> list[Joined]:
    """The translations of texts, from those of their sentences."""
    layouts = [Layout(read(text), line) for text in texts]
    return [
        Joined(one.write(some), one.alternatives(some), one.links(some) if any(each.links for each in some) else [])
        for one, some in zip(layouts, results, strict=True)
    ]


def split_file(data: bytes, name: str, turn: int, line: int, most: int) -> Split:
    """The sentences of a file in reading `turn` of its format."""
    layout = Layout(_read_file(data, name, turn, most).parts, line, most)
    return Split(layout.sentences, layout.spans, layout.tagged)


def join_file(data: bytes, name: str, turn: int, line: int, results: list[TranslatedText], language: str) -> bytes:
    """The file with these translations of its sentences."""
    document = _read_file(data, name, turn, len(results))
    try:
        return document.encode(Layout(document.parts, line).write(results), language)
    except DataError as error:  # a character that the encoding of the file cannot write
        raise RefusedError(422, str(error)) from None


def _read_file(data: bytes, name: str, turn: int, most: int) -> Document:
    read = find_format(name).reads[turn]
    try:
        return read_document(data, name, lambda text: at_most(most, read(text)))
    except DataError as error:
        raise RefusedError(400, str(error)) from None


class Reader:
    """What runs in the process: see `regard.serve.worker`."""

    id = "reader"

    def __init__(self) -> None:
        if sys.platform == "linux":
            used = int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    def describe(self) -> dict[str, Any]:
        """For the worker."""
        return {"id": self.id, "beam": 1}

    def self_test(self, running: Any) -> list[str]:
        """The same result every time."""
        return split_texts(["One. Two."], read_plain, 500, 2)[0].sentences

    def call(self, work: Callable[..., Any], args: tuple[Any, ...], running: Any) -> Any:
        """The result of one of the functions above."""
        return work(*args)
