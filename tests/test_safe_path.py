"""No command imports a module from the current folder, however it and its processes are started.

The folder holds a trap for every module of Python and of every installed package: importing one leaves a mark.
"""

import os
import pkgutil
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import PATIENCE, until
from serve_parts import captioner, trained

from regard.cli import app
from regard.cluster.ray import connect

TRAP = """import os
os.close(os.open({mark!r}, os.O_CREAT | os.O_WRONLY))
"""
TINY = ["--preset", "tiny", "train.steps=2", "train.validate_every=2", "data.size=60", "data.held_out=4"]
SMALL = [*TINY, "train.validate_sentences=2"]
# Every command, in one process: the modules that commands import are looked for once.
PROGRAM = """
import sys
from regard.__main__ import main
lines = sys.stdin.read().split("\\n") if __name__ == "__main__" else []  # children import this file
for line in lines:
    sys.argv = ["regard", *line.split("\\t")]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            sys.stderr.write(f"exit code {ended.code}: {line}\\n")
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder of traps."""
    folder = tmp_path_factory.mktemp("hostile")
    names = {*sys.stdlib_module_names, *(module.name for module in pkgutil.iter_modules())}
    for name in names | {"sitecustomize", "usercustomize"}:
        (folder / f"{name}.py").write_text(TRAP.format(mark=str(folder / f"{name}.ran")), encoding="utf-8")
    assert len(names) > 300
    return folder


def unsafe():
    """The environment, without the settings that would hide a fault."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}


def imported(folder):
    return sorted(path.name for path in folder.glob("*.ran"))


def run(command, folder, **given):
    given = {"timeout": PATIENCE, "capture_output": True, "text": True, "env": unsafe(), **given}
    return subprocess.run([str(part) for part in command], cwd=folder, **given)


def test_the_traps_work(hostile, tmp_path):
    """What they find elsewhere: a program that looks in the current folder first."""
    for path in hostile.glob("*.py"):
        (tmp_path / path.name).write_text(TRAP.format(mark=str(tmp_path / f"{path.stem}.ran")), encoding="utf-8")
    run([sys.executable, "-c", "import uuid"], tmp_path)
    assert imported(tmp_path) == ["uuid.ran"]


def test_python_dash_m(hostile):
    """Python itself finds the package: a file regard.py in the folder would be run instead of it."""
    trap = (hostile / "regard.py").read_text(encoding="utf-8")
    (hostile / "regard.py").unlink()
    try:
        done = run([sys.executable, "-m", "regard", "corpora"], hostile)
    finally:
        (hostile / "regard.py").write_text(trap, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "phrasebook" in done.stdout
    assert imported(hostile) == []


FEW = {"translate", "serve"}  # those that CI runs, after one training; workers import too


@pytest.mark.parametrize(
    "few", [pytest.param(True, marks=pytest.mark.published), pytest.param(False, marks=pytest.mark.slow)]
)
def test_every_command(hostile, tmp_path, few):
    out = tmp_path / "runs"
    (tmp_path / "text").write_text("ba da\nfo ne ti\n", encoding="utf-8")
    (tmp_path / "sweep.toml").write_text(
        f'config = "{tmp_path}/common.toml"\nseeds = [1, 2]\n[grid]\n"model.width" = [8]\n', encoding="utf-8"
    )
    (tmp_path / "common.toml").write_text(
        '[model]\nname = "bahdanau"\nembedding = 6\nattention = 5\nreadout = 4\n'
        '[data]\ncorpus = "copy"\nsize = 60\nheld_out = 4\n[train]\nsteps = 2\nvalidate_sentences = 2\n',
        encoding="utf-8",
    )
    translator, text, picture = trained(), tmp_path / "text", Path(__file__).parents[1] / "docs"
    picture = next(picture.rglob("*.png"))
    commands = [
        ["train", "--corpus", "copy", "--model", "transformer", "--out", out / "translator", *SMALL],
        ["train", "--corpus", "tales", "--model", "attentive-lm", "--out", out / "language", *TINY],
        ["train", "--corpus", "reviews", "--model", "document", "--out", out / "document", *TINY],
        ["translate", translator, "ba da"],
        ["translate", translator, text, "--out", tmp_path / "sharded", "--on", "local", "--workers", 1],
        ["score", translator, "--source", text, "--target", text],
        ["compare", translator, out / "translator", "--source", text, "--target", text],
        ["look", translator, "ba da", "--out", tmp_path / "look.png"],
        ["look", translator, "ba da", "--out", tmp_path / "look.html"],
        ["heads", translator, "--source", text, "--target", text],
        ["flow", translator, "ba da"],
        ["align", translator, "--source", text, "--target", text],
        ["faithful", translator, "--source", text, "--target", text, "--methods", "attention", "--sanity", 1],
        ["caption", captioner(), picture],
        ["classify", out / "document", text],
        ["generate", out / "language"],
        ["perplexity", out / "language", text],
        ["reach", out / "language", text],
        ["models"],
        ["corpora"],
        ["export", translator, "--out", tmp_path / "small", "--to", "small"],
        ["sweep", tmp_path / "sweep.toml", "--out", tmp_path / "swept", "--workers", 1],
        ["demo", "--task", "none"],
        ["import", translator, "--out", tmp_path / "converted"],
        ["serve", "none"],
        ["calibrate", translator, "--source", text, "--target", text],
        ["page", translator, "--out", tmp_path / "site", "--runtime", tmp_path],
    ]  # fmt: skip
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {command[0] for command in commands} == names
    if few:
        commands = [command for number, command in enumerate(commands) if not number or command[0] in FEW]
    program = tmp_path / "program" / "all.py"
    program.parent.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    lines = "\n".join("\t".join(map(str, command)) for command in commands)
    done = run([sys.executable, program], hostile, input=lines)
    assert done.returncode == 0, done.stderr
    assert imported(hostile) == []
    failed = re.findall(r"^exit code \d+: (\w+)", done.stderr, re.MULTILINE)
    assert failed == [name for name in ("demo", "import", "serve", "calibrate", "page") if not few or name in FEW]


def test_workers_of_ray(tmp_path, monkeypatch):
    """Ray lets its workers import from the folder in which it is started."""
    folders = []
    ray = SimpleNamespace(
        __file__=str(tmp_path / "site" / "ray" / "__init__.py"), init=lambda **given: folders.append(os.getcwd())
    )
    monkeypatch.setattr("regard.cluster.ray.need_ray", lambda: ray)
    for name in ("site", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    connect(None)
    monkeypatch.syspath_prepend(str(tmp_path / "here"))  # as --import does
    connect(None)
    assert folders == [str(tmp_path / "site"), str(tmp_path / "here")]


def test_the_processes_of_a_server(hostile, tmp_path):
    program = tmp_path / "serve.py"
    program.write_text("import sys\nfrom regard.__main__ import main\nif __name__ == '__main__':\n    main()\n")
    command = [sys.executable, str(program), "serve", str(trained()), "--port", "0"]
    server = subprocess.Popen(command, cwd=hostile, env=unsafe(), stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[1]

        def healthy():
            try:
                return urllib.request.urlopen(f"{address}health").status == 200
            except OSError:
                return False

        until(healthy, 0.1)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    assert imported(hostile) == []
