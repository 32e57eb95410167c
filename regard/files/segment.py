"""The parts of every file format: text that stays unchanged, and segments to translate.

A segment is a run of words without its inline tags. The model translates the words only; `place_tags` puts the tags
around the words of the translation.

Placeholders of programs are protected too, so that each occurs exactly once in the translation: `%s`, `%(name)s`,
`%1$s` (C, Python, PHP), `{name}`, `{0}`, `{{x}}`, `${x}`, `#{x}`, `<%= x %>` (templates), and ICU messages such as
`{count, plural, one {# file} other {# files}}`, which are kept whole. Placeholders without a name or number depend on
their order, so it never changes. Web and e-mail addresses are protected too, since a model may change their letters,
and so are numbers of 50 digits and more.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from regard.text.sentences import Span, has_words, sentences_of_lines, split_clauses, split_words
from regard.text.visible import BLANKS

# open and close: a pair; void: markup without a partner, in the order of the source; word: a named placeholder, which
# may move freely; argument: a placeholder identified by its order (%s); break: replaces white space.
Kind = Literal["open", "close", "void", "word", "argument", "break"]

MOST_PAIRS = 200  # in a segment; the tags of further pairs keep the order of the source, so that time stays linear
_CLOSERS = ".,;:!?…)]}»”’%"
_OPENERS = "([{«“‘¿¡"
SPACED = ("?", "!", ";", ":", "»")  # marks before which some languages write a space, French a no-break space
# Soft hyphens, joints of words and marks of direction; models read none of them. Those that change letters (U+200C and
# U+200D) stay.
_UNSEEN = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]+")
_SPACES = re.compile(r"[ \t\r\n\f]+")


class Tag(NamedTuple):
    """A tag or placeholder, verbatim, and its position: before code point `at` of the words."""

    raw: str
    at: int
    kind: Kind
    partner: int = -1  # the number of the other tag of the pair
    before: bool = False  # whether there was white space before and after it, which is not part of the words
    after: bool = False


def as_it_is(text: str) -> str:
    """The text itself, for formats without escapes."""
    return text


class Segment(NamedTuple):
    """Words to translate.

    `inner` is the source as written in the file. The output is `wrap(inner of the translation)`, whose words were
    escaped with `escape`.
    """

    text: str
    tags: tuple[Tag, ...]
    inner: str
    escape: Callable[[str], str] = as_it_is
    wrap: Callable[[str], str] = as_it_is


Part = str | Segment


class Review(NamedTuple):
    """How the new translations of a PO or XLIFF file are marked."""

    fuzzy: bool = True  # for review, all of them
    least: float | None = None  # or only those with a smaller confidence
    written: bool = False  # whether the file says what the confidence of each is
    rated: Sequence[tuple[int, float]] = ()  # the character of the file at which each begins, and its confidence

    def sure(self, begin: int, end: int) -> float | None:
        """The smallest confidence of the translations that begin in [begin, end)."""
        first, last = (bisect_left(self.rated, (at, -1.0)) for at in (begin, end))
        return min((sure for _, sure in self.rated[first:last]), default=None)

    def marks(self, begin: int, end: int) -> bool:
        """Whether what begins there needs a review."""
        sure = self.sure(begin, end)
        return self.fuzzy if self.least is None else sure is None or sure < self.least


REVIEW = Review()


class Link(NamedTuple):
    """A word link: a span of a text and one of its translation."""

    source: Span
    target: Span
    weight: float = 0.0  # of attention; 0 for other links


def chain_links(first: Sequence[Link], second: Sequence[Link]) -> tuple[Link, ...]:
    """The links of a translation of a translation: those that meet in a word of the text between them."""
    return tuple(
        Link(one.source, other.target, one.weight * other.weight)
        for other in second
        for one in first
        if one.target[0] < other.source[1] and other.source[0] < one.target[1]
    )


class Sentence(NamedTuple):
    """The translation of a sentence, and the word links."""

    text: str
    links: tuple[Link, ...] = ()


class Aligned(NamedTuple):
    """The translation of a segment, with its sentences and word links as spans of the whole texts."""

    text: str
    sentences: list[tuple[Span, Span]]
    links: list[Link]


# --- placeholders
_FIELD = r"%(?P<numbered>\d+\$|\([^()\s%]{1,80}\))?[-+#0'{space}]*+(?:\*|\d++)?+(?:\.(?:\*|\d++))?+(?:hh|ll|[hlqLjzt])?"
_UNIT = r"(?:(?<=[dfgi])(?:%%|[a-zA-Z]{1,2}(?![a-zA-Z])))?"  # %.3fs and %d%% are one placeholder
SIZED = r"<PRI[a-zA-Z0-9]{1,12}>"  # gettext's form of C's "%" PRIuMAX
_PRINTF = _FIELD.replace("{space}", "") + rf"(?:[ds@]|{SIZED}|(?<=\d)[eEfFgG]|[iouxXeEfFgGcra](?![a-zA-Z])){_UNIT}"
_PERCENT = r"\d[\d.,]{0,40}\s?%%|%%"
# Web and e-mail addresses, absolute paths, @names and #topics.
ADDRESS = re.compile(
    r"(?<!\w)(?i:https?://|www\.)[^\s<>\"]{1,2000}|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
    r"|(?<![\w/.<~])~?(?:/[\w.-]{1,255}){2,32}/?|(?<![\w&@#/])[@#](?=[^\W\d])\w{2,64}(?![\w@#])"
)
# Emoji, with what joins and modifies them, and symbols such as ™ and →.
SYMBOL = re.compile(
    "(?:[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\u00a9\u00ae\u2122]"
    "[\ufe0f\u200d\u20e3\U000e0020-\U000e007f]*)+"
)
_MARKS = ".,;:!?…)]}'’»”"  # at the end of an address, part of the sentence
_DIGITS = r"(?<!\d)\d{50,}"  # not a number that a sentence has; a model would write it digit by digit
_CODE = r"``[^`\n]{1,200}``|`[^`\n]{1,200}`"  # as in messages of programs; few vocabularies have the sign
_OTHERS = rf"{_CODE}|<%|[$#]?\{{|%[A-Z][A-Z_]+%|{SYMBOL.pattern}|{_DIGITS}"
PROTECTED = re.compile(  # what a placeholder or an address begins with
    rf"(?P<address>{ADDRESS.pattern})|(?<![\w%])%%|%(?:prog|default)\b|(?P<printf>(?:(?<!\d)(?<!\d\s)|(?=%[sd](?!\w)|%\.\d)){_PRINTF})|{_OTHERS}"
)
# In a format string every % begins a directive.
_DIRECTIVE = re.compile(
    rf"(?P<address>{ADDRESS.pattern})|{_PERCENT}"
    rf"|(?P<printf>{_FIELD.replace('{space}', ' ')}(?:[a-zA-Z@]|{SIZED}){_UNIT})|{_OTHERS}"
)
# A name or format in single braces; other text in braces is prose.
_NAMED = re.compile(
    r"\{(?:\S*|\s*[\w.-]+\s*(?:,\s*(?:plural|select|selectordinal|number|date|time)\b.*)?|[{%].*)\}", re.S
)
_AROUND = {"<": ">", '"': '"', "'": "'", "(": ")", "[": "]", "«": "»", "“": "”", "‘": "’", "„": "“"}
_INSIDE = re.compile(r"[{}]")
_LONGEST = 2_000  # characters of a placeholder with its braces
_BETWEEN = 3  # characters between two placeholders that are one


def find_placeholders(text: str, directives: bool = False) -> Iterator[tuple[Span, Kind]]:
    """The placeholders of a text in order; those with only punctuation between them, as in %s.%s, are one.

    With `directives`, the text is a printf format string. Time is linear.
    """
    last: tuple[Span, Kind] | None = None
    for (start, end), kind in _each_placeholder(text, directives):
        between = text[last[0][1] : start] if last else " "
        if last and len(between) <= _BETWEEN and not any(one.isalnum() or one.isspace() for one in between):
            last = (last[0][0], end), "argument" if "argument" in (kind, last[1]) else "word"
            continue
        if last:
            yield last
        last = (start, end), kind
    if last:
        yield last


def _each_placeholder(text: str, directives: bool) -> Iterator[tuple[Span, Kind]]:
    at = reached = 0  # of the search, and of the last placeholder
    opened: list[int] = []
    braces: dict[int, int] = {}  # the position of each opening brace -> the end of its closing brace, if it is near
    for brace in _INSIDE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            first = opened.pop()
            if brace.end() - first <= _LONGEST:
                braces[first] = brace.end()
    start_of = _DIRECTIVE if directives else PROTECTED
    while match := start_of.search(text, at):
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
                at = start + 1  # the < of <%s>
                continue
            end = found + 2
        if start > reached and _AROUND.get(text[start - 1]) == text[end : end + 1]:  # "%s" with its quotes
            start, end = start - 1, end + 1
        yield (start, end), kind
        at = reached = end


def find_addresses(text: str) -> list[str]:
    """The web and e-mail addresses of a text, in order."""
    return [match[0].rstrip(_MARKS) for match in ADDRESS.finditer(text)]


class Builder:
    """Collects the words and tags of one segment in the order of the file.

    `collapse` collapses white space to one space, as HTML does. `find` finds the placeholders to protect.
    """

    def __init__(
        self, collapse: bool = False, find: Callable[[str], Iterable[tuple[Span, Kind]]] | None = None
    ) -> None:
        self._collapse, self._find = collapse, find or find_placeholders
        self._words: list[str] = []
        self._size = 0
        self._last = ""  # the last character of the words
        self._tags: list[Tag] = []
        self._names: list[tuple[str, int]] = []  # of the open pairs, and the numbers of their tags
        self._pairs = 0
        self._marked = 0  # the last placeholder or single tag
        self._gap: bool | None = None  # whether white space was before it, as long as only tags have followed

    def words(self, text: str) -> None:
        """Add words, which may contain placeholders."""
        reached = 0
        for (start, end), kind in self._find(text):
            self._add(text[reached:start])
            self.mark(text[start:end], kind)
            reached = end
        self._add(text[reached:])

    def words_around(self, text: str, marks: re.Pattern[str], kind: Kind) -> None:
        """Add words, with the matches of `marks` as tags without a partner."""
        reached = 0
        for found in marks.finditer(text):
            self.words(text[reached : found.start()])
            self.mark(found[0], kind)
            reached = found.end()
        self.words(text[reached:])

    def _add(self, text: str) -> None:
        text = _UNSEEN.sub("", text)
        if self._collapse:
            text = _SPACES.sub(" ", text)
        if self._gap is not None and text:
            # Keep one space around a placeholder with the words, unless it is next to a punctuation mark.
            if text[0] in BLANKS:
                space, text = text[0], text[1:]
                after = text[:1] not in SPACED  # else the space belongs to the mark
                self._tags[self._marked] = self._tags[self._marked]._replace(after=after)
                if self._gap or self._last not in _OPENERS:
                    self._keep(" " if after else space)
            elif self._gap and text[0] not in _CLOSERS:
                self._keep(" ")
            self._gap = None
        if self._collapse and self._last in ("", " ") and text[:1] == " ":
            text = text[1:]
        self._keep(text)

    def _keep(self, text: str) -> None:
        if text:
            self._words.append(text)
            self._size += len(text)
            self._last = text[-1]

    def mark(self, raw: str, kind: Kind) -> None:
        """Add a tag without a partner, or a placeholder."""
        before = self._last == " "
        if before:
            shorter = self._words.pop()[:-1]
            self._size -= len(shorter) + 1
            self._last = self._words[-1][-1] if self._words else ""
            self._keep(shorter)
            for number in range(len(self._tags) - 1, -1, -1):  # tags between the space and the placeholder
                if self._tags[number].at <= self._size:
                    break
                self._tags[number] = self._tags[number]._replace(at=self._size)
        self._marked = len(self._tags)
        self._tags.append(Tag(raw, self._size, kind, before=before))
        self._gap = None if kind == "break" else before or bool(self._gap)
        if kind == "break" and self._words:
            self._keep(" ")

    def open(self, raw: str, name: str) -> None:
        """Add the first tag of a pair; it counts as a single tag until its partner is added."""
        self._names.append((name, len(self._tags)))
        self._tags.append(Tag(raw, self._size, "void"))

    def close(self, raw: str, name: str) -> None:
        """Add the last tag of a pair."""
        number = len(self._tags)
        self._tags.append(Tag(raw, self._size, "void"))
        for depth in range(len(self._names) - 1, max(-1, len(self._names) - 1 - MOST_PAIRS), -1):
            if self._names[depth][0] == name:
                first = self._names[depth][1]
                del self._names[depth:]
                if self._pairs < MOST_PAIRS:
                    self._pairs += 1
                    self._tags[first] = self._tags[first]._replace(kind="open", partner=number)
                    self._tags[number] = self._tags[number]._replace(kind="close", partner=first)
                return

    def build(
        self, inner: str, escape: Callable[[str], str] = as_it_is, wrap: Callable[[str], str] = as_it_is
    ) -> Segment:
        """The finished segment."""
        return Segment("".join(self._words), tuple(self._tags), inner, escape, wrap)


def protect(text: str) -> Segment | None:
    """A sentence without its placeholders and addresses, which become tags; None if it has none."""
    builder = Builder()
    builder.words(text)
    built = builder.build(text)
    return built if built.tags else None


def framed(raw: str, start: int, end: int, built: Segment) -> Iterator[Part]:
    """The segment with the words raw[start:end] and the text around it; only `raw` if there are no words."""
    if not has_words(built.text):
        yield raw
        return
    text = built.text.rstrip(" ")
    tags = tuple(tag._replace(at=min(tag.at, len(text))) for tag in built.tags)
    yield raw[:start]
    yield built._replace(text=text, tags=tags)
    yield raw[end:]


def keep_outer_breaks(built: Segment) -> Segment:
    """The segment whose breaks before its first and after its last word, such as an indent, stay there."""
    ends = 0, len(built.text.rstrip(" "))
    tags = (tag._replace(kind="void") if tag.kind == "break" and tag.at in ends else tag for tag in built.tags)
    return built._replace(tags=tuple(tags))


def take_sentences(text: str, line: int) -> list[Span]:
    """The sentences of a text that have words; those of more than `line` characters are split."""
    found: list[Span] = []
    for span in sentences_of_lines(text):
        found += [part for part in split_clauses(text, span, range(*span), line) if has_words(text[slice(*part)])]
    return found


class Sentences:
    """The sentences of segments, each of at most `line` characters."""

    def __init__(self, segments: Sequence[Segment], line: int) -> None:
        self._segments = [(one, take_sentences(one.text, line)) for one in segments]
        self.owners = [(one, span) for one, spans in self._segments for span in spans]  # the segment of each sentence
        self.texts = [one.text[slice(*span)] for one, span in self.owners]

    def group(self, each: Iterable[Any]) -> list[list[Any]]:
        """Something of every sentence, by segments."""
        rest = iter(each)
        return [[next(rest) for _ in spans] for _, spans in self._segments]

    def join(self, written: Iterable[Sentence]) -> list[Aligned]:
        """The translation of each segment, from the translations of all sentences."""
        pairs = zip(self._segments, self.group(written), strict=True)
        return [join_sentences(one.text, spans, some) for (one, spans), some in pairs]


def join_sentences(text: str, spans: list[Span], written: list[Sentence]) -> Aligned:
    """The text with its sentences replaced by their translations; the text between them stays."""
    parts: list[str] = []
    sentences: list[tuple[Span, Span]] = []
    links: list[Link] = []
    reached = size = 0
    for (start, end), sentence in zip(spans, written, strict=True):
        parts += [text[reached:start], sentence.text]
        links += _kept(text, (reached, start), size)
        at = size + start - reached
        size = at + len(sentence.text)
        sentences.append(((start, end), (at, size)))
        links += [Link((start + a, start + b), (at + c, at + d), weight) for (a, b), (c, d), weight in sentence.links]
        reached = end
    parts.append(text[reached:])
    return Aligned("".join(parts), sentences, links + _kept(text, (reached, len(text)), size))


def _kept(text: str, span: Span, at: int) -> list[Link]:
    """The links of the words between sentences, such as labels, which are at `at` in the translation."""
    return [Link((a, b), (at + a - span[0], at + b - span[0]), 1.0) for a, b in split_words(text, span)]
