"""Everyday sentences: what their checks find, and the included models beside docs/results/everyday.md."""

import re
import runpy
from pathlib import Path

import pytest

import regard
from regard.runs.included import shipped

TREE = Path(__file__).resolve().parent.parent
SHEET = runpy.run_path(str(TREE / "benchmarks" / "everyday.py"))
KINDS = ["greetings", "questions", "negation", "numbers", "names", "idioms", "long", "capitals", "typos", "addresses"]


def judge(source: str, translation: str, kind: str = "", target: str = "fr", **checks: list[str]) -> list[str]:
    return SHEET["failures"]({"text": source, **checks}, translation, target, kind)


def test_there_are_enough_sentences_of_every_kind():
    for way, least in (("en-fr", 20), ("fr-en", 6)):
        kinds = SHEET["SENTENCES"][way]
        assert list(kinds) == KINDS
        assert all(len(sentences) >= least for sentences in kinds.values())
        texts = [sentence["text"] for sentences in kinds.values() for sentence in sentences]
        assert len(texts) == len(set(texts))
        for kind, sentences in kinds.items():
            for sentence in sentences:
                assert set(sentence) <= {"text", "has", "keep", "never"}
                assert all(kept in sentence["text"] for kept in sentence.get("keep", ()))
                assert SHEET["failures"](sentence, sentence["text"], way[-2:], kind)  # the source again fails


def test_no_idiom_of_the_training_text_is_a_sentence_of_the_sheet():
    text = runpy.run_path(str(TREE / "benchmarks" / "models_data.py"))
    learned = {text["key"](side) for pair in text["IDIOMS"] for side in pair}
    rows = [one["text"] for kinds in SHEET["SENTENCES"].values() for kind in kinds.values() for one in kind]
    assert [one for one in rows if text["key"](one) in learned] == []


@pytest.mark.parametrize(
    ("source", "good", "bad", "failure"),
    [
        ("Hello.", "Bonjour.", "…", "empty"),
        ("The train leaves at 7:45.", "Le train part à 7 h 45.", "Le train part à 7 h 54.", "numbers"),
        ("It costs 12.50 euros.", "Ça coûte 12,50 euros.", "Ça coûte 12,80 euros.", "numbers"),
        ("I saw 1,500 cars.", "J'ai vu 1 500 voitures.", "J'ai vu 1,500 voitures.", "numbers"),
        ("I have 2 dogs.", "J'ai deux chiens.", "J'ai trois chiens.", "numbers"),
        ("The 5th floor.", "Le 5e étage.", "Le 15e étage.", "numbers"),
        ("Come at 8 pm.", "Venez à 20 heures.", "Venez à 22 heures.", "numbers"),
        ("I see the cat.", "Je vois le chat.", "Je vois the chat.", "language"),
        ("I'm tired.", "Je suis fatigué.", "I'm fatigué.", "language"),
        ("Love and hate.", "L'amour et la haine.", "L'amour et l'amour.", "repeated"),
        ("We drank tea.", "Nous avons bu du thé.", "Nous avons bu du thé du thé.", "repeated"),
        ("You get up.", "Vous vous levez.", "Vous levez levez.", "repeated"),
        ("Is it true?", "Est-ce vrai ?", "C'est vrai.", "question"),
        ("When I was a child, I lived in a small house.", "Enfant, j'habitais une petite maison.", "Oui.", "length"),
    ],
)
def test_a_good_translation_passes_and_a_bad_one_does_not(source: str, good: str, bad: str, failure: str):
    assert judge(source, good) == []
    assert failure in judge(source, bad)


def test_names_and_words_of_a_sentence():
    assert judge("Ask Emma.", "Demande à Emma.", keep=["Emma"]) == []
    assert judge("Ask Emma.", "Demande à l'émoi.", keep=["Emma"]) == ["kept"]
    assert judge("Ask https://a.org/the?q=1.", "Demande à https://a.org/the?q=1.", keep=["https://a.org/the?q=1"]) == []
    assert judge("Hi!", "Salut !", has=["bonjour|salut"]) == []
    assert judge("Hi!", "Assaut !", has=["bonjour|salut"]) == ["words"]
    assert judge("Cats and dogs.", "Des chats.", never=["chats"]) == ["never"]
    assert judge("I'm here.", "Je suis là aujourd\u2019hui.", has=["aujourd'hui"]) == []  # either apostrophe
    assert judge("I don't know.", "Je ne sais pas.", "negation") == []
    assert judge("I don't know.", "Je l'ignore.", "negation") == []
    assert judge("I don't know.", "Je sais.", "negation") == ["negation"]
    assert judge("He doesn't know it.", "Il est ignorant.", "negation") == ["negation"]
    assert judge("Le train part à 10 h 30.", "The train leaves at 10.30 a.m.", target="en") == []
    assert judge("Le train part à 10 h 30.", "The train leaves at 10:40.", target="en") == ["numbers"]
    assert judge("Il coûte 12,50 euros.", "It costs 12,50 euros.", target="en") == ["numbers"]
    assert judge("Je ne sais pas.", "Je don't know.", "negation", "en") == ["language"]


def test_the_table_counts_and_compares():
    now = {"en-fr": {"greetings": [["a", "b", []], ["a", "b", ["words"]]], "names": [["a", "b", []]]}}
    before = {"en-fr": {"greetings": [["a", "b", ["empty"]], ["a", "b", ["words"]]], "names": [["a", "b", []]]}}
    rows = list(SHEET["table"](now, before))
    assert rows[2:] == ["| greetings | 0 → 1 of 2 |", "| names | 1 → 1 of 1 |", "| all | 1 → 2 of 3 |"]
    assert list(SHEET["table"](now, {}))[-1] == "| all | 2 of 3 |"


def recorded() -> dict[str, dict[str, int]]:
    """Model -> kind -> sentences that passed, from the table of the page."""
    page = (TREE / "docs" / "results" / "everyday.md").read_text(encoding="utf-8").partition("## Typing errors")[0]
    head, *rows = [line.strip("| ").split(" | ") for line in re.findall(r"^\| .* \|$", page, re.MULTILINE)]
    return {
        run.strip("`"): {kind: int(re.search(r"(\d+) of", cells[at])[1]) for kind, *cells in rows}  # type: ignore[index]
        for at, run in enumerate(head[1:])
    }


def test_the_page_has_a_row_for_every_kind_and_a_column_for_every_model():
    assert {run: list(kinds) for run, kinds in recorded().items()} == {run: [*KINDS, "all"] for run in shipped()}


def test_the_front_models_translate_what_a_user_tries_first():
    for run, texts in {
        "en-fr": ["Good morning!", "I don't know."],
        "fr-en": ["Merci beaucoup pour votre aide."],
    }.items():
        model = regard.load(run, "cpu")
        known = {one["text"]: (one, kind) for kind, rows in SHEET["SENTENCES"][run].items() for one in rows}
        for text in texts:
            sentence, kind = known[text]
            assert SHEET["failures"](sentence, model.translate(text).text, model.target_language, kind) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", shipped())
def test_no_kind_becomes_worse_than_the_page_says(run: str):
    passed = {kind: sum(not failed for *_, failed in rows) for kind, rows in SHEET["judge"](run).items()}
    assert {kind: count for kind, count in passed.items() if count < recorded()[run][kind]} == {}
