"""Text into sentences, clauses and words, as spans of code points, by a few rules.

A sentence ends after . ! ? or … and closing quotes or brackets, if white space and a possible sentence start follow. It
also ends after the full stops of scripts without spaces, at an empty line, and at an HTML line break. Every word of the
text is in exactly one sentence. In doubtful cases the sentence continues.
"""

import re
from collections.abc import Iterator, Sequence

Span = tuple[int, int]  # code points [start, end)

_BREAK = re.compile(r"\n[^\S\n]*\n|<br {0,4}/?>|\u2029", re.IGNORECASE)
WIDE = frozenset("。！？｡")  # end a sentence without white space after them
MARKS = ".!?…؟۔।॥։።‼⁇⁈⁉"  # end one before white space
_CLOSERS = r"(?:[\"'”’»)\]」』）】》]|[ \u00a0\u202f]»)*+"  # French sets a space before its closing quotes
# Matches from the start of a run of marks only and never backtracks into it, so that time is linear.
_END = re.compile(
    rf"(?<![{MARKS}。！？｡])(?:[{MARKS}]++{_CLOSERS}(?=\s|\Z)|[{MARKS}]*+[。！？｡][{MARKS}。！？｡]*+{_CLOSERS})"
)
_LINE = re.compile(r"[^\n]+")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+(?:['’]\w+)*|([^\w\s])\1*")
# Abbreviations that come before a name or a number; their full stop does not end a sentence.
ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "st", "gen", "col", "lt", "sgt", "capt", "rev", "hon", "sen", "rep", "gov", "mme",
    "mt", "ft", "vs", "cf", "fig", "vol", "ed", "pp", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept", "sep",
    "oct", "nov", "dec", "mm", "mlle", "mgr", "messrs", "bros", "dept", "approx", "ave", "blvd", "hr", "hrn", "fr",
    "bzw", "vgl", "ca", "env", "adm", "cmdr", "maj", "pres", "supt", "jr",
))  # fmt: skip
NUMBERED = frozenset(("no", "nos", "nr", "p", "art", "sec", "ch", "chap", "eq", "par", "tel", "bd", "abs", "kap"))
MONTHS = (
    "Januar", "Februar", "März", "April", "Mai", "Juni",
    "Juli", "August", "September", "Oktober", "November", "Dezember",
)  # fmt: skip
_MONTHS = re.compile(rf"(?:{'|'.join(MONTHS)})\b")
# The label of a list item, before its first word: 1. A. IV. 12) a) (b) (iv) - • (M. is Monsieur)
_ITEM = re.compile(
    r"(?:\d{1,3}\.-?|([A-HQ]\.|[IVX]{1,4}\.)|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{2,4}|[IVX]{2,4})\)|[-–—*•◦▪‣>])\s{1,8}(?=\W{0,2}\w)"
)
_INITIAL = re.compile(r"[A-Z]\.")
_LONGEST = 6  # letters and dots before a full stop that are checked
_LABEL = 3  # characters of a list label: "1.", "12.", "a."
_CLAUSES = (re.compile(r"[;:—–；：](?=\s|\Z)|[；：]"), re.compile(r"[,،](?=\s|\Z)|[，、]"), re.compile(r"\s"))


def split_sentences(text: str) -> list[Span]:
    """The sentences of a text, without surrounding white space; a text of only white space has none."""
    found: list[Span] = []
    start = 0
    for gap in (*_BREAK.finditer(text), None):
        stop, following = gap.span() if gap else (len(text), len(text))
        for match in _END.finditer(text, start, stop):
            if _ends(text, match, start, stop):
                found.append(trim(text, (start, match.end())))
                start = match.end()
        found.append(trim(text, (start, stop)))
        start = following
    return [span for span in found if span[0] < span[1]]


def sentences_of_lines(text: str) -> Iterator[Span]:
    """The sentences of each line of a text, without the labels of list items."""
    for line in _LINE.finditer(text):
        for start, end in split_sentences(line[0]):
            yield after_label(text, (line.start() + start, line.start() + end))


def after_label(text: str, sentence: Span) -> Span:
    """The sentence without the label of a list item that it begins with."""
    label = _ITEM.match(text, *sentence)
    if label is None:
        return sentence
    after = label.end()
    if _MONTHS.match(text, after):  # the day of a date
        return sentence
    if label[1] and (text[after].islower() or _INITIAL.match(text, after)):  # E. coli, D. H. Lawrence
        return sentence
    return after, sentence[1]


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit to translate."""
    return any(map(str.isalnum, text))


def split_words(text: str, sentence: Span) -> list[Span]:
    """The words of a sentence: letters and digits (don't is one word), and runs of one other character."""
    return [match.span() for match in _WORD.finditer(text, *sentence)]


def split_clauses(text: str, sentence: Span, starts: Sequence[int], most: int) -> list[Span]:
    """Split a sentence into parts of at most `most` tokens, which begin at the code points `starts`.

    It is split after a semicolon, colon or dash; otherwise after a comma, between words, or between tokens. The parts
    are about equally long, as far as the marks allow.
    """
    parts: list[Span] = []
    begin, last, first = sentence[0], sentence[1], 0  # `first` is the token at `begin`
    while len(starts) - first > most:
        left = -(-(len(starts) - first) // most)  # number of remaining parts
        low, high = starts[first + max(1, (len(starts) - first) // (2 * left))], starts[first + most]
        even = starts[first + (len(starts) - first) // left]
        low = max(low, begin + 1)
        cuts = ([match.end() for match in kind.finditer(text, low, high)] for kind in _CLAUSES)
        ends = next(filter(None, cuts), [max(high, low)])  # of the strongest kind; between tokens if there is none
        end = min(ends, key=lambda end: abs(end - even))
        parts.append(trim(text, (begin, end)))
        while first < len(starts) and starts[first] < end:
            first += 1
        begin = end
    parts.append(trim(text, (begin, last)))
    return [span for span in parts if span[0] < span[1]]


def _ends(text: str, mark: re.Match[str], start: int, end: int) -> bool:
    """Whether a sentence that began at `start` ends with `mark`."""
    if not WIDE.isdisjoint(mark[0]):
        # Quoted speech continues after its closing bracket: 「…。」と言った
        return not (mark[0][-1] in "」』" and text[mark.end() : mark.end() + 1] in ("と", "っ"))
    space = _SPACE.match(text, mark.end(), end)
    if space is None or space.end() == end:
        return True
    if text[space.end()].islower():
        # "Well." he said: no end. But a sentence in lower case may follow a bare ! or ?, and any mark in tokenised
        # text.
        return mark[0][-1] in "!?" or (len(mark[0]) == 1 and text[mark.start() - 1 : mark.start()].isspace())
    return mark[0] != "." or not _abbreviated(text, start, mark.start(), space.end())


def _abbreviated(text: str, start: int, stop: int, after: int) -> bool:
    """Whether the text before the full stop at `stop` is an abbreviation, initials (J, U.S, e.g), the day of a date, or
    a list label; `after` is the start of the next word."""
    begin = stop
    while begin > max(start, stop - _LONGEST) and (text[begin - 1].isalpha() or text[begin - 1] == "."):
        begin -= 1
    word = text[begin:stop]
    if not word and not text[stop - 1 : stop].isdigit():
        return False
    if stop - start <= _LABEL + 1 and (text[start:stop].strip().isdigit() or text[start:stop].strip() == word[:1]):
        return True  # 1. The first item, a. The first item
    if not word:
        return _MONTHS.match(text, after) is not None
    initials = all(len(part) == 1 for part in word.split(".")) if len(word) > 1 else word.isupper() and word != "I"
    if word.lower() in NUMBERED:
        return text[after].isdigit()
    return initials or word.lower() in ABBREVIATIONS


def trim(text: str, span: Span) -> Span:
    """The span without white space at its ends."""
    part = text[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    return start, start + len(part.strip())
