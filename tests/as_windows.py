"""Import every module, train, translate and serve without what Windows lacks: python tests/as_windows.py FOLDER

The libraries are imported first, as they are on this system. Then modules and names that exist only on POSIX disappear,
`sys.platform` is "win32", and regard is imported again. Processes that it starts have this system's platform again.
"""

import asyncio
import errno
import fcntl
import importlib
import io
import multiprocessing.sharedctypes  # noqa: F401 - imported by the standard library where it is used
import os
import pkgutil
import signal
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import sacrebleu  # noqa: F401 - imported by regard where it is used

import regard

POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop")
POSIX_NAMES = {
    os: ("O_DIRECTORY", "fchmod", "fork", "getuid", "killpg", "mkfifo", "nice", "sched_getaffinity", "sysconf"),
    signal: ("SIGALRM", "SIGHUP", "SIGPIPE", "SIGSTOP", "SIGUSR1", "setitimer"),
}  # fmt: skip
TRAINING = {"train.steps": 2, "data.size": 60, "data.subwords": "word", "model.width": 8, "train.validate_every": 1}


class Closed(io.StringIO):
    """The end of a pipe whose reader has exited."""

    def flush(self) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    def fileno(self) -> int:
        return os.open(os.devnull, os.O_WRONLY)

    def reconfigure(self, **options: Any) -> None: ...


def import_all() -> None:
    """Import every module of the package except Triton's, which Windows does not have."""
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != "triton":
                raise


def become_windows() -> None:
    """Remove what Windows lacks from this process, and forget the package."""
    flags, sync, lock = fcntl.fcntl, os.fsync, fcntl.flock

    def fsync(handle: int) -> None:
        if flags(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "a file that is opened for reading cannot be synced")
        sync(handle)

    def locking(handle: int, mode: int, count: int) -> None:
        try:
            lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_NBLCK = locking, 2
    for name in [name for name in sys.modules if name.partition(".")[0] in ("regard", *POSIX_MODULES)]:
        del sys.modules[name]
    sys.modules.update({**dict.fromkeys(POSIX_MODULES), "msvcrt": msvcrt})
    for module, names in POSIX_NAMES.items():
        for name in names:
            delattr(module, name)
    os.fsync, asyncio.ProactorEventLoop = fsync, asyncio.SelectorEventLoop  # type: ignore[attr-defined]
    sys.platform = "win32"


def use(folder: Path) -> None:
    """Train, resume, be refused by a lock, translate, and serve."""
    import regard
    from regard.__main__ import main
    from regard.errors import RunError
    from regard.sealed import locked

    def train(steps: int) -> Any:
        settings = [f"{name}={value}" for name, value in {**TRAINING, "train.steps": steps}.items()]
        return regard.train(model="cho", preset="tiny", corpus="reverse", out=folder / "run", settings=settings)

    train(2)
    print(train(3).translate("ko ba de"))
    with locked(folder / "run", "trains"):
        try:
            train(4)
        except RunError as error:
            print(error)

    sys.argv[1:] = ["translate", str(folder / "naïve"), "ko"]
    try:
        main()
    except SystemExit as ended:
        print(ended.code)

    output, sys.stdout, sys.argv[1:] = sys.stdout, Closed(), ["--version"]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, "without a reader", file=output)
    sys.stdout = output

    def ask(address: str) -> None:
        print(urllib.request.urlopen(address + "languages").status)
        os.kill(os.getpid(), signal.SIGTERM)

    regard.serve.run([folder / "run"], 0, ready=ask)


if __name__ == "__main__":
    import_all()
    become_windows()
    import_all()
    use(Path(sys.argv[1]))
