"""Placeholders of programs in a text: they are protected, so that a program still finds each of them once.

`%s`, `%(name)s`, `%1$s` (C, Python, PHP), `{name}`, `{0}`, `{{x}}`, `${x}`, `#{x}`, `<%= x %>` (templates), and ICU
messages such as `{count, plural, one {# file} other {# files}}`, which are kept whole. Those without a name or number
are known by their order alone, which therefore never changes. Web and e-mail addresses are protected in the same way:
a model may change their letters.
"""

import re
from collections.abc import Iterator

from regard.data.formats.segment import Kind, Span

_PRINTF = (
    r"%(?P<numbered>\d+\$|\([^()\s%]{1,80}\))?[-+#0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|ll|[hlqLjzt])?"
    r"(?:[ds@]|[iouxXeEfFgGcra](?![a-zA-Z]))"
)
ADDRESS = re.compile(
    r"(?<!\w)(?:https?://|www\.)[^\s<>\"]{1,2000}|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
)
_MARKS = ".,;:!?…)]}'’»”"  # at the end of an address they belong to the sentence
_START = re.compile(
    rf"(?P<address>{ADDRESS.pattern})|(?<![\w%])%%|(?P<printf>(?<!\d)(?<!\d\s){_PRINTF})|<%|[$#]?\{{|%[A-Z][A-Z_]+%"
)
# In single braces a name or a format; other text in braces is prose.
_NAMED = re.compile(
    r"\{(?:\S*|\s*[\w.-]+\s*(?:,\s*(?:plural|select|selectordinal|number|date|time)\b.*)?|[{%].*)\}", re.S
)
_AROUND = {'"': '"', "'": "'", "(": ")", "[": "]", "«": "»", "“": "”", "‘": "’", "„": "“"}
_INSIDE = re.compile(r"[{}]")
_LONGEST = 2_000  # characters of a placeholder with its braces


def find_placeholders(text: str) -> Iterator[tuple[Span, Kind]]:
    """The placeholders of a text in order, in time proportional to its length."""
    at = 0
    braces = _pair_braces(text) if "{" in text else {}
    while match := _START.search(text, at):
        start, end = match.span()
        kind: Kind = "word"
        if match["address"]:
            end = start + len(match[0].rstrip(_MARKS))
        elif match["printf"]:
            kind = "word" if match["numbered"] else "argument"
        elif match[0].endswith("{"):
            closed = braces.get(end - 1)
            if closed is None or (start + 1 == end and not _NAMED.fullmatch(text, start, closed)):
                at = end
                continue
            end = closed
            kind = "argument" if text[start:end] == "{}" else "word"
        elif match[0] == "<%":
            found = text.find("%>", end, end + _LONGEST)
            if found < 0:
                at = end
                continue
            end = found + 2
        if start > at and _AROUND.get(text[start - 1]) == text[end : end + 1]:  # "%s" with its quotes
            start, end = start - 1, end + 1
        yield (start, end), kind
        at = end


def find_addresses(text: str) -> list[str]:
    """The web and e-mail addresses of a text, in order."""
    return [match[0].rstrip(_MARKS) for match in ADDRESS.finditer(text)]


def _pair_braces(text: str) -> dict[int, int]:
    """Where each opening brace is, and behind its closing one, if that is not far."""
    opened: list[int] = []
    pairs = {}
    for match in _INSIDE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            start = opened.pop()
            if match.end() - start <= _LONGEST:
                pairs[start] = match.end()
    return pairs
