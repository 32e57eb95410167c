"""Verb groups of the phrasebook: tenses, ne ... pas, adverbs, modals, object pronouns before the verb."""

import random
from dataclasses import replace
from typing import NamedTuple

from regard.corpora import WORDS
from regard.corpora.lexicon import CONJUGATIONS, Verb
from regard.corpora.marks import Mark, Phrase, Word, mark
from regard.corpora.nominal import IL, JE, NOUS, TU, Nominal, participle

NEGATIVES = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = {"always": "toujours", "often": "souvent", "already": "déjà"}
_MODALS = {"can": "pouvoir", "must": "devoir", "want to": "vouloir", "going to": "aller"}

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
    person, feminine, english, direct, after_a = draw.choice(
        [entry for entry in WORDS["phrasebook"]["pronouns"]["objects"] if entry[0] not in close]
    )
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
    adverbs = [Word(text) for text in manner.adverb.split(" ")] if manner.adverb else []
    ne = [Mark("ne", tuple(adverbs), "n'")] if manner.negated else []
    middle = mark({**NEGATIVES, **ADVERBS}[manner.adverb], adverbs) if adverbs else []
    if manner.modal:
        english, finite, rest = _modal(verb, subject, manner, adverbs)
    else:
        agreeing = subject if verb.etre else clitic.direct if clitic else before
        english, finite, rest = _tensed(verb, subject, manner, adverbs, agreeing)
    main = english[-1]
    particle = [Word(verb.particle)] if verb.particle else []
    if verb.pattern == "direct":  # look for -> chercher: the particle belongs to whatever the verb belongs to
        for entry in (*finite, *rest):
            entry.sources += tuple(particle) if main in entry.sources else ()
    pronoun: list[Mark] = []
    if clitic:
        absorbed = particle if verb.pattern == "to" else []  # speak to him -> lui parler
        pronoun = [replace(clitic.french, sources=(*absorbed, clitic.word))]
    ends = [*particle, *([clitic.word] if clitic else [])]
    close = [*finite, *middle, *pronoun] if manner.modal else [*pronoun, *finite, *middle]
    return Phrase([*english, *ends], [*ne, *close, *rest]), [main, *particle]


Verbal = tuple[list[Word], list[Mark], list[Mark]]  # English; the French finite verb; the French words after it


def _modal(verb: Verb, subject: Nominal, manner: Manner, adverbs: list[Word]) -> Verbal:
    """can, must, wants to, is going to with an infinitive."""
    third = subject.person == IL
    base = Word(verb.english[0])
    to: list[Word] = []
    if manner.modal in ("can", "must"):
        finite = [Word(manner.modal)]
        english = [*finite, *adverbs]
    elif manner.modal == "going to":
        finite = [Word(be(subject, past=False)), Word("going"), Word("to")]
        english = [finite[0], *adverbs, *finite[1:]]
    elif manner.adverb == "not":
        to, finite = [Word("to")], [Word("does" if third else "do"), Word("want")]
        english = [finite[0], *adverbs, finite[1], *to]
    else:
        to, finite = [Word("to")], [Word("wants" if third else "want")]
        english = [*adverbs, *finite, *to]
    form = CONJUGATIONS[_MODALS[manner.modal]][0][subject.person]
    return [*english, base], mark(form, finite), mark(verb.infinitive, [*to, base])


def _tensed(verb: Verb, subject: Nominal, manner: Manner, adverbs: list[Word], agreeing: Nominal | None) -> Verbal:
    """Present or past; the participle of the past agrees with `agreeing`."""
    third = subject.person == IL
    if manner.adverb == "not":
        words = [Word("did" if manner.past else "does" if third else "do"), Word(verb.english[0])]
        english = [words[0], *adverbs, words[1]]
    else:
        words = [Word(verb.english[2] if manner.past else verb.english[1] if third else verb.english[0])]
        english = [*adverbs, *words]
    rest: list[Mark] = []
    if manner.past:
        auxiliary = CONJUGATIONS["être" if verb.etre else "avoir"][0][subject.person]
        finite = mark(auxiliary, words[:1])
        rest += mark(participle(verb.participle, agreeing), words[-1:])
    else:
        finite = mark(verb.present[subject.person], words)
    extra = verb.infinitive.split(" ")[1:]  # avoir besoin: the noun follows the verb
    return english, finite, rest + [entry for text in extra for entry in mark(text, words[-1:])]


def be(subject: Nominal, past: bool) -> str:
    """The English verb to be."""
    if past:
        return "was" if subject.person in (JE, IL) else "were"
    return {JE: "am", IL: "is"}.get(subject.person, "are")


def etre(subject: Nominal, past: bool) -> str:
    """The French verb to be; was and were are états, not events, and stand in the imparfait."""
    imparfait = ("étais", "étais", "était", "étions", "étaient")
    return (imparfait if past else CONJUGATIONS["être"][0])[subject.person]
