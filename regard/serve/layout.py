"""Texts in and out: a text is translated sentence by sentence, and in HTML or XML without its tags.

Everything here takes time proportional to the text, whatever it contains: the scanner never goes back.
"""

from collections.abc import Iterable, Sequence

from regard.data.formats import Segment, Sentence, join_sentences, place_tags, take_sentences
from regard.data.formats.segment import Part, cut
from regard.data.sentences import split_sentences
from regard.serve.limits import RefusedError
from regard.serve.queue import Written

_EDGE = " \t\r\u00a0\u3000"


class Layout:
    """A text taken apart: `sentences` are to be translated, `join` puts their translations in their places.

    `starts` are the code points at which the sentences begin in the text. A sentence of more than `line` characters
    becomes several, so that every text can be translated; more than `most` sentences are refused.
    """

    links = False

    def __init__(self, line: int = 500, most: int = 1 << 20) -> None:
        self.line, self.most = line, most
        self.sentences: list[str] = []
        self.starts: list[int] = []
        self._parts: list[str | None] = []  # None: the next sentence

    def keep(self, text: str) -> None:
        """Add text that is not translated."""
        if text:
            self._parts.append(text)

    def translate(self, text: str, start: int = 0) -> None:
        """Add a run of text: the sentences of its lines, except those without a letter or digit."""
        for number, line in enumerate(text.split("\n")):
            if number:
                self.keep("\n")
                start += 1
            reached = 0
            for begin, end in split_sentences(line):
                self.keep(line[reached:begin])
                self._add(line[begin:end], start + begin)
                reached = end
            self.keep(line[reached:])
            start += len(line)

    def _add(self, sentence: str, start: int) -> None:
        """Add a sentence, in several parts if it is long."""
        for part in cut(sentence, self.line):
            core = part.strip(_EDGE)
            if any(map(str.isalnum, core)):
                before = len(part) - len(part.lstrip(_EDGE))
                self.keep(part[:before])
                self.sentences.append(core)
                if len(self.sentences) > self.most:
                    raise too_many()
                self.starts.append(start + before)
                self._parts.append(None)
                self.keep(part[before + len(core) :])
            else:
                self.keep(part)
            start += len(part)

    def join(self, translations: list[str]) -> str:
        """The text with every sentence replaced by its translation."""
        each = iter(translations)
        return "".join(next(each) if part is None else part for part in self._parts)

    def write(self, results: Sequence[Written]) -> str:
        """The text with every sentence replaced by its translation."""
        return self.join([one.text for one in results])

    def places(self, translations: list[str]) -> list[int]:
        """The code points at which the translations begin in the joined text."""
        each, at, places = iter(translations), 0, []
        for part in self._parts:
            if part is None:
                places.append(at)
                part = next(each)
            at += len(part)
        return places


def plain(text: str, line: int = 500, most: int = 1 << 20) -> Layout:
    """The layout of a text without tags."""
    layout = Layout(line, most)
    layout.translate(text)
    return layout


class Marked:
    """The layout of HTML or XML: whole sentences are translated, and their tags placed by attention.

    Tags, comments, scripts and code stay exactly as they are.
    """

    links = True  # needed to place the tags

    def __init__(self, parts: Iterable[Part], line: int = 500, most: int = 1 << 20) -> None:
        self._parts = list(parts)
        self._segments = [part for part in self._parts if isinstance(part, Segment)]
        self._spans = [take_sentences(segment.text, line) for segment in self._segments]
        places = [(one, span) for one, spans in zip(self._segments, self._spans, strict=True) for span in spans]
        if len(places) > most:
            raise too_many()
        self.sentences = [segment.text[slice(*span)] for segment, span in places]
        self.starts = [span[0] for _, span in places]  # within their segments

    def write(self, results: Sequence[Written]) -> str:
        """The text with every sentence replaced by its translation."""
        each = iter(Sentence(one.text, one.links) for one in results)
        found = iter(
            place_tags(segment, join_sentences(segment.text, spans, [next(each) for _ in spans]))
            for segment, spans in zip(self._segments, self._spans, strict=True)
        )
        return "".join(part if isinstance(part, str) else part.wrap(next(found)) for part in self._parts)


def too_many() -> RefusedError:
    """The refusal of more sentences than the limit."""
    return RefusedError(413, "The texts have too many lines or sentences; send fewer at once.")
