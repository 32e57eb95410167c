"""HTML: the text between block tags is a segment, including inline tags. Comments, scripts and code stay unchanged.

The same reader handles fragments of XML, in which every tag is inline unless it is listed as splitting. The scanner
never goes back, so that time is linear for any input.
"""

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from regard.files.segment import Builder, Part, Review, framed, keep_outer_breaks
from regard.text.languages import without_region

INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "ins", "kbd", "label", "mark", "math", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "svg",
    "time", "tt", "u", "var", "wbr",
))  # fmt: skip
VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
))  # fmt: skip
CODE = frozenset(("code", "kbd", "samp", "var", "tt", "math", "svg", "pre", "textarea"))  # not natural language
RAW = frozenset(("script", "style"))  # contain no tags
_NAME = re.compile(r"[A-Za-z_:][^\s/>]*")
_STOP = re.compile(r"[>\"']")
_KEPT = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*(?:["'][^"']*\bnotranslate\b|notranslate\b)""", re.I)
_ATTRIBUTE = re.compile(
    r"""\s+(?P<name>[^\s=>"'/]+)(?:\s*=\s*(?:(?P<quote>["'])(?P<value>.*?)(?P=quote)|[^\s>"']+))?""", re.S
)
_LANGUAGE = re.compile(r"""<html\b[^<>]*?\slang\s*=\s*["']?([A-Za-z][A-Za-z0-9-]*)""", re.I)
TRANSLATED = ("alt", "title")  # attributes with natural language
_SPACE = " \t\r\n\f"
CHARSET = re.compile(rb"""<meta[^>]{1,200}charset\s*=\s*["']?([A-Za-z0-9_.:-]+)""", re.I)


class Markup(NamedTuple):
    """A run of text (without a name), or a tag, comment or declaration."""

    raw: str
    name: str | None = None  # "" for comments and declarations
    closing: bool = False
    empty: bool = False  # written as <x/>


class Rules(NamedTuple):
    """Which elements are inline, and which are not translated."""

    inline: Collection[str] | None = INLINE  # None: all but `splitting`
    splitting: Collection[str] = ()
    kept: Collection[str] = CODE
    void: Collection[str] = VOID
    raw: Collection[str] = RAW
    breaks: Collection[str] = ()  # elements that are white space inside a sentence
    notes: Collection[str] = ()  # elements that belong to the word before them, among those in `kept`
    ignore_case: bool = True

    def is_inline(self, name: str) -> bool:
        """Whether an element is inline."""
        return name not in self.splitting if self.inline is None else name in self.inline


HTML = Rules()


def xml_rules(splitting: Collection[str] = (), ignored: Collection[str] = ()) -> Rules:
    """The rules for a fragment of XML."""
    return Rules(None, splitting, ignored, (), (), ignore_case=False)


def read(text: str, rules: Rules = HTML) -> Iterator[Part]:
    """The parts of a page or fragment."""
    run: list[Markup] = []  # the tokens of one segment
    for token in join_kept(scan(text, rules), rules):
        if not token.name or rules.is_inline(token.name):
            run.append(token)
        else:
            yield from segment(run, rules)
            run = []
            yield token.raw
    yield from segment(run, rules)


def read_attributes(text: str) -> Iterator[Part]:
    """The parts of a page whose segments are the values of its `alt` and `title` attributes."""
    for token in join_kept(scan(text, HTML), HTML):
        named = token.name and not token.closing and token.name not in HTML.kept
        if not named or _KEPT.search(token.raw):
            yield token.raw
            continue
        found, raw = _NAME.match(token.raw, 1), token.raw
        reached, at = 0, found.end() if found else len(raw)
        while attribute := _ATTRIBUTE.match(raw, at):
            at = attribute.end()
            start, end = attribute.span("value")
            if attribute["name"].lower() in TRANSLATED and start >= 0:
                yield raw[reached:start]
                yield from segment([Markup(raw[start:end])], HTML, html.escape)
                reached = end
        yield raw[reached:]


def finish(before: str, after: str, language: str, review: Review) -> str:
    """The page whose `html` element declares `language`, if it declared another one."""
    found = _LANGUAGE.search(after) if language else None
    if found is None or without_region(found[1]) == without_region(language):
        return after
    return after[: found.start(1)] + language + after[found.end(1) :]


def join_kept(tokens: Iterable[Markup], rules: Rules) -> Iterator[Markup]:
    """The tokens, with every element that is not translated joined into one token."""
    parts: list[str] = []
    kept, depth = "", 0
    for token in tokens:
        begins = bool(token.name) and not token.closing and not token.empty and token.name not in rules.void
        if kept:
            parts.append(token.raw)
            if token.name == kept and not token.empty:
                depth += -1 if token.closing else 1
            if not depth:
                yield Markup("".join(parts), "" if rules.is_inline(kept) else kept, empty=kept not in rules.notes)
                kept = ""
        elif begins and (token.name in rules.kept or _KEPT.search(token.raw)):
            kept, depth, parts = str(token.name), 1, [token.raw]
        else:
            yield token
    if kept:
        yield Markup("".join(parts), "" if rules.is_inline(kept) else kept, empty=kept not in rules.notes)


def join_notes(run: list[Markup]) -> Iterator[Markup]:
    """The tokens, with every superscript without letters that ends a word, such as a footnote, as one."""
    at = 0
    while at < len(run):
        token, last = run[at], at
        if token.name == "sup" and not token.closing and not token.empty:
            last = next((n for n in range(at + 1, min(at + 10, len(run))) if run[n].name == token.name), at)
        inside, after = run[at + 1 : last], run[last + 1].raw[:1] if last + 1 < len(run) else ""
        text = "".join(one.raw for one in inside if one.name is None)
        if last > at and run[last].closing and not any(map(str.isalpha, unescape(text))) and not after.isalnum():
            token = Markup("".join(one.raw for one in run[at : last + 1]), "")
            at = last
        yield token
        at += 1


def segment(run: list[Markup], rules: Rules, write: Callable[[str], str] | None = None) -> Iterator[Part]:
    """The tokens of inline text as a segment without surrounding white space; unchanged if they have no words."""
    raw = "".join(token.raw for token in run)
    start, end = len(raw) - len(raw.lstrip(_SPACE)), len(raw.rstrip(_SPACE))
    builder = Builder(collapse=True)
    for token in join_notes(run):
        if token.name is None:
            builder.words(unescape(token.raw))
        else:
            add_tag(builder, token, rules)
    yield from framed(raw, start, end, keep_outer_breaks(builder.build(raw[start:end], escape=write or escape)))


def add_tag(builder: Builder, token: Markup, rules: Rules = HTML) -> None:
    """Add a tag, comment or declaration to a segment."""
    if token.name in rules.breaks and token.empty:
        builder.mark(token.raw, "break")
    elif not token.name or token.empty or token.name in rules.void:
        builder.mark(token.raw, "word" if token.name == "" and token.empty else "void")
    else:
        (builder.close if token.closing else builder.open)(token.raw, token.name)


def scan(text: str, rules: Rules = HTML) -> Iterator[Markup]:
    """The tokens of a text in order; joined, they are the text."""
    last = _last_places(text)
    begin = at = 0  # the start of the run of text, and the current position
    while at < len(text):
        at = text.find("<", at)
        if at < 0:
            break
        end = tag_end(text, at, last)
        if end is None:  # a "<" of the text
            at += 1
            continue
        if begin < at:
            yield Markup(text[begin:at])
        closing = text.startswith("</", at)
        found = _NAME.match(text, at + 1 + closing)
        name = "" if found is None else found[0].lower() if rules.ignore_case else found[0]
        yield Markup(text[at:end], name, closing, not closing and text[end - 2 : end] == "/>")
        if name in rules.raw and not closing and text[end - 2] != "/":
            ending = re.compile(f"</{re.escape(name)}", re.IGNORECASE).search(text, end)
            stop = ending.start() if ending else len(text)
            if end < stop:
                yield Markup(text[end:stop], "")
            end = stop
        begin = at = end
    if begin < len(text):
        yield Markup(text[begin:])


def _last_places(text: str) -> dict[str, int]:
    return {mark: text.rfind(mark) for mark in ">\"'"}


def tag_end(text: str, at: int = 0, last: dict[str, int] | None = None) -> int | None:
    """The end of the tag, comment or declaration that begins at `at`; None if "<" begins none.

    An unclosed one extends to the end of the text, so that nothing is scanned twice.
    """
    last = _last_places(text) if last is None else last
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
        # A quote begins a value only after "=", and only if it is closed.
        if place - 1 < last[stop[0]] and text[max(at, place - 10) : place - 1].rstrip().endswith("="):
            place = text.index(stop[0], place) + 1
    return len(text)


def unescape(text: str) -> str:
    """A text with references such as &amp; replaced by their characters."""
    try:
        return html.unescape(text)
    except ValueError:  # a reference with more digits than Python converts
        return text


def escape(text: str) -> str:
    """Words escaped for HTML and XML."""
    return html.escape(text, quote=False)
