"""Verb groups of the phrasebook: tenses, ne ... pas, adverbs, modals, object pronouns before the verb."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.data.builtin.lexicon import CONJUGATIONS, Verb
from regard.data.builtin.marks import Mark, Phrase, Word, mark
from regard.data.builtin.nominal import IL, ILS, JE, NOUS, TU, Nominal, participle

NEGATIVES = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = {"always": "toujours", "often": "souvent", "already": "déjà"}
_MODALS = {"can": "pouvoir", "must": "devoir", "want to": "vouloir", "going to": "aller"}

# object pronouns: person, feminine, English, direct French, French after à
_OBJECTS = (
    (JE, False, "me", "me", "me"),
    (TU, False, "you", "te", "te"),
    (IL, False, "him", "le", "lui"),
    (IL, True, "her", "la", "lui"),
    (NOUS, False, "us", "nous", "nous"),
    (ILS, False, "them", "les", "leur"),
)
_ELIDED = {"me": "m'", "te": "t'", "le": "l'", "la": "l'"}


class Manner(NamedTuple):
    """How something is said: past or present, with which adverb (not, never, always, ... or empty) and modal."""

    past: bool
    adverb: str
    modal: str

    @property
    def negated(self) -> bool:
        return self.adverb in NEGATIVES


class Clitic(NamedTuple):
    """An object pronoun: after the verb in English, before it in French."""

    word: Word
    french: Mark
    direct: Nominal | None  # what a participle agrees with; None for an indirect object


@dataclass
class _French:
    """The French verb group in slots: ne, clitic, finite verb, pas or adverb, and the rest."""

    ne: list[Mark] = field(default_factory=list)
    finite: list[Mark] = field(default_factory=list)
    middle: list[Mark] = field(default_factory=list)
    rest: list[Mark] = field(default_factory=list)


def choose_manner(draw: random.Random, modal: bool = True) -> Manner:
    """Present or past, often plain, sometimes negated or with an adverb or a modal."""
    past = draw.random() < 0.45
    adverb = ""
    if draw.random() < 0.35:
        adverb = draw.choice(["not", "not", "not", "never", "no longer", "always", "often", "already"])
    if modal and not past and adverb in ("", "not", "never") and draw.random() < 0.25:
        return Manner(False, adverb, draw.choice(list(_MODALS)))
    return Manner(past, adverb, "")


def choose_clitic(draw: random.Random, subject: Nominal, indirect: bool) -> Clitic:
    """An object pronoun of another person than the subject."""
    close = {JE: (JE, NOUS), NOUS: (JE, NOUS), TU: (TU,)}.get(subject.person, ())
    person, feminine, english, direct, after_a = draw.choice([entry for entry in _OBJECTS if entry[0] not in close])
    word = Word(english)
    french = after_a if indirect else direct
    nominal = None if indirect else Nominal(Phrase([word], []), person, feminine, "person")
    return Clitic(word, Mark(french, (word,), _ELIDED.get(french, "")), nominal)


def verb_group(
    verb: Verb, subject: Nominal, manner: Manner, clitic: Clitic | None = None, before: Nominal | None = None
) -> tuple[Phrase, list[Word]]:
    """The verb with all that belongs to it but its object, and the English words of the verb itself.

    `before` is a direct object that stands earlier in the sentence (the book *that* she wrote): participles agree.
    """
    english: list[Word] = []
    french = _French()
    adverbs = [Word(text) for text in manner.adverb.split(" ")] if manner.adverb else []
    if manner.negated:
        french.ne.append(Mark("ne", tuple(adverbs), "n'"))
        french.middle += mark(NEGATIVES[manner.adverb], adverbs)
    elif adverbs:
        french.middle += mark(ADVERBS[manner.adverb], adverbs)
    agreeing = subject if verb.etre else clitic.direct if clitic else before
    if manner.modal:
        words = _modal(verb, subject, manner, adverbs, english, french)
    else:
        words = _tensed(verb, subject, manner, adverbs, english, french, agreeing)
    particle = [Word(verb.particle)] if verb.particle and not (clitic and verb.pattern == "to") else []
    pronoun = [clitic.french] if clitic else []
    if clitic and verb.pattern == "to" and verb.particle:
        particle = [Word(verb.particle)]
        pronoun = [Mark(clitic.french.text, (*particle, clitic.word), clitic.french.before_vowel)]
    if particle and verb.pattern == "direct":
        _link(french, words[-1], particle[0])
    english += [*particle, *([clitic.word] if clitic else [])]
    if manner.modal:
        marks = [*french.ne, *french.finite, *french.middle, *pronoun, *french.rest]
    else:
        marks = [*french.ne, *pronoun, *french.finite, *french.middle, *french.rest]
    return Phrase(english, marks), [words[-1], *particle]


def _link(french: _French, verb: Word, particle: Word) -> None:
    """look for -> chercher: the particle belongs to whatever the verb belongs to."""
    for entry in (*french.finite, *french.rest):
        if verb in entry.sources:
            entry.sources = (*entry.sources, particle)


def _modal(
    verb: Verb, subject: Nominal, manner: Manner, adverbs: list[Word], english: list[Word], french: _French
) -> list[Word]:
    third = subject.person == IL
    base = Word(verb.english[0])
    forms = CONJUGATIONS[_MODALS[manner.modal]][0]
    to: list[Word] = []
    if manner.modal in ("can", "must"):
        finite = [Word(manner.modal)]
        english += [*finite, *adverbs]
    elif manner.modal == "want to":
        to = [Word("to")]
        finite = [Word("wants" if third else "want")]
        if manner.adverb == "not":
            finite = [Word("does" if third else "do"), Word("want")]
            english += [finite[0], *adverbs, finite[1]]
        else:
            english += [*adverbs, *finite]
        english += to
    else:
        finite = [Word(be(subject, past=False)), Word("going"), Word("to")]
        english += [finite[0], *adverbs, *finite[1:]]
    english.append(base)
    french.finite += mark(forms[subject.person], finite)
    french.rest += mark(verb.infinitive, [*to, base])
    return [base]


def _tensed(
    verb: Verb,
    subject: Nominal,
    manner: Manner,
    adverbs: list[Word],
    english: list[Word],
    french: _French,
    agreeing: Nominal | None,
) -> list[Word]:
    third = subject.person == IL
    helped = manner.adverb == "not"
    if helped:
        words = [Word("did" if manner.past else "does" if third else "do"), Word(verb.english[0])]
        english += [words[0], *adverbs, words[1]]
    else:
        words = [Word(verb.english[2] if manner.past else verb.english[1] if third else verb.english[0])]
        english += [*adverbs, *words]
    extra = verb.infinitive.split(" ")[1:]  # avoir besoin: the noun follows the verb
    if manner.past:
        auxiliary = CONJUGATIONS["être" if verb.etre else "avoir"][0][subject.person]
        french.finite += mark(auxiliary, words[:1])
        french.rest += mark(participle(verb.participle, agreeing), words[-1:])
    else:
        french.finite += mark(verb.present[subject.person], words)
    french.rest += [entry for text in extra for entry in mark(text, words[-1:])]
    return words


def be(subject: Nominal, past: bool) -> str:
    """The English verb to be."""
    if past:
        return "was" if subject.person in (JE, IL) else "were"
    return {JE: "am", IL: "is"}.get(subject.person, "are")


def etre(subject: Nominal, past: bool) -> str:
    """The French verb to be; was and were are états, not events, and stand in the imparfait."""
    imparfait = ("étais", "étais", "était", "étions", "étaient")
    return (imparfait if past else CONJUGATIONS["être"][0])[subject.person]
