"""X1 to X5, X8 to X11: files, pictures and texts that someone else made run nothing, take little and crash nothing."""

import hashlib
import html.parser
import io
import json
import os
import re
import resource
import shutil
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import marian_files
import numpy as np
import sentencepiece
import trained
from durability import reseal
from promises import check, refused
from test_format_laws import archive
from test_formats import unchanged
from test_serve_hostile import ALL

import regard
from regard.api.importing import import_model
from regard.data.images import encode_png, read_picture
from regard.data.tmx import read_units
from regard.data.vocabulary import Vocabulary
from regard.errors import RegardError
from regard.files.document import FORMATS, read_document
from regard.look.trace import Trace
from regard.runs.folder import read_shapes, read_tensors
from regard.sealed import seal
from regard.serve.layout import Layout, read_plain
from regard.serve.queue import TranslatedText
from regard.text.lines import is_blank

TRAPS = {
    "ctypes.dlopen", "os.exec", "os.fork", "os.posix_spawn", "os.remove",
    "os.rename", "os.system", "pickle.find_class", "shutil.rmtree", "socket.connect", "socket.getaddrinfo",
    "subprocess.Popen",
}  # fmt: skip
MEMORY = 600 << 20  # bytes that opening a file of a megabyte may take on top
SECONDS = 20  # of processor time
sprung: list[str] = []
armed: Path | None = None  # the folder that may be written while the trap is set


def _trap(event: str, arguments: tuple) -> None:
    written = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
    if armed and (event in TRAPS or written) and not any(own in str(arguments) for own in ("__pycache__", str(armed))):
        sprung.append(f"{event} {arguments!r:.100}")


sys.addaudithook(_trap)


def refused_or_done(action: Callable[[], object], writes: Path = Path("/nowhere")) -> None:
    """Do something that must end well or with one sentence, run nothing, write to `writes` alone and take little."""
    global armed
    sprung.clear()
    before, began, message = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), ""
    armed = writes
    try:
        action()
    except RegardError as error:
        message = str(error)
    finally:
        armed = None
    assert len(message) < 2000, "a sentence, not the file"
    assert "\n" not in message, message
    assert not sprung, sprung
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MEMORY
    assert time.process_time() - began < SECONDS


def mutated(data: bytes, draw: Random, parts: list[bytes]) -> bytes:
    """Some random changes, some of them insertions of `parts`."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4])):
        place, kind = draw.randrange(len(found) + 1), draw.randrange(4)
        if kind == 0 and place < len(found):
            found[place] = draw.randrange(256)
        elif kind == 1:
            del found[place : place + draw.randint(1, 30)]
        elif kind == 2:
            found[place:place] = draw.choice(parts)
        else:
            start = draw.randrange(len(found) + 1)
            found[place:place] = found[start : start + draw.randint(1, 80)]
    return bytes(found)


# --- runs

VALUES = [
    "0", "-1", "2", "5000", "1000000", str(10**18), str(2**70), "0x" + "f" * 5000, "9" * 5000, "1e308", "1e-308", "nan",
    "inf", '""', '"x"', "true", "[]", "[1]", "{}", "1979-05-27", '"../.."', '"/etc/passwd"',
    "[" * 5000 + "]" * 5000,
]  # fmt: skip


@check(
    "X1", "an untrusted run with other settings: refused in a sentence or loaded, nothing run, little taken", 12, 2000
)
def settings(draw: Random, folder: Path) -> None:
    run = folder / "run"
    shutil.copytree(trained.run(draw.choice(["bahdanau", "heads", "fixed"])), run)
    lines = (run / "config.toml").read_text(encoding="utf-8").split("\n")
    numbered = [number for number, line in enumerate(lines) if " = " in line]
    for number in draw.sample(numbered, draw.choice([1, 1, 2])):
        lines[number] = lines[number].partition(" = ")[0] + " = " + draw.choice(VALUES)
    (run / "config.toml").write_text("\n".join(line for line in lines if not line.startswith("#")), encoding="utf-8")
    reseal(run)
    refused_or_done(lambda: regard.load(run))


@check("X1", "an untrusted model of any size: refused before its memory is taken", 4, 200)
def sizes(draw: Random, folder: Path) -> None:
    run = folder / "run"
    shutil.copytree(trained.run("heads"), run)
    text = (run / "config.toml").read_text(encoding="utf-8").partition("# sha256")[0]
    name = draw.choice(["width", "inner", "layers"])
    size = draw.choice([5000, 10**5, 10**6, 10**9]) * 2
    (run / "config.toml").write_text(re.sub(rf"(?m)^{name} = .*", f"{name} = {size}", text), encoding="utf-8")
    reseal(run)
    refused_or_done(lambda: regard.load(run))


JSON = [
    b"null", b"[]", b'"x"', b"1e400", b"NaN", b"-Infinity", b"9" * 5000, b"[" * 5000 + b"]" * 5000, b'{"a":' * 3000,
    b"\xff\xfe", b"", b'{"step": 1.5}', b'{"best_step": "../.."}', b'{"best_step": [1], "step": 1}', b"true", b"5",
]  # fmt: skip


@check("X2", "JSON of an untrusted run: any content is refused in a sentence or harmless", 20, 5000)
def json_files(draw: Random, folder: Path) -> None:
    run = folder / "run"
    shutil.copytree(trained.run("bahdanau"), run)
    name = draw.choice(["source.json", "manifest.json", "state.json", "alignment.json"])
    if name == "state.json":  # of an unfinished run
        (run / "manifest.json").unlink()
        place = sorted((run / "checkpoints").iterdir())[-1]
    else:
        place = run
    content = draw.choice(JSON)
    if draw.random() < 0.5 and (place / name).exists():
        content = mutated((place / name).read_bytes(), draw, JSON)
    (place / name).write_bytes(content)
    if name == "source.json":
        reseal(run)
    if name == "state.json":
        manifest = json.loads((place / "manifest.json").read_bytes())
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        manifest.pop("seal")
        (place / "manifest.json").write_bytes(seal(manifest))
    refused_or_done(lambda: regard.load(run))


HEADERS = [
    b"{",
    b"}",
    b'"shape":[0,1099511627776]',
    b'"F32"',
    b'"I8"',
    b"-1",
    b"9" * 30,
    b"\0",
    b"\xff" * 8,
    b"[" * 2000,
]


@check("X2", "an untrusted safetensors file: any header is refused or read", 60, 100_000)
def tensors(draw: Random, folder: Path) -> None:
    path = folder / "weights.safetensors"
    good = _weights()
    size = int.from_bytes(good[:8], "little")
    header = mutated(good[8 : 8 + size], draw, HEADERS)
    length = len(header) if draw.random() < 0.9 else draw.choice([2**63, 2**64 - 1, 90 << 20, 0])
    path.write_bytes(struct.pack("<Q", length) + header + good[8 + size :])
    refused_or_done(lambda: (read_shapes(path), read_tensors(path)))


@cache
def _weights() -> bytes:
    return (trained.run("bahdanau") / "weights.safetensors").read_bytes()


@check("X2", "an untrusted SentencePiece model: refused or used", 10, 3000)
def pieces(draw: Random, folder: Path) -> None:
    for name in ("source.json", "source.model"):
        shutil.copy(trained.run("heads") / name, folder / name)
    (folder / "source.model").write_bytes(
        mutated((folder / "source.model").read_bytes(), draw, [b"\xff" * 8, b"\n\x00"])
    )
    header = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    keys = json.dumps({name: header[name] for name in ("format", "kind", "form", "lowercase")}, sort_keys=True).encode()
    own = hashlib.sha256(keys + b"\0" + (folder / "source.model").read_bytes()).hexdigest()
    (folder / "source.json").write_text(json.dumps({**header, "fingerprint": own}), encoding="utf-8")

    def use() -> None:
        vocabulary = Vocabulary.load(folder, "source")
        for text in ("the black cat .", "", "日本語 \x00 ▁▁ <0x41> é" * 5, "a" * 3000):
            vocabulary.decode(vocabulary.encode(text).ids).encode("utf-8")
        vocabulary.pieces(range(len(vocabulary)))

    refused_or_done(use)


def _npy(kind: str, shape: object, data: bytes) -> bytes:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + data


MEMBERS = [
    _npy("|O", (1,), b"\x80\x04cos\nsystem\n."), _npy("<f4", (10**12,), b""), _npy("<f4", (-1, 0), bytes(8)),
    _npy("<f4", (1,), bytes(1 << 25)), _npy("<f4", "(" * 4000 + ")" * 4000, b""), _npy("V8", (1,), bytes(8)),
    _npy("<f4", (2, 2), b"\x00\x00\xc0\x7f" * 4), _npy("<M8[s]", (1,), bytes(8)), b"", b"\x80\x04cos\nsystem\n.",
]  # fmt: skip
YAML = [
    b"a: &a [x,x]\nb: *a\n", b"x: !!python/object/apply:os.system [ls]\n", b"dim-emb: 90000\n", b"enc-depth: 99999\n",
    b"transformer-dim-ffn: 99999\n", b"transformer-heads: 3\n", b"- " * 3000, b"{" * 3000, b"type: []\n", b"\xff\0",
    b"dim-emb: 16000\n", b"dec-depth: -1\n", b"x: " + b"y" * 200_000, b"dim-emb: 1" + b"0" * 5000 + b"\n",
]  # fmt: skip


@cache
def _foreign() -> tuple[dict[str, bytes], bytes, bytes]:
    """The arrays, the settings and the vocabulary of a small model of Marian."""
    content = marian_files.vocabulary()
    words = len(sentencepiece.SentencePieceProcessor(model_proto=content))
    arrays = {}
    for name, array in marian_files.arrays_of(words).items():
        stream = io.BytesIO()
        np.save(stream, array)
        arrays[name] = stream.getvalue()
    return arrays, marian_files.settings_of().encode(), content


@check("X1", "an untrusted model of another toolkit: refused or imported, nothing run, little taken", 15, 5000)
def foreign(draw: Random, folder: Path) -> None:
    arrays, settings, pieces = _foreign()
    members, name = dict(arrays), draw.choice(sorted(arrays))
    kind = draw.choice(["array", "array", "settings", "settings", "pieces", "zip"])
    if kind == "array":
        members[name] = draw.choice([draw.choice(MEMBERS), mutated(members[name], draw, MEMBERS)])
    if kind == "settings":
        settings = draw.choice([settings + draw.choice(YAML), mutated(settings, draw, YAML)])
    if kind == "pieces":
        pieces = mutated(pieces, draw, [b"\xff" * 8, b"\n\x00"])
    members["special:model.yml"] = _npy("|i1", (len(settings),), settings)
    source = folder / "source"
    source.mkdir()
    (source / "vocab.spm").write_bytes(pieces)
    with zipfile.ZipFile(source / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(f"{draw.choice(['../', '/']) * (kind == 'zip') * (member == name)}{member}.npy", content)
    if kind == "zip":
        packed = (source / "model.npz").read_bytes()
        (source / "model.npz").write_bytes(mutated(packed, draw, [b"PK\x01\x02", b"PK\x03\x04", b"\xff" * 4]))
    (folder / "out").mkdir()
    refused_or_done(lambda: import_model(source, folder / "out" / "run"), writes=folder / "out")
    assert [path.name for path in (folder / "out").iterdir()] in (["run"], [])


@check(
    "X5", "a folder to import with links to devices or with pipes: refused, little taken, nothing waited for", 8, 500
)
def linked(draw: Random, folder: Path) -> None:
    arrays, settings, pieces = _foreign()
    source, kind = folder / "source", draw.choice([".npz", ".bin", ".spm", ".yml", "config.json"])
    source.mkdir()
    (source / "vocab.spm").write_bytes(pieces)
    if kind != ".bin":
        with zipfile.ZipFile(source / "model.npz", "w") as archive:
            for member, content in {**arrays, "special:model.yml": _npy("|i1", (len(settings),), settings)}.items():
                archive.writestr(f"{member}.npy", content)
    path = source / {".npz": "model.npz", ".bin": "model.bin", ".spm": "vocab.spm", ".yml": "vocab.yml"}.get(kind, kind)
    path.unlink(missing_ok=True)
    what = draw.choice(["pipe", "/dev/zero", "/dev/tty", "/proc/kcore", "/proc/self/mem", "."])
    os.mkfifo(path) if what == "pipe" else path.symlink_to(what)
    bare = kind == "config.json"  # which is no file of such a model
    action = lambda: import_model(source, folder / "out" / "run")  # noqa: E731
    refused_or_done(action if bare else lambda: refused(action, f"{kind} {what}"), writes=folder / "out")


@check("X5", "a manifest that names other files, a pipe or a device reads and writes nothing outside the run", 12, 500)
def outside(draw: Random, folder: Path) -> None:
    run, name = folder / "run", draw.choice(["../../../etc/passwd", "/etc/passwd", "checkpoints", "..", "a\0b", "a/b"])
    shutil.copytree(trained.run("bahdanau"), run)
    kind = draw.choice(["files", "belongs", "pipe", "device"])
    if kind == "files":
        settings = json.loads((run / "manifest.json").read_bytes())
        settings.pop("seal")
        settings["files"][name] = {"sha256": "0" * 64, "bytes": 1}
        (run / "manifest.json").write_bytes(seal(settings))
    elif kind == "belongs":
        (run / "manifest.json").unlink()
        path = sorted((run / "checkpoints").iterdir())[-1] / "manifest.json"
        settings = json.loads(path.read_bytes())
        settings.pop("seal")
        settings["belongs"] = draw.choice([{name: "0" * 64}, [], 5, {name: []}])
        path.write_bytes(seal(settings))
    else:
        path = run / draw.choice(["manifest.json", "config.toml", "source.json", "weights.safetensors"])
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    refused_or_done(lambda: refused(lambda: regard.load(run), f"{kind} {name!r}"))


# --- documents, traces, pictures

TMX = (
    b"<?xml version='1.0'?><tmx version='1.4'><header srclang='en'/><body>"
    + (b"<tu><tuv xml:lang='en'><seg>the <hi>cat</hi> &amp; dog</seg></tuv>")
    + (b"<tuv xml:lang='fr'><seg>le chat</seg></tuv></tu>")
    + (b"<tu><tuv xml:lang='en'><seg>a dog</seg></tuv><tuv xml:lang='fr'><seg>un chien</seg></tuv></tu>")
    + b"</body></tmx>"
)
XML = [
    b"<", b">", b"&a;", b"<tu>", b"</tu>", b"<![CDATA[", b"]]>", b"<!--", b"<?x", b"\0", b"\xff", b"<hi>" * 5000,
    b"<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>", b"<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/x'>",
    b"<!DOCTYPE a [<!ENTITY b 'bbbbbbbb'><!ENTITY a '&b;&b;&b;&b;'>]>", b" x='" + b"y" * 100_000 + b"'",
    b"<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='/etc/passwd'/>",
]  # fmt: skip


@check("X3", "a hostile TMX file is refused or read; no entity, no network, no other file", 60, 20_000)
def tmx(draw: Random, folder: Path) -> None:
    path = folder / "x.tmx"
    path.write_bytes(mutated(TMX, draw, XML))

    def use() -> None:
        for unit in read_units(str(path)):
            assert "root:" not in repr(unit)

    refused_or_done(use)


DOCUMENTS = {
    "txt": b"A cat.\n\nTwo dogs sleep.\n",
    "html": b"<html><body><p>The <b>black</b> cat &amp; <a href='x'>a dog</a>.</p><script>x</script></body></html>",
    "md": b"# A cat\n\n* the **black** [cat](x) `code`\n\n| a | b |\n|---|---|\n",
    "srt": b"1\n00:00:01,000 --> 00:00:02,000\n<i>A cat</i> sleeps.\n\n2\n00:00:03,000 --> 00:00:04,000\nYes.\n",
    "po": b'msgid ""\nmsgstr "Language: fr\\n"\n\n#: a.c\nmsgid "the %s cat"\nmsgid_plural "cats"\nmsgstr[0] ""\n',
    "xlf": b"<xliff version='1.2'><file source-language='en' target-language='fr'><body><trans-unit id='1'>"
    b"<source>the <g id='1'>cat</g></source><target/></trans-unit></body></file></xliff>",
    "vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Al>a cat that\n\n00:03.000 --> 00:04.000\nsleeps &amp; eats.\n",
    "docx": archive({"word/document.xml": "<w:p><w:r><w:t>a cat</w:t></w:r><w:r><w:rPr/><w:t>x</w:t></w:r></w:p>"}),
}


@check("X4", "a hostile document of any format is refused or read, and written back as it was", 60, 20_000)
def documents(draw: Random, folder: Path) -> None:
    name = draw.choice(list(DOCUMENTS))
    data = mutated(
        DOCUMENTS[name], draw, [*XML, b"\\", b'"', b"*" * 500, b"[" * 500, b"{" * 500, b"\r", b"\xfe\xff", b"%s"]
    )

    def use() -> None:
        document = read_document(data, f"x.{name}")
        assert document.form.pairs or document.form.members or unchanged(document) == data
        layout = Layout(document.parts)
        document.encode(layout.write([TranslatedText(sentence) for sentence in layout.sentences]), "fr")

    refused_or_done(use)


@check("X4", "a document in any encoding with or without its mark: refused, or what it is in UTF-8", 20, 2000)
def encodings(draw: Random, folder: Path) -> None:
    name = draw.choice([one for one in DOCUMENTS if one != "docx"])
    encoding = draw.choice(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
    text = DOCUMENTS[name].decode()
    data = (draw.choice(["", "\ufeff"]) + text).encode(encoding)

    def use() -> None:
        both = read_document(data, f"x.{name}"), read_document(text.encode(), f"x.{name}")
        read, plain = ([part if isinstance(part, str) else part.text for part in one.parts] for one in both)
        assert read == plain
        assert both[0].form.pairs or unchanged(both[0]) == data

    refused_or_done(use)


@cache
def _trace() -> dict[str, Any]:
    return json.loads(trained.translator("heads").look("the cat sees the dog .").to_json())


@check("X4", "a hostile trace is refused or drawn", 10, 5000)
def trace(draw: Random, folder: Path) -> None:
    path = folder / "x.json"
    path.write_bytes(mutated(json.dumps(_trace()).encode(), draw, [*JSON, b'"base64"', b"[[]]", b"-5"]))

    def use() -> None:
        found = Trace.load(path)
        found.to_html()
        found.to_terminal()

    refused_or_done(use)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@check("X10", "a picture bomb or a damaged picture is refused or read, in little memory", 20, 3000)
def picture(draw: Random, folder: Path) -> None:
    if draw.random() < 0.4:
        width, height = (draw.choice([0, 1, 7, 4000, 100_000, 24_000_000, 2**31 - 1]) for _ in range(2))
        depth, kind = draw.choice([(8, 2), (16, 0), (16, 6), (8, 3), (1, 0)])
        head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, draw.randrange(2))
        body = zlib.compress(bytes(draw.choice([0, 100, 1 << 20])))
        data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    else:
        data = mutated(picture_file(), draw, [b"IDAT", b"\xff" * 8, b"acTL", b"\0" * 64])
    refused_or_done(lambda: read_picture(data, 32))


@cache
def picture_file() -> bytes:
    return encode_png(np.arange(40 * 30 * 3, dtype=np.uint8).reshape(30, 40, 3))


# --- texts


class _Page(html.parser.HTMLParser):
    """Counts scripts, and notes what could run."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.odd = 0, []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.odd += [name for name, value in attributes if name.startswith("on") or "javascript:" in (value or "")]
        self.odd += [tag] if tag in ("iframe", "object", "embed", "img", "link", "base", "form", "a") else []


@check("X8", "hostile text in every string of a trace: the exported page runs only its own scripts", 4, 2000)
def scripts(draw: Random, folder: Path) -> None:
    def poisoned(part: Any, name: str = "") -> Any:
        if isinstance(part, dict):
            return {key: poisoned(value, key) for key, value in part.items()}
        if isinstance(part, list):
            return [poisoned(value) for value in part]
        text = isinstance(part, str) and name not in ("base64", "dtype", "kind")
        return draw.choice(ALL) if text and draw.random() < 0.3 else part

    counted = []
    for tree in (_trace(), poisoned(_trace())):
        page = _Page()
        try:
            text = Trace.from_json(json.dumps(tree)).to_html()
        except RegardError:
            return
        page.feed(text)
        assert not page.odd
        assert "Content-Security-Policy" in text
        counted.append(page.scripts)
    assert counted[0] == counted[1]


SHAPES = [
    "a", " ", "\u00a0", "a ", "a\n", "<!--", "<a", "<a b=", "</", "<![", "<![CDATA[", "<?", "<!", "<script>", "&", "&#",
    "<a x='", "&lt;", ". ", "a.", "\u3000", "<p>", '"', "=", "'", "a'", "A. ", "*", "_", "`", "[", "](", "{", "%s",
    "\n\n", 'msgid "', '"\n', "<g id='1'>", "<source>", "-->", "1\n", "|", "#", "~", "\\", "!["
]  # fmt: skip


def split_plain(text: str, name: str) -> None:
    layout = Layout(read_plain(text))
    layout.write([TranslatedText(sentence) for sentence in layout.sentences])


def split_document(text: str, name: str) -> None:
    try:
        document = read_document(text.encode("utf-8"), f"x.{name}")
    except RegardError:
        return
    layout = Layout(document.parts)
    layout.write([TranslatedText(sentence) for sentence in layout.sentences])


@check("X9", "splitting a text or document and joining it again takes time in proportion to it", 3, 1000)
def linear(draw: Random, folder: Path) -> None:
    shape = "".join(draw.choices(SHAPES, k=draw.randint(1, 3)))
    first, name, split = (
        draw.choice(["a", "<b>", ""]),
        draw.choice(list(FORMATS)),
        draw.choice([split_plain, split_document]),
    )

    def taken(size: int) -> float:
        text = first + shape * (size // len(shape)) + "a"
        began = time.process_time()
        split(text, name)
        return time.process_time() - began

    # The least of three: one may hold a collection of all the garbage of this process.
    times = [min(taken(size) for _ in range(3)) for size in (1 << 12, 1 << 16)]
    assert times[1] < 0.1 + 16 * 6 * times[0], f"{name} {shape!r}: {times}"  # quadratic would be 256 times
    assert times[1] < 4, f"{name} {shape!r}: {times}"  # a pass over a window for each mark is in proportion, but slow


ODD = [
    "\x00", "\t", "\r", "\n", "\x85", "\u2028", "\ufeff", "\ud800", "\udfff", "😀", "\u202e", "\U000e0041", "\uffff",
    "\U0010ffff", "▁", "<unk>", "</s>", "<0xFF>", "\u0301" * 40, "ﷺ", "İ", "ﬁ", "\u200b", "\u3000", " ", "the", "cat",
    "中", "\x1b[2J",
]  # fmt: skip


@check("X11", "any string can be translated: spans are inside the text, the output is one line of UTF-8", 25, 50_000)
def strings(draw: Random, folder: Path) -> None:
    text = draw.choice(["", " "]).join(draw.choices(ODD, k=draw.randint(1, 12)))
    if draw.random() < 0.25:
        text = "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randint(1, 20)))
    translator = trained.translator(draw.choice(["heads", "bahdanau"]))
    found = translator.encode(text)
    assert all(0 <= start <= end <= len(text) for start, end in found.spans)
    decoded = translator.source_vocabulary.decode(found.ids)
    assert "\n" not in decoded
    if draw.random() < 0.2:
        written = translator.translate(text, beam=1).text
        assert written.count("\n") == (0 if is_blank(text) else text.count("\n"))  # nothing is written of a blank text
        decoded += written
    decoded.encode("utf-8")
