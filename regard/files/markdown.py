"""Markdown: headings, paragraphs, list items and table cells are segments; code, addresses and front matter stay.

Paragraphs follow CommonMark. Inline code and addresses are protected; emphasis and links are tags around words. Blocks
of HTML are read as HTML.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

from regard.files import html
from regard.files.segment import Builder, Part, framed

_FENCE = re.compile(r"\s{0,3}(?:>\s?)*\s*(`{3,}|~{3,})")
# The prefix of a line: quotes, then a list marker with an optional box, a heading, a footnote mark, or the colon of a
# definition.
_PREFIX = re.compile(
    r"(?:[ \t]{0,3}>[ \t]?)*[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|#{1,6}[ \t]+"
    r"|\[\^[^\]\s]+\]:[ \t]+|:[ \t]+)?"
)
_QUOTE = re.compile(r"(?:[ \t]{0,3}>[ \t]?)*")
_START = re.compile(rf"{_QUOTE.pattern}[ \t]*")  # what is before the words of a line that continues a paragraph
_ITEM = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}|(?P<note>\[\^))")
# A rule, the line under a heading, or an empty list item. Possessive, so that time is linear.
_RULE = re.compile(r"\s*+(?:>\s?+)*+\s*+(?:(?:\*\s*+){3,}+|(?:-\s*+)++|(?:_\s*+){3,}+|=++|[*+])\s*+")
_DELIMITER = re.compile(r"\s*+(?:>\s?+)*+\s*+\|?+\s*+:?+-++:?+\s*+(?:\|\s*+:?+-++:?+\s*+)*+\|?+\s*+")
_REFERENCE = re.compile(r"\s{0,3}\[(?!\^)[^\]]+\]:\s")
# HTML blocks of CommonMark: kinds 1 to 5 end with a mark and stay; kinds 6 and 7 end at an empty line and are HTML.
_KEPT = "script|pre|style|textarea"
_RAW_HTML = (
    (re.compile(rf"<(?:{_KEPT})(?=[\s>]|$)", re.I), re.compile(rf"</(?:{_KEPT})>", re.I)),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
)
_BLOCK = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl"
    r"|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main"
    r"|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title"
    r"|tr|track|ul)(?=\s|/?>|$)", re.I,
)  # fmt: skip
_ONE_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:[\s/][^<>]*)?>\s*$")
_CELL = re.compile(r"(?<!\\)\|")
_ALERT = re.compile(r"(?:[ \t]{0,3}+>[ \t]?+)++\[![A-Za-z]+\][+-]?\s*+")
# What begins another block at the start of a line, and what a backslash goes before.
_MARKER = re.compile(
    r"(?P<line>(?:^|\n)[ \t]*+\d{0,9})(?=(?<=\d)[.)](?:\s|$)|(?<!\d)(?:[-+:](?:\s|$)|#{1,6}(?:\s|$)|>|~~~))"
)
# Lines of other dialects that stay: the ends of a container, attributes, a table of contents.
_KEPT_LINE = re.compile(r"[ \t]*+(?::{3,}[^\n]*+|\{:[^{}\n]*+\}|\[TOC\])\s*+", re.I)
_ADMONITION = re.compile(r"[ \t]*+(?:!!!|\?\?\?)\+?[ \t]++\w")  # its text is indented
_MATH = re.compile(r"[ \t]*+\$\$\s*+")
_TRAILING = re.compile(r"(?<![ \t])[ \t]++#++[ \t]*+$")
_BREAK = re.compile(r"(?:(?<! ) {2,}+|\\)\r?$")
_TOKEN = re.compile(
    r"(?P<escaped>\\[!-/:-@\[-`{-~])|(?P<code>`+)|(?P<note>\[\^[^\]\s]+\])|(?P<image>!\[)|(?P<open>\[)|(?P<close>\])"
    r"|(?P<marks>\*+|_+|~~?)|(?P<short>(?<![\w:]):(?:[+-]1|[a-z][a-z0-9_+-]{0,50}):(?![\w:]))"
    r"|(?P<issue>\(#\d{1,9}\)|(?<![\w&#/])#\d{1,9}(?!\w))"
    r"|(?P<math>\$\$[^$\n]{1,500}\$\$|(?<![\w$])\$(?![\s$])[^$\n]{0,500}(?<![\s$\\])\$(?![\w$]))"
    r"|(?P<auto><(?:https?|mailto):[^<>\s]*>)|(?P<tag><[/!?A-Za-z])|(?P<bare>https?://[^\s<>)\]]+)"
)
_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
_TARGET = re.compile(r"\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\]|\]")
LONGEST_TAG = 2000  # characters of an HTML tag in a line
MOST_MARKS = 2000  # emphasis marks and brackets in a segment; further ones are words


def read(text: str) -> Iterator[Part]:
    """The parts of a document."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    at = 0
    if lines[0].rstrip() == "---":
        at = next((n + 1 for n in range(1, len(lines)) if lines[n].rstrip() in ("---", "...")), 0)
        yield from lines[:at]
    blank = True  # whether the previous line ends no paragraph, so that indented code can begin
    items: list[int] = []  # the columns at which the text of the open list items begins
    quoted = 0  # the depth of the quotation that they are in
    while at < len(lines):
        line = lines[at]
        fence = _FENCE.match(line)
        if fence:
            last = next((n for n in range(at + 1, len(lines)) if _closes(lines[n], fence[1])), len(lines) - 1)
            yield "".join(lines[at : last + 1])
            at, blank = last + 1, True
            continue
        if _MATH.fullmatch(line):
            last = next((n for n in range(at + 1, len(lines)) if _MATH.fullmatch(lines[n])), at)
            yield "".join(lines[at : last + 1])
            at, blank = last + 1, True
            continue
        quote = _QUOTE.match(line)
        assert quote is not None
        rest = line[quote.end() :]
        if (
            not rest.strip()
            or _RULE.fullmatch(line)
            or _REFERENCE.match(line)
            or _ALERT.fullmatch(line)
            or _KEPT_LINE.fullmatch(line)
        ):
            if line:
                yield line
            at, blank = at + 1, True
            continue
        indent = _width(rest[: len(rest) - len(rest.lstrip(" \t"))])
        if quote[0].count(">") != quoted:  # another block, whose lists are separate
            items, quoted = [], quote[0].count(">")
        if blank:
            items = [column for column in items if column <= indent]
        if _ADMONITION.match(line):
            items = [*(one for one in items if one <= indent), indent + 4]
            yield line
            at, blank = at + 1, False
            continue
        prefix = _PREFIX.match(line)
        assert prefix is not None
        last, raw = _html_block(lines, at, line[prefix.end() :])
        if last > at:
            block = "".join(lines[at:last])
            yield from [block] if raw else html.read(block)
            at, blank = last, True
            continue
        if blank and indent >= max(items, default=0) + 4:  # indented code
            yield line
            at += 1
            continue
        if item := _ITEM.match(prefix[0], quote.end()):
            column = 4 if item["note"] else _width(line[quote.end() : item.end()])
            items = [*(one for one in items if one <= indent), column]
        if _begins_table(lines, at):
            yield from row(line)
            yield lines[at + 1]
            at += 2
            while at < len(lines) and "|" in lines[at]:
                yield from row(lines[at])
                at += 1
            continue
        last = at + 1
        if "#" not in prefix[0]:
            while last < len(lines) and _continues(lines[last], quoted) and not _begins_table(lines, last):
                last += 1
        yield prefix[0]
        yield from segment(lines[at:last], len(prefix[0]))
        at, blank = last, "#" in prefix[0]


def _width(space: str) -> int:
    """The columns that the beginning of a line takes."""
    return len(space.expandtabs(4))


def _html_block(lines: list[str], at: int, rest: str, inside: bool = False) -> tuple[int, bool]:
    """The line after the block of HTML that begins in line `at`, and whether it stays; `at` if there is none.

    `rest` is the line without quotes and list markers. `inside` a paragraph, only some kinds of blocks begin.
    """
    rest = rest.lstrip(" \t")
    for begins, ends in _RAW_HTML:
        if found := begins.match(rest):
            if ends.search(rest, found.end()):
                return at + 1, True
            return next((n + 1 for n in range(at + 1, len(lines)) if ends.search(lines[n])), len(lines)), True
    if not (_BLOCK.match(rest) or (not inside and _ONE_TAG.match(rest))):
        return at, False
    last = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
    # An element whose text is kept may have empty lines.
    for begins, ends in _RAW_HTML[:2]:
        block = "".join(lines[at:last])
        opened = [found.end() for found in begins.finditer(block)]
        if opened and not ends.search(block, opened[-1]):
            last = next((n + 1 for n in range(last, len(lines)) if ends.search(lines[n])), len(lines))
    return last, False


def _closes(line: str, fence: str) -> bool:
    found = _FENCE.match(line)
    return (
        found is not None
        and found[1][0] == fence[0]
        and len(found[1]) >= len(fence)
        and line.strip(" \t\r\n>") == found[1]
    )


def _begins_table(lines: list[str], at: int) -> bool:
    return (
        at + 1 < len(lines) and "|" in lines[at] and "-" in lines[at + 1] and bool(_DELIMITER.fullmatch(lines[at + 1]))
    )


def _continues(line: str, quoted: int) -> bool:
    """Whether a line continues the previous paragraph, which is in a quotation of this depth (0: in none)."""
    quote = _QUOTE.match(line)
    if quote is not None and quote[0].count(">") == quoted:  # a line without the marks continues it as well
        line = line[quote.end() :]
    if _RULE.fullmatch(line) or _KEPT_LINE.fullmatch(line) or _MATH.fullmatch(line):
        return False
    if not line.strip() or _FENCE.match(line) or _html_block([line], 0, line, inside=True)[0]:
        return False
    prefix = _PREFIX.match(line)
    return prefix is not None and not prefix[0].strip()


def row(line: str) -> Iterator[Part]:
    """The cells of a table row."""
    reached = 0
    for bar in [*(found.span() for found in _CELL.finditer(line)), (len(line), len(line))]:
        yield from segment([line[reached : bar[0]]], 0, cell=True)
        if bar[0] < bar[1]:
            yield line[slice(*bar)]
        reached = bar[1]


def segment(lines: list[str], start: int, cell: bool = False) -> Iterator[Part]:
    """The lines of a paragraph (or a cell) as a segment; its words begin at `start` of the first line."""
    raw = "".join(lines)[start:]
    ending = _TRAILING.search(raw.rstrip()) if "\n" not in raw.rstrip() else None
    end = ending.start() if ending else len(raw.rstrip())
    begin = len(raw) - len(raw.lstrip())
    core = raw[begin:end] if begin < end else ""
    builder = Builder(collapse=True)
    if core:
        rows = core.split("\n")
        starts = [0, *(found.end() for found in map(_START.match, rows[1:]) if found)]
        for number, whole in enumerate(rows):
            line = whole[starts[number] :]
            if number:
                builder.words(" ")
            broken = _BREAK.search(line) if number + 1 < len(rows) else None
            inline(builder, line[: broken.start()] if broken else line)
            if broken:
                builder.mark(f"{broken[0]}\n{rows[number + 1][: starts[number + 1]]}", "break")
    if cell:
        built = builder.build(core, escape=lambda words: escape(words).replace("|", "\\|"))
    elif _MARKER.search(core):  # the line has a second marker, as in "- 1. one"
        built = builder.build(core, escape=escape)
    else:
        built = builder.build(core, escape=escape, wrap=escape_markers)
    yield from framed(raw, begin, end, built)


class Mark(NamedTuple):
    """Markup in a line: an escape, a protected word, a footnote, an HTML tag, or one end of the pair `name`."""

    start: int
    end: int
    kind: Literal["escape", "word", "note", "tag", "open", "close"]
    name: str = ""


def inline(builder: Builder, text: str) -> None:
    """The words and tags of one line."""
    reached = 0
    for start, end, kind, name in sorted(find_marks(text)):
        if start < reached:  # inside an image
            continue
        before, raw, reached = html.unescape(text[reached:start]), text[start:end], end
        builder.words(before + raw[1] if kind == "escape" else before)
        if kind in ("word", "note"):
            builder.mark(raw, "word" if kind == "word" else "void")
        elif kind == "tag":
            html.add_tag(builder, next(html.scan(raw)))
        elif kind != "escape":
            (builder.close if kind == "close" else builder.open)(raw, name)
    builder.words(html.unescape(text[reached:]))


Stack = list[tuple[str, int]]  # open brackets and emphasis marks, and their positions


def find_marks(text: str) -> list[Mark]:
    """The markup of a line; for an image, both the whole and its parts."""
    marks: list[Mark] = []
    stack: Stack = []
    ticks: dict[int, list[int]] = {}  # length of a run of backticks -> the starts of such runs
    for run in _TICKS.finditer(text):
        ticks.setdefault(len(run[0]), []).append(run.start())
    at = count = 0
    while found := _TOKEN.search(text, at):
        kind, at, new = found.lastgroup, found.end(), list[Mark]()
        count += kind in ("open", "image", "close", "marks")
        start, size = found.start(), len(found[0])
        if kind == "code":  # up to the next run of as many backticks
            closing = ticks.get(size, [])
            following = bisect_left(closing, at)
            new = [Mark(start, closing[following] + size, "word")] if following < len(closing) else []
        elif kind == "tag":
            end = html.tag_end(text[start : start + LONGEST_TAG])
            new = [] if end is None else [Mark(start, start + end, "tag")]
        elif kind in ("escaped", "auto", "bare", "note", "short", "issue", "math"):
            new = [Mark(start, at, "escape" if kind == "escaped" else "note" if kind == "note" else "word")]
        elif count > MOST_MARKS:
            continue
        elif kind in ("open", "image"):
            stack.append((found[0], found.start()))
        else:
            new = _end_link(text, found.start(), stack) if kind == "close" else _emphasise(text, found, stack)
        marks += new
        at = max([at, *(mark.end for mark in new)])
    return marks


def _last_open(stack: Stack, *kinds: str) -> int | None:
    return next((number for number in reversed(range(len(stack))) if stack[number][0] in kinds), None)


def _end_link(text: str, start: int, stack: Stack) -> list[Mark]:
    """The marks of the link or image that ends with the bracket at `start`; brackets without a target are words."""
    opened, target = _last_open(stack, "[", "!["), _TARGET.match(text, start)
    if opened is None or target is None:
        return []
    if target[0] == "]":
        del stack[opened]
        return []
    bracket, place = stack[opened]
    del stack[opened:]
    if bracket == "![":
        return [Mark(place, target.end(), "word")]
    return [Mark(place, place + 1, "open", f"[{place}"), Mark(start, target.end(), "close", f"[{place}")]


def _emphasise(text: str, found: re.Match[str], stack: Stack) -> list[Mark]:
    """The marks of the emphasis that a run of marks closes; otherwise it may open one."""
    raw, (start, end) = found[0], found.span()
    before, after = text[start - 1 : start], text[end : end + 1]
    opens = bool(after.strip()) and not (raw[0] == "_" and before.isalnum())
    closes = bool(before.strip()) and not (raw[0] == "_" and after.isalnum())
    opened = _last_open(stack, raw, "[", "![") if closes else None  # emphasis that is open outside a link stays open
    if opened is not None and stack[opened][0] == raw:
        place = stack[opened][1]
        del stack[opened:]
        return [Mark(place, place + len(raw), "open", f"*{place}"), Mark(start, end, "close", f"*{place}")]
    if opens:
        stack.append((raw, start))
    return []


def escape(text: str) -> str:
    """Words with Markdown characters escaped."""
    return _SPECIAL.sub(lambda found: "&amp;" if found[0] == "&" else "\\" + found[0], text)


def escape_markers(text: str) -> str:
    """Lines of a paragraph that begin like a list, a heading or a quotation, with a backslash."""
    return _MARKER.sub(r"\g<line>\\", text)
