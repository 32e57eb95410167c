"""One rule for every command that writes: a file that exists is replaced only with --overwrite, and none inside a run.

The commands and their options are found by a scan, so that a new one cannot be forgotten here.
"""

import inspect
import os
import re
import shutil
import stat
from pathlib import Path

import pytest
import trained
from commands import run_here

from regard.cli import app
from regard.corpora import shapes
from regard.data.images import encode_png

INPUTS = {
    "back", "captions", "documents", "file", "folder", "gold", "images", "lexicon", "run", "runs", "runtime", "source",
    "target", "terms", "text", "tmx", "tokens", "tsv", "with_run",
}  # fmt: skip
APPENDED = {"suggestions"}  # only ever grows
OUTPUTS = {"out", "plot"}
LINE = "ba da fo"
# Commands that write one file: their arguments, the name of a file, and the option.
FILES = {
    "translate": ("RUN TEXT", "a.txt", "--out"),
    "look": ("RUN ba", "a.json", "--out"),
    "flow": ("RUN ba", "a.svg", "--out"),
    "align": ("RUN PAIRS", "a.links", "--out"),
    "faithful": ("RUN PAIRS --methods attention --sanity 0", "a.svg", "--plot"),
    "score": ("RUN PAIRS --beam 1", "a.svg", "--plot"),
    "compare": ("RUN OTHER PAIRS --beam 1", "a.svg", "--plot"),
    "caption": ("CAPTIONER PICTURE", "a.html", "--out"),
    "classify": ("CLASSIFIER good", "a.html", "--out"),
    "corpora": ("copy --size 2", "a.source", "--out"),
}
# Commands that write a folder, which must be new, empty or the folder of the same work.
FOLDERS = {
    "demo": "--minutes 0.001 --model bahdanau",
    "train": "--corpus copy --model bahdanau --preset tiny train.steps=1 data.size=60 data.held_out=4",
    "heads": "RUN PAIRS --on local",
    "reach": "LANGUAGE TEXT --on local",
    "page": "RUN",
    "export": "RUN",
    "sweep": "SWEEP",
    "import": "RUN",
    "align": "RUN PAIRS --on local",
    "translate": "RUN TEXT --on local",
}


@pytest.fixture
def arguments(tmp_path):
    text, picture, sweep = (tmp_path / name for name in ("text.txt", "scene.png", "sweep.toml"))
    text.write_text(f"{LINE}\n", encoding="utf-8")
    picture.write_bytes(encode_png(shapes.draw_scene(shapes.scene(1))))
    sweep.write_text("", encoding="utf-8")
    runs = {"RUN": "bahdanau", "OTHER": "heads", "CAPTIONER": "captioner", "CLASSIFIER": "classifier"}
    words = {"TEXT": text, "PICTURE": picture, "PAIRS": f"--source {text} --target {text}", "SWEEP": sweep}

    def spelled(line):
        for word, meaning in words.items():
            line = line.replace(word, str(meaning))
        for word, name in {**runs, "LANGUAGE": "language"}.items():
            line = re.sub(rf"\b{word}\b", str(trained.run(name)) if word in line else "", line)
        return line.split()

    return spelled


def passed(command, path):
    """What is passed as the output: corpora takes the name without its ending."""
    return path.with_suffix("") if command == "corpora" else path


def test_every_command_that_writes_is_known():
    files, folders = set(), set()
    for command in app.registered_commands:
        given = inspect.signature(command.callback).parameters
        paths = {name for name, one in given.items() if "Path" in str(one.annotation)}
        name = command.name or command.callback.__name__
        assert paths <= INPUTS | OUTPUTS | APPENDED, f"{name}: is a new option an input, or an output with --overwrite?"
        if paths & OUTPUTS or "out" in given:
            (files if "overwrite" in given else folders).add(name)
    assert files == set(FILES)
    assert folders == set(FOLDERS) - set(FILES)


@pytest.mark.parametrize("command", FILES)
def test_a_file_is_replaced_only_with_overwrite(command, arguments, tmp_path):
    line, name, option = FILES[command]
    given = [command, *arguments(line), option]
    real, link = tmp_path / "real", tmp_path / name
    real.write_text("mine", encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to(real)
    done = run_here(*given, passed(command, link))
    assert done.code == 2
    assert done.err == f"regard: {link} exists; write to another file, or add --overwrite to replace it.\n"
    assert (real.read_text(encoding="utf-8"), done.out) == ("mine", "")
    done = run_here(*given, passed(command, link), "--overwrite")
    assert done.code == 0, done.err
    assert link.is_symlink()
    assert real.read_bytes() not in (b"mine", b"")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("command", FILES)
def test_no_file_is_written_into_a_run(command, arguments, tmp_path):
    line, name, option = FILES[command]
    run = tmp_path / "run"
    shutil.copytree(trained.run("bahdanau"), run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (tmp_path / "link").symlink_to(run)
    for place in (run, run / "checkpoints", tmp_path / "link"):
        done = run_here(command, *arguments(line), option, passed(command, place / name), "--overwrite")
        assert (done.code, done.out) == (2, "")
        assert "is inside the run" in done.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_is_never_written_over_something_else(command, arguments, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")
    done = run_here(command, *arguments(FOLDERS[command]), "--out", mine)
    assert done.code == 2, done.out
    assert mine.read_text(encoding="utf-8") == "mine"
    assert not done.err.startswith("Traceback"), done.err


def test_overwrite_is_not_for_shards(arguments, tmp_path):
    for command in ("translate", "align"):
        done = run_here(command, *arguments(FOLDERS[command]), "--out", tmp_path / "o", "--overwrite")
        assert (done.code, done.out) == (2, "")
        assert "--overwrite is for the one file of --out; leave out --on" in done.err


def test_a_device_or_a_pipe_is_not_replaced(arguments, tmp_path):
    os.mkfifo(tmp_path / "a.links")
    for path in (tmp_path / "a.links", Path("/dev/null")):
        done = run_here("align", *arguments("RUN PAIRS"), "--out", path, "--overwrite")
        assert done.code == 2
        assert f"{path} is not a regular file; pass the name of a file" in done.err
    assert stat.S_ISFIFO((tmp_path / "a.links").stat().st_mode)


def test_the_target_of_a_link_may_be_new(arguments, tmp_path):
    (tmp_path / "a.links").symlink_to(tmp_path / "new")
    done = run_here("align", *arguments("RUN PAIRS"), "--out", tmp_path / "a.links")
    assert done.code == 0, done.err
    assert (tmp_path / "new").read_text(encoding="utf-8").count("\n") == 1
    assert (tmp_path / "a.links").is_symlink()
