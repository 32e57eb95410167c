"""Files of the trade: each format cuts a file into what stays and what is translated, and writes it back.

A format is one function, `read(text)`, that gives the parts of a text in order: text that stays, and segments. The
parts of a document with what each segment `held` are the document.
"""

from regard.data.formats.document import FORMATS as FORMATS
from regard.data.formats.document import Document as Document
from regard.data.formats.document import find_format as find_format
from regard.data.formats.document import is_bilingual as is_bilingual
from regard.data.formats.document import read_document as read_document
from regard.data.formats.document import readers as readers
from regard.data.formats.place import place_tags as place_tags
from regard.data.formats.place import spell as spell
from regard.data.formats.segment import Aligned as Aligned
from regard.data.formats.segment import Segment as Segment
from regard.data.formats.segment import Sentence as Sentence
from regard.data.formats.segment import Tag as Tag
from regard.data.formats.segment import join_sentences as join_sentences
from regard.data.formats.segment import take_sentences as take_sentences
