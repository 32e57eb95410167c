"""The generated corpora: deterministic, distinct, exactly aligned; the phrasebook's French agrees and elides."""

import random
import re
from datetime import date
from functools import cache
from itertools import chain

import pytest

from regard.cli import corpora
from regard.corpora.lexicon import VERBS
from regard.corpora.marks import Mark, de, example, spell
from regard.corpora.nominal import pronoun
from regard.corpora.phrasebook import generate
from regard.corpora.registry import BUILTIN, OTHERS, find_builtin
from regard.corpora.verbal import Manner, choose_clitic, verb_group
from regard.data.settings import TextDataConfig
from regard.data.text_corpus import find_text
from regard.errors import DataError


@cache
def phrases():
    """Short sentences, and sentences of any length."""
    return generate(4_000, seed=5, min_words=3, max_words=6) + generate(2_500, seed=6, min_words=3, max_words=30)


@pytest.mark.parametrize("name", BUILTIN)
def test_deterministic_distinct_and_within_range(name):
    entry = find_builtin(name)
    examples = entry.generate(500, 4, 3, 9)
    assert examples == entry.generate(500, 4, 3, 9)
    assert examples != entry.generate(500, 5, 3, 9)
    assert len({entry.source for entry in examples}) == len(examples) == 500
    for entry in examples:
        source, target = entry.source.split(" "), entry.target.split(" ")
        assert all(source) and all(target)  # noqa: PT018 - single spaces only
        free = name in ("dates", "questions", "summaries")  # their lengths are what they are
        assert free or 3 <= len(source) <= 9
        assert len(set(entry.alignment)) == len(entry.alignment) > 0
        assert all(0 <= left < len(source) and 0 <= right < len(target) for left, right in entry.alignment)


def test_copy_and_reverse():
    for entry in find_builtin("copy").generate(50, 1, 3, 9):
        assert entry.source == entry.target
    for entry in find_builtin("reverse").generate(50, 1, 3, 9):
        words, back = entry.source.split(" "), entry.target.split(" ")
        assert words == back[::-1]
        assert all(words[left] == back[right] for left, right in entry.alignment)
    with pytest.raises(DataError, match="too few for 100 distinct ones"):
        find_builtin("copy").generate(100, 1, 1, 1)


def test_dates_say_what_they_are():
    examples = find_builtin("dates").generate(3_000, 1, 3, 9)
    for entry in examples:
        when = date.fromisoformat(entry.target)
        numbers = {int(number) for number in re.findall(r"\d+", entry.source)}
        assert {when.day, when.year} <= numbers
        assert when.month in numbers or f"{when:%b}".lower() in entry.source.lower()
    assert any(entry.source.startswith("the ") for entry in examples)
    assert {entry.source for entry in examples if "." in entry.source}


@pytest.mark.parametrize("length", [3, 4, 5, 8, 13, 21, 40, 60, 80])
def test_length_can_be_chosen(length):
    for entry in generate(40, 2, length, length):
        assert len(entry.source.split(" ")) == length


def test_lengths_are_spread_evenly():
    lengths = [len(entry.source.split(" ")) for entry in generate(1_500, 3, 6, 20)]
    assert all(50 <= lengths.count(length) <= 160 for length in range(6, 21))


def test_impossible_lengths_are_refused():
    with pytest.raises(DataError, match="at least 3 words"):
        generate(10, 1, 1, 2)
    with pytest.raises(DataError, match="too few sentences of 3 to 3 words"):
        generate(5_000, 1, 3, 3)


def test_every_word_is_aligned_on_both_sides():
    for entry in phrases():
        lefts, rights = {left for left, _ in entry.alignment}, {right for _, right in entry.alignment}
        assert lefts == set(range(len(entry.source.split(" ")))), entry
        assert rights == set(range(len(entry.target.split(" ")))), entry


def test_the_translation_is_a_function_of_the_sentence():
    seen: dict[str, str] = {}
    repeated = 0
    for seed in range(3):
        for entry in generate(1_500, seed, 3, 5):
            repeated += entry.source in seen
            assert seen.setdefault(entry.source, entry.target) == entry.target
    assert repeated > 200


def test_links_join_words_that_translate_each_other():
    known = {
        "dog": "chien",
        "horses": "chevaux",
        "red": "rouge",
        "never": "jamais",
        "because": "parce",
        "and": "et",
        "house": "maison",
    }
    checked = 0
    for entry in phrases():
        source, target = entry.source.split(" "), entry.target.split(" ")
        for place, word in enumerate(source):
            if word in known:
                linked = [target[right] for left, right in entry.alignment if left == place]
                assert known[word] in [form.removesuffix("s") if word == "red" else form for form in linked], entry
                checked += 1
    assert checked > 300


VOWEL = "[aeiouyâàéèêîôœ]"
MUTE = f"({VOWEL}|h(?!éros|ibou|uit))"


@pytest.mark.parametrize(
    "wrong",
    [
        rf"\b(le|la|je|ne|de|que|me|te|ma|ta|sa|ce|beau|nouveau) {MUTE}",
        r"\b(de|à) (le|les) (?!ai|as|a|avons|ont)",
        r"\b(l'|j'|n'|d'|qu'|m'|t'|cet|bel|nouvel|vieil) [^aeiouyâàéèêîôœh]",
        r"\b(l'|d'|cet|bel|nouvel|vieil) (héros|hibou)",
        r"\b(bel|nouvel|vieil) \w+s\b(?<!ours)",
        r"\bsi ils? ",
        r"\b(un|le|ce) (femme|fille|reine|maison|voiture|pomme|lettre|rue|forêt|clé)\b",
        r"\b(une|la|cette) (homme|garçon|roi|chien|cheval|livre|jardin|chapeau|bateau|pain)\b",
        r"\b(les|des|ces|mes|tes|ses|nos|leurs|deux|trois) (homme|femme|chien|maison|voiture|pomme|enfant|roi)\b",
        r"\b(grande|petite|jolie|belle|vieille|bonne|nouvelle) (homme|garçon|chien|livre|jardin)\b",
        r"\b(grands?|petits?|jolis?|beaux?|vieux|bons?) (femme|fille|reine|maison|voiture)s?\b",
        r"\bil (suis|es|sont|ont|ai|as)\b",
        r"\belle (est|n' est pas|n' est jamais|n' est plus) (arrivé|parti|venu|tombé|revenu|resté|mort|grand|petit)\b",
        r"\bils (sont|ne sont pas) (arrivé|parti|venu|tombé|revenu|resté|mort)e?\b",
        r"\bnous (sommes|ne sommes pas) (arrivé|parti|venu|tombé|revenu|resté|mort)e?\b",
        r"\b(voi[st]|voient|mangent?|achètent?|aiment?|trouvent?) (pas|jamais|plus) (une?|des) ",
        r"\bde (un|une|des|du)\b",
        r"  | $|^ ",
    ],
)
def test_no_french_sentence_holds(wrong):
    pattern = re.compile(wrong)
    for entry in phrases():
        assert not pattern.search(entry.target), entry


def translate(subject, verb, manner=("present", "", ""), him=""):
    """Subject pronoun, verb by its English base, manner and object pronoun: what the grammar makes of them."""
    draws = (random.Random(seed) for seed in range(1_000))
    who = next(found for found in map(pronoun, draws) if found.phrase.english[0].text == subject)
    (entry,) = [
        found
        for found in chain(*VERBS.values())
        if " ".join((*found.english[:1], found.particle)).split() == verb.split()
    ]
    clitic = None
    if him:
        draws = (random.Random(seed) for seed in range(1_000))
        options = (choose_clitic(draw, who, entry.pattern == "to") for draw in draws)
        clitic = next(found for found in options if found.word.text == him)
    group, _ = verb_group(entry, who, Manner(manner[0] == "past", *manner[1:]), clitic)
    made = example(who.phrase + group)
    return made.source, made.target


@pytest.mark.parametrize(
    ("asked", "english", "french"),
    [
        (("she", "arrive", ("past", "", "")), "she arrived", "elle est arrivée"),
        (("we", "leave", ("past", "not", "")), "we did not leave", "nous ne sommes pas partis"),
        (("they", "sleep", ("present", "never", "")), "they never sleep", "ils ne dorment jamais"),
        (("I", "obey", ("present", "", ""), "her"), "I obey her", "je lui obéis"),
        (("I", "love", ("present", "", ""), "you"), "I love you", "je t' aime"),
        (("he", "see", ("past", "", ""), "her"), "he saw her", "il l' a vue"),
        (("you", "wait for", ("past", "not", ""), "them"), "you did not wait for them", "tu ne les as pas attendus"),
        (("they", "speak to", ("past", "", ""), "us"), "they spoke to us", "ils nous ont parlé"),
        (("she", "sing", ("present", "not", "can")), "she can not sing", "elle ne peut pas chanter"),
        (("he", "see", ("present", "", "want to"), "me"), "he wants to see me", "il veut me voir"),
        (("he", "sleep", ("present", "not", "want to")), "he does not want to sleep", "il ne veut pas dormir"),
        (("they", "work", ("present", "", "going to")), "they are going to work", "ils vont travailler"),
        (
            ("I", "see", ("present", "never", "going to"), "him"),
            "I am never going to see him",
            "je ne vais jamais le voir",
        ),
        (("he", "work", ("past", "no longer", "")), "he no longer worked", "il n' a plus travaillé"),
        (("we", "sing", ("past", "often", "")), "we often sang", "nous avons souvent chanté"),
        (("I", "need", ("past", "not", "")), "I did not need", "je n' ai pas eu besoin"),
        (("we", "eat", ("present", "", "")), "we eat", "nous mangeons"),
        (("she", "look for", ("present", "always", ""), "me"), "she always looks for me", "elle me cherche toujours"),
        (("you", "take", ("present", "", "must"), "her"), "you must take her", "tu dois la prendre"),
    ],
)
def test_verbs_and_pronouns(asked, english, french):
    assert translate(*asked) == (english, french)


@pytest.mark.parametrize(
    ("marks", "spelled"),
    [
        ([Mark("le", (), "l'", "article"), Mark("homme", ())], "l' homme"),
        ([Mark("le", (), "l'", "article"), Mark("héros", ())], "le héros"),
        ([de(()), Mark("le", (), "l'", "article"), Mark("roi", ())], "du roi"),
        ([de(()), Mark("le", (), "l'", "article"), Mark("hôtel", ())], "de l' hôtel"),
        ([de(()), Mark("les", (), role="article"), Mark("rois", ())], "des rois"),
        ([Mark("à", (), role="preposition"), Mark("les", (), role="article"), Mark("rois", ())], "aux rois"),
        ([Mark("à", (), role="preposition"), Mark("le", (), "l'"), Mark("prendre", ())], "à le prendre"),
        ([de(()), Mark("des", (), role="partitive"), Mark("œufs", ())], "d' œufs"),
        ([de(()), de((), "partitive"), Mark("la", (), "l'", "article"), Mark("soupe", ())], "de soupe"),
        ([de((), "partitive"), Mark("le", (), "l'", "article"), Mark("lait", ())], "du lait"),
        ([Mark("si", (), role="si"), Mark("il", ())], "s' il"),
        ([Mark("si", (), role="si"), Mark("elle", ())], "si elle"),
        ([Mark("sa", (), "son"), Mark("école", ())], "son école"),
        ([Mark("sa", (), "son"), Mark("vieille", ()), Mark("école", ())], "sa vieille école"),
    ],
)
def test_spelling(marks, spelled):
    assert " ".join(mark.text for mark in spell(marks)) == spelled


def test_the_grammar_s_features_all_occur():
    text = "\n".join(f" {entry.source} => {entry.target} " for entry in phrases())
    for feature in (
        "'s ", " du ", " au ", " aux ", " des ", " l' ", " qu' ", " n' ", " j' ", " s' ", " d' ", " qui ", " que ",
        " où ", " est-ce ", " il y a ", " parce ", " pendant ", " plus ", " chaque ", " beaucoup ", " vieil ", " bel ",
        " cet ", " lui ", " leur ", " besoin ", " in front of ", " à côté ",
    ):  # fmt: skip
        assert feature in text, feature


def test_adjectives_change_place():
    checked = 0
    for entry in phrases():
        match = re.search(r"\bthe red (car|book|house|apple) ", entry.source)
        if match:
            left = entry.source[: match.start()].count(" ") + 1
            places = {
                place: [right for start, right in entry.alignment if start == place] for place in (left, left + 1)
            }
            assert min(places[left]) > max(places[left + 1]), entry
            checked += 1
    assert checked


def test_an_unknown_corpus_is_refused_with_a_hint():
    with pytest.raises(DataError, match=r"There is no built-in corpus 'revers'. Did you mean 'reverse'\?"):
        find_builtin("revers")


def test_a_corpus_of_another_task_is_named_as_one():
    assert set(OTHERS) == set(corpora.OTHERS)
    with pytest.raises(DataError, match=r"'reviews' holds documents, which this model does not read. It reads: phra"):
        find_builtin("reviews")
    with pytest.raises(DataError, match=r"'copy' holds pairs of texts, which this model does not read. It re"):
        find_text(TextDataConfig(corpus="copy"))
