"""`regard import OWNER/MODEL` from a local server with the protocol of the Hugging Face Hub."""

import json
import os
import socket
from dataclasses import replace
from functools import partial

import pytest
from commands import regard as command
from commands import run_here
from opus import ENGLISH
from registries import Hub, served

import regard
from regard.api.importing import import_model
from regard.data.vocabulary import Vocabulary
from regard.decode.settings import DecodeConfig
from regard.errors import DataError
from regard.interop.huggingface import export_huggingface
from regard.models.registry import MODELS, build

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (pip install regard[hub])")
NAME, COMMIT, OTHER = "Helsinki-NLP/opus-mt-en-fr", "1" * 40, "2" * 40


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hub():
    with served(Hub()) as files:
        yield files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Those of an exported model, which transformers loads (see test_export_huggingface.py)."""
    words = Vocabulary.train(ENGLISH * 4, "unigram", 60, byte_fallback=False)
    sizes = {"width": 16, "inner": 24, "heads": 4, "source_vocabulary": len(words), "target_vocabulary": len(words)}
    model = build("transformer", replace(MODELS["transformer"].presets["tiny"], **sizes))
    out = tmp_path_factory.mktemp("made") / "model"
    export_huggingface(model, (words, words), out, DecodeConfig(), ("", ""), "# A card\n")
    return {path.name: path.read_bytes() for path in out.iterdir()}


def manifest(run):
    return json.loads((run / "manifest.json").read_bytes())


def test_a_model_of_the_hub_becomes_a_run_of_its_commit(hub, files, tmp_path, capfd):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hub.add(NAME, COMMIT, {**files, "tf_model.h5": b"x" * 10_000, "pytorch_model.bin": b"\x80\x04."})
    seen = []
    import_model(NAME, tmp_path / "run", mirror=hub.address, progress=lambda *one: seen.append(one))
    assert capfd.readouterr() == ("", "")  # the library prints no bar
    import_model(folder, tmp_path / "plain", "en", "fr")
    about = manifest(tmp_path / "run")
    assert (about["imported"]["from"], about["imported"]["revision"]) == (NAME, COMMIT)
    assert about["files"] == manifest(tmp_path / "plain")["files"]
    assert regard.load(tmp_path / "run").source_language == "en"
    needed = [one for one in files if one != "README.md"]
    total = sum(len(files[one]) for one in needed)
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    assert not [path for _, path, _ in hub.asked if path.endswith((".h5", "model.bin"))]


def test_a_revision_can_be_chosen(hub, files, tmp_path):
    hub.add(NAME, COMMIT, {"config.json": b"{}"})
    hub.add(NAME, OTHER, files, "refs%2Fpr%2F1")
    hub.content[f"/api/models/{NAME}"] = hub.content[f"/api/models/{NAME}/revision/{COMMIT}"]
    import_model(f"{NAME}@refs/pr/1", tmp_path / "run", mirror=hub.address)
    assert manifest(tmp_path / "run")["imported"]["revision"] == OTHER


def set_variables(variables):
    os.environ |= variables


def test_the_address_of_a_mirror_may_be_in_the_environment(hub, files, tmp_path):
    hub.add(NAME, COMMIT, files)
    variables = {"HF_ENDPOINT": hub.address, "NO_PROXY": "127.0.0.1", "HF_HOME": str(tmp_path / "home")}
    done = command("import", NAME, "--out", tmp_path / "run", folder=tmp_path, plant=partial(set_variables, variables))
    assert done.code == 0, done.err
    assert NAME in run_here("models", str(tmp_path / "run")).out


def test_what_the_hub_does_not_have_is_refused_in_one_sentence(hub, files, tmp_path):
    weights = {name: content for name, content in files.items() if name != "model.safetensors"}
    hub.add("a/pickle", COMMIT, {**weights, "pytorch_model.bin": b"\x80\x04."})
    hub.add("a/bart", COMMIT, {"config.json": b'{"model_type": "bart"}', "model.safetensors": b"x"})
    hub.add("a/model", COMMIT, files)
    hub.errors |= {
        "/api/models/a/nothing": "RepoNotFound",
        "/api/models/a/model/revision/old": "RevisionNotFound",
        "/api/models/a/gated": "GatedRepo",
    }
    for name, says in (
        ("a/pickle", r"a/pickle has no model.safetensors, only a pickle, which is never read; .*save_pretrained"),
        ("a/bart", "only MarianMT"),
        ("a/nothing", "There is no folder a/nothing, and no model of this name on the Hub"),
        ("a/model@old", "a/model has no revision old"),
        ("a/gated", "hf auth login"),
        ("a/--b..c", "no model of this name"),
        ("nothing", "is not a folder; give the folder"),
    ):
        with pytest.raises(DataError, match=says) as refusal:
            import_model(name, tmp_path / "run", mirror="" if name == "nothing" else hub.address)
        assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_without_a_connection_one_sentence_says_so(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    done = run_here("import", NAME, "--out", tmp_path / "run", "--mirror", address)
    assert done.code == 2
    assert f"{NAME} is not a folder, and cannot be downloaded from the Hub at {address}" in done.err
