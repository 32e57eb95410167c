"""Terms are placed where the model translated them, or reported; unknown words are copied from the source."""

import json
from functools import partial

import numpy as np
import pytest
import torch
import trained
from commands import run_here

import regard as library
from regard.api.drafts import Draft, copy_unknown
from regard.api.files import translate_file
from regard.api.terms import SLACK, Termbase, _Wanted, elide, link_terms, read_terms
from regard.data.vocabulary import Vocabulary
from regard.decode.hypothesis import Hypothesis
from regard.decode.terms import by_banks
from regard.errors import ConfigError, DataError
from regard.files.segment import Link
from regard.symbols import END, UNKNOWN
from regard.text.normalise import rewrite


@pytest.fixture(scope="module")
def copier():
    return trained.translator("copy")


def words_of(translator, count: int) -> list[str]:
    return translator.source_vocabulary.pieces(range(5, 5 + count))


def test_a_term_replaces_the_translation_of_its_words(copier) -> None:
    """The model copies: word i becomes word i, so a term must come out at its place and change nothing else."""
    a, b, c, d, e = words_of(copier, 5)
    source = f"{a} {b} {c} {d}"
    assert copier.translate(source).text == source
    found = copier.translate(source, terms={b: e})
    assert found.text.split()[:2] == [a, e]
    assert found.unplaced == []
    assert b not in found.text.split()
    two = copier.translate(source, terms=[(a, e), (c, e)])
    assert two.text.split().count(e) == 2
    assert copier.translate(source, terms={e: a}).text == source  # not in the sentence
    assert copier.translate(source, terms={b: b}).text == source  # there already
    alone = copier.translate([source, f"{c} {d}", source], terms={b: e})
    assert [one.text for one in alone] == [found.text, copier.translate(f"{c} {d}").text, found.text]


def test_a_term_is_written_as_the_model_writes_it(copier, monkeypatch) -> None:
    a, b, c, d, e = words_of(copier, 5)
    monkeypatch.setattr(copier.target_vocabulary, "in_form", lambda text: rewrite(text.replace("’", "")))
    found = copier.translate(f"{a} {b} {c} {d}", terms={b: f"{e}’"})
    assert found.text.split()[:2] == [a, e]
    assert found.unplaced == []


def test_a_term_is_found_in_the_form_that_the_model_reads(copier, monkeypatch) -> None:
    read = Vocabulary(copier.source_vocabulary.tokens, "word", "punctuation").comparable
    given = {"l’eau": "water", "“new”": "neuf", "'Ndrangheta": "mafia", "boys' club": "club"}
    terms = Termbase(given, read)
    text = "Voici l’eau et l'eau ‘new’, 'in the boys' club' the 'Ndrangheta."
    found = [(text[slice(*span)], source) for span, source, _ in terms.find(text)]
    wanted = ["l’eau", "l'eau", "‘new’", "boys' club", "'Ndrangheta"]
    assert found == list(zip(wanted, ["l’eau", "l’eau", "“new”", "boys' club", "'Ndrangheta"], strict=True))
    assert Termbase({"1": "one", "2": "two"}, partial(rewrite, form="nfkc")).find("½ cup") == []  # parts of a character
    text = "Du the\u0301 et du thé"  # the places are those of the text as it was written
    found = [text[slice(*span)] for span, *_ in Termbase({"thé": "tea"}, partial(rewrite, form="nfc")).find(text)]
    assert found == ["the\u0301", "thé"]
    a, b, c, d, e = words_of(copier, 5)
    monkeypatch.setattr(copier.source_vocabulary, "form", "nfkc")
    wide = "".join(chr(ord(one) + 0xFEE0) for one in b)
    assert copier.translate(f"{a} {b} {c} {d}", terms={wide: e}).text.split()[:2] == [a, e]


def test_a_term_that_cannot_be_placed_is_reported(copier) -> None:
    a, b, c = words_of(copier, 3)
    found = copier.translate(f"{a} {b} {c}", terms={b: "neverseen"})
    assert found.text == copier.translate(f"{a} {b} {c}").text
    assert found.unplaced == [f"{b} → neverseen"]
    assert "term" in found.flags
    assert any("term" in note for note in found.notes)


def test_terms_come_behind_a_prefix_unless_they_are_in_it(copier) -> None:
    a, b, c, d, e = words_of(copier, 5)
    source = f"{a} {b} {c} {d}"
    behind = copier.translate(source, prefix=a, terms={c: e})
    assert behind.text.split()[:3] == [a, b, e]
    assert behind.unplaced == []
    inside = copier.translate(source, prefix=f"{a} {e}", terms={b: e})
    assert inside.text.split()[:2] == [a, e]
    assert inside.text.split().count(e) == 1
    assert inside.unplaced == []
    # What the term would replace is given: the prefix stays, and the term comes behind it.
    against = copier.translate(source, prefix=f"{a} {b}", terms={b: e})
    assert against.text.split()[:2] == [a, b]
    assert e in against.text.split()[2:]
    assert against.unplaced == []


def test_a_tag_around_a_term_goes_around_its_translation(copier, tmp_path) -> None:
    """Whatever the attention says: these words are known to belong together."""
    links = (Link((0, 2), (0, 4)), Link((3, 6), (0, 4)), Link((7, 9), (10, 11)))
    linked = link_terms(Termbase({"cat": "chat"}), "my cat is", "gros chat a", links)
    assert linked == (links[0], links[2], Link((3, 6), (5, 9)))
    folded = link_terms(Termbase({"dog": "hund", "cat": "katze"}), "cat dog cat", "Straße Katze Hund katze", ())
    # The ß is two letters when folded.
    assert folded == (Link((0, 3), (7, 12)), Link((4, 7), (13, 17)), Link((8, 11), (18, 23)))
    a, b, c, e = words_of(copier, 4)
    for tagged in (f"{a} <b>{b}</b> {c}", f"<i>{a}</i> <b>{b}</b> {c}"):
        (tmp_path / "in.html").write_text(f"<p>{tagged}</p>", encoding="utf-8")
        translate_file(copier, tmp_path / "in.html", tmp_path / "out.html", terms={b: e})
        assert f"<b>{e}</b>" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_translation_with_terms_is_looked_at(copier, tmp_path) -> None:
    a, b, c, e = words_of(copier, 4)
    source = f"{a} {b} {c}"
    trace = copier.look(source, terms={b: e})
    assert trace.target.text == copier.translate(source, terms={b: e}).text != source
    with pytest.raises(DataError, match="Terms exclude a target"):
        copier.look(source, target=source, terms={b: e})
    (tmp_path / "terms.tsv").write_text(f"{b}\t{e}\n", encoding="utf-8")
    done = run_here("look", trained.run("copy"), source, "--terms", tmp_path / "terms.tsv")
    assert (done.code, done.out.split("\n")[0]) == (0, trace.target.text)


def test_terms_are_whole_words_and_the_longest_comes_first() -> None:
    terms = Termbase({"cat": "chat", "black cat": "chat noir", "EU": "UE"})
    text = "The Black cat, a cat and the category of the EU; eu."
    found = [(text[slice(*span)], target) for span, _, target in terms.find(text)]
    assert found == [("Black cat", "chat noir"), ("cat", "chat"), ("EU", "UE")]
    with pytest.raises(DataError, match="a pair of source words and target words"):
        Termbase([("a", "")])


def test_files_of_terms(tmp_path, copier) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# comment\ncat\tchat\n\nblack dog\tchien noir\n", encoding="utf-8")
    assert read_terms(path) == [("cat", "chat"), ("black dog", "chien noir")]
    for line, columns in (
        ("cat chat", "1 column"),
        ("cat\tchat\tnoun", "3 columns"),
        ("cat\t", "2 columns, one of them empty"),
    ):
        path.write_text(f"dog\tchien\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=f"line 2: a term needs source words, .*; got {columns}\\."):
            read_terms(path)
    path.write_text("cat\tchat\ndog\tchien\ncat\tchatte\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 3: cat is to become chatte, but line 1 says chat; keep one of the two"):
        read_terms(path)
    path.write_text("cat\tchat\nCat\tChatte\ncat\tchat\n", encoding="utf-8")  # no contradiction
    assert len(read_terms(path)) == 3
    a, b, c, d = words_of(copier, 4)
    path.write_text(f"{b}\t{d}\n{c}\tneverseen\n", encoding="utf-8")
    done = run_here("translate", trained.run("copy"), f"{a} {b} {c}", "--terms", path, "--json")
    assert done.code == 0
    row = json.loads(done.out)
    assert row["translation"].split()[:2] == [a, d]
    assert row["unplaced"] == [f"{c} → neverseen"]
    assert f"line 1: the term {c} → neverseen could not be placed" in done.err


def test_unknown_words_become_the_source_words_with_their_largest_weight() -> None:
    """Numbers, names and addresses that no vocabulary knows come through, or what a lexicon says for them."""
    vocabulary = Vocabulary.train(["le chat de est à"] * 2, "word", 50)
    text = "Smith 1,234.50 lives at a.b@c.org"
    encoded = Vocabulary.train(["lives at"] * 2, "word", 50).encode(text)
    le, de = vocabulary.encode("le de").ids
    ids = [UNKNOWN, le, UNKNOWN, de, UNKNOWN]
    weights = np.eye(6, dtype=np.float32)[[0, 2, 4, 3, 1, 5]]  # [T, S], END last on both sides
    assert copy_unknown(encoded, ids, weights, vocabulary, {}) == "Smith le a.b@c.org de 1,234.50"
    found = copy_unknown(encoded, ids, weights, vocabulary, {"smith": "Forgeron"})
    assert found == "Forgeron le a.b@c.org de 1,234.50"

    assert copy_unknown(encoded, ids, 0 * weights, vocabulary, {}).count("<unk>") == 3  # no attention, no guess


def test_a_model_without_attention_whose_translation_is_empty_places_terms_too() -> None:
    """Every hypothesis would rather end, so the term alone is the best translation that holds it."""
    fixed = library.load(trained.run("fixed"))
    ends = torch.nn.Linear(fixed.model.output.in_features, fixed.model.output.out_features)
    with torch.no_grad():
        ends.weight.zero_()
        ends.bias.copy_(3.0 * (torch.arange(len(ends.bias)) == END))
    fixed.model.output = ends
    a, b, c = fixed.source_vocabulary.pieces(range(5, 8))
    assert fixed.translate(f"{a} {b}", beam=2).text == ""
    found = fixed.translate(f"{a} {b}", terms={a: c}, beam=2)
    assert (found.text, found.unplaced) == (c, [])


def test_a_translator_copies_unknown_words_unless_they_are_to_be_kept(copier, monkeypatch) -> None:
    a, b = words_of(copier, 2)
    index = copier.target_vocabulary.encode(b).ids[0]
    real = copier.target_vocabulary.decode
    # The model writes the word b; as if its vocabulary did not know it.
    from regard.api import translator as module

    found = module.decode_many

    def forgetful(*args, **kwargs):
        for group in (groups := found(*args, **kwargs)):
            for one in group:
                one.ids[:] = [UNKNOWN if token == index else token for token in one.ids]
        return groups

    monkeypatch.setattr(module, "decode_many", forgetful)
    assert real([UNKNOWN]) == "<unk>"
    assert copier.translate(f"{a} {b}", unknown="keep").text == f"{a} <unk>"
    assert copier.translate(f"{a} {b}").text == f"{a} {b}"
    assert copier.translate(f"{a} {b}", lexicon={b: "mot"}).text == f"{a} mot"
    with pytest.raises(ConfigError, match="unknown must be 'copy' or 'keep'"):
        copier.translate(a, unknown="drop")


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Je vois la automobile.", "fr", "Je vois l'automobile."),
        ("Que Le automobile de automobile", "fr-CA", "Que L'automobile d'automobile"),
        ("la automobile", "de", "la automobile"),
        ("voila automobile, la automobiles", "fr", "voila automobile, la automobiles"),
        ("la automobile", "it", "l'automobile"),
    ],
)
def test_the_word_before_a_term_is_elided(text: str, language: str, expected: str) -> None:
    terms = Termbase({"car": "automobile", "house": "demeure"})
    assert elide(text, terms, "a car and a house", language) == expected
    assert elide("la demeure", terms, "a car and a house", language) == "la demeure"
    assert elide("la automobile", terms, "a house", "fr") == "la automobile"


def test_banks_take_turns_and_the_fullest_is_first() -> None:
    """Candidates, the best first, with 0, 0, 1, 2 and 1 tokens of terms; the last one is impossible."""
    total = torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0, -float("inf")]])
    reached = torch.tensor([[[0, 0], [0, 0], [1, 0], [1, 1], [0, 1], [2, 2]]])
    assert by_banks(total, reached).tolist() == [[3, 2, 0, 4, 1, 5]]


def test_a_translation_that_starts_over_after_its_term_is_too_long() -> None:
    vocabulary = Vocabulary.train(["a b c d e f g h"] * 3, "word", 50)
    ids = vocabulary.encode("a b c").ids
    draft = Draft((0, 1), "x", vocabulary.encode("a"), found=[Hypothesis(ids, -1.0, -1.0, "end", [])])
    wanted = _Wanted(draft, [((0, 1), "x", "d")], vocabulary, [])
    wanted.spelled = [((0, 1), vocabulary.encode("d").ids)]
    longest = len(ids) + 1 + SLACK
    term = vocabulary.encode("d").ids
    fits, over = (Hypothesis([*term, *ids[:1] * (size - 1)], -1.0, -1.0, "end", []) for size in (longest, longest + 1))
    wanted.take([over])
    assert wanted.whole == []
    wanted.take([over, fits])
    assert wanted.whole == [fits]
