"""The models that ship: their names work wherever a run folder does, and cards tell the truth."""

import copy
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import trained
from commands import run_here

import regard
import regard.serve
from regard.api import loading
from regard.api.aligning import check_attends
from regard.api.exporting import export, read_card
from regard.cli.demo import show_shipped
from regard.cli.serve import serve
from regard.cli.text import load
from regard.errors import RunError
from regard.runs import included

ROOT = Path(__file__).parent.parent


def run_with(home: Path, *arguments: object) -> SimpleNamespace:
    """A command where the models that ship are those of this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(included, "HOMES", (home,))
        return run_here(*arguments)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    export(trained.run("heads"), folder / "en-fr-transformer")
    export(trained.run("bahdanau"), folder / "en-fr-bahdanau")
    return folder


@pytest.fixture
def installed(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(included, "HOMES", (home,))
    monkeypatch.chdir(tmp_path)
    return home


def test_a_near_miss_of_a_run_names_the_run(tmp_path, monkeypatch):
    for name in ("quick", "qikt"):  # the other is no run
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "quick" / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    for wrong in ("qick", "quikt"):
        with pytest.raises(RunError, match=rf"^There is no run folder runs/{wrong}\. Did you mean 'runs/quick'\?$"):
            included.find_run(f"runs/{wrong}")
    assert included.find_run("runs/slow") == Path("runs/slow")


def test_a_name_is_as_good_as_a_folder(installed: Path):
    for name, model in (("en-fr", "transformer"), ("en-fr/transformer", "transformer"), ("en-fr/bahdanau", "bahdanau")):
        assert regard.load(name).experiment.name == model
    assert regard.load("en-fr").name == "en-fr-transformer"
    assert [load(run).name for run in ("en-fr", installed / "en-fr-bahdanau")] == ["en-fr", "en-fr/bahdanau"]
    assert included.shipped() == {
        "en-fr": installed / "en-fr-transformer",
        "en-fr/bahdanau": installed / "en-fr-bahdanau",
    }


def test_a_real_folder_of_that_name_wins(installed: Path, tmp_path: Path):
    export(trained.run("copy"), tmp_path / "en-fr")
    assert regard.load("en-fr").experiment.name == "luong"


def test_a_name_that_is_no_model_is_one_sentence(installed: Path):
    with pytest.raises(RunError, match=r"A text comes after the name of a model: regard translate en-fr 'Who is it\?'"):
        regard.load("Who is it?")
    with pytest.raises(RunError, match=r"There is no run folder or model en-fx.*Did you mean 'en-fr'"):
        regard.load("en-fx")
    with pytest.raises(RunError, match="Did you mean 'en-fr/bahdanau'"):
        regard.load("en-fr/bahdanaw")
    with pytest.raises(RunError, match="The model fr-en is not part of this installation"):
        regard.load("fr-en")
    with pytest.raises(RunError, match=r"no run folder or model en-de\. Known: en-fr, .*, fr-en; train others"):
        included.find_run("en-de")
    with pytest.raises(RunError, match="Did you mean 'en-fr/bahdanau'"):
        included.find_run("bahdanau")
    with pytest.raises(RunError, match="There is no run folder runs/mine"):
        regard.load("runs/mine")


def test_a_model_of_another_task_is_called_by_its_name(installed: Path, tmp_path: Path, monkeypatch):
    with pytest.raises(
        RunError, match=r"^en-fr/bahdanau is a run for the task 'translate'; this needs .*`regard translate`"
    ):
        loading.read_experiment(included.find_run("en-fr/bahdanau"), "classify")
    export(trained.run("fixed"), tmp_path / "en-fr-cho")
    monkeypatch.setattr(included, "HOMES", (tmp_path,))
    with pytest.raises(RunError, match=r"^en-fr/cho has no attention to words \(model sutskever\)"):
        check_attends(included.find_run("en-fr/cho"))


def test_a_model_that_ships_can_be_trained_on(installed: Path, tmp_path: Path):
    settings = ["train.start_from=en-fr/bahdanau", "train.steps=1", "data.size=60", "data.max_words=6"]
    assert regard.train(corpus="phrasebook", out=tmp_path / "tuned", settings=settings).experiment.name == "bahdanau"


def test_commands_know_the_names(home: Path, tmp_path: Path):
    def run(*arguments: object, code: int = 0):
        found = run_with(home, *arguments)
        assert found.code == code, found.err
        return found

    named = run("translate", "en-fr", "the cat sees the dog .").out
    assert named.count("\n") == 1
    assert run("translate", "the cat sees the dog .").out == named, "en-fr is the default for a sentence"
    assert run("translate", "cat").out == run("translate", "en-fr", "cat").out
    assert "Did you mean 'en-fr'" in run("translate", "en_fr", code=2).err
    assert "There is no run folder runs/none" in run("translate", "runs/none", code=2).err
    assert "no file" in run("translate", "en-fr", "misspelt.txt", code=2).err
    assert "Did you mean 'en-fr'" in run("translate", "en_fr", "a b", code=2).err
    assert "nothing to translate in an empty text" in run("translate", "en-fr", "", code=2).err
    assert (
        run("translate", "en-fr", "the cat sees the dog . " * 20, "decode.beam=1").out.count("\n") == 1
    )  # no file name
    assert "got a text of 5,000 characters" in run("heads", "the cat . " * 500, code=2).err
    listed = run("models").out
    assert "en-fr/bahdanau" in listed
    assert "en to fr" in listed
    assert "phrasebook" in run("models", "en-fr").out
    assert "Did you mean 'transformer'" in run("models", "transfomer", code=2).err
    assert "weights" in run("look", "the cat sees the dog .").out
    assert "look needs a text as well" in run("look", "en-fr", code=2).err
    assert "Put the text in quotes" in run("look", "en-fr", "the", "cat", code=2).err
    for side, text in (("en", "the cat sees the dog .\n"), ("fr", "le chat voit le chien .\n")):
        (tmp_path / f"a.{side}").write_text(text)
    files = ("--source", tmp_path / "a.en", "--target", tmp_path / "a.fr")
    assert "BLEU" in run("score", "en-fr", *files).out
    (tmp_path / "a.tsv").write_text("the cat sees the dog .\tle chat voit le chien .\n")
    sides = "".join(
        f'<tuv xml:lang="{side}"><seg>{(tmp_path / f"a.{side}").read_text().strip()}</seg></tuv>'
        for side in ("en", "fr")
    )
    (tmp_path / "a.tmx").write_text(f'<tmx version="1.4"><header/><body><tu>{sides}</tu></body></tmx>')
    for name, kinds in (("score", ("tsv", "tmx")), ("align", ("tsv",)), ("heads", ("tmx",))):
        both = run(name, "en-fr/bahdanau", *files).out
        assert name != "align" or "-" in both
        for kind in kinds:
            assert run(name, "en-fr/bahdanau", f"--{kind}", tmp_path / f"a.{kind}").out == both
    assert "--tsv" in run("align", "en-fr", code=2).err
    assert "set one of the two" in run("heads", "en-fr", *files, "--tsv", tmp_path / "a.tsv", code=2).err
    assert "against" in run("compare", "en-fr", "en-fr/bahdanau", *files).out


def test_a_source_in_another_language_is_noted_with_both_languages(home: Path, tmp_path: Path):
    text, says = "je ne sais pas où est la gare .", "the source looks like French, but the model reads English\n"
    page, out = tmp_path / "in.html", tmp_path / "out.html"
    page.write_text(f"<p>{text}")
    assert f"line 1: {says}" in run_with(home, "translate", "en-fr", text).err
    assert f"1 of the sentences: {says}" in run_with(home, "translate", "en-fr", page, "--out", out).err
    assert f"note: {says}" in run_with(home, "look", "en-fr", text).err


def test_a_test_set_of_the_other_direction_is_noted(home: Path, tmp_path: Path):
    """By the names of the files, or by their words; a set in the right direction is not."""
    english, french = "the dog and the cat are in the house .\n", "le chat et le chien sont dans la maison .\n"
    for name, text in (("a.en", english), ("a.fr", french), ("b", french), ("c", english)):
        (tmp_path / name).write_text(text)
    names = "note: file names contradict the languages: .*a.fr is a source file, but the source language is en"
    words = (
        "note: the source sentences look like French, but the model reads English. Check that source and target are "
        "not swapped"
    )
    every = (("a.fr", "a.en", names), ("b", "c", words), ("c", "b", ""))
    for task, *sets in (
        (["score", "en-fr"], *every),  # one function notes both, whoever calls it
        (["compare", "en-fr", "en-fr/bahdanau"], every[0]),
        (["align", "en-fr"], every[1]),
        (["heads", "en-fr"], every[0]),
    ):
        for source, target, says in sets:
            files = ["--source", tmp_path / source, "--target", tmp_path / target]
            found = run_with(home, *task, *files)
            assert found.code == 0, found.err
            assert re.search(says, found.err) if says else "swapped" not in found.err, found.err


def test_runs_of_two_directions_are_refused_together():
    ahead, back = trained.translator("heads"), copy.copy(trained.translator("heads"))
    back.name, back.source_language, back.target_language = "back", "fr", "en-GB"
    with pytest.raises(RunError, match="translates en to fr, back translates fr to en-GB; use runs of one direction"):
        loading._ensemble([ahead, back])
    for languages in (("en-US", "fr-CA"), ("", ""), ("en", "")):  # a variety, and what is not known
        back.source_language, back.target_language = languages
        loading.check_direction(ahead, back)


def test_a_choice_of_heads_does_not_change_a_model_that_ships(home: Path, tmp_path: Path):
    for side, text in (("en", "the cat sees the dog .\n"), ("fr", "le chat voit le chien .\n"), ("gold", "1-1\n")):
        (tmp_path / f"a.{side}").write_text(text)
    export(trained.run("bahdanau"), tmp_path / "own")
    files = ["--source", tmp_path / "a.en", "--target", tmp_path / "a.fr"]
    for given in (
        ["en-fr", *files, "--gold", tmp_path / "a.gold"],
        [home / "en-fr-transformer", *files, "--gold", tmp_path / "a.gold"],
        [tmp_path / "own", *files, "--back", "en-fr"],
    ):
        found = run_with(home, "align", *given, "--choose")
        assert found.code == 2
        assert "en-fr is included with regard and cannot be changed" in found.err
        assert "regard export en-fr --out en-fr-transformer-copy." in found.err
    assert not [*home.rglob("alignment.json"), *(tmp_path / "own").rglob("alignment.json")]


def test_serve_without_a_run_serves_the_models_that_ship(installed: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    served = []
    monkeypatch.setattr(regard.serve, "run", lambda runs, **options: served.append(runs))
    serve()
    serve(["en-fr/bahdanau"])
    assert capsys.readouterr().err == f"loading {len(included.shipped())} models …\nloading 1 model …\n"
    assert served == [list(included.shipped().values()), [installed / "en-fr-bahdanau"]]


def test_a_damaged_card_or_one_of_other_weights_is_refused(installed: Path, tmp_path: Path):
    export(trained.run("heads"), tmp_path / "here")
    assert read_card(tmp_path / "here") == {}
    for content, message in (("{", "is damaged"), ("[]", "is damaged"), ('{"weights": "x"}', "does not belong to")):
        (tmp_path / "here" / "card.json").write_text(content)
        with pytest.raises(RunError, match=message):
            read_card(tmp_path / "here")


def test_the_demo_shows_them_or_says_that_they_are_missing(installed: Path, tmp_path: Path, capfdbinary, monkeypatch):
    show_shipped(tmp_path / "demo")
    printed = capfdbinary.readouterr().out.decode()
    assert "Where is the station?" in printed
    assert "in hundredths" in printed
    assert "percent" not in printed, "one word for the numbers, above and below the table"
    assert (tmp_path / "demo" / "economic-area.png").stat().st_size > 1000
    monkeypatch.setattr(included, "HOMES", (tmp_path / "nowhere",))
    show_shipped(tmp_path / "demo")
    assert "not part of this copy" in capfdbinary.readouterr().out.decode()


def test_a_card_is_made_by_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for side, text in (("en", "the cat sees the dog .\nI see a house .\n"), ("fr", "le chat voit le chien .\nnon\n")):
        (tmp_path / f"a.{side}").write_text(text)
    pair = f"{tmp_path / 'a.en'},{tmp_path / 'a.fr'}"
    arguments = [
        trained.run("heads"),
        "en-fr",
        "--set",
        f"one={pair}",
        "--set",
        f"two={pair}",
        "--known",
        "two=3.1,20.5",
    ]
    arguments += [
        "--models",
        tmp_path / "models",
        "--command",
        "regard train x",
        "--command",
        "regard train y",
        "--seconds",
        "60",
        "--device",
        "cpu",
    ]
    monkeypatch.setattr(sys, "argv", ["ship.py", *map(str, arguments)])
    runpy.run_path(str(ROOT / "benchmarks" / "ship.py"), run_name="__main__")
    folder = tmp_path / "models" / "en-fr-transformer"
    card = read_card(folder)
    assert [one["name"] for one in card["scores"]] == ["one", "two"]
    assert card["scores"][1]["float"] == {"bleu": 3.1, "chrf": 20.5}
    assert "version:" in card["scores"][0]["signatures"][0]
    assert len(card["sentences"]) == 20
    page = (folder / "CARD.md").read_text()
    assert "CC BY 2.0 FR" in page
    assert "**Training**: 60 seconds" in page
    assert "```\nregard train x\nregard train y\n```" in page
    said = run_here("models", folder).out
    assert "command     regard train x\n" in said
    assert "`" not in said
    assert regard.load(folder)


@pytest.mark.slow
def test_a_wheel_holds_the_models(home: Path, tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "regard"):
        os.symlink(ROOT / name, tree / name)
    os.symlink(home, tree / "models")
    subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel", "-d", tmp_path / "dist"], cwd=tree, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "regard/shipped/en-fr-transformer/weights.safetensors" in names
    assert json.loads(zipfile.ZipFile(wheel).read("regard/shipped/en-fr-transformer/manifest.json"))["expects"]


def test_a_blank_at_the_end_of_a_prefix_is_no_piece():
    translator = regard.load("en-fr", device="cpu")
    assert translator.prefix_ids("La gare ") == translator.prefix_ids("La gare") != []


def test_loading_and_translating_imports_no_training():
    code = "import regard, sys; regard.load('en-fr/bahdanau').translate('Where is the station?'); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = ("training", "corpora", "interop", "cluster", "api.training", "api.sweeping", "api.captioner")
    assert not [name for name in found if name.startswith(tuple(f"regard.{room}" for room in rooms))]
