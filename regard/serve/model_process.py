"""The process of one model: it loads the run, works on one job at a time, and ends when the server does.

Jobs and results are messages. A job calls `stop` before every decoding step or attention call; there the process
notices that the job was cancelled, or translates a short batch in between. Work without the model (decoding pictures,
comparing vocabularies, serialising and compressing answers) runs in a second thread.
"""

import gzip
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from regard.errors import RegardError, RunError
from regard.serve.limits import FAULT, Limits, RefusedError, StoppedError
from regard.serve.queue import MethodCall

log = logging.getLogger("regard.serve")
GZIP = 1  # the compression level of answers: the fastest
SWITCH = 0.001  # seconds after which a busy thread lets another one run
NICE = 5  # models run at a lower priority than the server, whose tasks are short and block every client
_AGAIN = 60.0  # seconds in which a log message appears once
_UNWRITTEN = 2  # results that may wait to be serialised


def serve_model(connection: Connection, beat: Any, run: str, limits: Limits, engine: str, threads: int) -> None:
    """The main function of the process. The first message is the description of the model, or its loading error."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # the server decides when its models end
    os.nice(NICE)
    logging.basicConfig(level=logging.WARNING)
    log.addFilter(OncePerMinute())
    sys.setswitchinterval(SWITCH)
    try:
        model = load_model(run, limits, engine, threads)
    except Exception as error:
        connection.send((0, "error", error if isinstance(error, RegardError) else RuntimeError(f"{run}: {error}")))
        return
    connection.send((0, "ok", model.describe()))
    ModelProcess(connection, model, beat).run()


def load_model(run: str, limits: Limits, engine: str = "regard", threads: int = 1) -> Any:
    """Load a translator or a captioner that uses at most this many threads."""
    # Imported in this process only: the server itself does not need torch, so it starts quickly and stays small.
    import torch

    import regard
    from regard.api.captioner import CaptionWriter
    from regard.api.exporting import read_card
    from regard.api.translator import Translator
    from regard.serve.captions import CaptionModel
    from regard.serve.models import TranslationModel

    torch.set_num_threads(min(threads, torch.get_num_threads()))
    loaded = regard.load(run, engine=engine)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.name) or "model"
    if isinstance(loaded, Translator):
        return TranslationModel(loaded, name, limits, read_card(Path(run)))
    if isinstance(loaded, CaptionWriter):
        return CaptionModel(loaded, name)
    raise RunError(
        f"{run} is a run of the task {loaded.experiment.task!r}; only translators and captioners can be served."
    )


class OncePerMinute(logging.Filter):
    """Logs each message once a minute, with the number of repetitions that were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        said, left = self._said.get(record.msg, (-_AGAIN, 0))
        if record.created - said < _AGAIN:
            self._said[record.msg] = said, left + 1
            return False
        if len(self._said) > 1000:
            self._said.clear()
        self._said[record.msg] = record.created, 0
        if left:
            record.msg = f"{record.msg} (and {left} more times)"
        return True


class ModelProcess:
    """A loaded model and its connection to the server."""

    def __init__(self, connection: Connection, model: Any, beat: Any) -> None:
        self.connection, self.model, self.beat = connection, model, beat
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._between: deque[tuple[Any, ...]] = deque()
        self._stopped: set[int] = set()
        self._sending = threading.Lock()
        self._aside = ThreadPoolExecutor(1, "aside")
        self._unwritten = threading.Semaphore(_UNWRITTEN)

    def run(self) -> None:
        """Work until the server closes the connection."""
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            job = self._jobs.get()
            if job is not None:
                self._do(*job)
            while self._between:
                self._do(*self._between.popleft())

    def _receive(self) -> None:
        while True:
            try:
                kind, number, *rest = self.connection.recv()
            except (EOFError, OSError):  # the server is gone
                kind, number, rest = "end", 0, []
            if kind == "end":
                os._exit(0)
            if kind == "stop":
                self._stopped.add(number)
            elif kind == "aside":
                self._aside.submit(self._answer, number, *rest)
            elif kind == "between":
                self._between.append((number, *rest))
                self._jobs.put(None)
            else:
                self._jobs.put((number, *rest))

    def _send(self, number: int, status: str, value: Any) -> None:
        with self._sending:
            self.connection.send((number, status, value))

    def _do(self, number: int, job: MethodCall, deadline: float) -> None:
        def stop() -> bool:
            self.beat.value = now = time.monotonic()
            if self._between:
                self._do(*self._between.popleft())
            return number in self._stopped or now > deadline

        self.beat.value = time.monotonic()
        if job.written:
            self._unwritten.acquire()
            tree = self._try(number, job.method, *job.args, stop)
            self._send(number, "free", None)
            self._aside.submit(self._write, number, tree, job.compressed)
        else:
            send = [partial(self._send, number, "part")] if job.parts else []
            self._answer(number, job.method, *job.args, *send, stop)
        self._stopped.discard(number)
        self.beat.value = time.monotonic()

    def _answer(self, number: int, method: str, *args: Any) -> None:
        found = self._try(number, method, *args)
        if found is not None:
            self._send(number, "ok", found)

    def _write(self, number: int, tree: Any, compressed: bool) -> None:
        try:
            text = self._try(number, "write", tree) if tree is not None else None
            if text is not None:
                self._send(number, "ok", gzip.compress(text, GZIP, mtime=0) if compressed else text)
        finally:
            self._unwritten.release()

    def _try(self, number: int, method: str, *args: Any) -> Any:
        """The result of a method of the model, or None after sending its error."""
        try:
            return getattr(self.model, method)(*args)
        except (RefusedError, StoppedError) as error:
            self._send(number, "error", error)
        except MemoryError:
            self._send(number, "error", RefusedError(503, "There is not enough memory for this request."))
        except RegardError as error:
            self._send(number, "error", RefusedError(422, str(error)))
        except Exception:
            log.exception("The model %s failed", self.model.id)
            self._send(number, "error", FAULT)
        return None
