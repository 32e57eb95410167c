"""One process at a time in a run folder: the lock, and leftovers of a killed process."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import RunError
from regard.sealed import make_folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LEFT = ".*.[0-9]*.tmp"  # temporary files that a killed process may leave in a run folder


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Lock a run folder for the block and create it if needed; another process is refused before it changes anything.

    The system releases the lock when the process ends, however it ends. A folder that was created here and is still
    empty at the end is removed.
    """
    made = not run.exists()
    if not made and not run.is_dir():
        raise RunError(f"{run} is a file; --out needs the name of a folder for the run.")
    if not made and not (run / "config.toml").exists() and not all(map(is_scratch, run.iterdir())):
        raise RunError(f"{run} exists and is not a run of regard; nothing was changed. Choose another --out.")
    with locked(run, "is training"):
        try:
            yield
        finally:
            if made and all(map(is_scratch, run.iterdir())):
                with suppress(OSError):  # another process may use it by now
                    (run / ".lock").unlink()
                    run.rmdir()


def is_scratch(path: Path) -> bool:
    """Whether a file of a run folder is the lock or a leftover of a killed process."""
    return path.name == ".lock" or path.match(LEFT)


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
