"""Folders that are expensive to make (trained models) and kept between test runs and processes.

A folder is keyed by what made it: its recipe and every source file of regard that training may import. It is made under
a lock and renamed into place when it is complete, so that no process ever sees, uses or deletes half of one.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import regard

ROOT = Path(tempfile.gettempdir()) / f"regard-tests-{os.getuid()}"
DAYS = 2.0  # unused folders are deleted after this
ABOVE = ("cli", "serve", "interop", "cluster")  # training imports nothing of these, as import-linter checks


@cache
def code() -> str:
    """A fingerprint of the source files of regard, without those that training cannot know."""
    package = Path(regard.__file__).parent
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in ABOVE:
            continue
        found.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a folder; yields whether it is held, which it always is after waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{path.name}.lock"), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def kept(name: str, recipe: object, make: Callable[[Path], object]) -> Path:
    """The folder that `make(folder)` fills, made once for each recipe and state of the code."""
    mark = hashlib.sha256(json.dumps([code(), name, recipe]).encode()).hexdigest()[:16]
    folder = ROOT / mark / name
    with locked(ROOT / mark):
        if not folder.exists():
            making = folder.with_name("making")
            shutil.rmtree(making, ignore_errors=True)  # of a process that died; the lock says that nobody is at it
            make(making / name)
            (making / name).rename(folder)
        os.utime(ROOT / mark)
    _forget()
    return folder


def _forget() -> None:
    for old in ROOT.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > DAYS * 86_400:
            with locked(old, wait=False) as free:
                if free:
                    shutil.rmtree(old, ignore_errors=True)
