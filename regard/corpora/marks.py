"""A sentence in both languages: English words, and French words with links to the English words they translate.

The spelling of French depends on the next word: le + homme is l'homme, de + le is du, vieux + ami is vieil ami. So a
French word is first a `Mark` with both forms, and `spell` chooses when the sentence is complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from regard.corpora import Example
from regard.corpora.lexicon import begins_with_vowel


@dataclass(eq=False)
class Word:
    """An English word; equal spellings are still different words."""

    text: str


@dataclass
class Mark:
    """A French word before spelling. `role` is article, partitive, preposition (de or à), si, or empty."""

    text: str
    sources: tuple[Word, ...]
    before_vowel: str = ""  # empty: the same
    role: str = ""


@dataclass
class Phrase:
    """A piece of a sentence in both languages."""

    english: list[Word]
    french: list[Mark]

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.english + other.english, self.french + other.french)

    def __len__(self) -> int:
        return len(self.english)


def say(english: str, french: str) -> Phrase:
    """A fixed phrase, every word of one language linked to every word of the other; `que` may elide."""
    words = [Word(text) for text in english.split(" ")]
    return Phrase(words, mark(french, words))


def mark(french: str, sources: Iterable[Word]) -> list[Mark]:
    """French words that all translate `sources`."""
    linked = tuple(sources)
    return [Mark(text, linked, "qu'" if text == "que" else "") for text in french.split(" ")]


def de(sources: Iterable[Word], role: str = "preposition") -> Mark:
    """The word de, which elides, and as a preposition joins with an article."""
    return Mark("de", tuple(sources), "d'", role)


def example(phrase: Phrase) -> Example:
    """The finished pair with its alignment."""
    places = {id(word): place for place, word in enumerate(phrase.english)}
    spelled = spell(phrase.french)
    links = {(places[id(word)], place) for place, entry in enumerate(spelled) for word in entry.sources}
    source = " ".join(word.text for word in phrase.english)
    return Example(source, " ".join(entry.text for entry in spelled), tuple(sorted(links)))


def spell(marks: list[Mark]) -> list[Mark]:
    """Apply elision and contraction, from the last word to the first."""
    spelled: list[Mark] = []
    for entry in reversed(_drop_partitives(marks)):
        following = spelled[-1] if spelled else Mark(".", ())
        text = entry.text
        if entry.role == "si":
            text = "s'" if following.text in ("il", "ils") else text
        elif entry.before_vowel and begins_with_vowel(following.text):
            text = entry.before_vowel
        joined = _CONTRACTIONS.get((text, following.text))
        if joined and entry.role in ("preposition", "partitive") and following.role == "article":
            spelled[-1] = Mark(joined, tuple(dict.fromkeys(entry.sources + following.sources)))
        else:
            spelled.append(Mark(text, entry.sources, role=entry.role))
    return spelled[::-1]


_CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def _drop_partitives(marks: list[Mark]) -> list[Mark]:
    """Drop the partitive (des, du, de la) after the preposition de: besoin de + de l'eau is besoin d'eau."""
    kept: list[Mark] = []
    dropping = False
    for entry in marks:
        after_de = bool(kept) and kept[-1].text == "de" and kept[-1].role == "preposition"
        if after_de and (entry.role == "partitive" or (dropping and entry.role == "article")):
            before = kept[-1]
            kept[-1] = Mark(before.text, before.sources + entry.sources, before.before_vowel, before.role)
            dropping = True
            continue
        dropping = False
        kept.append(entry)
    return kept
