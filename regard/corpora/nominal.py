"""Noun phrases of the phrasebook: articles, adjectives that change place, possessors, agreement."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from regard.corpora import WORDS
from regard.corpora.lexicon import FITTING, NOUNS, Adjective, Noun, plural
from regard.corpora.marks import Mark, Phrase, Word, de, mark

JE, TU, IL, NOUS, ILS = range(5)

_TABLES = WORDS["phrasebook"]["determiners"]
_POSSESSIVES, _NUMBERS = _TABLES["possessives"], _TABLES["numbers"]
_FORMS = _TABLES["forms"] | _POSSESSIVES
_SINGULAR = ("the", "the", "the", "a", "a", "this", "every", *_POSSESSIVES)
_PLURAL = ("the", "the", "the", "some", "some", "these", "many", *_POSSESSIVES, *_NUMBERS)
_MASS = ("the", "the", "some", "some", "this", *_POSSESSIVES)


@dataclass
class Nominal:
    """A noun phrase or pronoun, and what agrees with it."""

    phrase: Phrase
    person: int  # JE, TU, IL, NOUS or ILS
    feminine: bool
    kind: str

    @property
    def plural(self) -> bool:
        return self.person in (NOUS, ILS)


def agree(masculine: str, feminine: str, nominal_feminine: bool, nominal_plural: bool) -> str:
    """The form of an adjective or participle that agrees."""
    form = feminine if nominal_feminine else masculine
    return plural(form) if nominal_plural else form


def participle(form: str, nominal: Nominal | None) -> str:
    """A participle that agrees with `nominal`, or with nothing."""
    return agree(form, form + "e", nominal.feminine, nominal.plural) if nominal else form


def pronoun(draw: random.Random) -> Nominal:
    """A subject pronoun. English does not show the gender of I, you, we, they: all are masculine, you is tu."""
    english, french, person = draw.choice(WORDS["phrasebook"]["pronouns"]["subjects"])
    word = Word(english)
    entry = Mark(french, (word,), "j'" if french == "je" else "")
    return Nominal(Phrase([word], [entry]), person, french == "elle", "person")


def simple(draw: random.Random, kinds: Sequence[str], negated: bool = False, adjectives: int = 2) -> Nominal:
    """Determiner, adjectives and noun. `negated`: the object of a negated verb, where un and des become de."""
    noun = draw.choice(NOUNS[draw.choice(kinds)])
    many = noun.kind != "mass" and draw.random() < 0.4
    choices = _MASS if noun.kind == "mass" else _PLURAL if many else _SINGULAR
    name = draw.choice(choices)
    if negated and name == "some":
        name = "any"
    chosen = _describe(draw, noun, adjectives)
    word = Word(name)
    before = any(adjective.before for adjective, _ in chosen)
    article = _determiner(name, word, noun, many, negated, before)
    body = _body(noun, many, chosen)
    if name == "a" and body.english[0].text[0] in "aeiou" and body.english[0].text != "useful":
        word.text = "an"
    return Nominal(Phrase([word], article) + body, ILS if many else IL, noun.feminine, noun.kind)


def generic(draw: random.Random, kinds: Sequence[str]) -> Nominal:
    """A plural without article, spoken of in general: birds -> les oiseaux."""
    noun = draw.choice(NOUNS[draw.choice(kinds)])
    body = _body(noun, True, [])
    article = Mark("les", (body.english[0],), role="article")
    return Nominal(Phrase(body.english, [article, *body.french]), ILS, noun.feminine, noun.kind)


def possessed(draw: random.Random, kinds: Sequence[str]) -> Nominal:
    """the teacher 's red book -> le livre rouge du professeur."""
    owner = simple(draw, ("person",), adjectives=1)
    while owner.plural:
        owner = simple(draw, ("person",), adjectives=1)
    noun = draw.choice(NOUNS[draw.choice(kinds)])
    many = noun.kind != "mass" and draw.random() < 0.3
    body = _body(noun, many, _describe(draw, noun, 1))
    mark_of = Word("'s")
    article = _determiner("the", mark_of, noun, many, False, False)
    english = [*owner.phrase.english, mark_of, *body.english]
    french = [*article, *body.french, de([mark_of]), *owner.phrase.french]
    return Nominal(Phrase(english, french), ILS if many else IL, noun.feminine, noun.kind)


def part_of(draw: random.Random, kinds: Sequence[str]) -> Nominal:
    """the key of the house -> la clé de la maison."""
    head = simple(draw, kinds, adjectives=1)
    whole = simple(draw, ("place", "person"), adjectives=1)
    of = Word("of")
    return Nominal(head.phrase + Phrase([of], [de([of])]) + whole.phrase, head.person, head.feminine, head.kind)


def both(draw: random.Random, kinds: Sequence[str]) -> Nominal:
    """Two joined by and: a plural, feminine only if both are."""
    first, second = simple(draw, kinds, adjectives=1), simple(draw, kinds, adjectives=1)
    joint = Word("and")
    phrase = first.phrase + Phrase([joint], mark("et", [joint])) + second.phrase
    return Nominal(phrase, ILS, first.feminine and second.feminine, first.kind)


def _describe(draw: random.Random, noun: Noun, most: int) -> list[tuple[Adjective, bool]]:
    """Up to `most` adjectives that fit, those that French puts before the noun first; True: with very."""
    chosen: list[tuple[Adjective, bool]] = []
    if most and draw.random() < 0.45:
        fitting = FITTING.get(noun.kind, [])
        if fitting:
            first = draw.choice(fitting)
            chosen.append((first, draw.random() < 0.15))
            after = [adjective for adjective in fitting if not adjective.before]
            if most > 1 and first.before and after and draw.random() < 0.3:
                chosen.append((draw.choice(after), False))
    return chosen


def _body(noun: Noun, many: bool, chosen: list[tuple[Adjective, bool]]) -> Phrase:
    """Adjectives and noun, each adjective at its French place."""
    english: list[Word] = []
    ahead: list[Mark] = []
    behind: list[Mark] = []
    for adjective, very in chosen:
        side = ahead if adjective.before else behind
        if very:
            english.append(Word("very"))
            side += mark("très", [english[-1]])
        english.append(Word(adjective.english))
        form = agree(adjective.masculine, adjective.feminine, noun.feminine, many)
        vowel = adjective.before_vowel if adjective.before and not noun.feminine and not many else ""
        side.append(Mark(form, (english[-1],), vowel))
    english.append(Word(noun.english[many]))
    return Phrase(english, [*ahead, *mark(noun.french[many], [english[-1]]), *behind])


def _determiner(name: str, word: Word, noun: Noun, many: bool, negated: bool, before: bool) -> list[Mark]:
    linked = (word,)
    the = Mark("la" if noun.feminine else "le", linked, "l'", "article")
    if name == "the":
        return [Mark("les", linked, role="article") if many else the]
    if name == "any" or (name == "a" and negated):
        return [de(linked, role="")]
    if name == "some":
        if noun.kind == "mass":
            return [de(linked, "partitive"), the]
        return [de(linked, "partitive") if before else Mark("des", linked, role="partitive")]
    if name == "many":
        return [*mark("beaucoup", linked), de(linked, role="")]
    if name in _NUMBERS:
        return mark(_NUMBERS[name], linked)
    masculine, feminine, several, *before_vowel = _FORMS[name].split(" ")
    if many:
        return [Mark(several, linked)]
    return [Mark(feminine if noun.feminine else masculine, linked, before_vowel[noun.feminine])]
