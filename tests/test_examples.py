"""Every example runs; a model from outside trains, says which package it needs, and works in other processes."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch
import trained
from commands import regard as command

import regard
from regard.cli import COMMANDS
from regard.config import setting
from regard.core import NORMALISERS, SCORES, scaled_dot, softmax
from regard.corpora.registry import find_builtin
from regard.data.tmx import write_memory
from regard.errors import ConfigError, RegardError
from regard.models import registry
from regard.models.registry import MODELS, Entry, build, preset, register

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TINY = ["train.steps=2", "train.validate_sentences=0", "train.batch_tokens=100", "data.size=60", "data.held_out=4",
        "data.subwords=word", "data.max_words=4", "model.width=8"]  # fmt: skip


@pytest.mark.parametrize("name", ["own_score", "own_module"])
def test_examples_of_attention(name: str, capsys, monkeypatch) -> None:
    monkeypatch.setitem(SCORES, "distance", None)  # what the example adds to these tables is removed afterwards
    monkeypatch.setitem(NORMALISERS, "top-two", None)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    numbers = [float(one) for one in re.findall(r"\d\.\d\d", capsys.readouterr().out)]
    assert numbers
    if name == "own_module":
        assert sum(numbers) == pytest.approx(2, abs=0.03)  # two rows of weights
        assert numbers[-1] == 0  # the word that is not there


def beside_the_examples() -> None:
    """What a command begins with: its folder is that of the examples."""
    os.chdir(EXAMPLES)


def test_a_model_from_outside_works_in_every_process(tmp_path) -> None:
    out = tmp_path / "run"
    train = [
        "--import",
        "own_model",
        "train",
        "--model",
        "nearest",
        "--preset",
        "tiny",
        "--corpus",
        "copy",
        "--out",
        out,
    ]
    made = command(*train, *TINY, folder=tmp_path, plant=beside_the_examples)
    assert made.code == 0, made.err
    assert 'package = "own_model"' in (out / "config.toml").read_text(encoding="utf-8")
    use = ["--import", "own_model", "translate", out, "ba da fo"]
    assert command(*use, folder=tmp_path, plant=beside_the_examples).code == 0
    assert "nearest" not in MODELS  # this process did not import it
    with pytest.raises(ConfigError, match="comes from the package 'own_model', which is not loaded: install it, or"):
        regard.load(out)
    missing = command("--import", "no_such_package", "models", folder=tmp_path)
    assert missing.code == 2
    assert "The package 'no_such_package' cannot be imported" in missing.err


def test_a_score_and_a_normaliser_from_outside_are_settings_of_a_model(tmp_path) -> None:
    out, given = tmp_path / "run", ["--import", "own_score"]
    train = ["train", "--model", "luong", "--preset", "tiny", "--corpus", "copy", "--out", out, "model.window=global"]
    chosen = ["model.score=distance", "model.normaliser=top-two"]
    made = command(*given, *train, *chosen, *TINY, folder=tmp_path, plant=beside_the_examples)
    assert made.code == 0, made.err
    assert 'package = "own_score"' in (out / "config.toml").read_text(encoding="utf-8")
    assert command(*given, "translate", out, "ba da fo", folder=tmp_path, plant=beside_the_examples).code == 0
    assert "distance" not in SCORES  # this process did not import it
    with pytest.raises(ConfigError, match="attention of this run comes from the package 'own_score', which is not"):
        regard.load(out)
    with pytest.raises(ConfigError, match=r"model\.score must be one of dot, .*; got 'distance'"):
        build("luong", replace(preset("luong", "tiny"), score="distance"))


def look_in(folder: str) -> None:
    """What a command begins with: packages are also in `folder`."""
    sys.path.insert(0, folder)


PACKAGE = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "nearest-models"
version = "1.0"
[project.entry-points."regard.models"]
nearest = "own_model"
broken = "no_such_module"
[tool.setuptools]
py-modules = ["own_model"]
"""


@pytest.mark.published
def test_an_installed_package_offers_its_models_by_entry_points(tmp_path) -> None:
    """Without --import, in processes that find the package where pip has put it; without it, the run names it."""
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    (package / "pyproject.toml").write_text(PACKAGE, encoding="utf-8")
    shutil.copy(EXAMPLES / "own_model.py", package)
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(package)]
    done = subprocess.run([sys.executable, "-m", "pip", *install], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = partial(look_in, str(site))
    out = tmp_path / "run"
    train = ["train", "--model", "nearest", "--preset", "tiny", "--corpus", "copy", "--out", out]
    made = command(*train, *TINY, folder=tmp_path, plant=found)
    assert made.code == 0, made.err
    assert 'package = "own_model"' in (out / "config.toml").read_text(encoding="utf-8")
    assert command("translate", out, "ba da fo", folder=tmp_path, plant=found).code == 0
    refused = command("translate", out, "ba da fo", folder=tmp_path)
    assert refused.code == 2
    assert "comes from the package 'own_model', which is not loaded: install it, or" in refused.err
    listed = command("models", folder=tmp_path, plant=found)
    assert re.search("nearest +of the package own_model", listed.out)
    broken = command("models", "broken", folder=tmp_path, plant=found)
    assert broken.code == 2
    assert "The package 'no_such_module' cannot be imported" in broken.err


def test_names_of_models_are_taken_once() -> None:
    with pytest.raises(ConfigError, match="There is a model 'luong' already"):
        register("luong", Entry(torch.nn.Linear, dict, {}, "", "", {}, {}))


def test_only_the_package_that_is_named_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder cannot make regard import others."""
    imported: list[str] = []
    monkeypatch.setattr(registry, "installed", lambda: {"one": "first.models", "two": "second"})
    monkeypatch.setattr(registry, "import_package", imported.append)
    for name, package, expected in (("luong", "", []), ("two", "", ["second"]), ("luong", "first", ["first.models"])):
        imported.clear()
        with suppress(ConfigError):  # what is imported here registers nothing
            registry.entry(name, package)
        assert imported == expected


def test_settings_of_a_model_from_outside_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Plain:
        width: int = setting(3, "width", "[1, 9]")

    class Model(torch.nn.Linear):
        def __init__(self, config: Plain) -> None:
            super().__init__(config.width, 2)

    monkeypatch.setitem(MODELS.data, "plain", Entry(Model, Plain, {"tiny": Plain()}, "", "", {}, {}))
    assert build("plain", Plain(4)).in_features == 4
    with pytest.raises(ConfigError, match=r"model\.width"):
        build("plain", Plain(10))


def test_fine_tuning_on_a_memory(tmp_path, capsys) -> None:
    pairs = [(one.source, one.target) for one in find_builtin("phrasebook").generate(30, 9, 3, 6)]
    memory = tmp_path / "memory.tmx"
    memory.write_bytes(write_memory(pairs, "en", "fr"))
    script = runpy.run_path(str(EXAMPLES / "fine_tune.py"))
    settings = ["train.steps=2", "train.validate_sentences=0", "train.batch_tokens=100", "data.held_out=2"]
    script["main"](str(trained.run("bahdanau")), str(memory), str(tmp_path / "out"), *settings)
    assert re.search("before: .*\nafter: ", capsys.readouterr().out)


def test_attend_has_defaults_and_clear_errors() -> None:
    query, states = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    memory = regard.Memory(states, states)
    for ours, theirs in zip(
        regard.attend(query, memory), regard.attend(query, memory, scaled_dot, softmax), strict=True
    ):
        assert torch.equal(ours, theirs)
    with pytest.raises(RegardError, match=r"attend needs a Memory; got a tuple. Write Memory\(keys, values\)"):
        regard.attend(query, (states, states))
    with pytest.raises(RegardError, match=r"The query must be a tensor .* got a tuple"):
        regard.attend((query, query), memory)
    with pytest.raises(RegardError, match=r"The values of the memory must be a tensor .* got a list"):
        regard.attend(query, regard.Memory(states, [states]))
    with pytest.raises(RegardError, match=r"The score must be a function, such as those in regard.core; got 'dot'"):
        regard.attend(query, memory, "dot")


def test_the_trace_of_a_hugging_face_model(tmp_path, capsys) -> None:
    transformers = pytest.importorskip("transformers")
    words = {word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", "a", "b", "c"])}
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="<pad>")
    fast.save_pretrained(tmp_path / "model")
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2, "vocab_size": len(words)}
    config = transformers.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    script = runpy.run_path(str(EXAMPLES / "huggingface.py"))
    script["main"](str(tmp_path / "model"), "a b c", str(tmp_path / "attention.html"))
    assert "attention.html" in capsys.readouterr().out
    assert (tmp_path / "attention.html").stat().st_size > 1000


def test_every_picture_of_the_gallery_is_there_and_is_made_by_a_command_of_the_page() -> None:
    script = runpy.run_path(str(EXAMPLES.parent / "benchmarks" / "gallery.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    commands = "".join(one.text for one in script["blocks"](page))
    shown = {str(path.relative_to(EXAMPLES.parent)) for path in script["pictures"](page)}
    elsewhere = {"docs/length-europarl.svg", "docs/faithful-included.svg"}  # their commands are in results
    assert {name for name in shown if name not in commands} == elsewhere
    assert all((EXAMPLES.parent / name).is_file() for name in shown)
    drawn = [path for ending in ("svg", "png", "gif") for path in (EXAMPLES.parent / "docs").rglob(f"*.{ending}")]
    assert sum(path.stat().st_size for path in drawn) < script["MOST"]
    for name in set(re.findall(r"^ *regard (\w+)", commands, re.MULTILINE)):
        assert name in {one.__name__ for one in COMMANDS}


@pytest.mark.slow
def test_serving_several_pairs(tmp_path) -> None:
    command = [sys.executable, str(EXAMPLES / "serve_pairs.py")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            address = server.stdout.readline().strip().partition("#")[0]
            for _ in range(1200):
                if httpx.get(f"{address}health", trust_env=False).status_code == 200:
                    break
                time.sleep(0.05)
            listed = httpx.get(f"{address}api/v1/models", trust_env=False).json()["models"]
            assert {one["id"] for one in listed} == {"en-fr-transformer", "en-fr-bahdanau", "fr-en"}
        finally:
            server.terminate()
            assert server.wait(60) == 0
