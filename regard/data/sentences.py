"""Text into sentences and words that know where they stand: spans of code points, in one pass, by a few rules.

A sentence ends after . ! ? or … (with the quotes and brackets that close there) before white space and something that
can begin a sentence, at an empty line, and at an HTML line break. Every word of the text is in exactly one sentence.
"""

import re

Span = tuple[int, int]  # code points [start, end)

_BREAK = re.compile(r"\n[^\S\n]*\n|<br {0,4}/?>|\u2029", re.IGNORECASE)
# Only from the beginning of a run of marks, and never back into it: the time is linear in the length of any text.
_END = re.compile(
    r"(?<![.!?…。！？])(?:[.!?…。！？]++[\"'”’»)\]]*+(?=\s|\Z)|[.!?…]*+[。！？][.!?…。！？]*+[\"'”’»)\]]*+)"
)
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+(?:['’]\w+)*|([^\w\s])\1*")
_WIDE = frozenset("。！？")  # end a sentence without white space after them
# Abbreviations that a name or a number follows, so that their full stop ends nothing.
_ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "st", "gen", "col", "lt", "sgt", "capt", "rev", "hon", "sen", "rep", "gov", "mme",
    "mt", "ft", "vs", "cf", "fig", "vol", "ed", "pp", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept", "sep",
    "oct", "nov", "dec",
))  # fmt: skip
_LONGEST = 6  # letters and dots before a full stop that are looked at


def split_sentences(text: str) -> list[Span]:
    """The sentences of a text, without the white space around them; a text of white space alone has none."""
    found = []
    place = 0
    for stop in [*(match.span() for match in _BREAK.finditer(text)), (len(text), len(text))]:
        found += _split_paragraph(text, place, stop[0])
        place = stop[1]
    return found


def split_words(text: str, sentence: Span) -> list[Span]:
    """The words of a sentence: letters and digits (don't is one), and runs of one and the same other character."""
    return [match.span() for match in _WORD.finditer(text, *sentence)]


def _split_paragraph(text: str, start: int, end: int) -> list[Span]:
    found: list[Span] = []
    for match in _END.finditer(text, start, end):
        if _ends(text, match, start, end):
            found += _trim(text, start, match.end())
            start = match.end()
    return found + _trim(text, start, end)


def _ends(text: str, mark: re.Match[str], start: int, end: int) -> bool:
    """Whether a sentence that began at `start` ends with the marks found."""
    if not _WIDE.isdisjoint(mark[0]):
        return True
    space = _SPACE.match(text, mark.end(), end)
    if space is None or space.end() == end:
        return True
    if text[space.end()].islower():
        # "Well." he said, and so on. After a bare ! or ? many people begin with a small letter.
        return mark[0][-1] in "!?"
    return mark[0] != "." or not _abbreviated(text, start, mark.start())


def _abbreviated(text: str, start: int, stop: int) -> bool:
    """Whether what stands before the full stop at `stop` is a known abbreviation or initials: J, U.S, e.g."""
    begin = stop
    while begin > max(start, stop - _LONGEST) and (text[begin - 1].isalpha() or text[begin - 1] == "."):
        begin -= 1
    word = text[begin:stop]
    initials = all(len(part) == 1 for part in word.split(".")) if len(word) > 1 else word.isupper() and word != "I"
    return initials or word.lower() in _ABBREVIATIONS


def _trim(text: str, start: int, end: int) -> list[Span]:
    """The span without white space at its ends, or nothing where nothing is left."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return [(start, end)] if start < end else []
