"""Child processes that load something once and then answer calls: the models of a server, the workers of a corpus.

A child ends when its parent does. If a child ends first, its open calls fail with `DiedError`, and the parent decides
what to repeat. On Linux, children are forks of one process that has imported what they need (multiprocessing's fork
server), so that they share its memory and start quickly; elsewhere, each child is a new interpreter.
"""

import gc
import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

# The parent itself is never forked: a fork would copy its threads and CUDA. macOS does not support forks well.
context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_starting = threading.Lock()
_SAFE = ("PYTHONSAFEPATH", "while a child starts")


class DiedError(Exception):
    """The process ended before it answered."""


class FailedError(Exception):
    """A call that raised an error of another package: its type and message."""


class Running:
    """A call that a child works on. Both methods are signs of life for the parent."""

    def __init__(self, child: "_Child", number: int) -> None:
        self._child, self._number = child, number

    def send(self, part: Any) -> None:
        """Send a partial result."""
        self._child.beat.value = time.monotonic()
        self._child.send(self._number, "part", part)

    def stopped(self) -> bool:
        """Whether the result is no longer needed. Calls that may interrupt this one run here first."""
        self._child.beat.value = time.monotonic()
        self._child.run_interrupts()
        return self._number in self._child.stopped


Answer = Callable[..., Any]  # (running, *message) -> result; `running` is None in a call that runs in the thread
FINISH = ("finish",)  # in the place of a call: the child ends


class Call:
    """A call of a child, as the parent sees it."""

    def __init__(self, number: int, part: Callable[[Any], None], watched: bool) -> None:
        self.number, self.part, self.watched = number, part, watched
        self.result: Future[Any] = Future()


class ChildProcess:
    """A child, and its open calls. Can be used from several threads.

    `load` runs in the child, in its main thread, and returns the function that answers calls. It is sent to the child,
    as are the arguments and results of calls. `ended` is called when the child has ended. The modules `preload` are
    imported before the first fork.
    """

    def __init__(
        self, load: Callable[[], Answer], ended: Callable[[], None] = lambda: None, preload: Sequence[str] = ()
    ) -> None:
        self.dead = False
        self._connection, theirs = context.Pipe()
        self._beat = context.RawValue("d", 0.0)
        environment = dict(variable for variable in os.environ.items() if variable != _SAFE)  # of another child's start
        self._process = context.Process(target=_run_child, args=(theirs, self._beat, environment, load), daemon=True)
        self._numbers = itertools.count()
        self._calls: dict[int, Call] = {}
        self._lock, self._started = threading.Lock(), threading.Event()
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # pickled messages; None is the last
        self._sent = 0.0  # time of the last watched call
        self.loaded = self._open(lambda part: None, watched=False).result  # done when `load` has returned

        def follow() -> None:
            try:
                with _starting, _safe_path():
                    if sys.platform == "linux":
                        context.set_forkserver_preload(list(preload))
                    self._process.start()  # takes seconds if the fork server has to start first
            except Exception as error:  # such as too many processes
                settle(self.loaded, error=error)
            theirs.close()
            self._started.set()
            self._receive()
            ended()

        self._follower = threading.Thread(target=follow, daemon=True)
        self._follower.start()
        threading.Thread(target=self._deliver, daemon=True).start()

    def call(self, *message: Any, part: Callable[[Any], None] = lambda part: None) -> Call:
        """Call after the earlier ones; `part` receives partial results in another thread."""
        return self._send_call("call", message, part)

    def interrupt(self, *message: Any) -> Call:
        """Call between two steps of the running call, where it calls `stopped`."""
        return self._send_call("interrupt", message)

    def call_in_thread(self, *message: Any) -> Call:
        """Call in a second thread of the child, beside the other calls."""
        return self._send_call("thread", message)

    def stop(self, call: Call) -> None:
        """Tell a call that its result is no longer needed."""
        self._send("stop", call.number)

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life, while the child works on a call."""
        with self._lock:
            working = any(call.watched for call in self._calls.values())
        return time.monotonic() - max(self._sent, self._beat.value) if working else 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send a signal, if the child has not ended."""
        self._started.wait()
        if not self.dead and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the child, on every system."""
        self._started.wait()
        if self.pid:
            self._process.kill()

    def end(self) -> None:
        """Let the child end at once, whatever it works on."""
        self._send("end", 0)

    def finish(self) -> None:
        """Let the child end after its current call."""
        self._send("finish", 0)

    def join(self, seconds: float = 5.0) -> None:
        """Wait until the child has ended and its open calls have failed; after `seconds`, kill the child."""
        self._started.wait()
        if self.pid:
            self._process.join(seconds)
            self._process.kill()
            self._process.join()
        self._follower.join(seconds)

    def _open(self, part: Callable[[Any], None], watched: bool = True) -> Call:
        with self._lock:
            call = Call(next(self._numbers), part, watched)
            if self.dead:
                call.result.set_exception(DiedError())
            else:
                self._calls[call.number] = call
        return call

    def _send_call(self, kind: str, message: Any, part: Callable[[Any], None] = lambda part: None) -> Call:
        watched = kind != "thread"
        if watched:  # a call in the second thread says nothing about a stuck one
            self._sent = time.monotonic()
        call = self._open(part, watched)
        self._send(kind, call.number, *message)
        return call

    def _send(self, *message: Any) -> None:
        """Send without waiting: a child that is stuck does not read, and its pipe holds 64 kB only."""
        self._outbox.put(ForkingPickler.dumps(message))

    def _deliver(self) -> None:
        with suppress(OSError):  # if the child has ended, `_receive` notices
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)

    def _receive(self) -> None:
        try:
            while True:
                number, status, value = self._connection.recv()
                if status == "part":
                    self._calls[number].part(value)
                    continue
                with self._lock:
                    call = self._calls.pop(number)
                settle(call.result, *((value,) if status == "ok" else (None, value)))
        except (EOFError, OSError):
            self._fail_calls(DiedError())
        except Exception as error:  # of a part's receiver, or of a value that cannot be read here
            self._process.kill()
            self._fail_calls(error)

    def _fail_calls(self, error: Exception) -> None:
        with self._lock:
            self.dead = True
            left, self._calls = list(self._calls.values()), {}
        self._outbox.put(None)
        for call in left:
            settle(call.result, error=error)


def settle(future: "Future[Any]", result: Any = None, error: BaseException | None = None) -> None:
    """Complete a future, unless it is complete or cancelled."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python interpreters that are started in the block do not import modules from the current folder."""
    name, value = _SAFE
    safe = os.environ.get(name)
    os.environ[name] = safe or value
    try:
        yield
    finally:
        if not safe:
            del os.environ[name]


# --- in the child


def _run_child(connection: Connection, beat: Any, environment: dict[str, str], load: Callable[[], Answer]) -> None:
    gc.freeze()  # no collection touches what was imported before the fork, so that it stays shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when its children end
    os.environ.clear()
    os.environ.update(environment)  # the fork server keeps the environment that it was started with
    child = _Child(connection, beat)
    threading.Thread(target=child.receive, daemon=True).start()
    child.run(load)


class _Child:
    """The child's end of the connection."""

    def __init__(self, connection: Connection, beat: Any) -> None:
        self.connection, self.beat = connection, beat
        self.stopped: set[int] = set()
        self._calls: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._interrupts: deque[tuple[Any, ...]] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._sending = threading.Lock()
        self._answer: Answer
        self._loaded = threading.Event()

    def run(self, load: Callable[[], Answer]) -> None:
        """Load, then answer calls until the parent ends the child."""
        try:
            self._answer = load()
        except Exception as error:
            return self.send(0, "error", _sendable(error))
        finally:
            self._loaded.set()
        self.send(0, "ok", None)
        while True:
            call = self._calls.get()
            if call == FINISH:
                return
            if call is not None:
                self._do(*call)
            self.run_interrupts()

    def run_interrupts(self) -> None:
        while self._interrupts:
            self._do(*self._interrupts.popleft())

    def send(self, number: int, status: str, value: Any) -> None:
        with self._sending:
            self.connection.send((number, status, value))

    def receive(self) -> None:
        """Take messages of the parent until it is gone."""
        while True:
            try:
                kind, number, *message = self.connection.recv()
            except (EOFError, OSError):
                kind, number, message = "end", 0, []
            if kind == "end":
                os._exit(0)
            if kind == "stop":
                self.stopped.add(number)
            elif kind == "thread":
                self._thread.submit(self._reply, number, None, *message)
            elif kind == "interrupt":
                self._interrupts.append((number, *message))
                self._calls.put(None)
            else:
                self._calls.put(FINISH if kind == "finish" else (number, *message))

    def _do(self, number: int, *message: Any) -> None:
        self.beat.value = time.monotonic()
        self._reply(number, Running(self, number), *message)
        self.stopped.discard(number)
        self.beat.value = time.monotonic()

    def _reply(self, number: int, running: Running | None, *message: Any) -> None:
        self._loaded.wait()  # a call in the second thread may come before
        try:
            status, value = "ok", self._answer(running, *message)
        except Exception as error:
            status, value = "error", _sendable(error)
        self.send(number, status, value)


def _sendable(error: Exception) -> Exception:
    """An error of this package as it is; others may not survive being sent."""
    ours = type(error).__module__.startswith("regard.")
    return error if ours else FailedError(f"{type(error).__name__}: {error}")
