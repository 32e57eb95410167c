"""What starting imports, what `--help` says, and the demo from an empty folder to a picture."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trained
from commands import SmallDemo, regard, run_here

from regard.__main__ import main
from regard.cli.models import list_models, models
from regard.models.registry import MODELS

COMMANDS = (
    "align calibrate caption classify compare corpora demo export faithful flow generate heads import look models page "
    "perplexity reach score serve sweep train translate"
)


def modules_of(code: str) -> set[str]:
    """What a fresh interpreter has imported after some code."""
    program = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nsys.stderr.write(' '.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stderr.split()
    )


def test_importing_regard_imports_next_to_nothing():
    found = modules_of("import regard")
    assert not found & {"torch", "numpy", "typer", "rich", "matplotlib", "sacrebleu", "sentencepiece"}
    assert sorted(name for name in found if name.startswith("regard")) == ["regard", "regard.version"]


def test_standard_streams_that_are_closed_are_empty(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "argv", ["regard", "corpora"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert sys.stdin.read() == ""
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()


@pytest.mark.parametrize("argument", ["--help", "corpora"])
def test_the_help_and_a_list_import_nothing_heavy(argument):
    found = modules_of(f"sys.argv = ['regard', {argument!r}]; from regard.__main__ import main; main()")
    assert "typer" in found
    assert not found & {"torch", "numpy", "matplotlib", "sacrebleu", "sentencepiece", "rich", "sklearn"}


def test_a_translation_imports_one_model_and_nothing_to_look_or_train_with():
    found = modules_of("sys.argv = ['regard', 'translate', 'Where is it?']; from regard.__main__ import main; main()")
    models = {name for name in found if name.startswith("regard.models.")}
    assert models == {"regard.models.contract", "regard.models.registry", "regard.models.transformer"}
    assert not {name for name in found if name.startswith("regard.look")}
    assert not found & {"regard.layers.image", "regard.training.start", "regard.training.task", "regard.api.sweeping"}


@pytest.mark.parametrize("given", ["", "ACTIVE"])
def test_threads_wait_without_spinning_unless_the_user_says_otherwise(given):
    """In a training; known before torch is loaded, which reads it once."""
    program = """
import os, sys
class Watch:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            print(os.environ["OMP_WAIT_POLICY"], flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch)
sys.argv = ["regard", "train"]
from regard.__main__ import main
main()
"""
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    env |= {"OMP_WAIT_POLICY": given} if given else {}
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=env)
    assert done.stdout.split() == [given or "PASSIVE"]


def test_the_public_names_are_there_and_lazy():
    code = "import regard; assert 'train' in dir(regard) and 'load' in dir(regard); regard.RegardError; "
    code += "import regard.cluster.local"  # workers import it before the model
    assert "torch" not in modules_of(code)
    import regard as library

    for name in library.__all__:
        assert getattr(library, name)
    assert callable(library.train)  # the function, whatever has imported the package of that name
    with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
        _ = library.tarin


def test_every_command_has_help():
    listed = run_here("--help")
    assert listed.code == 0
    names = re.findall(r"^  (\w+)  +\w", listed.out, re.MULTILINE)
    assert sorted(names) == COMMANDS.split()
    assert run_here("-h").out == listed.out
    for name in names:
        command = run_here(name, "--help")
        assert command.code == 0
        assert command.out.startswith("Usage:")
        assert len(command.out) > 200
        assert command.err == ""


def test_the_help_of_train_lists_every_setting_with_its_meaning():
    said = run_here("train", "--help").out
    for part in (
        r"train\.steps=0 +number of updates",
        r"train\.epochs=10 +passes over the corpus",
        r"train\.batch_tokens=4096 +maximum number of tokens",
        r"train\.save_every=500 +number of updates between checkpoints",
        r"train\.seed=1 +seed",
        r"data\.vocabulary=8000 +maximum vocabulary size",
        r"decode\.beam=5 +hypotheses",
    ):
        assert re.search(part, said), part


def test_the_version_and_no_command():
    assert re.fullmatch(r"regard \d+\.\d+\.\d+\n", run_here("--version").out)
    bare = run_here()
    assert bare.code in (0, 2)
    assert "Usage:" in bare.out + bare.err


def test_the_columns_of_the_list_of_models_are_aligned(capsys):
    list_models()
    lines = capsys.readouterr().out.split("\n")[: len(MODELS)]
    ideas = [line.index(f" {found.idea}") for line, found in zip(lines, MODELS.values(), strict=True)]
    papers = [line.index(f" {found.paper} ") for line, found in zip(lines, MODELS.values(), strict=True)]
    assert len(set(ideas)) == len(set(papers)) == 1


@pytest.mark.parametrize("name", MODELS)
def test_every_model_lists_its_settings(name, capsys):
    for preset in MODELS[name].presets:
        models(name, preset)
        said = capsys.readouterr().out
        assert said.startswith(f"{name}: ")
        assert all(f"[{section}" in said for section in (f"model (preset {preset})", "train", "data", "decode"))


@pytest.mark.parametrize(("reader", "read"), [("head -n 1", 1), ("true", 0)])
def test_a_reader_that_goes_away_is_no_error(reader, read):
    command = f"'{sys.executable}' -m regard corpora | {reader}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == read
    assert done.stderr == ""


def test_a_locale_without_unicode_changes_nothing(tmp_path):
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "regard", "corpora"], env=environment, capture_output=True, cwd=tmp_path, check=True
    )
    assert "phrasebook" in done.stdout.decode("utf-8")


@pytest.mark.published
def test_the_demo(tmp_path):
    out = tmp_path / "demo"
    run = partial(regard, folder=tmp_path / "log", plant=SmallDemo())
    done = run("demo", "--minutes", 0.001, "--out", out)
    assert done.code == 0, done.err
    assert "time limit reached" in done.err
    assert "bleu" in done.err
    for part in (
        "not in the training data",
        "→",
        "Attention weights",
        "What to try next",
        "regard look",
        "regard serve",
        "regard train",
    ):
        assert part in done.out, part
    assert (out / "alignment.png").read_bytes().startswith(b"\x89PNG")
    *_, too_short, advice = done.out.splitlines()
    assert "Training stopped at the time limit" in too_short
    assert advice.endswith(f"demo --task translate --out {out} --minutes 0.005")
    assert "train." not in done.err.replace("(train.best_by)", ""), "the demo takes no settings"
    named = "demo", "--minutes", 0.001, "--out", out, "--model"  # without the models that ship
    again = run(*named, "bahdanau")  # already trained: shown at once
    assert again.code == 0
    shipped, _, trained_here = done.out.partition("trained here from scratch on generated sentences:\n")
    assert "en-fr/transformer, a trained model that ships" in shipped
    assert again.out == trained_here
    other = run(*named, "cho")
    assert other.code == 2
    assert "holds a run with other settings" in other.err
    assert Path(out / "manifest.json").exists()
    assert run("demo", "--task", "dance").code == 2


def test_a_reader_that_has_exited_is_no_failure(monkeypatch):
    """As in `regard translate RUN FILE | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "argv", ["regard", "translate", str(trained.run("local")), "a b"])
        with pytest.raises(SystemExit) as raised:
            main()
    assert raised.value.code == 141
