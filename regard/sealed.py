"""Files and folders that are written whole or not at all, checked when they are read, and locked while they change."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.errors import DataError, RunError, check_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

SMALL = 256 << 20  # bytes of the largest file that `read_small` reads


def digest(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    check_file(path)
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise DataError(f"The file {path} cannot be read: {error}.") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for the block to write to; afterwards it is synced and renamed to `path`.

    After a power failure, `path` is either the old or the new file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise DataError(f"{path} could not be written: {error.strerror or error}.") from error
        raise


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a complete file, or leave the old one unchanged."""
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(content)
    return path


def write_output(path: Path, content: bytes) -> Path:
    """Write a complete file that a user named: a symbolic link stays, its target is replaced and keeps its mode.

    Not for the files of a run, which may be a stranger's: its links must not lead a command to other files.
    """
    target = Path(os.path.realpath(path))
    with replacing(target) as temporary, open(temporary, "wb") as stream:
        if target.exists():
            shutil.copymode(target, temporary)  # before the content is there to be read
        stream.write(content)
    return path


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if needed, so that a power failure does not remove them."""
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for one in missing:
            sync(one.parent)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be created: {error.strerror or error}; choose another.") from error


@contextmanager
def fill_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder for the block to fill; afterwards everything in it is synced, and it replaces `folder`.

    After a power failure, `folder` is the old or the new one, or missing if it was replaced at that moment. The old
    folder is renamed before it is deleted, so that a process that has mapped its files keeps them.
    """
    temporary, old = (folder.with_name(f".{folder.name}{kind}.{os.getpid()}.tmp") for kind in ("", ".old"))
    for left in (temporary, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        make_folder(folder.parent)
        temporary.mkdir()
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        replaced = folder.exists()
        if replaced:
            os.rename(folder, old)
        try:
            os.rename(temporary, folder)
        except OSError:
            if replaced:
                os.rename(old, folder)
            raise
        sync(folder.parent)
    finally:
        for left in (temporary, old):
            shutil.rmtree(left, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder. It is renamed first, so that a crash never leaves half of it under its name."""
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old.tmp")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
        sync(folder.parent)
        shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Make the content of a file durable, or the names in a folder. Windows cannot open a folder, and need not."""
    if path.is_dir():
        if not hasattr(os, "O_DIRECTORY"):
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    else:
        with open(path, "r+b" if sys.platform == "win32" else "rb") as stream:  # Windows syncs what may be written
            os.fsync(stream.fileno())


def read_small(path: Path) -> bytes:
    """All bytes of a regular file of at most `SMALL` bytes; otherwise OSError. For untrusted files: a pipe or a device
    may never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is not a regular file")
    with open(path, "rb") as stream:
        content = stream.read(min(SMALL, os.fstat(stream.fileno()).st_size) + 1)  # does not allocate `SMALL` bytes
    if len(content) > SMALL:
        raise OSError(f"{path.name} has more than {SMALL >> 20} MiB")
    return content


def seal(body: dict[str, Any]) -> bytes:
    """`body` as JSON with its own SHA-256, so that any changed byte is detected."""
    sha256 = hashlib.sha256(json.dumps(body, indent=1).encode()).hexdigest()
    return json.dumps({**body, "seal": sha256}, indent=1).encode()


def check_files(folder: Path, files: Mapping[str, str], advice: str = "restore it from a copy") -> None:
    """Refuse a folder in which one of `files` (name -> SHA-256) is missing or has changed, with a DataError."""
    for name, sha256 in files.items():
        if Path(name).name != name or not (folder / name).is_file():
            raise DataError(f"{folder / name} is in the manifest but missing; {advice}.")
        if digest(folder / name) != sha256:
            raise DataError(f"{folder / name} is damaged: its SHA-256 is not the one in the manifest; {advice}.")


def unseal(content: bytes) -> dict[str, Any]:
    """The body of sealed JSON; ValueError if a byte has changed."""
    try:
        body = {name: value for name, value in json.loads(content).items() if name != "seal"}
    except (AttributeError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({type(error).__name__})") from None
    if content != seal(body):
        raise ValueError("its SHA-256 does not match")
    return body


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Lock a folder for the block and create it if needed; `doing` describes another process in the error message."""
    path = folder / ".lock"
    while True:
        make_folder(folder)
        try:
            stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise RunError(
                f"The folder {folder} is not writable: {error.strerror or error}; choose another --out."
            ) from None
        with stream:
            if not _lock(stream.fileno()):
                raise RunError(f"Another process {doing} in {folder}; wait for it, or choose another --out.")
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):  # not just removed
                yield
                return


def _lock(handle: int) -> bool:
    """Lock an open file; False if another process holds it. A file system without locks counts as free."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        pass
    return True
