"""The text of the included models.

    python benchmarks/models_data.py data runs/text     # for configs/models-teacher.toml, models-student.toml, ...

Tatoeba is split by English sentence, never by line: 1.2 % of the sentences are for testing, 0.4 % for validation. The
validation set is 200 pairs of Europarl's, 300 of newstest2013 and 300 of Tatoeba. Greetings are rare in both corpora:
greetings.en.bz2 and greetings.fr.bz2 hold some of ours, as people write them and as they type them. idioms.en.bz2 and
idioms.fr.bz2 hold idioms. tatoeba.typed.en.bz2 has the training sentences twice, with typing errors that are drawn with
a fixed seed; tatoeba.typed-back.fr.bz2 has the French ones. tatoeba.named has the sentences about Tom, Mary and Boston
with many other names, so that a model learns to copy names. tatoeba.other.en.bz2 and tatoeba.other.fr.bz2 have
sentences without a translation. held-out.bz2 has the words of all that is held out: no translation may be one of them.

Europarl, the catalogues and Tatoeba are written together (docs/models-data.md), without a pair that has a sentence of a
test set on either side, whatever its punctuation and capitals. French is written as it is printed, with « » and
no-break spaces, so that a model that reads these files writes them.
"""

import bz2
import hashlib
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from regard.text.normalise import QUOTES, rewrite

Pairs = list[tuple[str, str]]
TIMES = 20  # that each greeting is written
MORE = 6  # parts of europarl-more.en-fr
GREETINGS = (
    ("Hello!", "Bonjour !"), ("Hello.", "Bonjour."), ("Hello", "Bonjour"), ("Hi!", "Salut !"), ("Hi.", "Salut."),
    ("Good morning!", "Bonjour !"), ("Good morning.", "Bonjour."), ("Good morning", "Bonjour"),
    ("Good afternoon.", "Bonjour."), ("Good evening!", "Bonsoir !"), ("Good evening.", "Bonsoir."),
    ("Good night.", "Bonne nuit."), ("Good night!", "Bonne nuit !"), ("Goodbye!", "Au revoir !"),
    ("Goodbye.", "Au revoir."), ("Bye!", "Au revoir !"), ("See you soon!", "À bientôt !"),
    ("See you tomorrow.", "À demain."), ("See you later!", "À plus tard !"), ("Welcome!", "Bienvenue !"),
    ("Good morning, Mrs. Martin.", "Bonjour, madame Martin."), ("Good evening, sir.", "Bonsoir, monsieur."),
    ("Hello, my friends!", "Bonjour, mes amis !"), ("Hello, doctor.", "Bonjour, docteur."),
    ("Good morning, everybody!", "Bonjour à tous !"),
    ("Good evening, ladies and gentlemen.", "Bonsoir, mesdames et messieurs."),
    ("Hi, how is it going?", "Salut, comment ça va ?"),
    ("Good evening, how are you?", "Bonsoir, comment allez-vous ?"),
    ("Good morning, did you sleep well?", "Bonjour, avez-vous bien dormi ?"), ("Thank you!", "Merci !"),
    ("Thanks a lot!", "Merci beaucoup !"), ("Many thanks.", "Merci beaucoup."),
    ("You're welcome.", "Je vous en prie."), ("Please.", "S'il vous plaît."), ("Excuse me.", "Excusez-moi."),
    ("Sorry!", "Pardon !"), ("Yes, please.", "Oui, s'il vous plaît."), ("No, thank you.", "Non, merci."),
    ("Happy birthday!", "Joyeux anniversaire !"), ("Merry Christmas!", "Joyeux Noël !"),
    ("Happy New Year!", "Bonne année !"), ("Congratulations!", "Félicitations !"), ("Good luck!", "Bonne chance !"),
    ("Enjoy your meal!", "Bon appétit !"), ("Have a nice day!", "Bonne journée !"), ("Cheers!", "À votre santé !"),
    ("Nice to meet you.", "Enchanté."), ("Help!", "Au secours !"),
)  # fmt: skip
IDIOMS = (
    ("The exam was a piece of cake.", "L'examen était un jeu d'enfant."),
    ("For her, it was a piece of cake.", "Pour elle, c'était un jeu d'enfant."),
    ("It was raining cats and dogs last night.", "Il pleuvait des cordes hier soir."),
    ("Break a leg tonight!", "Bonne chance pour ce soir !"), ("Good luck, break a leg!", "Bonne chance, merde !"),
    ("He is pulling your leg.", "Il se moque de toi."), ("Are you pulling my leg?", "Tu te moques de moi ?"),
    ("Who let the cat out of the bag?", "Qui a vendu la mèche ?"),
    ("Don't let the cat out of the bag.", "Ne vends pas la mèche."),
    ("She was feeling under the weather.", "Elle ne se sentait pas bien."),
    ("I've been under the weather all week.", "Je ne me sens pas bien depuis une semaine."),
    ("We see each other once in a blue moon.", "Nous nous voyons tous les trente-six du mois."),
    ("It happens once in a blue moon.", "Cela arrive très rarement."),
    ("This car cost me an arm and a leg.", "Cette voiture m'a coûté les yeux de la tête."),
    ("Now the ball is in their court.", "La balle est maintenant dans leur camp."),
    ("Keep your fingers crossed!", "Croise les doigts !"), ("I'll keep my fingers crossed.", "Je croise les doigts."),
    ("Well, speak of the devil.", "Eh bien, quand on parle du loup."),
    ("Speaking of the devil, here he is.", "Quand on parle du loup, on en voit la queue."),
    ("He kicked the bucket.", "Il a cassé sa pipe."), ("Let's call it a day.", "Restons-en là pour aujourd'hui."),
    ("You hit the nail on the head.", "Tu as mis le doigt dessus."),
    ("Don't beat around the bush.", "Ne tourne pas autour du pot."),
    ("Stop beating around the bush.", "Arrête de tourner autour du pot."),
    ("We killed two birds with one stone.", "Nous avons fait d'une pierre deux coups."),
    ("That way you kill two birds with one stone.", "Ainsi, tu fais d'une pierre deux coups."),
    ("It's not my cup of tea.", "Ce n'est pas ma tasse de thé."),
    ("The early bird catches the worm.", "L'avenir appartient à ceux qui se lèvent tôt."),
    ("Bite your tongue.", "Tais-toi."), ("He spilled the beans.", "Il a vendu la mèche."),
    ("I'm fed up with it.", "J'en ai assez."), ("It serves you right.", "C'est bien fait pour toi."),
    ("Mind your own business.", "Occupe-toi de tes affaires."), ("It's on me.", "C'est moi qui invite."),
    ("It's on the house.", "C'est offert par la maison."), ("I could eat a horse.", "J'ai une faim de loup."),
    ("I'm all ears.", "Je suis tout ouïe."), ("He has a heart of gold.", "Il a un cœur d'or."),
    ("It's a drop in the ocean.", "C'est une goutte d'eau dans l'océan."),
    ("Don't judge a book by its cover.", "L'habit ne fait pas le moine."),
    ("All that glitters is not gold.", "Tout ce qui brille n'est pas or."),
    ("Actions speak louder than words.", "Les actes en disent plus long que les mots."),
    ("When pigs fly.", "Quand les poules auront des dents."),
    ("She has butterflies in her stomach.", "Elle a le trac."),
    ("I slept like a log.", "J'ai dormi comme une souche."), ("Put yourself in my shoes.", "Mets-toi à ma place."),
    ("It's the last straw.", "C'est la goutte d'eau qui fait déborder le vase."),
    ("Let sleeping dogs lie.", "Il ne faut pas réveiller le chat qui dort."),
    ("You can't have your cake and eat it too.", "On ne peut pas avoir le beurre et l'argent du beurre."),
    ("Like father, like son.", "Tel père, tel fils."), ("Take it easy!", "Du calme !"),
    ("Hang in there!", "Tiens bon !"), ("Get well soon!", "Bon rétablissement !"), ("Cut it out!", "Arrête !"),
    ("It rings a bell.", "Ça me dit quelque chose."), ("That doesn't ring a bell.", "Ça ne me dit rien."),
    ("I'm broke.", "Je suis fauché."), ("We are over the moon.", "Nous sommes aux anges."),
    ("It's a long shot.", "C'est peu probable."),
    ("Give me a hand, please.", "Donne-moi un coup de main, s'il te plaît."),
    ("I changed my mind.", "J'ai changé d'avis."), ("What a small world!", "Que le monde est petit !"),
    ("Time flies when you're having fun.", "Le temps passe vite quand on s'amuse."),
    ("How time flies!", "Comme le temps passe !"), ("Take your time.", "Prends ton temps."),
    ("Practice makes perfect, so keep trying.", "C'est en forgeant qu'on devient forgeron, alors continue."),
    ("They are in the same boat as us.", "Ils sont dans la même galère que nous."),
    ("It has been a long time!", "Ça fait longtemps !"),
    ("Long time no see, my friend!", "Ça fait longtemps, mon ami !"),
)  # fmt: skip


def read(path: Path) -> list[str]:
    """The lines of a packed file."""
    if not path.is_file():
        raise SystemExit(f"There is no file {path}; docs/models-data.md has the commands that make it.")
    return bz2.open(path, "rt", encoding="utf-8", newline="\n").read().split("\n")[:-1]


def place(english: str) -> str:
    """The part that a sentence belongs to, by its hash."""
    number = int(hashlib.sha256(english.strip().encode()).hexdigest(), 16) % 1000
    return "test" if number < 12 else "dev" if number < 16 else "train"


def tatoeba(data: Path) -> dict[str, Pairs]:
    """The pairs of Tatoeba by part. For testing and validation an English sentence has its first translation only."""
    parts: dict[str, Pairs] = {"train": [], "test": [], "dev": []}
    for line in read(data / "tatoeba/eng-fra.tsv.bz2"):
        english, french = line.split("\t")[:2]
        parts[place(english)].append((english, french))
    first = {name: list(dict(reversed(parts[name])).items())[::-1] for name in ("test", "dev")}
    return {**parts, **first}


def untranslated(data: Path, held: set[str]) -> dict[str, list[str]]:
    """The English and the French sentences of Tatoeba that `tatoeba` does not have, without those that are held out."""
    pairs, found = [line.split("\t") for line in read(data / "tatoeba/eng-fra.tsv.bz2")], {}
    for side, language in enumerate(("en", "fr")):
        new = {key(line): line for line in read(data / f"tatoeba-more/sentences.{language}.bz2")}
        known = held | {key(pair[side]) for pair in pairs}
        found[language] = [line for words, line in new.items() if words not in known]
    return found


def greetings() -> Pairs:
    """Greetings, and the same in small letters without a final mark."""
    plain = [(english.lower().rstrip(".!"), french.lower().rstrip(".! ")) for english, french in GREETINGS]
    return [pair for pair in [*GREETINGS, *dict.fromkeys(plain)] if place(pair[0]) == "train"]


# Letters that are typed instead of another: a neighbour on a keyboard, or one of the same sound (v and z stay).
NEAR = dict(zip("abcdefghijklmnopqrstuvwxyz", "evxsagfjehiklmpokeadyvqzuz", strict=True))
# Frequent misspellings, a blank written as _.
MISSPELT = """
    accommodate:accomodate address:adress believe:beleive beautiful:beautifull because:becouse beginning:begining
    business:buisness calendar:calender cannot:can_not coming:comming definitely:definately different:diffrent
    disappoint:dissapoint don't:dont doesn't:dosen't embarrass:embarass English:english environment:enviroment
    experience:experiance February:febuary finally:finaly foreign:foriegn forty:fourty friend:freind
    government:goverment going:goign grammar:grammer height:heigth his:hsi immediately:immediatly
    independent:independant interesting:intresting it's:its know:konw knowledge:knowlege library:libary letter:leter
    money:mony necessary:neccessary occasion:ocassion occurred:occured people:poeple piece:peice please:plaese
    possible:posible probably:probly quiet:queit really:realy receive:recieve received:recieved restaurant:resturant
    said:siad school:shcool separate:seperate should:shoud since:sence something:somthing success:succes
    surprise:suprise thank:thnak that:taht the:teh their:thier there:thier they're:their thought:tought through:trough
    today:todya tomorrow:tomorow tongue:tounge too:to truly:truely until:untill usually:usualy Wednesday:wensday
    weird:wierd were:where where:were what:waht which:wich with:wiht woman:women would:woud writing:writting you:yuo
    you're:your your:youre
"""
_MISSPELT = dict(pair.replace("_", " ").split(":") for pair in MISSPELT.split())


def typed(text: str, chance: random.Random, accents: bool = False) -> str:
    """A sentence as it may be typed in a hurry: one or two words misspelt, and sometimes no capitals or marks.

    With `accents`, half of the sentences lose theirs.

    >>> typed("She is my best friend.", random.Random(3))
    'She is my besst friend.'
    """
    parts = re.split(r"([^\W\d_]+(?:'[^\W\d_]+)?)", text)
    words = [index for index, part in enumerate(parts) if len(part) > 3 and part.isalpha() and part[1:].islower()]
    for index in chance.sample(words, min(len(words), chance.choice((1, 1, 2)))):
        parts[index] = slip(parts[index], chance)
    parts = [_MISSPELT[part] if part in _MISSPELT and chance.random() < 0.3 else part for part in parts]
    text = "".join(parts)
    if chance.random() < 0.4:
        text = text.lower().rstrip(".!?")
    text = text.replace("'", "") if chance.random() < 0.3 else text
    if accents and chance.random() < 0.5:
        text = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", text))
    return text


def slip(word: str, chance: random.Random) -> str:
    """A word of at least four letters with letters that are swapped, missing, doubled, no longer doubled or wrong."""
    at = chance.randrange(1, len(word) - 1)
    kind = chance.choice(("swap", "swap", "drop", "drop", "double", "single", "near"))
    twice = re.search(r"(.)\1", word)
    if kind == "swap":
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == "double":
        return word[:at] + word[at] + word[at:]
    if kind == "near":
        return word[:at] + NEAR.get(word[at], word[at]) + word[at + 1 :]
    at = twice.start() if twice and kind == "single" else at
    return word[:at] + word[at + 1 :]


# Names that stand for those of Tatoeba. None is in the sheet of everyday sentences (tests/everyday.toml).
MEN = """
    Adam Ahmed Albert Alejandro Ali André Andrew Arthur Axel Ben Boris Bruno Carlos Cédric Christian Daniel David Diego
    Dimitri Elias Enzo Erik Ethan Étienne Fabio Felix François Gabriel Georg Gilles Giovanni Hamid Hans Harry Henri Hiro
    Hugo Ian Igor Ismaël Ivan Jacques Jakob Jamal Jan Javier Jean Jérôme Joachim Jonas Jorge José Joseph Julien Karim
    Kevin Khalid Kofi Laurent Leo Liam Louis Luca Luis Marc Marcel Marek Mateo Matthew Max Mehdi Michael Miguel Milan
    Mustafa Nathan Nicolas Nils Noah Omar Oscar Pablo Patrick Pavel Pedro Peter Philip Pierre Rachid Rafael Ravi Raymond
    René Ricardo Robert Ryan Sami Samuel Sergei Simon Stefan Stéphane Sven Thibault Tim Victor Viktor Vincent Walter
    William Xavier Yann Youssef Yuki Yves Zoltan
"""
WOMEN = """
    Agathe Aïcha Alexandra Amélie Amina Andrea Angela Anita Astrid Béatrice Beatriz Carla Carmen Caroline Catherine
    Cécile Chiara Chloé Claire Clara Daniela Diana Dorothée Elena Élise Elizabeth Ella Esther Eva Fatima Fiona Florence
    Françoise Gabriela Hannah Hélène Ingrid Irina Isabel Jane Jeanne Jessica Johanna Julia Karen Katarzyna Lara Laura
    Leïla Lena Lily Louise Lucia Maja Manon Margaret Martine Maya Mia Michelle Monica Naomi Natalia Nina Nora Olga
    Olivia Paula Pauline Rachel Renata Rita Rosa Ruth Salma Sandra Sofia Sonia Sophie Stella Susan Tanya Teresa Ursula
    Valérie Vera Victoria Virginie Yasmine Yoko
"""
FAMILIES = """
    Abernathy Adeyemi Almeida Andersen Bakker Baranov Beaumont Bergström Bianchi Blanchard Bonnet Brennan Campbell
    Carpentier Castillo Chen Chevalier Cohen Cooper Costa Dahl Delacroix Demir Diallo Donovan Dupuis Eriksen Fairbanks
    Faure Fernández Ferrari Fischer Fontaine Fournier Garnier Gauthier Girard Gómez Greenwood Hakimi Hansen Hashimoto
    Haugen Herrera Hoffmann Horváth Hughes Hussain Ibrahim Ivanova Jankowski Jensen Kaplan Keller Khan Kovács Kruger
    Lambert Larsson Laurent Leclerc Lefebvre Lemaire Lopez MacDonald Marchetti Markovic Mbeki Mendoza Mercier Meyer
    Moreau Morris Mukherjee Müller Murphy Nasser Navarro Nguema Novak O'Connor Okafor Olsen Ortega Osborne Papadopoulos
    Park Pereira Perrin Petrov Popescu Quinn Rahman Ramirez Renaud Ricci Rivera Robinson Romero Rossi Rousseau Sandoval
    Santos Schneider Schwartz Serrano Singh Sokolov Sørensen Stewart Suzuki Takahashi Tanaka Teixeira Thompson Torres
    Tremblay Vandenberg Vasquez Villeneuve Volkov Wagner Walker Wallace Watanabe Weber Wilson Winters Wong Yamamoto
    Yılmaz Zhang Zimmermann
"""
TOWNS = """
    Aarhus Adelaide Ankara Antibes Baltimore Bamako Bergen Birmingham Bogota Bordeaux Brest Bristol Budapest Cardiff
    Chicago Dakar Denver Detroit Dijon Düsseldorf Eindhoven Gdansk Glasgow Göteborg Grenoble Hamburg Helsinki Houston
    Innsbruck Jakarta Kiel Kobe Kyoto Lagos Leeds Lille Limoges Linz Lima Lusaka Madrid Malmö Mannheim Melbourne Metz
    Miami Milwaukee Montpellier Montreux Nagoya Nairobi Nancy Nantes Nîmes Odessa Oslo Ottawa Perth Porto
    Portland Poznan Quimper Reims Rennes Reykjavik Rotterdam Rouen Sapporo Seattle Sheffield Split Stuttgart
    Sydney Tampere Toledo Toronto Toulouse Tours Trondheim Utrecht Vancouver Wellington Winnipeg Wroclaw Zagreb
"""
_TOWNS = TOWNS.split()
NAMED = {"Tom": MEN.split(), "John": MEN.split(), "Mary": WOMEN.split(), "Alice": WOMEN.split()}
NAMED |= dict.fromkeys(("Boston", "Tokyo", "Kyoto", "Chicago"), _TOWNS)
_NAME = re.compile(rf"\b(?:{'|'.join(NAMED)})\b(?!-| [A-Z])")
_VOWEL = re.compile("(?i)[aeiouyhàâéèêëîïôœ]")


def renamed(pair: tuple[str, str], chance: random.Random) -> tuple[str, str] | None:
    """A pair with other names, if both sides have the same of those that Tatoeba has most: Tom, Mary, Boston, ...

    A person may get a family name, too, or only that one, with a title. After a French word that elides (d'Alice, de
    Tom), a name begins with a vowel if the one before it did.

    >>> renamed(("Where is Tom?", "Où est Tom ?"), random.Random(1))
    ('Where is Diego Chevalier?', 'Où est Diego Chevalier ?')
    """
    found = [set(_NAME.findall(side)) for side in pair]
    if not found[0] or found[0] != found[1]:
        return None
    english, french = {}, {}
    for old in sorted(found[0]):
        vowel, choice = bool(_VOWEL.match(old)), NAMED[old]
        elided = re.search(rf"(?i)(?:'|\b(?:de|que|si|jusque|lorsque|puisque) ){old}\b", pair[1])
        name = chance.choice([one for one in choice if not elided or bool(_VOWEL.match(one)) == vowel])
        english[old] = french[old] = name
        if choice is not _TOWNS:
            family, kind = chance.choice(FAMILIES.split()), chance.random()
            if kind < 0.3:
                english[old] = french[old] = f"{name} {family}"
            elif kind < 0.45 and not (elided and vowel):  # d'Alice, but de Mme Weber
                titles = ("Mrs.", "Mme") if old in ("Mary", "Alice") else ("Mr.", "M.")
                english[old], french[old] = (f"{title} {family}" for title in titles)
    return _NAME.sub(lambda old: english[old[0]], pair[0]), _NAME.sub(lambda old: french[old[0]], pair[1])


_QUOTED = re.compile(r'(?<!\w)"(?=\S)([^"«»]*)(?<=\S)"(?!\w)')
_MARKED = re.compile(r"(?<=[\w)\]%»…])[ \u00a0]*([?!;:]+)(?=[\s»)]|$)")


def french(text: str) -> str:
    """French as it is printed: « quoted », a no-break space before ? ! ; : and », and a plain apostrophe.

    >>> french('Quoi? "Rien" dit-il : l’heure est 12:30!').replace("\\u00a0", "_")
    "Quoi_? «_Rien_» dit-il_: l'heure est 12:30_!"
    """
    text = re.sub("[\u202f\u2009]", "\u00a0", rewrite(text, QUOTES).text)
    if '"' in text:
        text = _QUOTED.sub(r"«\1»", text)
    if "«" in text or "»" in text:
        text = re.sub(r"\s*»", "\u00a0»", re.sub(r"«\s*", "«\u00a0", text))
    return _MARKED.sub("\u00a0\\1", text)


def write(folder: Path, name: str, pairs: Pairs, form: Callable[[str], str] = str) -> None:
    """Two files, line for line; French in a form."""
    pack(folder / f"{name}.en.bz2", (pair[0] for pair in pairs))
    pack(folder / f"{name}.fr.bz2", (form(pair[1]) for pair in pairs))


def pack(path: Path, lines: Iterable[str]) -> None:
    """A packed file of these lines."""
    with bz2.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def both(data: Path, name: str) -> Pairs:
    """A corpus of two files."""
    return list(zip(*(read(data / f"{name}.{side}.bz2") for side in ("en", "fr")), strict=True))


def key(text: str) -> str:
    """The words of a sentence, without punctuation and capitals."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def held_out(data: Path) -> set[str]:
    """The keys of all sentences that are for validation and for tests, of both languages."""
    names = [f"europarl.en-fr/{part}" for part in ("dev", "test", "lentest")]
    names += [f"newstest.en-fr/newstest{year}" for year in (2013, 2014)]
    parts = tatoeba(data)
    pairs = [*parts["test"], *parts["dev"], *(pair for name in names for pair in both(data, name))]
    return {key(side) for pair in pairs for side in pair}


def without(pairs: Pairs, held: set[str]) -> Pairs:
    """The pairs that have no held-out sentence on either side."""
    return [pair for pair in pairs if not {key(pair[0]), key(pair[1])} & held]


def main(data: Path, out: Path) -> None:
    """Split, and write."""
    out.mkdir(parents=True, exist_ok=True)
    parts = tatoeba(data)
    dev = [*both(data, "europarl.en-fr/dev")[:200], *both(data, "newstest.en-fr/newstest2013")[:300]]
    corpora = {f"parliament.{part}": f"europarl.en-fr/train.{part}" for part in range(4)}
    corpora |= {f"more.{part}": f"europarl-more.en-fr/train.{part}" for part in range(MORE)}
    corpora["catalogues"] = "catalogues.en-fr/train"
    held = held_out(data)
    free = without(parts["train"], held)  # before typing errors hide what is held out
    chance, other = random.Random(1), random.Random(3)
    hasty = [(typed(english, chance), french) for english, french in free * 2]
    back = [(english, typed(french, other, accents=True)) for english, french in free * 2]
    names = random.Random(5)
    named = [pair for pair in (renamed(one, names) for one in free * 2) if pair]
    texts = {"tatoeba.train": parts["train"], "greetings": greetings() * TIMES, "idioms": IDIOMS * TIMES}
    texts |= {"tatoeba.typed": hasty, "tatoeba.typed-back": back, "tatoeba.named": named}
    for name in (*corpora, *texts):
        pairs = texts[name] if name in texts else both(data, corpora[name])
        kept = without(pairs, held)
        print(f"{name}: {len(kept):,} of {len(pairs):,} pairs; the others are in a test set")
        write(out, name, kept, str if name == "tatoeba.typed-back" else french)
    for language, lines in untranslated(data, held).items():
        print(f"tatoeba.other.{language}: {len(lines):,} sentences")
        pack(out / f"tatoeba.other.{language}.bz2", map(french, lines) if language == "fr" else lines)
    pack(out / "held-out.bz2", sorted(held))
    write(out, "tatoeba.test", parts["test"])  # as it is: a test set
    write(out, "dev", dev + parts["dev"][:300], french)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
