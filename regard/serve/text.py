"""Texts in and out: lines are translated one by one, and in HTML only what stands between the tags."""

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser

_EDGES = re.compile(r"([ \t\r\u00a0\u3000]*)(.*?)([ \t\r\u00a0\u3000]*)", re.DOTALL)


class Layout:
    """A text taken apart: `sentences` are to be translated, `join` puts their translations where they stood.

    `starts` are the code points at which the sentences begin in the text.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.starts: list[int] = []
        self._parts: list[str | Callable[[str], str]] = []

    def keep(self, text: str) -> None:
        """Something that stays as it is."""
        self._parts.append(text)

    def translate(self, text: str, start: int, write: Callable[[str], str] = str) -> None:
        """A run of text: its lines are sentences, except those that hold no letter or digit."""
        for number, line in enumerate(text.split("\n")):
            if number:
                self.keep("\n")
                start += 1
            before, core, after = _EDGES.fullmatch(line).groups()  # type: ignore[union-attr]
            if any(letter.isalnum() for letter in core):
                self.keep(write(before))
                self.sentences.append(core)
                self.starts.append(start + len(before))
                self._parts.append(write)
                self.keep(write(after))
            else:
                self.keep(write(line))
            start += len(line)

    def join(self, translations: list[str]) -> str:
        """The text with every sentence replaced by its translation."""
        each = iter(translations)
        return "".join(part if isinstance(part, str) else part(next(each)) for part in self._parts)

    def places(self, translations: list[str]) -> list[int]:
        """The code points at which the translations begin in the joined text."""
        each, at, places = iter(translations), 0, []
        for part in self._parts:
            if isinstance(part, str):
                at += len(part)
            else:
                places.append(at)
                at += len(part(next(each)))
        return places


def plain(text: str) -> Layout:
    """The layout of a text without marks."""
    layout = Layout()
    layout.translate(text, 0)
    return layout


def marked(text: str) -> Layout:
    """The layout of an HTML text: tags, comments, scripts and styles stay; text is unescaped, and escaped again."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    reader.flush()
    return reader.layout


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.layout = Layout()
        self._text: list[str] = []
        self._verbatim = 0

    def flush(self) -> None:
        text = html.unescape("".join(self._text))
        self._text = []
        if text:
            self.layout.translate(text, 0, lambda part: html.escape(part, quote=False))

    def _mark(self, text: str) -> None:
        self.flush()
        self.layout.keep(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(self.get_starttag_text() or "")
        self._verbatim += tag in ("script", "style")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self._mark(f"</{tag}>")
        self._verbatim -= tag in ("script", "style") and self._verbatim > 0

    def handle_data(self, data: str) -> None:
        if self._verbatim:
            self._mark(data)
        else:
            self._text.append(data)

    def handle_entityref(self, name: str) -> None:
        self._text.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._text.append(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        self._mark(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._mark(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._mark(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self._mark(f"<?{data}>")
