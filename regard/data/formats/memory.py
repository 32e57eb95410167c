"""TMX 1.4: the segments of a file and their translations as a translation memory."""

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from regard.version import __version__

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="regard" creationtoolversion={version} segtype="{kind}" o-tmf="regard" adminlang="en" \
srclang={source} datatype="plaintext"/>
<body>
"""


def write(pairs: Iterable[tuple[str, str]], source: str, target: str) -> bytes:
    """The memory of (source, target) texts in two languages, in the order given."""
    languages = quoteattr(source or "und"), quoteattr(target or "und")
    parts = [_HEAD.format(version=quoteattr(__version__), kind="paragraph", source=languages[0])]
    for pair in pairs:
        sides = (
            f"<tuv xml:lang={language}><seg>{escape(_legal(text))}</seg></tuv>"
            for language, text in zip(languages, pair, strict=True)
        )
        parts.append(f"<tu>{''.join(sides)}</tu>\n")
    parts.append("</body>\n</tmx>\n")
    return "".join(parts).encode("utf-8")


def _legal(text: str) -> str:
    """The text without the control characters that XML cannot hold."""
    return "".join(character for character in text if character >= " " or character in "\t\n\r")
