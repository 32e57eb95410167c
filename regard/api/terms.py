"""Terms: source words that must become given target words.

A sentence whose translation misses a term is searched again for translations with its terms (decode/terms.py): first
with each term in place of the words that attended to its source words, then, if no such translation ends, anywhere. The
candidates are ranked by the model's score and by the attention of the terms to their source words.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.api.drafts import Draft
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.hypothesis import Hypothesis
from regard.decode.terms import Term
from regard.errors import DataError, brief, counted
from regard.files.segment import Link
from regard.symbols import UNKNOWN
from regard.text.languages import without_region
from regard.text.lines import read_lines
from regard.text.normalise import Rewritten, rewrite

SLACK = 4  # tokens by which a translation may grow besides its terms
MOVE = 1  # tokens by which a term may begin before or after the words that it replaces: its article may change
LEAST = 1e-4  # smaller weights count as this
MOST_TERMS = 100_000
MOST_IN_SENTENCE = 20
_VOWELS = "aàâäeéèêëiîïoôöœuùûüy"
_ELIDED = {"fr": "le|la|de|je|me|te|se|ne|ce|que|jusque|lorsque|puisque|quoique", "it": "lo|la|di"}  # before a vowel
TermPairs = Mapping[str, str] | Sequence[tuple[str, str]]
Rewrite = Callable[[str], Rewritten]
Ids = list[int]
Found = tuple[tuple[int, int], str, str]  # where a term stands in a sentence, its source and its target words
Spelled = list[tuple[tuple[int, int], Ids]]  # where each term stands in a sentence, and its tokens (none: unknown)
# Rows of source ids, what their translations must hold, and the tokens that would continue the word before them.
SearchAgain = Callable[[list[Ids], list["Placement"], Ids], list[list[Hypothesis]]]
# Source and target ids of each sentence -> its weights [T, S].
ReadWeights = Callable[[list[Ids], list[Ids]], list[NDArray[np.float32]]]


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Terms from a file: source, tab, target on each line. Empty lines and lines that begin with # are left out.

    Source words with two different targets are refused.
    """
    terms: list[tuple[str, str]] = []
    first: dict[str, tuple[str, int]] = {}  # source words -> their target words, and the line that says so
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise DataError(
                f"{path}, line {number}: a term needs source words, a tab, and target words; got "
                f"{counted(len(parts), 'column')}{'' if all(parts) else ', one of them empty'}."
            )
        target, before = first.setdefault(parts[0], (parts[1], number))
        if target != parts[1]:
            raise DataError(
                f"{path}, line {number}: {brief(parts[0])} is to become {brief(parts[1])}, but line {before} says "
                f"{brief(target)}; keep one of the two lines."
            )
        terms.append((parts[0], parts[1]))
        if len(terms) > MOST_TERMS:
            raise DataError(f"{path} has more than {MOST_TERMS} terms; split it.")
    if not terms:
        raise DataError(f"{path} has no terms; each line needs source words, a tab, and target words.")
    return terms


class Termbase:
    """Terms that are found in sentences: whole words, the longest first. Lower-case terms ignore case.

    `read` gives source words and sentences in a form in which they are compared, `write` target words as the model
    writes them.
    """

    def __init__(self, terms: TermPairs, read: Rewrite = rewrite, write: Rewrite = rewrite) -> None:
        if isinstance(terms, str) or not isinstance(terms, Iterable):
            raise DataError(f"Terms are a mapping, or pairs of source words and target words; got {terms!r:.80}.")
        pairs = list(terms.items() if isinstance(terms, Mapping) else terms)
        for pair in pairs:
            if len(pair) != 2 or not all(isinstance(words, str) and words.strip() for words in pair):
                raise DataError(f"A term is a pair of source words and target words; got {pair!r:.80}.")
        self._read = read
        stripped = [(source.strip(), write(target.strip()).text) for source, target in pairs]
        self._terms = {read(source).text: (source, target) for source, target in stripped}
        self._first: dict[str, list[str]] = {}  # the first word of a term, in lower case -> terms, the longest first
        for source in sorted(self._terms, key=len, reverse=True):
            self._first.setdefault(_words(source)[0][0].lower() if _words(source) else source, []).append(source)

    def find(self, sentence: str) -> list[Found]:
        """The terms of a sentence in order: where each stands, its source and its target words."""
        found = []
        reached = 0
        text = self._read(sentence)
        for word, start in _words(text.text):
            if start < reached:
                continue
            for source in self._first.get(word.lower(), ()):
                end = start + len(source)
                part, after = text.text[start:end], text.text[end : end + 1]
                same = part == source or (source == source.lower() and part.lower() == source)
                if same and text.is_whole(start, end) and not (after.isalnum() and source[-1].isalnum()):
                    reached = end
                    found.append((text.original(start, end), *self._terms[source]))
                    break
        return found[:MOST_IN_SENTENCE]


def _words(text: str) -> list[tuple[str, int]]:
    return [(match[0], match.start()) for match in re.finditer(r"\w+|[^\w\s]", text)]


class Placement(NamedTuple):
    """One way to place the terms of a sentence."""

    terms: list[Term]
    prefix: Ids = []  # noqa: RUF012 # the plain translation up to the word before the first term
    replaced: frozenset[int] = frozenset()  # tokens that may not be written


class _Wanted:
    """A sentence and the terms that its translation must hold."""

    def __init__(self, draft: Draft, terms: list[Found], vocabulary: Vocabulary, begins: Ids) -> None:
        self.draft, self.terms, self.vocabulary = draft, terms, vocabulary
        self.begins = begins  # what its translation must begin with
        self.spelled: Spelled = []  # known once a term is missing
        self.whole: list[Hypothesis] = []  # translations that hold the terms

    @property
    def plain(self) -> Hypothesis:
        """The best translation so far."""
        return self.draft.found[0]

    @property
    def size(self) -> int:
        """Tokens of all terms that the vocabulary can write."""
        return sum(len(ids) for _, ids in self.spelled)

    def missing(self, translation: Hypothesis) -> list[Found]:
        """The terms that a translation does not have as often as its source."""
        return _without(self.terms, self.vocabulary.decode(translation.ids)) if self.terms else []

    def take(self, found: list[Hypothesis]) -> None:
        """Keep the hypotheses with all terms that can be written, unless an earlier placement had some."""
        if self.whole:
            return
        unknown = sum(not ids for _, ids in self.spelled)
        # A translation that starts over after a term is longer than the plain one and its terms.
        longest = len(self.plain.ids) + self.size + SLACK
        fit = (hypothesis for hypothesis in found if hypothesis.finished and len(hypothesis.ids) <= longest)
        self.whole = [hypothesis for hypothesis in fit if len(self.missing(hypothesis)) <= unknown]

    def anywhere(self, weights: object = None) -> list[Placement]:
        """The terms in any place."""
        return [Placement([Term(tuple(ids), len(self.begins)) for _, ids in self.spelled if ids], self.begins)]

    def in_place(self, weights: NDArray[np.float32]) -> list[Placement]:
        """Each term in place of the words of the plain translation that attended to its source words: weights [T, S].

        The word before may change (the article), and so may everything after. The first placement keeps the token that
        followed, so that the translation continues after the term; a longer word of it may agree with the term (noir,
        noire). The tokens that begin the replaced words may not be written, unless they occur elsewhere, too.
        """
        plain = self.vocabulary.tokenised(self.plain.ids)
        starts = _starts(plain)
        ends = [*starts, len(plain.ids)][1:]  # none of an empty translation
        places = []
        for span, _ in self.spelled:
            columns = _columns(self.draft.encoded, span)
            mass = weights[:, columns].sum(1) if columns else np.zeros(len(weights), np.float32)  # [T]
            masses = [float(mass[a:b].max(initial=0.0)) for a, b in zip(starts, ends, strict=True)]  # of each word
            if not any(masses):
                return self.anywhere()
            first, last = _run(masses, max(range(len(masses)), key=masses.__getitem__))
            if starts[first] < len(self.begins):  # what it would replace is given
                return self.anywhere()
            places.append((starts[first], ends[last]))
        begin = min(start for start, _ in places)
        prefix = plain.ids[: max(len(self.begins), max((at for at in starts if at < begin), default=0))]
        alone, followed, replaced = [], [], set[int]()
        for (_, ids), (start, end) in zip(self.spelled, places, strict=True):
            if not ids:
                continue
            # What other terms before it add to the translation, and take from it.
            grown = [len(other) - (b - a) for (_, other), (a, b) in zip(self.spelled, places, strict=True) if a < start]
            less, more = (sum(max(0, sign * size) for size in grown) for sign in (-1, 1))
            word = {plain.ids[at] for at in starts if start <= at < end} - {*plain.ids[:start], *plain.ids[end:]}
            replaced |= word
            # If the first token cannot be banned, a term that moves would follow the beginning of what it replaces.
            moved = MOVE if plain.ids[start] in word else 0
            reach = max(len(prefix), min(start, 1), start - MOVE - less), start + moved + more
            alone.append(Term(tuple(ids), *reach))
            followed.append(Term((*ids, *plain.ids[end : end + 1]), *reach, open=end < len(plain.ids)))
        banned = frozenset(replaced - {token for _, ids in self.spelled for token in ids})
        return [Placement(followed, prefix, banned), Placement(alone, prefix, banned)]

    def choose(self, weigh: ReadWeights) -> None:
        """Replace the translations by those with the terms, the best first: by score plus the logarithm of the weight
        that each term gives to its source words. A term in another place is worth as little as a word that is hardly
        possible there."""
        read = self.draft.encoded
        attention = weigh([read.ids] * len(self.whole), [hypothesis.ids for hypothesis in self.whole])
        rated = []
        for hypothesis, weights in zip(self.whole, attention, strict=True):  # weights [T, S]
            ids, attended = hypothesis.ids, 0.0
            for span, term in self.spelled:
                places = [at for at in range(len(ids)) if term and ids[at : at + len(term)] == term]
                columns = _columns(read, span)
                if places and columns and weights.any():
                    mass = max(float(weights[at : at + len(term), columns].sum(1).max()) for at in places)
                    attended += math.log(max(mass, LEAST))
            rated.append(hypothesis.score + attended)
        order = sorted(range(len(rated)), key=rated.__getitem__, reverse=True)
        self.draft.found = [self.whole[at] for at in order] or self.draft.found


def place_terms(
    terms: Termbase, drafts: Sequence[Draft], prefixes: Sequence[Ids] | None, vocabulary: Vocabulary,
    search: SearchAgain, weigh: ReadWeights,
) -> None:  # fmt: skip
    """Replace the translations of every sentence that misses terms, and list the terms that could not be placed.

    A translation that must begin with a prefix keeps it: terms that are not in it follow it.
    """
    begins = prefixes or [[] for _ in drafts]
    sentences = [
        _Wanted(draft, terms.find(draft.words), vocabulary, begin) for draft, begin in zip(drafts, begins, strict=True)
    ]
    waiting = [sentence for sentence in sentences if sentence.missing(sentence.plain)]
    for sentence in waiting:
        left = _without(sentence.terms, vocabulary.decode(sentence.begins))
        sentence.spelled = [(span, _spell(target, vocabulary)) for span, _, target in left]
    joined = _joined(vocabulary) if waiting else []
    for ways in (_Wanted.in_place, _Wanted.anywhere):
        waiting = [sentence for sentence in waiting if sentence.size and not sentence.whole]
        pairs = [sentence.draft.encoded.ids for sentence in waiting], [sentence.plain.ids for sentence in waiting]
        weighed = zip(waiting, weigh(*pairs), strict=True)
        tries = [(sentence, way) for sentence, weights in weighed for way in ways(sentence, weights)]
        rows = [sentence.draft.encoded.ids for sentence, _ in tries]
        results = search(rows, [way for _, way in tries], joined)
        for (sentence, _), hypotheses in zip(tries, results, strict=True):
            sentence.take(hypotheses)
        for sentence in waiting:
            sentence.choose(weigh)
    for sentence in sentences:
        lost = (f"{source} → {target}" for _, source, target in sentence.missing(sentence.plain))
        sentence.draft.unplaced = list(dict.fromkeys(lost))


def elide(text: str, terms: Termbase, source: str, language: str) -> str:
    """The translation with the words before its terms elided, as in l'automobile: the tokens of a term begin a word, so
    that the model cannot write the short form itself."""
    words = _ELIDED.get(without_region(language))
    for _, _, target in terms.find(source) if words else ():
        if target[:1].lower() in _VOWELS:
            text = re.sub(
                rf"(?<!\w)({words})\s+(?={re.escape(target)}(?!\w))",
                lambda found: found[1][:-1] + "'",
                text,
                flags=re.IGNORECASE,
            )
    return text


def link_terms(terms: Termbase, source: str, target: str, links: tuple[Link, ...]) -> tuple[Link, ...]:
    """The links of a sentence, where each term that stands in its translation is linked with its source words alone."""
    given: list[Link] = []
    for span, _, words in terms.find(source):
        # Not in the case-folded text, which may be longer.
        places = (match.span() for match in re.finditer(_whole(words), target, re.IGNORECASE))
        place = next((place for place in places if all(place != link.target for link in given)), None)
        given += [Link(span, place)] if place else []

    def free(link: Link) -> bool:
        sides = ((mine, its) for term in given for mine, its in zip(term[:2], link[:2], strict=True))
        return not any(mine[0] < its[1] and its[0] < mine[1] for mine, its in sides)

    return (*filter(free, links), *given)


def _without(terms: list[Found], text: str) -> list[Found]:
    """The terms that a text does not have: of those that occur several times, the last ones."""
    counts = {target: len(_places(text.casefold(), target)) for _, _, target in terms}
    left = []
    for term in terms:
        counts[term[2]] -= 1
        if counts[term[2]] < 0:
            left.append(term)
    return left


def _spell(target: str, vocabulary: Vocabulary) -> Ids:
    """The tokens of a term inside a sentence; none if the vocabulary cannot write it."""
    begins = vocabulary.encode("a").ids
    for spelled in (target, f" {target}"):  # a vocabulary of characters writes the space itself
        ids = vocabulary.encode(spelled).ids
        if ids and UNKNOWN not in ids and _places(vocabulary.decode([*begins, *ids]).casefold(), target):
            return ids
    return []


def _joined(vocabulary: Vocabulary) -> Ids:
    """The tokens that continue the word before them."""
    before = vocabulary.encode("a").ids
    size = len(vocabulary.decode(before))
    if vocabulary.kind == "word":
        return []
    tokens = ((index, vocabulary.decode([*before, index])[size:]) for index in range(UNKNOWN + 1, len(vocabulary)))
    return [index for index, text in tokens if text[:1].isalnum()]


def _columns(encoded: Tokenised, span: tuple[int, int]) -> list[int]:
    """The tokens of a part of the source."""
    return [at for at, (a, b) in enumerate(encoded.spans) if a < span[1] and b > span[0] and a < b]


def _run(values: list[float], at: int) -> tuple[int, int]:
    """The first and last of the words around `at` that have at least half of its weight."""
    first = last = at
    while first > 0 and values[first - 1] >= 0.5 * values[at]:
        first -= 1
    while last + 1 < len(values) and values[last + 1] >= 0.5 * values[at]:
        last += 1
    return first, last


def _starts(written: Tokenised) -> list[int]:
    """The tokens that begin a word or a mark."""
    shown, words = [written.text[a:b].strip() for a, b in written.spans], written.words
    return [
        at
        for at in range(len(shown))
        if at == 0 or words[at] != words[at - 1] or not shown[at][:1].isalnum() or not shown[at - 1][-1:].isalnum()
    ]


def _places(text: str, words: str) -> list[int]:
    """Where words stand in a text, which is case-folded."""
    return [match.start() for match in re.finditer(_whole(words.casefold()), text)]


def _whole(words: str) -> str:
    """A pattern for these words, not for a part of longer ones."""
    return rf"(?<!\w){re.escape(words)}(?!\w)"
