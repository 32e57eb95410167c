"""Texts in and out: a text is translated sentence by sentence, and in HTML or XML only what is between the tags.

Everything here takes time proportional to the text, whatever it contains: the scanner never goes back.
"""

import html
import re

from regard.data.sentences import split_sentences
from regard.serve.limits import RefusedError

_EDGE = " \t\r\u00a0\u3000"
_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_STOP = re.compile(r"[>\"']")
_CLAUSE_END = re.compile(r"[;:,—–]\s+|[，；、]")
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+")


class Layout:
    """A text taken apart: `sentences` are to be translated, `join` puts their translations in their places.

    `starts` are the code points at which the sentences begin in the text. A sentence of more than `line` characters
    becomes several, so that every text can be translated; more than `most` sentences are refused.
    """

    def __init__(self, line: int = 500, most: int = 1 << 20, escape: bool = False) -> None:
        self.line, self.most, self.escape = line, most, escape
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
                self.keep(self._write(line[reached:begin]))
                self._add(line[begin:end], start + begin)
                reached = end
            self.keep(self._write(line[reached:]))
            start += len(line)

    def _add(self, sentence: str, start: int) -> None:
        """Add a sentence, in several parts if it is long."""
        for part in _cut(sentence, self.line):
            core = part.strip(_EDGE)
            if any(map(str.isalnum, core)):
                before = len(part) - len(part.lstrip(_EDGE))
                self.keep(self._write(part[:before]))
                self.sentences.append(core)
                if len(self.sentences) > self.most:
                    raise RefusedError(413, "The texts have too many lines or sentences; send fewer at once.")
                self.starts.append(start + before)
                self._parts.append(None)
                self.keep(self._write(part[before + len(core) :]))
            else:
                self.keep(self._write(part))
            start += len(part)

    def join(self, translations: list[str]) -> str:
        """The text with every sentence replaced by its translation."""
        each = iter(translations)
        return "".join(self._write(next(each)) if part is None else part for part in self._parts)

    def places(self, translations: list[str]) -> list[int]:
        """The code points at which the translations begin in the joined text."""
        each, at, places = iter(translations), 0, []
        for part in self._parts:
            if part is None:
                places.append(at)
                part = self._write(next(each))
            at += len(part)
        return places

    def _write(self, text: str) -> str:
        return html.escape(text, quote=False) if self.escape else text


def plain(text: str, line: int = 500, most: int = 1 << 20) -> Layout:
    """The layout of a text without tags."""
    layout = Layout(line, most)
    layout.translate(text)
    return layout


def marked(text: str, line: int = 500, most: int = 1 << 20) -> Layout:
    """The layout of HTML or XML: tags, comments, scripts and styles stay exactly as they are."""
    layout, at = Layout(line, most, escape=True), 0
    last = {mark: text.rfind(mark) for mark in ">\"'"}
    words: list[str] = []

    def flush() -> None:
        if joined := "".join(words):
            layout.translate(_unescape(joined))
        words.clear()

    while at < len(text):
        opening = text.find("<", at)
        if opening < 0:
            opening = len(text)
        words.append(text[at:opening])
        at = opening
        end = _tag_end(text, at, last)
        if end is None:  # no tag: a "<" of the text
            words.append(text[at : at + 1])
            at += 1
            continue
        flush()
        name = _NAME.match(text, at + 1)
        if name and name[0].lower() in ("script", "style") and text[end - 2] != "/":
            closing = re.compile(f"</{name[0]}", re.IGNORECASE).search(text, end)
            end = closing.start() if closing else len(text)
        layout.keep(text[at:end])
        at = end
    flush()
    return layout


def _tag_end(text: str, at: int, last: dict[str, int]) -> int | None:
    """Where the tag, comment or declaration that begins at `at` ends; None where "<" begins none.

    What is never closed extends to the end of the text, so that nothing is scanned twice.
    """
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>")):
        if text.startswith(opening, at):
            found = text.find(closing, at + len(opening))
            return found + len(closing) if found >= 0 else len(text)
    if text.startswith(("<!", "<?"), at):
        return text.find(">", at) + 1 or len(text)
    if at >= last[">"] or not _NAME.match(text, at + 1 + text.startswith("</", at)):
        return None
    place = at
    while stop := _STOP.search(text, place):
        place = stop.end()
        if stop[0] == ">":
            return place
        # A quote belongs to an attribute after "=" alone, and only if it is closed.
        if place - 1 < last[stop[0]] and text[max(at, place - 10) : place - 1].rstrip().endswith("="):
            place = text.index(stop[0], place) + 1
    return len(text)


def _unescape(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a reference with more digits than Python converts
        return text


def _cut(line: str, most: int) -> list[str]:
    """A line in parts of at most `most` characters, cut after sentences, else clauses, else between words, else
    anywhere."""
    parts = []
    at = 0
    while len(line) - at > most:
        window = line[at : at + most]
        ends = (
            max((found.end() for found in kind.finditer(window)), default=0) for kind in (_SENTENCE_END, _CLAUSE_END)
        )
        end = next((end for end in ends if end), 0) or window.rfind(" ") + 1 or most
        parts.append(window[:end])
        at += end
    return [*parts, line[at:]]
