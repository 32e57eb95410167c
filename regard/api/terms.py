"""Terms: source words that must become given target words.

The search is run again with the term forced where the model translated those source words: the words of the translation
that attended to them most are candidates, the beginning before each of them plus the term is a prefix, and of the
continuations the best one by the model's own score stays. Several terms are placed from left to right.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.files import read_lines
from regard.data.vocabulary import Tokenised, Vocabulary
from regard.decode.hypothesis import Hypothesis
from regard.errors import DataError
from regard.symbols import UNKNOWN

CANDIDATES = 3  # places that are tried for a term
SLACK = 4  # tokens that a translation may grow beside the term
CLEAR = 0.7  # a place needs this share of the largest weight
MOST_TERMS = 100_000
MOST_IN_SENTENCE = 20
Terms = Mapping[str, str] | Sequence[tuple[str, str]]
Ids = list[int]
Search = Callable[[list[Ids], list[Ids]], list[list[Hypothesis]]]  # rows of source ids, and a prefix for each
Weigh = Callable[[list[Ids], list[Ids]], list[NDArray[np.float32]]]  # source and target ids -> weights [T, S] of each


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Terms from a file: source, tab, target on each line. Empty lines and lines that begin with # are left out."""
    terms = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) < 2 or not parts[0] or not parts[1]:
            raise DataError(f"{path}, line {number}: a term needs source words, a tab, and target words.")
        terms.append((parts[0], parts[1]))
        if len(terms) > MOST_TERMS:
            raise DataError(f"{path} has more than {MOST_TERMS} terms; split it.")
    if not terms:
        raise DataError(f"{path} has no terms; each line needs source words, a tab, and target words.")
    return terms


class Termbase:
    """Terms that are found in sentences: whole words, the longest first. Lower-case terms ignore case."""

    def __init__(self, terms: Terms) -> None:
        pairs = list(terms.items() if isinstance(terms, Mapping) else terms)
        for pair in pairs:
            if len(pair) != 2 or not all(isinstance(one, str) and one.strip() for one in pair):
                raise DataError(f"A term is a pair of source words and target words; got {pair!r:.80}.")
        self._terms = {source.strip(): target.strip() for source, target in pairs}
        self._first: dict[str, list[str]] = {}  # the first word of a term, in lower case -> terms, the longest first
        for source in sorted(self._terms, key=len, reverse=True):
            self._first.setdefault(_words(source)[0][0].lower() if _words(source) else source, []).append(source)

    def find(self, sentence: str) -> list[tuple[tuple[int, int], str, str]]:
        """The terms of a sentence in order: where each stands, its source and its target words."""
        found = []
        reached = 0
        for word, start in _words(sentence):
            if start < reached:
                continue
            for source in self._first.get(word.lower(), ()):
                part = sentence[start : start + len(source)]
                after = sentence[start + len(source) : start + len(source) + 1]
                same = part == source or (source == source.lower() and part.lower() == source)
                if same and not (after.isalnum() and source[-1].isalnum()):
                    reached = start + len(source)
                    found.append(((start, reached), source, self._terms[source]))
                    break
        return found[:MOST_IN_SENTENCE]


def _words(text: str) -> list[tuple[str, int]]:
    return [(match[0], match.start()) for match in re.finditer(r"\w+|[^\w\s]", text)]


@dataclass
class Wanted:
    """A sentence with terms: what is placed of its translation, and what is not."""

    number: int
    encoded: Tokenised
    found: list[Hypothesis]
    left: list[tuple[tuple[int, int], str, str]]
    fixed: Ids = field(default_factory=list)  # the beginning of the translation up to the last term placed
    unplaced: list[str] = field(default_factory=list)


def place_terms(
    terms: Termbase,
    sentences: Sequence[str],
    encoded: Sequence[Tokenised],
    found: list[list[Hypothesis]],
    vocabulary: Vocabulary,
    search: Search,
    weigh: Weigh,
) -> list[list[str]]:
    """Replace the hypotheses `found` of every sentence that has terms; the terms that could not be placed are given
    for each sentence."""
    unplaced: list[list[str]] = [[] for _ in sentences]
    waiting = [
        Wanted(number, encoded[number], found[number], terms.find(sentence))
        for number, sentence in enumerate(sentences)
    ]
    waiting = [one for one in waiting if one.left]
    every = list(waiting)
    while waiting:
        for one in waiting:
            _strike(one, vocabulary)
        waiting = [one for one in waiting if one.left]
        pairs = [(one.encoded.ids, one.found[0].ids) for one in waiting]
        weights = weigh([source for source, _ in pairs], [target for _, target in pairs])
        tries: list[tuple[Wanted, str, Ids]] = []
        for one, seen in zip(waiting, weights, strict=True):
            tries += _candidates(one, seen, vocabulary)
        results = search([one.encoded.ids for one, _, _ in tries], [prefix for _, _, prefix in tries])
        best: dict[int, tuple[tuple[bool, bool, float], Ids, list[Hypothesis]]] = {}
        for (one, target, prefix), hypotheses in zip(tries, results, strict=True):
            longest = len(one.found[0].ids) + len(vocabulary.encode(target).ids) + SLACK
            whole = [each for each in hypotheses if _has(vocabulary.decode(each.ids), target)]
            # A translation that starts over behind the term is worse than any that ends.
            rated = [((each.finished, len(each.ids) <= longest, each.score), each) for each in whole]
            rated.sort(key=lambda pair: pair[0], reverse=True)
            if rated and (one.number not in best or rated[0][0] > best[one.number][0]):
                best[one.number] = rated[0][0], prefix, [each for _, each in rated]
        for one in waiting:
            _, source, target = one.left.pop(0)
            if one.number in best:
                _, one.fixed, one.found = best[one.number]
            else:
                one.unplaced.append(f"{source} → {target}")
        waiting = [one for one in waiting if one.left]
    for one in every:
        text = vocabulary.decode(one.found[0].ids)
        lost = [
            f"{source} → {target}" for _, source, target in terms.find(sentences[one.number]) if not _has(text, target)
        ]
        found[one.number], unplaced[one.number] = one.found, list(dict.fromkeys([*one.unplaced, *lost]))
    return unplaced


def _strike(one: Wanted, vocabulary: Vocabulary) -> None:
    """Leave out the terms that the translation has already, as often as it has them."""
    text = vocabulary.decode(one.found[0].ids).casefold()
    placed = vocabulary.decode(one.fixed).casefold()
    counts: dict[str, int] = {}
    for _, _, target in one.left:
        counts.setdefault(target, len(_places(text, target)) - len(_places(placed, target)))
    kept = []
    for term in one.left:
        counts[term[2]] -= 1
        if counts[term[2]] < 0:
            kept.append(term)
    one.left = kept


def _candidates(one: Wanted, weights: NDArray[np.float32], vocabulary: Vocabulary) -> list[tuple[Wanted, str, Ids]]:
    """The prefixes to try for the term that was translated first; it becomes the first of those left."""
    ids = one.found[0].ids
    starts = [at for at in _starts(vocabulary.tokenised(ids)) if at >= len(one.fixed)] + [len(ids)]
    ends = [*starts[1:], len(ids) + 1]
    rated = []
    for place, (span, _, _) in enumerate(one.left):
        columns = [at for at, (a, b) in enumerate(one.encoded.spans) if a < span[1] and b > span[0] and a < b]
        mass = weights[:, columns].sum(1) if columns else np.zeros(len(weights), np.float32)  # [T]
        each = [float(mass[a:b].max(initial=0.0)) for a, b in zip(starts, ends, strict=True)]
        if not any(each):  # no attention: the same place in the sentence
            expected = span[0] / max(1, len(one.encoded.text)) * len(ids)
            each = [1 / (1 + abs(at - expected)) for at in starts]
        order = sorted(range(len(starts)), key=lambda at: -each[at])
        # Where attention is not clear, the model's score decides; it may not prefer a place that has hardly any.
        near = [at for at in order[:CANDIDATES] if each[at] >= CLEAR * each[order[0]]]
        runs = [_run(each, at) for at in near]
        rated.append((starts[runs[0][0]], place, [(starts[a], min(ends[b], len(ids))) for a, b in dict.fromkeys(runs)]))
    _, place, chosen = min(rated)
    one.left.insert(0, one.left.pop(place))
    target = one.left[0][2]
    found = []
    for at, after in chosen:
        for spelled in (target, f" {target}"):  # a vocabulary of characters writes the space itself
            term = vocabulary.encode(spelled).ids
            if UNKNOWN not in term and term and _has(vocabulary.decode([*ids[:at], *term]), target):
                # Freely, or with what followed the word that the term replaces.
                found.append((one, target, [*ids[:at], *term]))
                if after < len(ids):
                    found.append((one, target, [*ids[:at], *term, ids[after]]))
                break
    return found


def _run(values: list[float], at: int) -> tuple[int, int]:
    """The first and last of the words around `at` that have at least half of its weight."""
    first = last = at
    while first > 0 and values[first - 1] >= 0.5 * values[at] > 0:
        first -= 1
    while last + 1 < len(values) and values[last + 1] >= 0.5 * values[at] > 0:
        last += 1
    return first, last


def _starts(written: Tokenised) -> list[int]:
    """The tokens that begin a word or a mark."""
    shown = [written.text[a:b].strip() for a, b in written.spans]
    return [
        at
        for at in range(len(shown))
        if at == 0
        or written.words[at] != written.words[at - 1]
        or not shown[at][:1].isalnum()
        or not shown[at - 1][-1:].isalnum()
    ]


def _places(text: str, words: str) -> list[int]:
    pattern = rf"(?<!\w){re.escape(words.casefold())}(?!\w)"
    return [match.start() for match in re.finditer(pattern, text)]


def _has(text: str, words: str) -> bool:
    return bool(_places(text.casefold(), words))


def copy_unknown(
    text: str,
    encoded: Tokenised,
    ids: Ids,
    weights: NDArray[np.float32],
    vocabulary: Vocabulary,
    lexicon: Mapping[str, str],
) -> str:
    """The translation `ids` with each unknown word replaced by the source word that has its largest weight, or by what
    the lexicon says for that (Luong et al. 2015, section 3.3)."""
    pieces: list[str] = []
    for at, index in enumerate(ids):
        if index != UNKNOWN:
            continue
        seen = weights[at, : len(encoded.ids)]
        if not seen.any():  # a model with one vector for the whole source does not know
            return vocabulary.decode(ids)
        word = text[slice(*encoded.spans[int(np.argmax(seen))])].strip()
        pieces.append(lexicon.get(word, lexicon.get(word.lower(), word)))
    # A stand-in for each unknown word, so that white space is written as the vocabulary writes it.
    parts = vocabulary.decode(ids).split(vocabulary.pieces([UNKNOWN])[0])
    if len(parts) != len(pieces) + 1:
        return vocabulary.decode(ids)
    return "".join(part + word for part, word in zip(parts, [*pieces, ""], strict=True))
