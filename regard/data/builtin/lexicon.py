"""The words of the phrasebook: English and French beside each other, with what French grammar needs to know."""

from typing import NamedTuple


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
    present: tuple[str, str, str, str, str]  # je, tu, il, nous, ils
    participle: str
    etre: bool  # passé composé with être
    pattern: str
    objects: tuple[str, ...]


ALIVE = ("person", "animal")
THINGS = ("thing", "food")
SOLID = ("thing", "place")
ANY = ("person", "animal", "thing", "food", "place")

# English | French | gender; plurals that are not regular follow after a slash
_NOUNS = {
    "person": """
        man/men homme m, woman/women femme f, boy garçon m, girl fille f, child/children enfant m, king roi m, queen
        reine f, doctor médecin m, nurse infirmière f, student étudiant m, teacher professeur m, friend ami m,
        brother frère m, sister sœur f, mother mère f, father père m, hero/heroes héros/héros m, aunt tante f, uncle
        oncle m
    """,
    "animal": """
        dog chien m, cat chat m, horse cheval/chevaux m, bird oiseau/oiseaux m, cow vache f, mouse/mice
        souris/souris f, wolf/wolves loup m, bear ours/ours m, owl hibou/hiboux m, bee abeille f, donkey âne m
    """,
    "thing": """
        book livre m, letter lettre f, key clé f, hat chapeau/chapeaux m, knife/knives couteau/couteaux m, table
        table f, chair chaise f, bag sac m, shirt chemise f, picture image f, umbrella parapluie m, box/boxes boîte
        f, car voiture f, boat bateau/bateaux m, flower fleur f, newspaper journal/journaux m, bed lit m
    """,
    "food": """
        apple pomme f, orange orange f, egg œuf m, cake gâteau/gâteaux m, carrot carotte f, potato/potatoes
        pomme~de~terre/pommes~de~terre f
    """,
    "place": """
        house maison f, garden jardin m, school école f, street rue f, forest forêt f, church/churches église f,
        hotel hôtel m, kitchen cuisine f, river rivière f, village village m, island île f, castle château/châteaux
        m
    """,
    "mass": """
        water eau f, milk lait m, bread pain m, coffee café m, soup soupe f, tea thé m, wine vin m
    """,
}

# English, comparative (-: with more, !: none) | masculine feminine | kinds of noun it fits
_BEFORE = """
    big bigger grand grande any, small smaller petit petite any, old older vieux vieille solid+person+animal
    vieil, young younger jeune jeune alive, beautiful - beau belle any bel, new ! nouveau nouvelle thing+place
    nouvel, good ! bon bonne any, bad ! mauvais mauvaise any, pretty prettier joli jolie any, long longer long
    longue thing
"""
_AFTER = """
    red ! rouge rouge things, blue ! bleu bleue thing, green ! vert verte things, white ! blanc blanche
    solid+animal, black ! noir noire solid+animal, strong stronger fort forte alive, rich richer riche riche
    person, intelligent - intelligent intelligente alive, tired - fatigué fatiguée alive, happy happier heureux
    heureuse alive, sad sadder triste triste alive, famous - célèbre célèbre person+place, strange stranger
    étrange étrange any, heavy heavier lourd lourde things, cold colder froid froide things+place, clean cleaner
    propre propre solid, dirty dirtier sale sale solid, empty ! vide vide place, dangerous - dangereux
    dangereuse person+animal+place, curious - curieux curieuse alive, french ! français française any
"""

# base, third person or -, past | infinitive | kinds of object. French forms follow where they are not regular -er.
_DIRECT = """
    see - saw voir any, eat - ate manger food+mass, buy - bought acheter thing+food+animal+mass, sell - sold
    vendre thing+food+animal, find - found trouver any, lose - lost perdre thing+animal, write - wrote écrire
    book, open - opened ouvrir box, love - loved aimer any, hate - hated détester any, take - took prendre
    thing+food, carry carries carried porter thing+food+animal, drink - drank boire drink, hear - heard entendre
    alive, follow - followed suivre alive, paint - painted peindre solid, wash washes washed laver thing+animal,
    break - broke casser thing, want - wanted vouloir thing+food+mass, forget - forgot oublier any, steal -
    stole voler thing+food+animal, listen:to - listened écouter person, look:for - looked chercher any, wait:for
    - waited attendre person, look:at - looked regarder any
"""
_TO = "speak:to - spoke parler person, answer - answered répondre person, obey - obeyed obéir person"
_OF = "need - needed avoir~besoin thing+food+mass+person, speak:of - spoke parler person+thing+place"
_ALONE = """
    sleep - slept dormir, sing - sang chanter, dance - danced danser, work - worked travailler, run - ran
    courir, laugh - laughed rire, cry cries cried pleurer, arrive - arrived arriver+, leave - left partir+, come
    - came venir+, fall - fell tomber+, return - returned revenir+, stay - stayed rester+, die - died mourir+
"""
_THAT = "say - said dire, think - thought penser, believe - believed croire, know - knew savoir"

# je, tu, il, nous, ils | participle
_IRREGULAR = """
    voir: vois vois voit voyons voient vu; manger: mange manges mange mangeons mangent mangé; acheter: achète
    achètes achète achetons achètent acheté; vendre: vends vends vend vendons vendent vendu; perdre: perds perds
    perd perdons perdent perdu; écrire: écris écris écrit écrivons écrivent écrit; ouvrir: ouvre ouvres ouvre
    ouvrons ouvrent ouvert; prendre: prends prends prend prenons prennent pris; boire: bois bois boit buvons
    boivent bu; entendre: entends entends entend entendons entendent entendu; suivre: suis suis suit suivons
    suivent suivi; peindre: peins peins peint peignons peignent peint; vouloir: veux veux veut voulons veulent
    voulu; choisir: choisis choisis choisit choisissons choisissent choisi; attendre: attends attends attend
    attendons attendent attendu; répondre: réponds réponds répond répondons répondent répondu; obéir: obéis
    obéis obéit obéissons obéissent obéi; dormir: dors dors dort dormons dorment dormi; courir: cours cours
    court courons courent couru; rire: ris ris rit rions rient ri; nager: nage nages nage nageons nagent nagé;
    sourire: souris souris sourit sourions sourient souri; partir: pars pars part partons partent parti; venir:
    viens viens vient venons viennent venu; revenir: reviens reviens revient revenons reviennent revenu; mourir:
    meurs meurs meurt mourons meurent mort; dire: dis dis dit disons disent dit; croire: crois crois croit
    croyons croient cru; savoir: sais sais sait savons savent su; avoir: ai as a avons ont eu; être: suis es est
    sommes sont été; pouvoir: peux peux peut pouvons peuvent pu; devoir: dois dois doit devons doivent dû;
    aller: vais vas va allons vont allé
"""

_KINDS = {"any": ANY, "alive": ALIVE, "things": THINGS, "solid": SOLID, "drink": ("drink",)}


def _entries(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",") if entry.split()]


def _kinds(names: str) -> tuple[str, ...]:
    return tuple(kind for name in names.split("+") for kind in _KINDS.get(name, (name,)))


def _forms(entry: str) -> tuple[str, str]:
    """`man/men` -> (man, men); `boy` -> (boy, boys). A ~ stands for a space."""
    one, _, many = entry.replace("~", " ").partition("/")
    return one, many or one + "s"


def _nouns() -> dict[str, list[Noun]]:
    found: dict[str, list[Noun]] = {}
    for kind, table in _NOUNS.items():
        for english, french, gender in _entries(table):
            noun = Noun(_forms(english), _forms(french), gender == "f", kind)
            found.setdefault(kind, []).append(noun)
    return found


def _adjectives() -> list[Adjective]:
    found = []
    for table, before in ((_BEFORE, True), (_AFTER, False)):
        for english, comparative, masculine, feminine, fits, *vowel in _entries(table):
            before_vowel = vowel[0] if vowel else masculine
            more = "" if comparative == "-" else comparative
            found.append(Adjective(english, more, masculine, feminine, before_vowel, before, _kinds(fits)))
    return found


CONJUGATIONS: dict[str, tuple[tuple[str, str, str, str, str], str]] = {}
for _line in _IRREGULAR.split(";"):
    _name, _, _rest = _line.partition(":")
    _je, _tu, _il, _nous, _ils, _participle = _rest.split()
    CONJUGATIONS[_name.split()[0]] = ((_je, _tu, _il, _nous, _ils), _participle)


def conjugate(infinitive: str) -> tuple[tuple[str, str, str, str, str], str]:
    """Present (je, tu, il, nous, ils) and participle; verbs in -er that are not listed are regular."""
    if infinitive in CONJUGATIONS:
        return CONJUGATIONS[infinitive]
    stem = infinitive.removesuffix("er")
    return (stem + "e", stem + "es", stem + "e", stem + "ons", stem + "ent"), stem + "é"


def _third(base: str) -> str:
    return base + ("es" if base.endswith(("s", "sh", "ch", "x")) else "s")


def _verbs() -> dict[str, list[Verb]]:
    found: dict[str, list[Verb]] = {}
    tables = {"direct": _DIRECT, "to": _TO, "of": _OF, "intransitive": _ALONE, "that": _THAT}
    for pattern, table in tables.items():
        for english, third, past, french, *objects in _entries(table):
            base, _, particle = english.partition(":")
            infinitive = french.replace("~", " ").removesuffix("+")
            present, participle = conjugate(infinitive.split(" ")[0])
            forms = (base, _third(base) if third == "-" else third, past)
            kinds = _kinds(objects[0]) if objects else ()
            verb = Verb(forms, particle, infinitive, present, participle, french.endswith("+"), pattern, kinds)
            found.setdefault(pattern, []).append(verb)
    return found


NOUNS = _nouns()
NAMES = {noun.english[0]: noun for nouns in NOUNS.values() for noun in nouns}
# what can be written, opened or drunk; `objects` may name these instead of a kind
NOUNS["book"] = [NAMES[name] for name in ("book", "letter", "newspaper")]
NOUNS["box"] = [NAMES[name] for name in ("box", "book", "letter", "bag", "umbrella")]
NOUNS["drink"] = [NAMES[name] for name in ("water", "milk", "coffee", "tea", "wine")]
ADJECTIVES = _adjectives()
FITTING = {kind: [entry for entry in ADJECTIVES if kind in entry.fits] for kind in ANY}
VERBS = _verbs()

ASPIRATED = frozenset({"héros", "hibou", "hiboux", "huit"})  # an h that elides nothing


def begins_with_vowel(word: str) -> bool:
    """True if le, je, ne, de, que lose their vowel before `word`."""
    return word[0] in "aeiouyâàéèêëîïôûùœ" or (word[0] == "h" and word not in ASPIRATED)


def plural(form: str) -> str:
    """The plural of a French adjective or participle: grands, heureux, beaux, fatigués."""
    if form.endswith(("s", "x")):
        return form
    return form + ("x" if form.endswith("eau") else "s")
