"""The words of the phrasebook: English and French beside each other, with what French grammar needs to know."""

from typing import NamedTuple

from regard.corpora import WORDS

_TABLES = WORDS["phrasebook"]


class Noun(NamedTuple):
    """`kind` is person, animal, thing, food, place or mass (mass nouns have no plural)."""

    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool
    kind: str


class Adjective(NamedTuple):
    """`before`: stands before its noun in French. `fits`: which kinds of noun it may describe."""

    english: str
    comparative: str  # bigger; empty: more beautiful; !: not compared
    masculine: str
    feminine: str
    before_vowel: str  # bel, nouvel, vieil; else the masculine
    before: bool
    fits: tuple[str, ...]


class Verb(NamedTuple):
    """`pattern`: intransitive, direct, to (French à), of (French de), that (a clause); `objects`: kinds of noun."""

    english: tuple[str, str, str]  # base, third person, past
    particle: str  # look *for*, listen *to*; empty for most
    infinitive: str
    present: tuple[str, ...]  # je, tu, il, nous, ils
    participle: str
    etre: bool  # passé composé with être
    pattern: str
    objects: tuple[str, ...]


ALIVE = ("person", "animal")
THINGS = ("thing", "food")
SOLID = ("thing", "place")
ANY = ("person", "animal", "thing", "food", "place")

_KINDS = {"any": ANY, "alive": ALIVE, "things": THINGS, "solid": SOLID, "drink": ("drink",)}


def _entries(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",") if entry.split()]


def _kinds(names: str) -> tuple[str, ...]:
    return tuple(kind for name in names.split("+") for kind in _KINDS.get(name, (name,)))


def _forms(entry: str) -> tuple[str, str]:
    """`man/men` -> (man, men); `boy` -> (boy, boys). A ~ stands for a space."""
    one, _, many = entry.replace("~", " ").partition("/")
    return one, many or one + "s"


def _adjectives() -> list[Adjective]:
    found = []
    for place, table in _TABLES["adjectives"].items():
        for english, comparative, masculine, feminine, fits, *vowel in _entries(table):
            more = "" if comparative == "-" else comparative
            forms = (masculine, feminine, vowel[0] if vowel else masculine)
            found.append(Adjective(english, more, *forms, place == "before", _kinds(fits)))
    return found


CONJUGATIONS = {verb: (tuple(forms.split()[:5]), forms.split()[5]) for verb, forms in _TABLES["conjugations"].items()}


def conjugate(infinitive: str) -> tuple[tuple[str, ...], str]:
    """Present (je, tu, il, nous, ils) and participle; verbs in -er that are not listed are regular."""
    if infinitive in CONJUGATIONS:
        return CONJUGATIONS[infinitive]
    stem = infinitive.removesuffix("er")
    return (stem + "e", stem + "es", stem + "e", stem + "ons", stem + "ent"), stem + "é"


def _verb(pattern: str, english: str, third: str, past: str, french: str, objects: str = "") -> Verb:
    base, _, particle = english.partition(":")
    infinitive = french.replace("~", " ").removesuffix("+")
    present, participle = conjugate(infinitive.split(" ")[0])
    regular = base + ("es" if base.endswith(("s", "sh", "ch", "x")) else "s")
    forms, kinds = (base, regular if third == "-" else third, past), _kinds(objects) if objects else ()
    return Verb(forms, particle, infinitive, present, participle, french.endswith("+"), pattern, kinds)


NOUNS = {
    kind: [Noun(_forms(english), _forms(french), gender == "f", kind) for english, french, gender in _entries(table)]
    for kind, table in _TABLES["nouns"].items()
}
NAMES = {noun.english[0]: noun for nouns in NOUNS.values() for noun in nouns}
# what can be written, opened or drunk; `objects` may name these instead of a kind
NOUNS["book"] = [NAMES[name] for name in ("book", "letter", "newspaper")]
NOUNS["box"] = [NAMES[name] for name in ("box", "book", "letter", "bag", "umbrella")]
NOUNS["drink"] = [NAMES[name] for name in ("water", "milk", "coffee", "tea", "wine")]
ADJECTIVES = _adjectives()
FITTING = {kind: [entry for entry in ADJECTIVES if kind in entry.fits] for kind in ANY}
VERBS = {pattern: [_verb(pattern, *entry) for entry in _entries(table)] for pattern, table in _TABLES["verbs"].items()}

ASPIRATED = frozenset({"héros", "hibou", "hiboux", "huit"})  # an h that elides nothing


def begins_with_vowel(word: str) -> bool:
    """True if le, je, ne, de, que lose their vowel before `word`."""
    return word[0] in "aeiouyâàéèêëîïôûùœ" or (word[0] == "h" and word not in ASPIRATED)


def plural(form: str) -> str:
    """The plural of a French adjective or participle: grands, heureux, beaux, fatigués."""
    if form.endswith(("s", "x")):
        return form
    return form + ("x" if form.endswith("eau") else "s")
