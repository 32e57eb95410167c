"""Any text is safe: split, translated and put together again, with flags where something is not right."""

import dataclasses
import json
import random
import re

import pytest
import trained
from commands import regard as command

import regard
from regard.api import drafts
from regard.api.drafts import Draft, Translation, end_alike, join, lower, respell, split, whole, write_numbers
from regard.api.flags import NOTES, wrong_with
from regard.data.settings import DataConfig
from regard.data.vocabulary import Vocabulary
from regard.decode.hypothesis import Hypothesis
from regard.runs.expects import expectations, is_tokenised, knows_no_capitals
from regard.text.languages import other_language


@pytest.fixture(scope="module")
def translator():
    return trained.translator("bahdanau")


def test_what_is_taken_apart_is_put_together_again(translator):
    draw = random.Random(2)
    pieces = ["Ba da", ". ", "! ", "? ", " ", "\n", "\n\n", "Mr. ", "5 ", "。", "» ", '"', "a, ", "I", "\u00a0", "<br>"]
    for _ in range(500):
        text = "".join(draw.choices(pieces, k=draw.randint(0, 20)))
        found = split(text, translator.encode, 3)
        for one in found.drafts:
            one.candidates = [Translation(one.source, 0.0, 0.0, [], [], "end", [])]
        assert join(found).text == (text if text.strip() else "")
        assert all("\n" not in one.source and one.source == text[slice(*one.span)] for one in found.drafts)


def test_sentences_of_a_text_are_translated_alone(translator):
    one, two = "the cat sees the dog .", "I see a house ."
    alone = [translator.translate(text).text for text in (one, two)]
    assert translator.translate(f"  {one} {two}\n\n{two}\n").text == f"  {alone[0]} {alone[1]}\n\n{alone[1]}\n"
    together = translator.translate([f"{one}  {two}", one, "", two], nbest=2, beam=2)
    assert together[0].nbest[1].text == "  ".join(
        translator.translate(t, nbest=2, beam=2).nbest[1].text for t in (one, two)
    )
    assert [each.text for each in together[1:]] == [alone[0], "", alone[1]] or together[1].text
    assert together[0].logprob == pytest.approx(together[1].logprob + together[3].logprob, abs=1e-4)


def test_labels_of_list_items_are_kept_and_not_read(translator):
    said = "I see a house ."
    alone = translator.translate(said)
    for label in ("1. ", "12)  ", "(3) ", "a)\t", "(iv) ", "B. ", "IV) ", "1.- ", "- ", "–\u00a0", "•\u2003", "> "):
        found = translator.translate(label + said)
        assert (found.text, found.flags) == (label + alone.text, alone.flags)
    text = "1. (a) a cat\n3. Mai\n2.\n1990. a cat\n3.2 a\nthe) cat\nE. coli\nM. Dupont\nD. H. Lawrence"
    read = ["(a) a cat", *text.split("\n")[1:]]
    assert [one.source for one in split(text, translator.encode, 50).drafts] == read


@pytest.mark.parametrize("text", ["* * *", "***", "_____", "«»", "- - - -", "= =", "#", "…"])
def test_a_line_without_words_is_kept(translator, text):
    assert translator.translate(f"{text}\nI see a house .").text.split("\n")[0] == text
    assert translator.translate(text).text == text


@pytest.mark.parametrize(
    "kept",
    [
        "https://a.org/b_c?d=12&e",
        "a.b@c.org",
        "www.a.org",
        "/a/b.txt",
        "~/b/c/",
        "@some_name",
        "#été",
        "{name}",
        "`b c`",
        "``b``",
    ],
)
def test_addresses_and_placeholders_of_plain_text_come_back_as_they_are(translator, kept):
    found = translator.translate(f"the cat sees {kept} . the dog sees the cat .", nbest=2, beam=2)
    assert [one.text.count(kept) for one in found.nbest] == [1, 1]
    assert not {"unseen", "number"} & set(found.flags)
    assert translator.translate(f" {kept} ").text == f" {kept} "
    assert kept not in translator.translate(f"the cat sees {kept} .", split=False, unknown="keep").text


def test_one_address_is_read_as_a_name(monkeypatch):
    french, address = regard.load("en-fr", device="cpu"), "anna@example.org"
    text = f"Please write to {address}."
    named = french.translate(text.replace(address, "Google"), nbest=3)
    found = french.translate(text, nbest=3, confidence=True)
    assert found.text == named.text.replace("Google", address)
    assert found.token_logprobs == named.token_logprobs
    assert [one.text.count(address) for one in found.nbest] == [1] * len(found.nbest)
    assert found.text.split() == [word for word, _ in found.confidence.words]
    draft = split(text, french.encode, 99).drafts[0]
    drafts.name_address(draft, french.encode)
    ids = [french.prefix_ids(one) for one in ("Écris à Google.", "Écris.", "À Google, Google.", "Google !")]
    draft.found = [Hypothesis(one, -1.0, -1.0, "end", []) for one in ids]
    assert drafts.keeps(draft, french.target_vocabulary)
    assert [one.ids for one in draft.found] == [ids[0], ids[3]]  # others would lose the address, or write it twice
    draft = split("Google is at www.a.org.", french.encode, 99).drafts[0]
    drafts.name_address(draft, french.encode)
    assert not draft.stand_ins
    others = ["Google is at www.a.org.", f"Ask {address} or www.a.org.", f"Ask {address} 😊 now.", "WRITE TO A@B.ORG"]
    mixed = [one.text for one in french.translate(others)]
    with monkeypatch.context() as changed:  # a translation without the name
        changed.setattr(drafts, "_standing", lambda name: re.compile("(?!)"))
        lost = french.translate(text)
    monkeypatch.setattr(drafts, "name_address", lambda draft, encode: None)
    assert french.translate(text).text == lost.text != found.text
    assert [one.text for one in french.translate(others)] == mixed  # these are read without their addresses


def test_a_full_stop_that_the_source_does_not_have_is_left_out(translator):
    ids = translator.prefix_ids("le chat voit le chien .")
    for source, splits, expected in (("the dog", True, ""), ("the dog", False, " ."), ("the dog .", True, " .")):
        (draft,) = whole(source, translator.encode).drafts
        draft.found = [Hypothesis(ids, -1.0, -1.0, "end", [])]
        translator.spell([draft], None, splits)
        assert draft.texts == ["le chat voit le chien" + expected]
    pairs = [("Open", "Ouvrir."), ("Open.", "Ouvrir."), ("Wait", "Attendez..."), ("(open)", "(ouvrir)."), ("", ".")]
    assert [end_alike(*pair) for pair in pairs] == ["Ouvrir", "Ouvrir.", "Attendez...", "(ouvrir).", "."]


def test_candidates_that_differ_in_the_kind_of_space_are_one(translator):
    encoded = translator.encode("the cat")
    found = [Hypothesis([5, number], -1.0, -1.0, "end", []) for number in range(4, 8)]
    texts = ["5 %", "5\u202f%", "5\u00a0%", "6 %"]
    draft = Draft((0, 7), "the cat", encoded, "the cat", found=found, texts=texts)
    written = translator.candidates(draft, translator.settings(nbest=3, beam=4))
    assert [one.text for one in written] == ["5 %", "6 %"]
    assert written[0].nbest is written
    sampled = translator.candidates(draft, translator.settings(nbest=3, beam=4, temperature=1.0))
    assert [one.text for one in sampled] == texts[:3]


def test_a_text_of_too_many_tokens_is_not_translated(translator):
    short, long = translator.translate(["I see .", "the cat sees the dog ."], max_tokens=4)
    assert (short.finished, long.finished, long.text) == ("end", "too long", "")


def test_a_prefix_or_split_false_keeps_a_text_whole(translator):
    text = "the cat sees the dog . I see a house ."
    assert translator.translate(text, split=False).text == translator.translate(text, prefix="").text
    assert len(whole(text, translator.encode).drafts) == 1


def test_a_long_sentence_is_cut_at_clauses_with_a_note(translator):
    short = dataclasses.replace(translator.experiment.data, max_length=6)
    other = trained.translator("bahdanau")
    cut = type(other)(
        other.model,
        other.source_vocabulary,
        other.target_vocabulary,
        dataclasses.replace(other.experiment, data=short),
        "cut",
    )
    found = cut.translate("the cat sees the dog , the dog sees the cat and the house")
    assert "cut" in found.flags
    assert NOTES["cut"] in found.notes
    assert "cut" not in cut.translate("the cat sees the dog .").flags


def test_a_sentence_in_capitals_is_counted_as_it_is_read():
    letters = Vocabulary.train(["the cat sees the dog"] * 9, "bpe", 300)
    text = "THE CAT SEES THE DOG"
    most = len(letters.encode("the cat sees the dog").ids)
    assert len(letters.encode(text).ids) > most
    found = split(text, letters.encode, most)
    assert (found.cut, [draft.words for draft in found.drafts]) == (False, ["the cat sees the dog"])
    assert split(f"{text} {{name}}", letters.encode, most).cut is False
    assert split(f"{text}, {text}", letters.encode, most + 1).cut is True


def test_words_never_seen_are_marked(translator):
    found = translator.translate("the zebra sees the dog .")
    assert "unseen" in found.flags
    assert found.unknown == ["zebra"]
    assert "unseen" not in translator.translate("the cat sees the dog .").flags


def test_a_trace_holds_the_flags_of_its_translation(translator):
    seen = translator.look("the zebra sees the dog .")
    assert [(note["flag"], note["words"]) for note in seen.notes if note["flag"] == "unseen"] == [("unseen", ["zebra"])]
    assert type(seen).from_json(seen.to_json()).notes == seen.notes
    for text in ("the zebra sees", "je ne sais pas où", "the cat sees the dog . " * 9, "I see a house ."):
        found = translator.translate(text, split=False)
        assert [(note["flag"], note["text"]) for note in translator.look(text).notes] == [
            *zip(found.flags, found.notes, strict=True)
        ]
    assert translator.look("the cat sees the dog .", "le chat voit le chien .").notes == ()


@pytest.mark.parametrize(
    ("text", "own", "expected"),
    [
        ("Je ne sais pas où est la gare.", "en", "fr"),
        ("Ich weiß nicht, wo der Bahnhof ist, und das ist schade.", "en-GB", "de"),
        ("I do not know where the station is.", "fr", "en"),
        ("I do not know where the station is.", "en", ""),
        ("Charles de Gaulle met Ursula von der Leyen in Los Angeles.", "en", ""),
        ("Universidad de la Rioja", "en", ""),
        ("Maria de los Santos, Juan del Rio y Pedro de la Cruz", "en", ""),
        ("Guten Morgen, wo ist der Bahnhof?", "en", "de"),
        ("Wo ist der Bahnhof", "fr", "de"),
        ("¿Dónde está la estación?", "en", "es"),
        ("Dov'è la stazione?", "fr", "it"),
        ("ba da fo", "en", ""),
        ("Je ne sais pas où est la gare.", "", ""),
        ("Je ne sais pas où est la gare.", "xx", ""),
        ("", "en", ""),
    ],
)
def test_another_language_is_recognised_and_names_are_not_one(text: str, own: str, expected: str):
    assert other_language(text, own) == expected


def test_input_in_another_language_is_flagged(translator):
    assert translator.source_language == "en"
    noted = "the source looks like French, but the model reads English"
    found = translator.translate("the cat sees the dog . je ne sais pas où est la gare .")
    assert dict(zip(found.flags, found.notes, strict=True))["language"] == noted
    assert noted in [note["text"] for note in translator.look("je ne sais pas où est la gare .").notes]
    assert "language" not in translator.translate("the cat sees the dog .").flags


@pytest.mark.parametrize(
    ("source", "written", "finished", "expected"),
    [
        ("the cat sleeps here now", "le chat dort ici maintenant", "end", []),
        ("the cat sleeps", "le le le le le chat", "end", ["loop"]),
        ("the cat sleeps", "eeeeeeeeeeeeeeee", "end", ["loop"]),
        ("1000000000000", "1000000000000", "end", []),
        ("no no no no no no", "non non non non non", "end", []),
        ("the cat sleeps", "le chat", "length", ["length"]),
        ("the cat sleeps in the house", "the cat sleeps in the house", "end", ["copy"]),
        ("the cat", "", "end", ["empty"]),
        ("", "", "empty", []),
        ("In 1992, 1,234.50 euros and 7 cats", "En 1992, 1 234,50 euros et sept chats", "end", []),
        ("In 1992 12 cats came", "En 1929 12 chats vinrent", "end", ["number"]),
        ("12 and 12 cats", "12 chats", "end", ["number"]),
        ("Write to a.b@c.org.", "Écrivez à a.b@c.org .", "end", []),
        ("Write to a.b@c.org.", "Écrivez à a@c.org.", "end", ["number"]),
        ("See https://a.org/b12?c=34.", "Voir https://a.org/b12?c=3.", "end", ["number"]),
        ("It costs $5.", "Cela coûte 5 dollars.", "end", []),
        ("It costs $5.", "Cela coûte 5.", "end", ["number"]),
        ("It costs $5.", "Cela coûte cinq dollars.", "end", []),
        ("It costs $5.", "Cela coûte 10 dollars.", "end", ["number"]),
        ("It costs $5, or 12.", "Cela coûte cinq dollars, ou 12.", "end", []),
        ("A budget of €3.4 billion", "Un budget de 34 milliards d'euros", "end", ["number"]),
        ("A budget of €3.4 billion", "Un budget de 3,4 milliards d'euros", "end", []),
        ("1.500 or 1,500,000 cats", "1500 ou 1 500 000 chats", "end", []),
        ("We come in 10 minutes", "Nous venons dans dix minutes", "end", []),
        ("On the 12th", "Le douzième", "end", []),
        ("J'ai 20 ans", "I am twenty", "end", []),
        ("J'ai 20 ans", "I am twenty-two", "end", ["number"]),
        ("17 cats", "dix chats", "end", ["number"]),
        ("10 cats", "dix-sept chats", "end", ["number"]),
        ("10 and 10 cats", "dix chats", "end", ["number"]),
        ("Ten and 10", "Dix", "end", ["number"]),
        ("20 cats", "vingt et un chats", "end", ["number"]),
        ("It costs $5.", "Ça coûte5 dollars.", "end", ["number"]),
        ("The web2 costs $5.", "Le web2 coûte 5 dollars.", "end", []),
        ("It costs $99.99.", "Ça coûte $99,99 dollars.", "end", ["number"]),
        ("It costs $99.99 dollars.", "Ça coûte $99,99 dollars.", "end", []),
        ("It costs €99.", "Ça coûte \ufffd\ufffd99 euros.", "end", ["number"]),
        ("It costs €99.", "Ça coûte €99.", "end", []),
        ("The ticket is €5.", "Le ticket est de 1 euro.", "end", ["number"]),
        ("Only 5 % of it", "Seulement 5 pour cent", "end", []),
        ("Only 5% of it", "Seulement cinq", "end", ["number"]),
        ("Walk 3 km.", "Marchez trois.", "end", ["number"]),
        ("Walk 3 km.", "Marchez trois kilomètres.", "end", []),
        ("Come at 5:30.", "Venez à 17 h 30.", "end", []),
        ("Come at 5:30.", "Venez à 6 h 30.", "end", ["number"]),
        ("Well done 🎉", "Bien joué", "end", ["number"]),
        ("Well done 🎉", "Bien joué 🎉", "end", []),
    ],
)
def test_output_that_is_no_translation_is_flagged(source: str, written: str, finished: str, expected: list[str]):
    assert wrong_with(source, written, finished, same_language=False) == expected


@pytest.mark.parametrize(
    ("source", "written", "expected"),
    [
        ("There are 1,200 people.", "Il y a 1,200 personnes.", "Il y a 1_200 personnes."),
        ("1,200,000 votes", "1,200 000 voix", "1_200_000 voix"),
        ("It costs 1,234.50 euros", "1,234.50 euros", "1_234,50 euros"),
        ("There are 1,200 people.", "Il y a 1200 personnes, ou 1 200.", "Il y a 1200 personnes, ou 1 200."),
        ("1,200 and 11,200 cats", "11,200 et 1,200", "11_200 et 1_200"),
        ("Version 3.5, 1.200, 1,20 and 1,2000", "3.5, 1.200, 1,20, 1,2000", "3.5, 1.200, 1,20, 1,2000"),
        ("1,200 cats", "1,300 chats", "1,300 chats"),
    ],
)
def test_large_numbers_are_written_as_in_the_other_language(source: str, written: str, expected: str):
    expected = expected.replace("_", "\u00a0")
    assert write_numbers(source, written, "en", "fr") == expected
    assert write_numbers(source, written, "en", "de") == write_numbers(source, written, "fr", "fr") == written


def test_large_numbers_of_french_are_written_as_in_english():
    assert write_numbers("1\u202f234\u00a0567,50 €", "€1 234 567,50", "fr", "en") == "€1,234,567.50"
    assert write_numbers("le 14 200 personnes", "on the 14 200 people", "fr", "en") == "on the 14 200 people"


def test_numbers_are_respelled_for_the_other_language():
    pairs = {
        "1,200.50": "1_200,50",
        "99.99": "99,99",
        "1299.5": "1299,5",
        "45": "45",
        "2.10.3": "2.10.3",
        "1,20": "1,20",
    }
    assert [respell(one, "en", "fr") for one in pairs] == [one.replace("_", "\u00a0") for one in pairs.values()]
    assert respell("1\u202f200,50", "fr", "en") == "1,200.50"
    assert respell("1,200.50", "en", "de") == "1,200.50"


@pytest.mark.parametrize(
    ("source", "lost", "read", "stand_ins"),
    [
        ("It costs $1,299.99 today.", "100", "It costs 25 dollars today.", {"25": "1_299,99"}),
        (
            "$25 or 30,500 £, not €1!",
            "22",
            "48 dollars or 36 pounds, not 1 euro!",
            {"48": "25", "36": "30_500", "1": "1"},
        ),
        ("It is 4.75% of 123456.", "0", "It is 25% of 48.", {"25": "4,75", "48": "123456"}),
        ("IT COSTS $99.", "9", "it costs 25 dollars.", {"25": "99"}),
        ("It costs $99.", "99 dollars", None, None),  # nothing is lost
        ("At 10:30 in 1992, in 12/05/2024 or v1.2.3a", "", None, None),  # nothing that a small number can stand for
        ("$10, $20, $30, $40, $50 and $60", "", None, None),  # more than there are small numbers
        ("{price} is $99.", "", None, None),
    ],
)
def test_small_numbers_stand_for_what_was_lost(translator, source, lost, read, stand_ins):
    (draft,) = split(source, translator.encode, 99).drafts
    draft.texts = [lost]
    if draft.words.isupper():
        draft.words = draft.words.lower()
    small = drafts.with_small_numbers(draft, "en", "fr", translator.encode)
    if read is None:
        assert small is None
        return
    assert small is not None
    assert small.words == read
    assert small.stand_ins == {key: value.replace("_", "\u00a0") for key, value in stand_ins.items()}
    text = " ".join(small.stand_ins)
    assert drafts.restore(small, text) == " ".join(small.stand_ins.values())
    small.found = [Hypothesis(translator.prefix_ids("le chat"), -1.0, -1.0, "end", [])]
    assert not drafts.keeps(small, translator.target_vocabulary)


def test_amounts_are_kept_by_the_included_models():
    texts = ["It costs $1,299.99 today.", "LUNCH WAS £12.50.", "I paid $20,000 for 3 of them. It is 10:30."]
    for name in ("en-fr", "en-fr/bahdanau"):
        costs, lunch, paid = regard.load(name, device="cpu").translate(texts, confidence=True)
        assert not any("number" in one.flags for one in (costs, lunch, paid))
        assert "1\u00a0299,99 dollars" in costs.text
        assert "12,50 LIVRES" in lunch.text
        assert "20 000 dollars" in paid.text.replace("\u00a0", " ")
        assert " ".join(word for word, _ in costs.confidence.words).split() == costs.text.split()


def test_a_copy_within_one_language_is_no_fault():
    text = "the cat sleeps in the house"
    assert wrong_with(text, text, "end", same_language=True) == []


def test_a_model_of_lower_case_text_lower_cases_and_says_so():
    translator = trained.translator("copy")
    word = translator.source_vocabulary.pieces([7])[0]
    assert translator.lowercases
    found = translator.translate(word.upper())
    assert found.text == translator.translate(word).text
    assert found.flags[:1] == ["lower-cased"]
    assert found.unknown == []
    assert "lower-cased" not in translator.translate(word).flags
    assert not trained.translator("bahdanau").lowercases  # "I"


def test_capitals_are_read_as_a_sentence_and_written_as_capitals(translator):
    plain = translator.translate("the cat sees the dog .").text
    found = translator.translate("THE CAT SEES THE DOG .", nbest=2, beam=2)
    assert found.text == plain.upper()
    assert "unseen" not in found.flags
    kept = translator.translate("the cat sees {name} .").text
    assert translator.translate("THE CAT SEES {name} .").text == kept.upper().replace("{NAME}", "{name}")
    known = Vocabulary.train(["NATO met .", "Stop here"], "word", 50)
    read = {text: split(text, known.encode, 99).drafts[0] for text in ("NATO", "STOP HERE", "NATO MET", "Stop")}
    assert [text for text, draft in read.items() if draft.capitals] == ["STOP HERE"]
    assert read["STOP HERE"].words == "Stop here"
    assert lower("¡I AM İN PARIS, I!") == "¡I am İn paris, I!"


def test_emoji_and_symbols_are_copied(translator):
    for symbol in ("🎉", "☎️", "👩‍💻", "™", "→"):
        found = translator.translate(f"the cat sees {symbol} the dog .")
        assert found.text.count(symbol) == 1
        assert not {"unseen", "number"} & set(found.flags)


def test_what_a_run_expects_is_read_from_its_vocabulary():
    raw = Vocabulary.train(["Where are you, Tom? I am here.", "He said: no, never."] * 20, "bpe", 330)
    apart = Vocabulary.train(["where are you , tom ? i am here .", "he said , no ."] * 20, "bpe", 330)
    assert [knows_no_capitals(one) for one in (raw, apart)] == [False, True]
    assert [is_tokenised(one) for one in (raw, apart)] == [False, True]
    assert not knows_no_capitals(Vocabulary.train(["1 2 3", "3 4"], "word", 50))
    assert is_tokenised(Vocabulary.train(["a b ."], "word", 50))
    found = expectations(DataConfig(source=("x/a.en", "b.en"), target="c.fr", target_language="fr"), raw)
    assert found == {
        "source_language": "", "target_language": "fr", "case": "any", "text": "raw", "form": "none", "longest": 256,
        "corpus": "a.en, b.en",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", " ", "漢字 😀", "x" * 5000, "où est-ce ?" * 400, "\ud800", "a\x00b", ". . . ."])
def test_any_string_gives_a_translation_or_an_honest_mark(translator, text: str):
    found = translator.translate(text, beam=1)
    found.text.encode("utf-8")
    assert found.finished in ("end", "length", "empty")
    if text.strip() and not found.text.strip():
        assert found.flags


def test_the_command_prints_notes_and_keeps_its_lines(tmp_path):
    run = trained.run("copy")
    word = trained.translator("copy").source_vocabulary.pieces([7])[0]
    stdin = f"{word}\n{word.upper()}\n\n{word} zebra\n".encode()
    found = command("translate", run, "--beam", 1, folder=tmp_path, stdin=stdin)
    assert found.out.count("\n") == 4
    assert "the source was lower-cased: the model was trained on lower-case text" in found.err
    rows = [
        json.loads(line) for line in command("translate", run, "--json", folder=tmp_path, stdin=stdin).out.splitlines()
    ]
    assert ["lower-cased" in row["flags"] for row in rows] == [False, True, False, False]
    assert ["unseen" in row["flags"] for row in rows] == [False, False, False, True]
