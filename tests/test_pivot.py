"""Pairs without a model, through English: in Python, by commands, by the server and on its page.

The models reverse the words of a sentence, so that two of them give back the sentence.
"""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from browser_parts import opened, until
from commands import run_here
from serve_parts import backwards, serving, spoken, trained

import regard
from regard.api.files import translate_file
from regard.api.flags import join_notes
from regard.errors import ConfigError, RunError
from regard.evaluate.confidence import Confidence
from regard.files.segment import Link, chain_links
from regard.runs.included import find_pivot, find_run
from regard.serve.queue import TranslatedText
from regard.serve.service import Service

TEXT = "ba da fo"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the runs fr-en, and in runs en-de."""
    folder = tmp_path_factory.mktemp("place")
    spoken(trained(), folder / "fr-en", "fr", "en")
    spoken(trained(), folder / "runs" / "en-de", "en", "de")
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def test_a_pair_is_the_run_in_runs_or_two_others_through_english(here, tmp_path, monkeypatch):
    assert find_run("en-de") == Path("runs/en-de")
    assert find_pivot("fr-de") == (Path("fr-en"), Path("runs/en-de"))
    for name in ("en-de", "fr-en", "en-fr", "fr-xx", "xx-de", "fr-de/x", "./other/fr-de", "fr-de.txt"):
        assert find_pivot(name) is None, name
    monkeypatch.chdir(tmp_path)
    assert find_pivot("fr-de") is None
    (tmp_path / "runs").mkdir()
    shutil.copytree(here / "runs" / "en-de", tmp_path / "runs" / "en-de")
    assert find_pivot("fr-de") == (find_run("fr-en"), Path("runs/en-de"))  # fr-en is included
    shutil.copytree(here / "runs" / "en-de", tmp_path / "runs" / "fr-de")
    assert find_pivot("fr-de") is None
    assert find_run("fr-de") == Path("runs/fr-de")


def test_two_translators_are_composed(here):
    pivot = regard.load("fr-de")
    first, second = regard.load("fr-en"), regard.load("en-de")
    assert (pivot.source_language, pivot.target_language) == ("fr", "de")
    begun = first.translate(TEXT)
    ended = second.translate(begun.text, nbest=2)
    found = pivot.translate(TEXT, nbest=2)
    assert (begun.text, found.text) == (backwards(TEXT), TEXT)
    assert math.isclose(found.logprob, begun.logprob + ended.logprob, rel_tol=1e-6)
    assert [one.text for one in found.nbest] == [one.text for one in ended.nbest]
    assert found.tokens == ended.tokens
    strange, empty = pivot.translate(["ba zzz", ""])
    assert strange.unknown == ["zzz"]
    assert strange.flags == first.translate("ba zzz").flags
    assert (empty.text, empty.finished) == ("", "empty")
    assert pivot.translate([TEXT], max_tokens=2)[0].finished == "too long"
    traces = pivot.look(TEXT)
    assert [trace.target.text for trace in traces] == [backwards(TEXT), TEXT]
    assert traces[1].source.text == traces[0].target.text
    for options in ({"terms": {"ba": "da"}}, {"prefix": "ba"}):
        with pytest.raises(ConfigError, match="this translates with two"):
            pivot.translate(TEXT, **options)
    with pytest.raises(ConfigError, match="An ensemble needs runs of one direction"):
        regard.load(["fr-de", "en-de"])


def test_the_confidence_is_the_product(here, monkeypatch):
    pivot = regard.load("fr-de")
    with pytest.raises(RunError, match="is not calibrated"):
        pivot.check_calibrated()
    for half, sure in ((pivot.first, 0.5), (pivot.second, 0.4)):
        half.calibration = SimpleNamespace(rate=lambda decoded, sure=sure: Confidence(sure, [("ba", sure)]))
    found = pivot.translate(TEXT, confidence=True).confidence
    assert (round(found.sentence, 6), found.words) == (0.2, [("ba", 0.4)])


def test_notes_of_both_halves_stay_once_and_the_first_wins():
    begun, ended = {"language": "looks like French", "unseen": "one"}, {"loop": "repeats itself", "unseen": "other"}
    expected = {"unseen": "one", "language": "looks like French", "loop": "repeats itself"}
    assert list(join_notes([begun, ended]).items()) == list(expected.items())
    assert TranslatedText("a", noted=begun).then(TranslatedText("b", noted=ended)).noted == expected


def test_links_meet_in_the_words_between():
    first = [Link((0, 2), (3, 5), 0.5), Link((3, 5), (0, 2), 0.8)]
    second = [Link((0, 2), (0, 4), 0.5), Link((3, 5), (5, 7), 1.0), Link((6, 8), (8, 9), 1.0)]
    assert chain_links(first, second) == (Link((3, 5), (0, 4), 0.4), Link((0, 2), (5, 7), 0.5))


def test_files_are_translated_with_their_tags(here, tmp_path):
    (tmp_path / "page.html").write_text("<p>ba <b>da</b> fo</p>\n")
    translate_file(regard.load("fr-de"), tmp_path / "page.html", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text() == "<p>ba <b>da</b> fo</p>\n"
    (tmp_path / "a.po").write_text('msgid "ba da"\nmsgstr ""\n')
    done = run_here("translate", "fr-de", tmp_path / "a.po", "--out", tmp_path / "b.po", "--no-fuzzy")
    assert done.code == 0, done.err
    assert 'msgstr "ba da"' in (tmp_path / "b.po").read_text()


def test_the_command_says_what_it_does(here, tmp_path):
    done = run_here("translate", "fr-de", TEXT)
    assert (done.code, done.out) == (0, f"{TEXT}\n")
    assert "fr-de: there is no model, so it is translated through English, with fr-en and runs/en-de" in done.err
    assert "through English" not in run_here("translate", "en-de", TEXT).err
    (tmp_path / "terms.tsv").write_text("ba\tda\n")
    for more, says in (
        (["--terms", tmp_path / "terms.tsv"], "Terms are for one model"),
        (["--on", "local", "--out", tmp_path / "out"], "translate in two steps"),
        (["--confidence"], "is not calibrated"),
        (["--with", "en-de"], "An ensemble needs runs of one direction"),
    ):
        refused = run_here("translate", "fr-de", TEXT, *more)
        assert (refused.code, says in refused.err) == (2, True), refused.err
    for name, says in (
        ("fr-it", "en-it is missing: regard import firefox:en-it --out runs/en-it"),
        ("es-it", "import them, as in regard import firefox:en-de --out runs/en-de"),
    ):
        missing = run_here("translate", name, TEXT)
        assert (missing.code, says in missing.err) == (2, True), missing.err
    other = run_here("export", "fr-de", "--out", tmp_path / "out")
    assert (other.code, "but this command needs one model" in other.err) == (2, True), other.err


def test_a_look_shows_both_halves(here, tmp_path):
    done = run_here("look", "fr-de", TEXT)
    assert done.code == 0, done.err
    assert done.out.index(f"{backwards(TEXT)}\n") < done.out.index(f"{TEXT}\n")
    assert "through English" in done.err
    done = run_here("look", "fr-de", TEXT, "--out", tmp_path / "look.json.gz")
    assert done.code == 0, done.err
    traces = [regard.look.Trace.load(tmp_path / f"look.{half}.json.gz") for half in ("fr-en", "en-de")]
    assert [trace.target.text for trace in traces] == [backwards(TEXT), TEXT]
    (tmp_path / "look.fr-en.json.gz").unlink()
    again = run_here("look", "fr-de", TEXT, "--out", tmp_path / "look.json.gz")
    assert (again.code, "look.en-de.json.gz exists; write to another file" in again.err) == (2, True), again.err
    assert not (tmp_path / "look.fr-en.json.gz").exists()
    assert run_here("look", "fr-de", TEXT, "--out", tmp_path / "look.json.gz", "--overwrite").code == 0
    refused = run_here("look", "fr-de", TEXT, "--mask", "ba")
    assert refused.code == 2
    assert "--mask does not apply to a run of the task 'pivot'" in refused.err


# --- the server


def test_a_pair_with_a_model_and_a_language_itself_are_not_pivoted():
    def pivots(*pairs):
        service = object.__new__(Service)
        about = [dict(zip(("source", "target"), ({"code": code} for code in pair), strict=True)) for pair in pairs]
        service.workers = {str(n): SimpleNamespace(about={**one, "kind": "translate"}) for n, one in enumerate(about)}
        return [pair for pair, route in service.routes.items() if route[1:]]

    there, back, on = ("fr", "en"), ("en", "fr"), ("en-GB", "de")
    assert pivots(there, back, on) == [("fr", "de")]
    assert pivots(there, on, ("fr", "de")) == []
    assert pivots(("fr", "it"), ("it", "de")) == []  # not through English


@pytest.fixture(scope="module")
def server(place):
    with serving(place / "fr-en", place / "runs" / "en-de") as server:
        yield server


def test_the_server_offers_the_pair_with_a_mark(server):
    listed = {one["code"]: one for one in server.client.get("/languages").json()}
    assert listed["fr"] == {"code": "fr", "name": "French", "targets": ["en", "de"], "pivoted": ["de"]}
    assert listed["en"] == {"code": "en", "name": "English", "targets": ["de"]}  # as LibreTranslate has it
    about = server.client.get("/api/v1/models").json()
    assert [one["id"] for one in about["models"]] == ["fr-en", "en-de"]
    (pivot,) = about["pivots"]
    assert (pivot["id"], pivot["through"]) == ("fr-en+en-de", ["fr-en", "en-de"])
    assert (pivot["source"]["code"], pivot["target"]["name"]) == ("fr", "German")
    deepl = server.client.get("/v2/glossary-language-pairs").json()["supported_languages"]
    assert {(one["source_lang"], one["target_lang"]) for one in deepl} == {("fr", "en"), ("en", "de")}


def test_the_server_translates_through_english(server):
    pair = {"source": "fr", "target": "de"}
    used = server.client.get("/v2/usage").json()["character_count"]
    assert server.post("/translate", q=[TEXT, "lu me"], **pair).json() == {"translatedText": [TEXT, "lu me"]}
    assert server.client.get("/v2/usage").json()["character_count"] - used == len(TEXT) + len("lu me")
    for name in ("", "fr-en+en-de"):
        assert server.post("/translate", q=TEXT, model=name, **pair).json() == {"translatedText": TEXT}
    found = server.post("/translate", q="<p>ba <b>da</b> fo</p>", format="html", **pair).json()
    assert found == {"translatedText": "<p>ba <b>da</b> fo</p>"}
    linked = server.post("/translate", q=TEXT, alignment=True, **pair).json()["alignment"]
    assert {(tuple(one["source"]), tuple(one["target"])) for one in linked} >= {((0, 2), (0, 2)), ((6, 8), (6, 8))}
    detected = server.post("/translate", q=TEXT, source="auto", target="de").json()
    assert detected["translatedText"] in (TEXT, backwards(TEXT))
    sent = server.post("/v2/translate", text=[TEXT], source_lang="FR", target_lang="DE").json()
    assert sent["translations"][0]["text"] == TEXT
    events = server.post("/translate", q=f"{TEXT}. lu me.", stream=True, model="fr-en+en-de", **pair).text
    last = json.loads(events.split("data: ")[-1])
    assert last == {"translatedText": server.post("/translate", q=f"{TEXT}. lu me.", **pair).json()["translatedText"]}
    refused = server.post("/translate", q=TEXT, source="de", target="fr")
    assert refused.status_code == 400
    unsure = server.post("/translate", q=TEXT, confidence=True, **pair)
    assert (unsure.status_code, "not calibrated" in unsure.text) == (400, True)


def test_the_trace_of_a_pair_has_both_halves(server):
    halves = server.post("/api/v1/trace", text=TEXT, model="fr-en+en-de").json()["halves"]
    assert [half["target"]["text"] for half in halves] == [backwards(TEXT), TEXT]
    alone = server.post("/api/v1/trace", text=backwards(TEXT), model="en-de").json()
    assert halves[1] == alone
    refused = server.post("/api/v1/trace", text=TEXT, model="fr-en+en-de", target=TEXT)
    assert (refused.status_code, "look into one half" in refused.text) == (422, True)
    assert server.post("/api/v1/beam", text=TEXT, model="fr-en+en-de").status_code == 404


@pytest.mark.browser
def test_the_page_marks_the_pair_and_leads_into_its_halves(server, chromium):
    with opened(chromium, server.address) as page:
        page.locator(".translation .word").first.wait_for()
        page.locator("#source").fill(TEXT)
        into = page.get_by_label("Into")
        assert into.locator("option").all_inner_texts() == ["English", "German (through English)"]
        into.select_option("de")
        until(page, f"document.querySelector('.translation').innerText.trim() === '{TEXT}'")
        page.get_by_text(f"Translated through English: {backwards(TEXT)}").wait_for()
        page.get_by_role("button", name="English to German").click()
        until(page, f"document.querySelector('#source').value === '{backwards(TEXT)}'")
        page.locator(".translation .word").first.wait_for()
        assert "model=en-de" in page.url
