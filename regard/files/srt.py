"""SubRip subtitles: the lines of a cue are one segment; numbers and times stay. <i> and {\\an8} are tags.

A line that begins with a dash is another speaker and a separate segment. Line breaks in a segment are placed like tags.
"""

import re
from collections.abc import Iterator

from regard.files.html import scan
from regard.files.segment import Builder, Part, framed

_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_BRACES = re.compile(r"\{[^{}\n]*\}")
_SPEAKER = re.compile(r"\s*[-–—]\s*(?=\S)")


def read(text: str) -> Iterator[Part]:
    """The parts of a file: words are only in the lines after a time line, up to an empty line."""
    lines = text.split("\n")
    cue: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        ended = line + ("\n" if number + 1 < len(lines) else "")
        if inside and line.strip() and not _TIME.match(line):
            if _SPEAKER.match(line):
                yield from segment("".join(cue))
                cue = []
            cue.append(ended)
            continue
        yield from segment("".join(cue))
        cue = []
        inside = _TIME.match(line) is not None
        if ended:
            yield ended
    yield from segment("".join(cue))


def segment(cue: str) -> Iterator[Part]:
    """Lines of a cue as a segment."""
    dash = _SPEAKER.match(cue)
    start = dash.end() if dash else len(cue) - len(cue.lstrip())
    end = len(cue.rstrip())
    core = cue[start:end]
    builder = Builder(collapse=True, placeholders=False)
    for token in scan(core):
        if token.name is not None:
            (builder.close if token.closing else builder.open)(token.raw, token.name)
            continue
        for number, line in enumerate(token.raw.split("\n")):
            if number:
                builder.mark("\n", "break")
            builder.words_around(line.removesuffix("\r"), _BRACES, "void")
    built = builder.build(core)
    if "\r\n" in core:
        built = built._replace(tags=tuple(tag._replace(raw=tag.raw.replace("\n", "\r\n")) for tag in built.tags))
    yield from framed(cue, start, end, built)
