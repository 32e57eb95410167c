"""SubRip and WebVTT subtitles: the lines of a cue are one segment; numbers, times, notes and styles stay.

A sentence that continues in the next cue is one segment of both: the times between them are placed like a line break.
A line that begins with a dash is another speaker and a separate segment. <i>, <v Name> and {\\an8} are tags.
"""

import re
from collections.abc import Callable, Iterator

from regard.files import html
from regard.files.segment import Builder, Part, as_it_is, framed

_TIME = re.compile(r"[^\S\n]*(?:\d+:)?\d\d:\d\d[,.]\d+\s*-->\s*(?:\d+:)?\d\d:\d\d[,.]\d+")
_NUMBERED = re.compile(rf"[^\S\n]*\d+[^\S\n]*\n{_TIME.pattern}")  # a cue without an empty line before it
_BRACES = re.compile(r"\{[^{}\n]*\}|<[\d:.]+>")  # {\an8}, and the times of karaoke
_SPEAKER = re.compile(r"\s*[-–—]\s*(?=\S)")
_ENDED = re.compile(r"[.!?…:;。！？\"”»)\]♪]\s*$")
_NEWLINE = re.compile(r"(\r?\n)")
_MARKUP = re.compile(r"<[^<>]*>|\{[^{}]*\}")
_VOICE = re.compile(r"<v\b[^<>]*>")
# What applies to the rest of a cue: positions, and a voice, which needs no end.
_LEADING = re.compile(r"\s*+(?:(?:\{[^{}\n]*\}|<v\b[^<>\n]*>)\s*+)+")
MOST_CUES = 4  # of one sentence


def read(
    text: str, unescape: Callable[[str], str] = as_it_is, escape: Callable[[str], str] = as_it_is
) -> Iterator[Part]:
    """The parts of a file: words are only in the lines after a time line, up to an empty line or the next cue."""
    cues: list[list[str]] = [[]]  # of the segment: the text of a cue, then what is between it and the next, ...
    inside = False
    for found in re.finditer(r"[^\n]*\n|[^\n]+", text):
        line = found[0]
        if inside and line.strip() and not _TIME.match(line) and not _NUMBERED.match(text, found.start()):
            speaks = _SPEAKER.match(line)
            begins = len(cues) % 2 == 0
            if begins and (speaks or not _continues("".join(cues[-2]), line) or len(cues) > 2 * MOST_CUES):
                yield from segment(cues[:-1], unescape, escape)
                yield "".join(cues[-1])
                cues = [[]]
            elif begins:
                cues.append([])
            elif speaks:
                yield from segment(cues, unescape, escape)
                cues = [[]]
            cues[-1].append(line)
            continue
        if len(cues) % 2:
            cues.append([])
        cues[-1].append(line)
        inside = _TIME.match(line) is not None
    if len(cues) % 2:
        cues.append([])
    yield from segment(cues[:-1], unescape, escape)
    yield "".join(cues[-1])


def _continues(cue: str, line: str) -> bool:
    """Whether the sentence at the end of a cue goes on in the line of the next one."""
    before, after = (_MARKUP.sub("", part).strip() for part in (cue, line))
    said, says = _VOICE.findall(cue)[-1:], _VOICE.findall(line)[:1]
    return bool(before) and not _ENDED.search(before) and after[:1].islower() and (not says or said == says)


def segment(cues: list[list[str]], unescape: Callable[[str], str], escape: Callable[[str], str]) -> Iterator[Part]:
    """Lines of one cue as a segment, or of several cues with what is between them."""
    lines = ["".join(part) for part in cues]
    dash = _SPEAKER.match(lines[0])
    raw = "".join(lines)
    start = dash.end() if dash else len(raw) - len(raw.lstrip())
    end = len(raw.rstrip())
    builder = Builder(collapse=True, find=lambda text: ())
    reached, ending = 0, ""
    for number, part in enumerate(lines):
        last = number == len(lines) - 1
        begin, stop = max(start, reached) - reached, (end - reached if last else len(part.rstrip()))
        if number % 2 == 0:
            leading = _LEADING.match(part) if number and "</v" not in part else None
            if leading:  # it stays with the times before it
                ending += leading[0]
                begin = leading.end()
            if number:
                builder.mark(ending, "break")
            words(builder, part[begin:stop], unescape)
            ending = part[stop:]
        else:
            ending += part
        reached += len(part)

    def wrap(inner: str) -> str:
        """The lines with the translation `inner`. None of them is empty, which would end the cue: a translation without
        words has no line, and after a cue without words nothing follows its times."""
        return raw[:start] + inner + raw[end:] * (inner[-1] != "\n") if inner.strip() else ""

    yield from framed(raw, 0, len(raw), builder.build(raw[start:end], escape, wrap))


def words(builder: Builder, cue: str, unescape: Callable[[str], str]) -> None:
    """Add the words, tags and line breaks of a cue."""
    for token in html.scan(cue):
        if token.name is not None:
            name = token.name.partition(".")[0]  # </c> ends <c.yellow>
            (builder.close if token.closing else builder.open)(token.raw, name)
            continue
        for number, part in enumerate(_NEWLINE.split(token.raw)):
            if number % 2:
                builder.mark(part, "break")
            else:
                builder.words_around(unescape(part), _BRACES, "void")
