"""A disk that fails at the k-th operation: open, write, fsync, rename, mkdir, unlink, rmdir, each counted."""

import builtins
import errno
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EINTR")}
CALLS = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
FAULTS = (*ERRORS, "short write", "crash")
STASH, NUMBERS = tempfile.TemporaryDirectory(prefix="faults-"), itertools.count()  # what a change of names has removed


class Crash(BaseException):
    """The process is gone: nothing in regard may catch this."""


class Name(NamedTuple):
    """A name that was created, changed or removed, and how to undo it; `folders` are those to be synced, as inodes."""

    folders: set[int]
    undo: Callable[[], None]


class Disk:
    """Counts operations, and lets the one numbered `fail` (from 0) go wrong. Nothing is really synced: that is slow."""

    def __init__(self, fail: int | None = None, fault: str = "EIO") -> None:
        self.fail, self.fault = fail, fault
        self.log: list[str] = []
        self.unsynced: set[int] = set()  # inodes of files whose content a loss of power would take
        self.names: list[Name] = []  # changes of names that a loss of power would take, oldest first

    @property
    def failed(self) -> bool:
        return self.fail is not None and len(self.log) > self.fail

    def operation(self, name: str) -> bool:
        """Note an operation, and fail if it is its turn; True asks for a short write."""
        self.log.append(name)
        if len(self.log) - 1 != self.fail:
            return False
        if self.fault == "crash":
            raise Crash
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault in ("short write", "lie") and name == "write":
            return True
        if self.fault == "lie":
            return False
        raise OSError(ERRORS.get(self.fault, errno.ENOSPC), os.strerror(ERRORS.get(self.fault, errno.ENOSPC)))

    def lose_power(self, folder: Path, survives: Callable[[], bool] = lambda: False) -> None:
        """What was written and not synced is gone: content, and names in a folder that was not synced after the change.

        `survives` may decide for each change of a name that it reached the disk all the same.
        """
        for name in reversed(self.names):
            if not survives():
                with suppress(OSError):  # what it undoes may be gone, if a later change survived
                    name.undo()
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_ino in self.unsynced:
                os.truncate(path, 0)
        self.unsynced, self.names = set(), []

    def changing(self, name: str, *paths: str) -> Callable[[], None]:
        """Call this before a name changes, and what it returns after that: it notes how to undo the change."""
        first, last = Path(paths[0]), Path(paths[-1])
        taken = Path(STASH.name) / str(next(NUMBERS))
        if name == "unlink" or (name == "replace" and last.is_file()):
            os.link(last, taken)  # a hard link: its content, and whether that is synced, stay the same

        def undo() -> None:
            if name == "create":
                last.unlink()
            elif name == "mkdir":
                shutil.rmtree(last)
            elif name == "rmdir":
                self.real["mkdir"](last)
            elif name in ("rename", "replace"):
                self.real["rename"](last, first)
            if taken.exists():
                os.link(taken, last)

        folders = {os.stat(path.parent).st_ino for path in (first, last)}
        return lambda: self.names.append(Name(folders, undo))

    def synced(self, inode: int) -> None:
        """A file or folder was synced."""
        self.unsynced.discard(inode)
        for name in self.names:
            name.folders.discard(inode)
        self.names = [name for name in self.names if name.folders]

    @contextmanager
    def installed(self) -> Iterator["Disk"]:
        """Put the counting calls in the place of the real ones."""
        real = self.real = {name: getattr(os, name) for name in CALLS}
        real_open = builtins.open

        def counted(name):
            def call(*args, **kwargs):
                self.operation(name)
                if name == "fsync":
                    self.synced(os.fstat(args[0]).st_ino)
                    return None
                if name == "open":
                    return real[name](*args, **kwargs)
                paths = args[:2] if name in ("rename", "replace") else args[:1]
                changed = self.changing(name, *paths)
                found = real[name](*args, **kwargs)
                changed()
                return found

            return call

        def counted_open(file, mode="r", *args, **kwargs):
            if not set(mode) & set("wax+"):
                return real_open(file, mode, *args, **kwargs)
            self.operation("create")
            changed = (lambda: None) if os.path.exists(file) else self.changing("create", file)
            stream = real_open(file, mode, *args, **kwargs)
            changed()
            return Stream(stream, self)

        for name in CALLS:
            setattr(os, name, counted(name))
        builtins.open = counted_open
        by_descriptor, shutil._use_fd_functions = shutil._use_fd_functions, False  # `rmtree` gives whole paths
        try:
            yield self
        finally:
            builtins.open, shutil._use_fd_functions = real_open, by_descriptor
            for name, call in real.items():
                setattr(os, name, call)


class Stream:
    """A file opened for writing; a short write leaves half of the content, and says that the disk is full."""

    def __init__(self, stream, disk: Disk) -> None:
        self.stream, self.disk = stream, disk

    def write(self, content):
        self.disk.unsynced.add(os.fstat(self.stream.fileno()).st_ino)
        odd = self.disk.operation("write")
        if odd and self.disk.fault == "lie":  # the disk says that all is well
            return self.stream.write(content[:-1] + bytes([content[-1] ^ 1]))
        if odd:
            self.stream.write(content[: len(content) // 2])
            self.stream.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(content)

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stream.close()


def every_place(most: int = 500) -> Iterator[int]:
    """0, 1, 2, ...: the caller stops where a run went through without the fault."""
    return itertools.islice(itertools.count(), most)
