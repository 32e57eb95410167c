"""Files through a translator and a server: formats, glossaries, tags, real clients."""

import gc
import re
import tracemalloc
from types import SimpleNamespace

import deepl
import pytest
import trained
from commands import run_here
from serve_parts import Server, backwards, shared

from regard.api.files import translate_file
from regard.data.tmx import read_units
from regard.errors import DataError
from regard.files.segment import Sentence
from regard.serve.deepl import MOST_OF_CLIENT


@pytest.fixture(scope="module")
def copier():
    return trained.translator("copy")


def test_the_copying_model_gives_back_every_byte(copier, tmp_path) -> None:
    a, b, c = copier.source_vocabulary.pieces(range(5, 8))
    files = {
        "x.html": f"<html><p title='{b} {a}'>{a} <b>{b}</b>\n{c}<img alt=\"{c} {a}\"></p><script>{a}</script>",
        "x.md": f"# {a} {c}\n\n*{b}* [{c}](u)\n\n```\n{a}\n```\n",
        "x.srt": f"1\n00:00:01,000 --> 00:00:02,000\n<i>{a}</i>\n{b}\n\n",
        "x.txt": f"{a} {b}\r\n\n{c} {a}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        report = translate_file(copier, tmp_path / name, tmp_path / f"out-{name}")
        assert (tmp_path / f"out-{name}").read_bytes() == text.encode()
        assert report.segments >= 1


def test_a_file_that_ends_with_a_language_of_the_model_is_text(tmp_path) -> None:
    translator = trained.translator("bahdanau")
    (tmp_path / "in.en").write_text("the cat sees the dog .\n\n", encoding="utf-8")
    translate_file(translator, tmp_path / "in.en", tmp_path / "out.fr")
    wanted = translator.translate("the cat sees the dog .").text + "\n\n"
    assert (tmp_path / "out.fr").read_text(encoding="utf-8") == wanted
    with pytest.raises(DataError, match=r"There is no file ending 'de'.* Known: txt, .*, tmx\. Name plain text"):
        translate_file(translator, tmp_path / "in.en", tmp_path / "out.de")


def test_a_file_is_not_written_over_itself(copier, tmp_path) -> None:
    text = f"{copier.source_vocabulary.pieces([5])[0]}\n"
    (tmp_path / "x.txt").write_text(text, encoding="utf-8")
    (tmp_path / "same.txt").symlink_to(tmp_path / "x.txt")
    for out in ("x.txt", "same.txt"):
        with pytest.raises(DataError, match="is also an input and would be overwritten; write to another file"):
            translate_file(copier, tmp_path / "x.txt", tmp_path / out)
    assert (tmp_path / "x.txt").read_text(encoding="utf-8") == text


def test_the_command_fills_a_po_file_and_writes_a_memory(copier, tmp_path) -> None:
    a, b, c = copier.source_vocabulary.pieces(range(5, 8))
    source = (
        f'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "{a} <b>{b}</b> %d"\nmsgstr ""\n\nmsgid "{c}"\nmsgstr "done"\n'
    )
    (tmp_path / "app.po").write_text(source, encoding="utf-8")
    run = trained.run("copy")
    done = run_here("translate", run, tmp_path / "app.po", "-o", tmp_path / "out.po")
    assert done.code == 0
    assert "1 segment, 1 sentence translated" in done.err
    expected = source.replace('%d"\nmsgstr ""', f'%d"\nmsgstr "{a} <b>{b}</b> %d"')
    written = (tmp_path / "out.po").read_text(encoding="utf-8")
    assert written.replace("#, fuzzy\n", "").partition("\n\n")[2] == expected.partition("\n\n")[2]
    assert written.count("#, fuzzy\n") == 1
    run_here("translate", run, tmp_path / "app.po", "-o", tmp_path / "done.po", "--no-fuzzy")
    assert (tmp_path / "done.po").read_text(encoding="utf-8") == written.replace("#, fuzzy\n", "")
    assert run_here("translate", run, tmp_path / "app.po", "-o", tmp_path / "m.tmx").code == 0
    (unit,) = read_units(str(tmp_path / "m.tmx"))
    assert set(unit.texts.values()) == {f"{a} {b} %d"}
    refused = run_here("translate", run, tmp_path / "app.po", "-o", tmp_path / "out.html")
    assert (refused.code, (tmp_path / "out.html").exists()) == (2, False)
    assert "app.po is PO, and so must the output be" in refused.err


def test_a_page_names_the_language_of_its_translation(tmp_path) -> None:
    translator = trained.translator("bahdanau")
    page = '<!doctype html><html class="a" lang="en-GB"><p lang="en">the cat sees the dog .</p></html>'
    for name, text in {"a": page, "b": page.replace("en-GB", "fr-CA"), "c": page.replace(' lang="en-GB"', "")}.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        translate_file(translator, tmp_path / f"{name}.html", tmp_path / f"{name}2.html")
    starts = [(tmp_path / f"{name}2.html").read_text(encoding="utf-8").partition("<p")[0] for name in "abc"]
    assert [one.partition("<html")[2] for one in starts] == [
        ' class="a" lang="fr">', ' class="a" lang="fr-CA">', ' class="a">'
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_leaves_nothing_behind(copier, tmp_path) -> None:
    (tmp_path / "x.xlf").write_text("<xliff><file>", encoding="utf-8")
    with pytest.raises(DataError, match=r"x\.xlf: The XML is not valid"):
        translate_file(copier, tmp_path / "x.xlf", tmp_path / "y.xlf")
    assert [path.name for path in tmp_path.iterdir()] == ["x.xlf"]


@pytest.fixture(scope="module")
def server() -> Server:
    return shared()


def test_translate_file_and_download_file(server: Server) -> None:
    text = "<p>ba <b>da</b> fo</p><pre>ba da</pre>"
    fields = {"source": "en", "target": "de"}
    answer = server.client.post("/translate_file", data=fields, files={"file": ("page.html", text.encode())})
    assert answer.status_code == 200, answer.text
    got = server.client.get(answer.json()["translatedFileUrl"])
    assert got.headers["content-disposition"] == 'attachment; filename="page_de.html"'
    assert re.sub("</?b>", "", got.text) == f"<p>{backwards('ba da fo')}</p><pre>ba da</pre>"
    assert sorted(re.findall("</?b>", got.text)) == ["</b>", "<b>"]
    assert server.client.get("/download_file/nothing.html").status_code == 404
    for name, data, expected in [
        ("x.docx", b"PK", "the archive cannot be read"),
        ("x.po", b"msgid 'x", "must be a comment or a string"),
        ("x.html", b"caf\xe9", "not valid utf-8"),
    ]:
        refused = server.client.post("/translate_file", data=fields, files={"file": (name, data)})
        assert refused.status_code == 400
        assert expected in refused.json()["error"]
    assert "missing file" in server.client.post("/translate_file", data=fields).json()["error"]
    listed = server.client.get("/frontend/settings").json()
    assert listed["filesTranslation"] is True
    assert {".po", ".html", ".srt", ".docx"} <= set(listed["supportedFilesFormat"])


def test_deepls_own_client_uses_glossaries_and_tags(server: Server) -> None:
    client = deepl.Translator("key", server_url=server.address.rstrip("/"))
    made = client.create_glossary("mine", "EN", "DE", {"da": "fo", "lu": "neverseen"})
    assert made.entry_count == 2
    assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id]
    assert client.get_glossary_entries(made.glossary_id) == {"da": "fo", "lu": "neverseen"}
    found = client.translate_text("ba da", source_lang="EN", target_lang="DE", glossary=made)
    assert "fo" in found.text.split()
    sent = {"text": ["ba lu"], "source_lang": "EN", "target_lang": "DE", "glossary_id": made.glossary_id}
    (plain,) = server.post("/v2/translate", **sent).json()["translations"]
    assert plain["unplaced_terms"] == ["lu → neverseen"]
    form = {"source": "en", "target": "de", "glossary_id": made.glossary_id}
    page = server.client.post("/translate_file", data=form, files={"file": ("x.html", b"<p>ba <b>da</b></p>")})
    assert "<b>fo</b>" in server.client.get(page.json()["translatedFileUrl"]).text
    with pytest.raises(deepl.DeepLException):
        client.create_glossary("bad", "EN", "FR", {"a": "b"})
    pairs = client.get_glossary_languages()
    assert [(pair.source_lang, pair.target_lang) for pair in pairs] == [("en", "de")]
    marked = client.translate_text(
        "<x>ba</x> <keep>ba da</keep> da", source_lang="EN", target_lang="DE", tag_handling="xml", ignore_tags=["keep"]
    )
    assert marked.text.count("<keep>ba da</keep>") == 1
    assert re.sub("<keep>.*</keep>|</?x>", "", marked.text).split() == ["da", "ba"]
    assert [marked.text.count(tag) for tag in ("<x>", "</x>")] == [1, 1]
    client.delete_glossary(made)
    assert client.list_glossaries() == []
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)


def test_glossaries_that_are_no_csv_and_too_many_of_one_client_are_refused(server: Server) -> None:
    form = {"name": "x", "source_lang": "EN", "target_lang": "DE", "entries_format": "csv"}
    for entries in ("a\rb,c\r", "a" * 140_000 + ",b", '"a' + "b" * 140_000, "a,b\0\rc"):
        refused = server.post("/v2/glossaries", **form, entries=entries)
        assert refused.status_code == 400, entries[:20]
        assert "Invalid glossary entries" in refused.json()["message"]
    first = server.post("/v2/glossaries", **form, entries="a,b\rc,d\r\ne,f")  # line ends of every system
    assert first.json()["entry_count"] == 3
    made = [first, *(server.post("/v2/glossaries", **form, entries="a,b") for _ in range(MOST_OF_CLIENT))]
    assert [one.status_code for one in made] == [201] * MOST_OF_CLIENT + [456]
    for one in made[:-1]:
        assert server.client.delete(f"/v2/glossaries/{one.json()['glossary_id']}").status_code == 204


class Upper:
    """A translator of files that needs no model."""

    source_language, target_language = "en", "fr"

    def translate(self, texts, progress, **options):
        progress(len(texts), len(texts))
        return [
            SimpleNamespace(text=text.upper(), notes=("a number is lost",), unplaced=(), confidence=None)
            for text in texts
        ]

    def link_words(self, sources, targets, terms):
        return [Sentence(target) for target in targets]


UNIT = "It was the best of times, <b>it was</b> the worst. "
REPEATED = {
    "txt": ("", "Yes, it was the best of times.\n", ""),
    "html": ("", f"<p>{UNIT}</p>\n", ""),
    "md": ("", "# Title\n\nIt was the best of *times*, it was the worst.\n\n", ""),
    "srt": ("", "1\n00:00:01,000 --> 00:00:02,000\nIt was the best of times.\n\n", ""),
    "po": ("", 'msgid "It was the best of times."\nmsgstr ""\n\n', ""),
    "xlf": ("<xliff version='1.2'><file><body>", f"<trans-unit><source>{UNIT}</source></trans-unit>",
            "</body></file></xliff>"),
}  # fmt: skip


# To count memory takes seconds: here one kind, in `make slow` all.
@pytest.mark.parametrize(
    "kind", [one if one == "xlf" else pytest.param(one, marks=pytest.mark.slow) for one in REPEATED]
)
def test_the_memory_for_a_file_is_a_few_times_its_size(kind, tmp_path, monkeypatch):
    """Segments take 23 to 68 times the memory of their text, so that only some are there at a time: 7 to 14 times."""
    monkeypatch.setattr("regard.api.files.AT_ONCE", 20)
    head, piece, tail = REPEATED[kind]
    path, out, peaks = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}", {}
    for size in (1 << 10, 12 << 10, 36 << 10):  # what the first keeps (imports, caches) is not counted
        number, seen = size // len(piece) + 1, []
        path.write_text(head + piece * number + tail, encoding="utf-8")
        gc.collect()
        tracemalloc.start()
        found = translate_file(Upper(), path, out, lambda *done, seen=seen: seen.append(done))
        peaks[size] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.segments >= number
        assert found.notes == {"a number is lost": found.sentences}
        assert seen[-1] == (found.segments, found.segments)
        assert out.read_text(encoding="utf-8").count("BEST OF") == number
    assert len(seen) > 10
    grown = max(path.stat().st_size, out.stat().st_size) * 24 / 36
    assert peaks[36 << 10] - peaks[12 << 10] < 18 * grown
