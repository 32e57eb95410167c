"""`regard import firefox:...` from a local server with the protocol of Mozilla's registry, and files of Bergamot."""

import json
import socket

import pytest
from commands import run_here
from marian_files import folder_of, real_files, write_bin
from registries import Registry, served

import regard
from regard.api.importing import import_model
from regard.errors import ConfigError, DataError
from regard.interop import firefox


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def registry():
    with served(Registry()) as files:
        yield files


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The files of a tiny model by their types, and the run of an import from their folder."""
    made = tmp_path_factory.mktemp("tiny")
    folder, _ = folder_of(made, write_bin, "model.bin")
    files = {"model": (folder / "model.bin").read_bytes(), "vocab": (folder / "vocab.spm").read_bytes()}
    import_model(folder, made / "run")
    return {**files, "lex": b"not needed"}, made / "run"


def manifest(run):
    return json.loads((run / "manifest.json").read_bytes())


def test_the_newest_release_becomes_a_run(registry, tiny, tmp_path):
    files, plain = tiny
    wrong = dict.fromkeys(files, b"another file")
    registry.add("en", "pt", "1.0", wrong, old=True)
    registry.add("en", "pt", "2.9", wrong)
    registry.add("en", "pt", "2.10", files)
    registry.add("en", "pt", "2.11a1", wrong)
    registry.add("en", "pt", "2.12", wrong, filter_expression="env.channel == 'nightly'")
    registry.add("en", "pt", "2.13", {"model": wrong["model"]})  # without a vocabulary
    registry.add("en", "pt", "2.14", wrong, variant="large")
    registry.add("pt", "en", "2.15", wrong)
    registry.records["translations-models-v2"] += [{}, {"fileType": "model"}, {"attachment": None, "version": 7}]
    seen = []
    import_model("firefox:en-pt", tmp_path / "run", mirror=registry.publish(), progress=lambda *one: seen.append(one))
    about, before = manifest(tmp_path / "run"), manifest(plain)
    origin = about["imported"]
    assert (origin["from"], origin["release"], origin["architecture"]) == ("firefox:en-pt", "2.10", "tiny")
    assert about["files"]["weights.safetensors"] == before["files"]["weights.safetensors"]
    translator = regard.load(tmp_path / "run")
    assert (translator.source_language, translator.target_language) == ("en", "pt")
    decode = translator.experiment.decode
    assert (decode.beam, decode.length_penalty, decode.max_ratio) == (1, 1.0, 2.0)  # as Firefox
    assert not registry.ranges_of("lex")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert seen == sorted(seen)
    size = sum(one["attachment"]["size"] for one in registry.records["translations-models-v2"][3:5])  # those of 2.10
    assert seen[-1] == (size, size)


def test_the_older_collection_serves_alone_and_a_version_can_be_chosen(registry, tiny, tmp_path):
    files, _ = tiny
    registry.add("zh-Hans", "en", "1.1", dict.fromkeys(files, b"other"), old=True)
    registry.add("zh-Hans", "en", "1.0", files, old=True)
    address = registry.publish()
    del registry.content["/v1/buckets/main/collections/translations-models-v2/records"]
    done = run_here("import", "firefox:zh-Hans-en@1.0", "--out", tmp_path / "run", "--mirror", address)
    assert done.code == 0, done.err
    assert manifest(tmp_path / "run")["imported"]["release"] == "1.0"
    assert regard.load(tmp_path / "run").source_language == "zh-Hans"
    assert "firefox:zh-Hans-en, 1.0" in run_here("models", str(tmp_path / "run")).out


def test_two_vocabularies_are_source_and_target(registry, tiny, tmp_path):
    files, _ = tiny
    split = {"model": files["model"], "srcvocab": files["vocab"], "trgvocab": files["vocab"]}
    registry.add("en", "ja", "3.0", split)
    import_model("firefox:en-ja", tmp_path / "run", mirror=registry.publish())
    assert sorted(manifest(tmp_path / "run")["imported"]["sha256"]) == ["model.bin", "source.spm", "target.spm"]


def test_a_broken_download_is_continued(registry, tiny, tmp_path):
    """Within one command, and by the next one."""
    files, plain = tiny
    registry.add("en", "pt", "3.0", files)
    address = registry.publish()
    registry.cut = 1000
    model = "-model.zst"
    with pytest.raises(DataError, match=r"could not be downloaded: .*; the same command continues the download"):
        import_model("firefox:en-pt", tmp_path / "run", mirror=address)
    assert registry.ranges_of(model) == ["", "bytes=1000-", "bytes=2000-"]
    assert not (tmp_path / "run").exists()
    registry.cut = None
    import_model("firefox:en-pt", tmp_path / "run", mirror=address)
    assert registry.ranges_of(model)[3:] == ["bytes=3000-"]
    assert manifest(tmp_path / "run")["files"]["weights.safetensors"] == manifest(plain)["files"]["weights.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_server_without_ranges_sends_everything_again(registry, tiny, tmp_path):
    registry.add("en", "pt", "3.0", tiny[0])
    address, registry.ranges = registry.publish(), False
    registry.cut = 1000
    with pytest.raises(DataError, match="could not be downloaded"):
        import_model("firefox:en-pt", tmp_path / "run", mirror=address)
    registry.cut = None
    import_model("firefox:en-pt", tmp_path / "run", mirror=address)
    assert registry.ranges_of("-model.zst") == ["", *["bytes=1000-"] * 3]


def test_a_file_that_is_not_the_one_of_its_record_is_refused(registry, tiny, tmp_path):
    registry.add("en", "pt", "3.0", tiny[0])
    address = registry.publish()
    (path,) = [path for path in registry.content if path.endswith("-model.zst")]
    good = registry.content[path]
    for damaged in (good[:-1] + bytes([good[-1] ^ 1]), good + b"more"):
        registry.content[path] = damaged
        with pytest.raises(DataError, match="SHA-256"):
            import_model("firefox:en-pt", tmp_path / "run", mirror=address)
        assert not (tmp_path / "run").exists()
    registry.content[path] = good
    import_model("firefox:en-pt", tmp_path / "run", mirror=address)


@pytest.mark.parametrize("changed", ["decompressedSize", "decompressedHash"])
def test_what_is_unpacked_is_verified_and_bounded(registry, tiny, tmp_path, changed):
    registry.add("en", "pt", "3.0", {"vocab": tiny[0]["vocab"], "model": bytes(10**7)})
    record = registry.records["translations-models-v2"][1]
    record[changed] = 1000 if changed == "decompressedSize" else "0" * 64
    with pytest.raises(DataError, match="was unpacked, and its SHA-256 is not"):
        import_model("firefox:en-pt", tmp_path / "run", mirror=registry.publish())
    assert not (tmp_path / "run").exists()
    registry.records["translations-models-v2"].clear()  # files of another model are left from this one
    registry.add(
        "en", "pt", "3.1", {"model": tiny[0]["model"], "srcvocab": tiny[0]["vocab"], "trgvocab": tiny[0]["vocab"]}
    )
    import_model("firefox:en-pt", tmp_path / "run", mirror=registry.publish())


def test_the_registry_can_be_listed(registry, tiny, monkeypatch):
    for pair in (("en", "de"), ("de", "en"), ("en", "pt")):
        registry.add(*pair, "3.0", tiny[0])
    monkeypatch.setenv("REGARD_FIREFOX", registry.publish())
    done = run_here("models", "--from", "firefox")
    assert done.code == 0
    assert done.out.startswith("3 pairs of 3 languages")
    assert [line.split()[0] for line in done.out.split("\n")[2:5]] == ["de-en", "en-de", "en-pt"]
    missing = run_here("import", "firefox:en-fr", "--out", "never")
    assert missing.code == 2
    assert "has no model en-fr; it has de-en, en-de, en-pt" in missing.err


def test_what_cannot_be_reached_is_said_in_one_sentence(registry, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    done = run_here("import", "firefox:en-de", "--out", tmp_path / "run", "--mirror", address)
    assert done.code == 2
    assert "cannot be reached" in done.err
    assert "REGARD_FIREFOX" in done.err
    registry.add("en", "pt", "3.0", {"lex": b"x"})
    registry.cut, registry.cuts, address = 100, "records", registry.publish()
    with pytest.raises(DataError, match=r"cannot be reached at .*: the answer is too long, or was cut"):
        firefox.list_models(address)
    registry.cut = None
    for mirror, content, says in (
        (registry.address, None, "has no translation models"),
        (registry.address, b"<html>", "is not JSON"),
        (registry.address, b"[]", "is not a list of records"),
        ("file:///etc", None, "A server is an address such as"),
    ):
        for name in firefox.COLLECTIONS:
            registry.content.pop(f"/buckets/main/collections/{name}/records", None)
            if content is not None:
                registry.content[f"/buckets/main/collections/{name}/records"] = content
        with pytest.raises((DataError, ConfigError), match=says):
            firefox.list_models(mirror)
    assert not list(tmp_path.iterdir())


def test_a_real_model_of_firefox_translates(registry, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    real_files(folder)
    (model,), (vocabulary,) = folder.glob("*.bin"), folder.glob("*.spm")
    registry.add("en", "pt", "3.0", {"model": model.read_bytes(), "vocab": vocabulary.read_bytes()})
    import_model("firefox:en-pt", tmp_path / "run", mirror=registry.publish())
    text = "The black cat sees the red apple on the kitchen table."
    assert str(regard.load(tmp_path / "run").translate(text)) == "O gato preto vê a maçã vermelha na mesa da cozinha."
