"""Commands of regard as real processes: forked from a server that has everything imported, so that each begins at once.

A process can be killed, sent signals, and given a fault that it plants in itself before it begins.
"""

import contextlib
import functools
import hashlib
import importlib
import io
import itertools
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace

import patience
import typer.main
import unsynced  # noqa: F401 - in the processes too, which import this file
from patience import PATIENCE

from regard import processes

os.environ.pop("COLUMNS", None)  # tables are as wide as they are
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the server and its children inherit it; tiny models gain nothing by two

# All options of all commands are made from their signatures once and not for every command: 20 milliseconds each.
typer.main.get_command = functools.cache(typer.main.get_command)

context = multiprocessing.get_context("forkserver")
OWN = os.getpid()  # in other processes, servers import what regard.processes names, as for users


def _ensure_running(ensure: Callable[[], None] = forkserver._forkserver.ensure_running) -> None:
    if os.getpid() != OWN:
        ensure()
        return
    context.set_forkserver_preload(["preload"])  # whoever starts the first process, with whatever it wants
    safe = os.environ.pop("PYTHONSAFEPATH", None)
    try:
        with contextlib.chdir(Path(__file__).parent):  # where the server finds `preload`
            ensure()
    finally:
        if safe is not None:
            os.environ["PYTHONSAFEPATH"] = safe


forkserver._forkserver.ensure_running = _ensure_running


def forkserver_address() -> str:
    """Where the server of this process listens, for `share_forkserver`."""
    forkserver._forkserver.ensure_running()
    return forkserver._forkserver._forkserver_address


def share_forkserver(address: str) -> None:
    """In a process of the server: start further ones there too, where multiprocessing would start a second server."""
    forkserver._forkserver._forkserver_address = address
    forkserver._forkserver.ensure_running = lambda: None


def forkserver_for_others() -> tuple[str, bytes | None]:
    """The server of this process, for `join_forkserver`: its address, and from Python 3.14 the key that it wants."""
    return forkserver_address(), getattr(forkserver._forkserver, "_forkserver_authkey", None)


def join_forkserver(address: str, key: bytes | None) -> None:
    """In a process that did not come from the server: start all processes there, as long as its own process lives."""
    share_forkserver(address)
    forkserver._forkserver._forkserver_authkey = key
    _, forkserver._forkserver._forkserver_alive_fd = os.pipe()  # processes inherit one; that of the server is its own


def children(parent: int) -> list[int]:
    """The processes that the threads of a process have started."""
    found = []
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            found += map(int, thread.read_text().split())
    return found


def forked_children(parent: int) -> list[int]:
    """The child processes of `regard.processes` that a process has started: forks of its fork server."""
    return [child for server in children(parent) for child in children(server)]


class Command:
    """`regard ARGUMENTS` in a separate process; its output goes to files in `folder`."""

    def __init__(
        self, arguments: Sequence[object], folder: Path, plant: Callable[[], None] | None = None, stdin: bytes = b""
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.out")))
        self.files = {name: folder / f"{number}.{name}" for name in ("in", "out", "err")}
        self.files["in"].write_bytes(stdin)
        self.files["out"].touch()
        self.files["err"].touch()
        plain = [str(argument) for argument in arguments]
        names = {name: str(path) for name, path in self.files.items()}
        self.process = context.Process(target=_main, args=(plain, names, plant, forkserver_address()))
        self.process.start()

    @property
    def out(self) -> str:
        return self.files["out"].read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self.files["err"].read_text(encoding="utf-8")

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        """The exit code; the negative signal where one killed it."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"the process hangs: {self.err}")
        return self.process.exitcode

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so, or the process has ended."""
        patience.until(lambda: reached() or not self.process.is_alive(), 0.005, lambda: self.err)


def _main(arguments: list[str], files: dict[str, str], plant: Callable[[], None] | None, forks: str) -> None:
    for number, name, flags in ((0, "in", os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY)):
        os.dup2(os.open(files[name], flags), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - multiprocessing has closed it
    sys.argv = ["regard", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
    share_forkserver(forks)
    processes.context = context  # also where children are not forks
    assert "preload" in sys.modules, "the server forks before it has imported what commands import"
    if plant:
        plant()
    from regard.__main__ import main

    main()


def regard(*arguments: object, folder: Path, plant: Callable[[], None] | None = None, stdin: bytes = b"") -> Command:
    """Run a command to its end."""
    command = Command(arguments, folder, plant, stdin)
    command.code = command.wait()
    return command


def run_here(*arguments: object) -> SimpleNamespace:
    """Run a command in this process: where standard input, signals and what it imports do not matter."""
    from regard.__main__ import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["regard", *map(str, arguments)], io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv, sys.stdin = before
    said, complained = (one.buffer.getvalue().decode("utf-8") for one in (out, err))
    return SimpleNamespace(code=code, out=said, err=complained)


class KillAfter:
    """A fault: the process kills itself with SIGKILL when update `step` is made, before anything is saved of it."""

    def __init__(self, step: int, number: int = signal.SIGKILL) -> None:
        self.step, self.number = step, number

    def __call__(self) -> None:
        from regard.training.loop import Loop

        update = Loop.update

        def update_and_die(loop, group, last):
            update(loop, group, last)
            if loop.cursor.step == self.step:
                os.kill(os.getpid(), self.number)

        Loop.update = update_and_die


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metrics(run: Path) -> list[dict]:
    """The lines of metrics.jsonl that are whole."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def steps_made(run: Path) -> int:
    return max((line["step"] for line in metrics(run)), default=0)


class SignalIn:
    """A fault: the process sends itself a signal inside a call of a method, each of the given `times` it is made.

    `method` is as in "regard.training.loop:Loop.save"; the signal comes before the call's own work.
    """

    def __init__(self, method: str, times: Sequence[int], number: int = signal.SIGTERM) -> None:
        self.method, self.times, self.number = method, tuple(times), number

    def __call__(self) -> None:
        place, _, path = self.method.partition(":")
        *owners, name = path.split(".")
        owner = importlib.import_module(place)
        for part in owners:
            owner = getattr(owner, part)
        method, count = getattr(owner, name), itertools.count(1)

        def signalled(*args, **kwargs):
            if next(count) in self.times:
                os.kill(os.getpid(), self.number)
                time.sleep(0.01)  # a place where the handler can run
            return method(*args, **kwargs)

        setattr(owner, name, signalled)


class SignalLater:
    """A fault: a signal `delay` seconds after update `step`, anywhere in what follows.

    The step that the loop has reached by then is written to `note`; a signal from outside could not know it.
    """

    def __init__(self, step: int, delay: float, number: int, note: Path) -> None:
        self.step, self.delay, self.number, self.note = step, delay, number, note

    def __call__(self) -> None:
        from regard.training.loop import Loop

        update, begun = Loop.update, []

        def send(loop):
            self.note.write_text(str(loop.cursor.step))
            os.kill(os.getpid(), self.number)

        def update_and_wait(loop, group, last):
            update(loop, group, last)
            if loop.cursor.step >= self.step and not begun:
                begun.append(threading.Timer(self.delay, send, [loop]))
                begun[0].start()

        Loop.update = update_and_wait


class QuickPulse:
    """A setting for tests: a rank without a sign of life is missed after five seconds; a fault may come on top."""

    def __init__(self, plant: Callable[[], None] | None = None) -> None:
        self.plant = plant

    def __call__(self) -> None:
        from regard.training import distributed

        distributed.BEAT, distributed.MOST_MISSED = 0.1, 50
        if self.plant:
            self.plant()


class SmallDemo:
    """A setting for tests: the demos train on small corpora."""

    def __call__(self) -> None:
        from regard.cli import demo

        sizes = {"data.size": 400, "data.held_out": 20, "train.validate_sentences": 10}
        for task, (model, corpus, settings, show) in demo.DEMOS.items():
            given = dict(setting.split("=") for setting in settings.split()) | sizes
            demo.DEMOS[task] = model, corpus, " ".join(f"{name}={value}" for name, value in given.items()), show


class AsRank:
    """Be one of several ranks, by the environment that torchrun gives; another fault may come on top."""

    def __init__(self, rank: int, world: int, port: int, plant: Callable[[], None] | None = None) -> None:
        self.rank, self.world, self.port, self.plant = rank, world, port, plant

    def __call__(self) -> None:
        given = {"RANK": self.rank, "LOCAL_RANK": self.rank, "WORLD_SIZE": self.world, "MASTER_PORT": self.port}
        os.environ.update({name: str(value) for name, value in given.items()} | {"MASTER_ADDR": "127.0.0.1"})
        if self.plant:
            self.plant()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_ranks(arguments: Sequence[object], world: int, folder: Path, plants: dict | None = None) -> list[Command]:
    """Start the same command as `world` ranks; `plants` are faults by rank."""
    port = free_port()
    return [
        Command(arguments, folder / str(rank), AsRank(rank, world, port, (plants or {}).get(rank)))
        for rank in range(world)
    ]


def run_ranks(arguments: Sequence[object], world: int, folder: Path, plants: dict | None = None) -> list[int]:
    """Run them to their end: the exit codes."""
    return [command.wait() for command in start_ranks(arguments, world, folder, plants)]
