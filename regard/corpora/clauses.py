"""Clauses and sentences of the phrasebook."""

import random
from collections.abc import Sequence

from regard.corpora import WORDS
from regard.corpora.lexicon import ALIVE, ANY, FITTING, VERBS, Adjective, Verb
from regard.corpora.marks import Mark, Phrase, Word, de, mark, say
from regard.corpora.nominal import IL, Nominal, agree, both, generic, part_of, possessed, pronoun, simple
from regard.corpora.verbal import NEGATIVES, Manner, be, choose_clitic, choose_manner, etre, verb_group

_PHRASES = WORDS["phrasebook"]["phrases"]


def connective(draw: random.Random) -> Phrase:
    """What joins two clauses. Joined clauses always have a comma, so that who does what is never in doubt."""
    english, french = draw.choice(_PHRASES["connectives"])
    if english.startswith(","):
        return say(",", ",") + say(english[2:], french[2:])
    phrase = say(english, french)
    if english == "if":
        phrase.french[0].role = "si"
    return phrase


def shortest(draw: random.Random) -> Phrase:
    """A clause of two words: birds sing, she arrived."""
    subject = pronoun(draw) if draw.random() < 0.4 else generic(draw, ALIVE)
    verb = draw.choice(VERBS["intransitive"])
    return subject.phrase + verb_group(verb, subject, Manner(draw.random() < 0.45, "", ""))[0]


def clause(draw: random.Random, rich: bool = True) -> Phrase:
    """One clause; `rich` ones may hold relative clauses, places and times."""
    kind = draw.random()
    if kind < 0.2:
        return _copula(draw, rich)
    if rich and kind < 0.26:
        return _existence(draw)
    if rich and kind < 0.34:
        return _report(draw)
    subject = _subject(draw, ALIVE, rich)
    manner = choose_manner(draw)
    phrase = subject.phrase + _predicate(draw, subject, manner, rich)
    if rich and draw.random() < 0.3:
        phrase += _place(draw)
    if rich and draw.random() < 0.2:
        phrase += _time(draw, manner)
    return phrase


def question(draw: random.Random) -> Phrase:
    """does the man sleep ? -> est-ce que l' homme dort ?"""
    subject = _subject(draw, ALIVE, rich=False)
    past = draw.random() < 0.4
    helper = Word("did" if past else "does" if subject.person == IL else "do")
    verb = draw.choice(VERBS["intransitive"] if draw.random() < 0.4 else VERBS["direct"])
    statement, words = verb_group(verb, subject, Manner(past, "", ""))
    words[0].text = verb.english[0]  # the helper has taken the tense away
    finite = statement.french[0]
    finite.sources = (helper, *finite.sources) if not past else (helper,)
    asked = Phrase([helper], mark("est-ce que", [helper])) + subject.phrase + statement
    if verb.pattern == "direct":
        asked += simple(draw, verb.objects).phrase
    if draw.random() < 0.3:
        asked += _place(draw)
    return asked


def _subject(draw: random.Random, kinds: Sequence[str], rich: bool) -> Nominal:
    choice = draw.random()
    if choice < 0.3:
        return pronoun(draw)
    if choice < 0.38:
        return generic(draw, kinds)
    if rich and choice < 0.46:
        return both(draw, kinds)
    if rich and choice < 0.54:
        return possessed(draw, kinds)
    nominal = simple(draw, kinds, adjectives=2 if rich else 1)
    return _relative(draw, nominal) if rich and draw.random() < 0.18 else nominal


def _predicate(draw: random.Random, subject: Nominal, manner: Manner, rich: bool) -> Phrase:
    """Verb and object."""
    pattern = draw.choice(["intransitive", "intransitive", "direct", "direct", "direct", "direct", "to", "of"])
    verb = draw.choice(VERBS[pattern])
    if pattern == "intransitive":
        return verb_group(verb, subject, manner)[0]
    if pattern != "of" and "person" in verb.objects and draw.random() < 0.3:
        return verb_group(verb, subject, manner, choose_clitic(draw, subject, pattern == "to"))[0]
    phrase, words = verb_group(verb, subject, manner)
    if pattern == "direct":
        return phrase + _object(draw, verb, manner, rich).phrase
    preposition = words[1:] or words[:1]
    joint = de(preposition) if pattern == "of" else Mark("à", tuple(preposition), role="preposition")
    return phrase + Phrase([], [joint]) + simple(draw, verb.objects, adjectives=1).phrase


def _object(draw: random.Random, verb: Verb, manner: Manner, rich: bool) -> Nominal:
    choice = draw.random() if rich else 1.0
    if choice < 0.07 and not manner.negated:
        return both(draw, verb.objects)
    if choice < 0.15:
        return possessed(draw, verb.objects)
    if choice < 0.21 and not manner.negated:
        return part_of(draw, [kind for kind in verb.objects if kind in ("thing", "place")] or ["thing"])
    nominal = simple(draw, verb.objects, negated=manner.negated, adjectives=2 if rich else 1)
    return _relative(draw, nominal) if rich and draw.random() < 0.2 else nominal


def _relative(draw: random.Random, head: Nominal) -> Nominal:
    """A relative clause right behind its noun: who or that (qui), that (que), where (où)."""
    manner = choose_manner(draw, modal=False)
    fitting = [verb for verb in VERBS["direct"] if head.kind in verb.objects]
    if head.kind == "place" and draw.random() < 0.5:
        subject = _subject(draw, ALIVE, rich=False)
        verb = draw.choice(VERBS["intransitive"])
        tail = say("where", "où") + subject.phrase + verb_group(verb, subject, manner)[0]
    elif head.kind in ALIVE and (draw.random() < 0.5 or not fitting):
        joint = say("who" if head.kind == "person" else "that", "qui")
        tail = joint + _predicate(draw, head, manner, rich=False)
    elif fitting:
        subject = _subject(draw, ALIVE, rich=False)
        tail = say("that", "que") + subject.phrase + verb_group(draw.choice(fitting), subject, manner, before=head)[0]
    else:
        return head
    return Nominal(head.phrase + tail, head.person, head.feminine, head.kind)


def _copula(draw: random.Random, rich: bool) -> Phrase:
    """is big, is not very big, is bigger than, is in the garden."""
    subject = _subject(draw, ANY, rich)
    past = draw.random() < 0.4
    adverb = draw.choice(["", "", "", "", "not", "never", "always", "often"])
    verb, adverbs = Word(be(subject, past)), [Word(adverb)] if adverb else []
    finite = mark(etre(subject, past), [verb])
    if adverb in NEGATIVES:
        finite = [Mark("ne", tuple(adverbs), "n'"), *finite, *mark(NEGATIVES[adverb], adverbs)]
    elif adverb:
        finite += mark({"always": "toujours", "often": "souvent"}[adverb], adverbs)
    phrase = subject.phrase + Phrase([verb, *adverbs], finite)
    if rich and draw.random() < 0.3:
        return phrase + _place(draw)
    adjective = draw.choice(FITTING[subject.kind])
    return phrase + _quality(draw, adjective, subject, rich)


def _quality(draw: random.Random, adjective: Adjective, subject: Nominal, rich: bool) -> Phrase:
    form = agree(adjective.masculine, adjective.feminine, subject.feminine, subject.plural)
    choice = draw.random()
    if rich and choice < 0.3 and adjective.comparative != "!":
        if adjective.comparative:
            compared = say(adjective.comparative, f"plus {form}")
        else:
            compared = say("more", "plus") + say(adjective.english, form)
        return compared + say("than", "que") + simple(draw, (subject.kind,), adjectives=1).phrase
    if choice < 0.5:
        return say("very", "très") + say(adjective.english, form)
    return say(adjective.english, form)


def _existence(draw: random.Random) -> Phrase:
    """there is a cat in the garden -> il y a un chat dans le jardin."""
    nominal = simple(draw, ANY)
    while nominal.phrase.english[0].text not in ("a", "an", "some", "many", "two", "three", "four", "five", "six"):
        nominal = simple(draw, ANY)
    past = draw.random() < 0.4
    there = say("there", "il y") + say(be(nominal, past), "avait" if past else "a")
    return there + nominal.phrase + _place(draw)


def _report(draw: random.Random) -> Phrase:
    """the man says that ...; in the present, so that the tenses of the two clauses are free."""
    subject = _subject(draw, ("person",), rich=False)
    adverb = draw.choice(["", "", "", "not", "always", "often", "never"])
    phrase, _ = verb_group(draw.choice(VERBS["that"]), subject, Manner(False, adverb, ""))
    return subject.phrase + phrase + say("that", "que") + clause(draw, rich=False)


def _place(draw: random.Random) -> Phrase:
    english, french, names = draw.choice(_PHRASES["prepositions"])
    kinds = names.split(" ")
    words = [Word(text) for text in english.split(" ")]
    marks = mark(french, words)
    if marks[-1].text == "de":
        marks[-1] = de(words)
    where = part_of(draw, kinds) if draw.random() < 0.1 else simple(draw, kinds, adjectives=1)
    return Phrase(words, marks) + where.phrase


def _time(draw: random.Random, manner: Manner) -> Phrase:
    if manner.modal == "going to":
        return say("tomorrow", "demain")
    if draw.random() < 0.4:
        return say("yesterday", "hier") if manner.past else say("now", "maintenant")
    return say(*draw.choice(_PHRASES["times"]))
