"""Plain text: every line is a segment. Line ends and white space at both ends of a line stay."""

from collections.abc import Iterator

from regard.data.formats.segment import Builder, Part, framed


def read(text: str) -> Iterator[Part]:
    """The parts of a text."""
    for number, line in enumerate(text.split("\n")):
        if number:
            yield "\n"
        yield from read_line(line)


def read_line(line: str) -> Iterator[Part]:
    """The parts of one line."""
    core = line.strip()
    start = line.index(core)
    builder = Builder()
    builder.words(core)
    yield from framed(line, start, start + len(core), builder.build(core))
