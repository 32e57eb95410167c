"""Files of the trade: each format cuts a file into what stays and what is translated, and writes it back.

A format is one function, `read(text)`, that gives the parts of a text in order: text that stays, and segments. The
parts of a document with what each segment `held` are the document.
"""

from regard.data.formats.document import (
    FORMATS,
    Document,
    find_format,
    format_of,
    is_bilingual,
    read_document,
    readers,
)
from regard.data.formats.place import place_tags, spell
from regard.data.formats.segment import Aligned, Segment, Sentence, Sentences, Tag, join_sentences, take_sentences

__all__ = [
    "FORMATS", "Aligned", "Document", "Segment", "Sentence", "Sentences", "Tag", "find_format", "format_of",
    "is_bilingual", "join_sentences", "place_tags", "read_document", "readers", "spell", "take_sentences",
]  # fmt: skip
