"""A disk that fails at the k-th operation: open, write, fsync, rename, mkdir, unlink, rmdir, each counted."""

import builtins
import errno
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EINTR")}
CALLS = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
FAULTS = (*ERRORS, "short write", "crash")


class Crash(BaseException):
    """The process is gone: nothing in regard may catch this."""


class Disk:
    """Counts operations, and lets the one numbered `fail` (from 0) go wrong. Nothing is really synced: that is slow."""

    def __init__(self, fail: int | None = None, fault: str = "EIO") -> None:
        self.fail, self.fault = fail, fault
        self.log: list[str] = []
        self.unsynced: set[int] = set()  # inodes of files whose content a loss of power would take

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

    def lose_power(self, folder: Path) -> None:
        """What was written and not synced is gone; names stay, as they do on a journalling file system."""
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_ino in self.unsynced:
                os.truncate(path, 0)

    @contextmanager
    def installed(self) -> Iterator["Disk"]:
        """Put the counting calls in the place of the real ones."""
        real = {name: getattr(os, name) for name in CALLS}
        real_open = builtins.open

        def counted(name):
            def call(*args, **kwargs):
                self.operation(name)
                if name == "fsync":
                    self.unsynced.discard(os.fstat(args[0]).st_ino)
                    return None
                return real[name](*args, **kwargs)

            return call

        def counted_open(file, mode="r", *args, **kwargs):
            if not set(mode) & set("wax+"):
                return real_open(file, mode, *args, **kwargs)
            self.operation("create")
            return Stream(real_open(file, mode, *args, **kwargs), self)

        for name in CALLS:
            setattr(os, name, counted(name))
        builtins.open = counted_open
        try:
            yield self
        finally:
            builtins.open = real_open
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
