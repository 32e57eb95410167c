"""Texts into sentences and back; in HTML and XML, tags are taken out and placed again."""

from collections.abc import Iterable, Sequence

from regard.files.place import place_tags
from regard.files.segment import Link, Part, Segment, Sentence, Sentences
from regard.serve.limits import RefusedError
from regard.serve.queue import TranslatedText


class Layout:
    """The parts of a text: `sentences` to translate, and `write` to put their translations in place.

    A sentence of more than `line` characters is split; more than `most` sentences are refused. Tags are placed by
    attention; comments, scripts and code are copied unchanged.
    """

    def __init__(self, parts: Iterable[Part], line: int = 500, most: int = 1 << 20) -> None:
        self._parts = list(parts)
        self._segments = [part for part in self._parts if isinstance(part, Segment)]
        self._found = Sentences(self._segments, line)
        self.sentences = self._found.texts
        if len(self.sentences) > most:
            raise RefusedError(413, "The texts have too many lines or sentences; send fewer at once.")
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


def read_plain(text: str) -> list[Part]:
    """A text without tags, as one segment: its spans are those of the text."""
    return [Segment(text, (), text)]
