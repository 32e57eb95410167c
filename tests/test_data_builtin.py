"""The generated corpora: deterministic, distinct, exactly aligned; the phrasebook's French agrees and elides."""

import re
from datetime import date

import pytest

from regard.data.builtin.phrasebook import generate
from regard.data.builtin.registry import BUILTIN, find_builtin
from regard.errors import DataError

SHORT = {example.source: example for example in generate(9_000, seed=5, min_words=3, max_words=5)}
MIXED = generate(3_000, seed=6, min_words=3, max_words=30)
ALL = [*SHORT.values(), *MIXED]


@pytest.mark.parametrize("name", BUILTIN)
def test_deterministic_distinct_and_within_range(name):
    entry = find_builtin(name)
    examples = entry.generate(500, 4, 3, 9)
    assert examples == entry.generate(500, 4, 3, 9)
    assert examples != entry.generate(500, 5, 3, 9)
    assert len({example.source for example in examples}) == len(examples) == 500
    for example in examples:
        source, target = example.source.split(" "), example.target.split(" ")
        assert all(source) and all(target)  # noqa: PT018 - single spaces only
        assert name == "dates" or 3 <= len(source) <= 9
        assert len(set(example.alignment)) == len(example.alignment) > 0
        assert all(0 <= left < len(source) and 0 <= right < len(target) for left, right in example.alignment)


def test_copy_and_reverse():
    for example in find_builtin("copy").generate(50, 1, 3, 9):
        assert example.source == example.target
    for example in find_builtin("reverse").generate(50, 1, 3, 9):
        words, back = example.source.split(" "), example.target.split(" ")
        assert words == back[::-1]
        assert all(words[left] == back[right] for left, right in example.alignment)
    with pytest.raises(DataError, match="too few for 100 distinct ones"):
        find_builtin("copy").generate(100, 1, 1, 1)


def test_dates_say_what_they_are():
    examples = find_builtin("dates").generate(3_000, 1, 3, 9)
    for example in examples:
        when = date.fromisoformat(example.target)
        numbers = {int(number) for number in re.findall(r"\d+", example.source)}
        assert {when.day, when.year} <= numbers
        assert when.month in numbers or f"{when:%b}".lower() in example.source.lower()
    assert any(example.source.startswith("the ") for example in examples)
    assert {example.source for example in examples if "." in example.source}


@pytest.mark.parametrize("length", [3, 4, 5, 8, 13, 21, 40, 60, 80])
def test_length_can_be_chosen(length):
    for example in generate(40, 2, length, length):
        assert len(example.source.split(" ")) == length


def test_lengths_are_spread_evenly():
    lengths = [len(example.source.split(" ")) for example in generate(1_500, 3, 6, 20)]
    assert all(50 <= lengths.count(length) <= 160 for length in range(6, 21))


def test_impossible_lengths_are_refused():
    with pytest.raises(DataError, match="at least 3 words"):
        generate(10, 1, 1, 2)
    with pytest.raises(DataError, match="too few sentences of 3 to 3 words"):
        generate(100_000, 1, 3, 3)


def test_every_word_is_aligned_on_both_sides():
    for example in ALL:
        lefts, rights = {left for left, _ in example.alignment}, {right for _, right in example.alignment}
        assert lefts == set(range(len(example.source.split(" ")))), example
        assert rights == set(range(len(example.target.split(" ")))), example


def test_the_translation_is_a_function_of_the_sentence():
    seen: dict[str, str] = {}
    for seed in range(3):
        for example in generate(2_000, seed, 3, 5):
            assert seen.setdefault(example.source, example.target) == example.target


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
    for example in ALL:
        source, target = example.source.split(" "), example.target.split(" ")
        for place, word in enumerate(source):
            if word in known:
                linked = [target[right] for left, right in example.alignment if left == place]
                assert known[word] in [form.removesuffix("s") if word == "red" else form for form in linked], example
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
    for example in ALL:
        assert not pattern.search(example.target), example


EXPECTED = {
    "she arrived .": "elle est arrivée .",
    "we did not leave .": "nous ne sommes pas partis .",
    "they never sleep .": "ils ne dorment jamais .",
    "I obey her .": "je lui obéis .",
    "he saw her .": "il l' a vue .",
    "you waited for them .": "tu les as attendus .",
    "she can not sing .": "elle ne peut pas chanter .",
    "he wants to sleep .": "il veut dormir .",
    "they are going to work .": "ils vont travailler .",
    "I was happy .": "j' étais heureux .",
    "she was very tired .": "elle était très fatiguée .",
    "women are strong .": "les femmes sont fortes .",
    "he no longer works .": "il ne travaille plus .",
    "we often sang .": "nous avons souvent chanté .",
    "did she dance ?": "est-ce qu' elle a dansé ?",
    "she needs some water .": "elle a besoin d' eau .",
    "they look for us .": "ils nous cherchent .",
    "a woman died .": "une femme est morte .",
}


def test_sentences_a_french_speaker_would_write():
    found = [source for source in EXPECTED if source in SHORT]
    assert len(found) >= 10
    for source in found:
        assert SHORT[source].target == EXPECTED[source]


def test_the_grammar_s_features_all_occur():
    text = "\n".join(f" {example.source} => {example.target} " for example in ALL)
    for feature in (
        "'s ", " du ", " au ", " aux ", " des ", " l' ", " qu' ", " n' ", " j' ", " s' ", " d' ", " qui ", " que ",
        " où ", " est-ce ", " il y a ", " parce ", " pendant ", " plus ", " chaque ", " beaucoup ", " vieil ", " bel ", " cet ",
        " lui ", " leur ", " besoin ", " in front of ", " à côté ",
    ):  # fmt: skip
        assert feature in text, feature


def test_adjectives_change_place():
    checked = 0
    for example in ALL:
        match = re.search(r"\bthe red (car|book|house|apple) ", example.source)
        if match:
            left = example.source[: match.start()].count(" ") + 1
            places = {
                place: [right for start, right in example.alignment if start == place] for place in (left, left + 1)
            }
            assert min(places[left]) > max(places[left + 1]), example
            checked += 1
    assert checked


def test_an_unknown_corpus_is_refused_with_a_hint():
    with pytest.raises(DataError, match=r"There is no built-in corpus 'revers'. Did you mean 'reverse'\?"):
        find_builtin("revers")
