"""benchmarks/data.py: a corpus from a clone and from a server, downloads that are cut off, and what is refused."""

import bz2
import gzip
import hashlib
import io
import re
import runpy
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

TREE = Path(__file__).resolve().parent.parent
TEXT = bytes(range(256)) * 40


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; an answer of more than `cut` bytes ends early. `asked` has the ranges that were asked for."""

    files: dict[str, bytes]
    asked: list[tuple[str, str | None]]
    cut: int | None = None


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        if self.path not in self.server.files:
            return self.send_error(404)
        start = int(re.findall(r"\d+", asked)[0]) if asked else 0
        content = self.server.files[self.path][start:]
        if asked and not content:
            return self.send_error(416)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.cut])

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as one:
        one.files, one.asked = {}, []
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        yield one
        one.shutdown()


def committed(clone: Path) -> str:
    """Commit all files of a folder, and return the commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(clone)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def packed(folder: str, files: dict[str, bytes]) -> bytes:
    """An archive as a server makes it of a commit."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, one in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(one)
            archive.addfile(member, io.BytesIO(one))
    return content.getvalue()


@pytest.fixture
def tool(tmp_path, server: Server, monkeypatch) -> Any:
    """The script with one corpus, which takes a file and a folder of a repository; and that repository as a clone and
    on a server.
    """
    clone = tmp_path / "clones" / "some+one"
    (clone / "many").mkdir(parents=True)
    files = {"whole.bin": TEXT, "many/b.txt": b"two\n", "many/a.txt": b"one\n", "many/other.md": b"no\n"}
    for name, content in files.items():
        (clone / name).write_bytes(content)
    commit = committed(clone)
    server.files[f"/some/one/raw/{commit}/whole.bin"] = TEXT
    server.files[f"/some/one/archive/{commit}.tar.gz"] = packed(f"one-{commit}", files)
    names = runpy.run_path(str(TREE / "benchmarks" / "data.py"))
    lines = "".join(f"{sha(files[name])}  {name}\n" for name in ("many/a.txt", "many/b.txt"))

    def made(source: Any) -> Iterator[tuple[str, bytes]]:
        yield "whole", source.file("whole.bin", sha(TEXT))
        found = dict(source.folder("many", lambda name: name.endswith(".txt"), sha(lines.encode())))
        yield "joined", b"".join(found[name] for name in sorted(found))

    inside = names["build"].__globals__
    monkeypatch.setitem(inside["CORPORA"], "small", names["Corpus"]("some/one", commit, made, "a corpus", "CC0"))
    expected = {"whole": TEXT, "joined": b"one\ntwo\n"}
    monkeypatch.setitem(
        inside, "OUTPUTS", {f"small/{name}.bz2": sha(bz2.compress(one)) for name, one in expected.items()}
    )

    def run(*arguments: str, out: Path = tmp_path / "data") -> int:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr("sys.argv", ["data.py", "small", "--out", str(out), "--base", base, *arguments])
        return names["main"]()

    run.files = lambda: {path.name: bz2.decompress(path.read_bytes()) for path in tmp_path.glob("data/small/*")}
    run.expected = {f"{name}.bz2": content for name, content in expected.items()}
    run.clones, run.commit, run.folder = str(tmp_path / "clones"), commit, tmp_path / "data"
    return run


@pytest.mark.parametrize("clones", [True, False])
def test_a_corpus_is_built_once_from_a_clone_or_a_server(tool, server: Server, capsys, clones: bool) -> None:
    given = ["--from", tool.clones] if clones else []
    assert tool(*given) == 0
    assert tool.files() == tool.expected
    assert "CC0" in capsys.readouterr().err
    assert bool(server.asked) != clones
    assert not [*(tool.folder / ".downloads").glob("*")]
    server.asked.clear()
    assert tool(*given) == 0
    assert "already" in capsys.readouterr().err
    assert server.asked == []


def test_a_download_that_is_cut_off_continues(tool, server: Server, capsys) -> None:
    server.cut = 4000
    assert tool() == 1
    assert "ended after 4,000 of 10,240 bytes; run the command again" in capsys.readouterr().err
    assert tool.files() == {}
    server.cut = None
    assert tool() == 0
    assert server.asked[1] == (f"/some/one/raw/{tool.commit}/whole.bin", "bytes=4000-")
    assert tool.files() == tool.expected


def test_a_part_that_is_longer_than_the_file_begins_again(tool, server: Server) -> None:
    part = tool.folder / ".downloads" / "some+one" / "whole.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(TEXT + b"more")
    assert tool() == 0
    assert [asked for _, asked in server.asked[:2]] == [f"bytes={len(TEXT) + 4}-", None]
    assert tool.files() == tool.expected


def test_other_content_is_refused_and_nothing_is_written(tool, server: Server, capsys) -> None:
    server.files[f"/some/one/raw/{tool.commit}/whole.bin"] = TEXT[:-1] + b"x"
    assert tool() == 1
    assert f"expected {sha(TEXT)}. The download was removed; try again." in capsys.readouterr().err
    assert tool.files() == {}
    server.files[f"/some/one/raw/{tool.commit}/whole.bin"] = TEXT
    assert tool() == 0


def test_without_a_network_it_says_what_to_do(tool, server: Server, capsys) -> None:
    assert tool("--base", "http://127.0.0.1:1") == 1
    said = capsys.readouterr().err
    assert "cannot be reached" in said
    assert "--from DIR" in said
    assert tool("--from", "nowhere") == 1
    assert "git clone https://github.com/some/one" in capsys.readouterr().err
    del server.files[f"/some/one/raw/{tool.commit}/whole.bin"]
    assert tool() == 1
    assert "answered 404" in capsys.readouterr().err


PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Save the file. Then <b>close</b> it."
msgstr "Enregistrez le fichier. Puis <b>fermez</b>-le."

msgid "&Open :ref:`the page <page>`"
msgstr "&Ouvrir :ref:`la page <page>`"

msgid "%(count)s file"
msgid_plural "Several files"
msgstr[0] "%(count)s fichier"
msgstr[1] "Plusieurs fichiers"

#, fuzzy
msgid "not checked"
msgstr "pas relu"

msgid "Same"
msgstr "Same"

msgid "A very short message"
msgstr "Un message qui est beaucoup plus long que la phrase dont il devrait être la traduction exacte"
"""


@pytest.mark.parametrize("clones", [True, False])
def test_catalogues_of_several_repositories_become_plain_sentences(tmp_path, server, monkeypatch, clones: bool) -> None:
    names = runpy.run_path(str(TREE / "benchmarks" / "data.py"))
    inside, rows = names["build"].__globals__, []
    for name in ("some/one", "other/two"):
        path = "app/locale/fr/LC_MESSAGES/app.po"
        clone = tmp_path / "clones" / name.replace("/", "+")
        (clone / path).parent.mkdir(parents=True)
        (clone / path).write_text(PO, encoding="utf-8")
        (clone / "app/locale/fr.txt").touch()
        commit = committed(clone)
        server.files[f"/{name}/archive/{commit}.tar.gz"] = packed(
            f"x-{commit}", {path: PO.encode(), "fr.po.txt": b"no"}
        )
        found = sha(f"{sha(PO.encode())}  {path}\n".encode())
        rows.append([name, commit, "MIT", r"(?:.*[/_.-])?fr(?:_FR)?(?:/.*)?\.po", found])
    english = b"Save the file.\nThen close it.\nOpen the page\nSeveral files\n"
    french = b"Enregistrez le fichier.\nPuis fermez-le.\nOuvrir la page\nPlusieurs fichiers\n"
    expected = {
        f"catalogues.en-fr/train.{side}.bz2": sha(bz2.compress(text))
        for side, text in (("en", english), ("fr", french))
    }
    monkeypatch.setitem(inside, "CATALOGUES", rows)
    monkeypatch.setitem(inside, "OUTPUTS", expected)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    given = ["--from", str(tmp_path / "clones")] if clones else ["--base", base]
    monkeypatch.setattr("sys.argv", ["data.py", "catalogues.en-fr", "--out", str(tmp_path / "data"), *given])
    assert names["main"]() == 0
    assert bz2.decompress((tmp_path / "data/catalogues.en-fr/train.en.bz2").read_bytes()) == english
    rows[1][4] = "0" * 64
    (tmp_path / "data/catalogues.en-fr/train.en.bz2").unlink()
    assert names["main"]() == 1
    assert not (tmp_path / "data/catalogues.en-fr/train.en.bz2").exists()


def test_more_of_europarl_has_nothing_of_the_chosen_pairs_and_of_the_held_out_quarter(tmp_path, monkeypatch) -> None:
    names = runpy.run_path(str(TREE / "benchmarks" / "data.py"))
    inside = names["build"].__globals__
    pairs = [("xml-files/ep-99-01-01.xml", f"chosen {k} word", f"choisi {k} mot") for k in range(3)]
    pairs += [
        ("xml-files/ep-00-11-01.xml", "from the quarter", "du trimestre"),
        ("xml-files/ep-99-01-01.xml", "new one", "nouveau"),
    ]
    pairs += [
        pairs[-1],
        ("xml-files/ep-99-01-01.xml", "new pair", "choisi 2 mot"),
        pairs[0],
        ("a.xml", "12 34", "12, 34"),
    ]
    monkeypatch.setitem(inside, "europarl_pairs", lambda source: pairs)
    monkeypatch.setitem(inside, "europarl_chosen", lambda: [0] * 800000 + [1, 2])
    found = dict(names["europarl_more"](None))
    assert found == {"train.0.en": b"new one\n", "train.0.fr": b"nouveau\n"}


def test_more_of_tatoeba_has_each_sentence_once_whatever_its_side(monkeypatch) -> None:
    names = runpy.run_path(str(TREE / "benchmarks" / "data.py"), run_name="data")
    inside = names["tatoeba_more"].__globals__
    files = {
        "deu-fra": "deu\tfra\tJa.\tOui.\ndeu\tfra\tDoch.\tOui.\n",
        "eng-fin": "eng\tfin\tYes,  sir. \tJoo.\n",
        "fra-zho": "fra\tzho_Hans\tBonjour !\t你好\nfra\tzho_Hans\t \t好\n",
    }
    monkeypatch.setitem(inside, "INPUTS", {"tatoeba-more": dict.fromkeys(files, "sum")})
    source = SimpleNamespace(file=lambda path, expected: gzip.compress(files[path].encode()))
    found = {name: content.decode() for name, content in names["tatoeba_more"](source)}
    assert found == {"sentences.en": "Yes, sir.\n", "sentences.fr": "Oui.\nBonjour !\n"}


def test_a_missing_corpus_of_a_config_names_the_command_that_builds_it(monkeypatch, tmp_path) -> None:
    from regard.data.captions import PictureFiles
    from regard.errors import DataError, check_file

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "data.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"python benchmarks/data\.py multi30k$"):
        check_file("data/multi30k/train.en.bz2")
    with pytest.raises(DataError, match=r"check the path\.$"):
        check_file("other/multi30k/train.en.bz2")
    with pytest.raises(DataError, match=r"python benchmarks/data\.py flickr8k$"):
        PictureFiles("data/flickr8k/train.tar")
    (tmp_path / "data" / "flickr8k").mkdir(parents=True)  # the captions are there, which that command builds
    with pytest.raises(DataError, match=r"docs/results/index\.md#photographs-of-flickr8k has the script\.$"):
        PictureFiles("data/flickr8k/train.tar")


def test_every_corpus_of_a_config_can_be_built() -> None:
    known = runpy.run_path(str(TREE / "benchmarks" / "data.py"))["CORPORA"]
    configs = "".join(path.read_text(encoding="utf-8") for path in TREE.glob("configs/**/*.toml"))
    assert set(re.findall(r'"data/([^/"]+)/', configs)) <= set(known)


def test_nothing_reads_a_folder_outside_the_clone() -> None:
    folders = [TREE / name for name in ("benchmarks", "configs", "docs")]
    read = [path for folder in folders for ending in ("py", "md", "toml") for path in folder.rglob(f"*.{ending}")]
    assert [path for path in read if "../shared" in path.read_text(encoding="utf-8")] == []
