"""Shared by the tests of the server: a small trained run, and the server as a real process."""

import atexit
import contextlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from commands import context, forkserver_address, share_forkserver
from kept import kept
from patience import PATIENCE, until

import regard
from regard import processes
from regard.look import trace_file
from regard.runs.folder import SEAL, entry, make_manifest
from regard.serve.access import OPEN_FOLDER
from regard.serve.layout import Reader
from regard.serve.limits import Limits
from regard.serve.middleware import Middleware
from regard.serve.server import serve

# Words come back from last to first, so that every right answer is known.
SETTINGS = [
    "train.batch_tokens=400", "train.rate=0.03", "train.validate_sentences=10", "model.width=32", "model.embedding=24",
    "data.size=1500", "data.held_out=20",
    "data.min_words=2", "data.max_words=4", "data.subwords=word", "data.source_language=en", "data.target_language=de",
]  # fmt: skip
ATTENTIVE = ["model.attention=24", "model.readout=24"]
# No limit on time ends what a busy machine does slowly; a test of one of them sets it.
TIMES = ("seconds", "sending", "sending_picture", "reading", "reading_all", "drain", "stuck")


def backwards(text: str) -> str:
    """The right translation of a text."""
    return " ".join(reversed(text.split(" ")))


@cache
def trained(model: str = "bahdanau", *more: str, steps: int = 160) -> Path:
    """The folder of a small run, trained once and kept while its settings and the code stay the same."""
    settings = [*SETTINGS, *(more or ATTENTIVE), f"train.steps={steps}", f"train.validate_every={steps}"]
    if model == "transformer":
        settings = [setting for setting in settings if "rate" not in setting]
    if model in ("transformer", "luong", "sutskever"):
        settings = [setting for setting in settings if "embedding" not in setting]
    return _kept("reverse", model, settings)


def spoken(run: Path, folder: Path, source: str, target: str) -> Path:
    """A copy of a run for other languages."""
    shutil.copytree(run, folder)
    settings, manifest = folder / "config.toml", folder / "manifest.json"
    text = settings.read_bytes().rpartition(SEAL)[0].decode()
    for side, code in (("source", source), ("target", target)):
        text = re.sub(rf'{side}_language = "\w+"', f'{side}_language = "{code}"', text)
    settings.write_text(text, "utf-8")
    known = json.loads(manifest.read_text("utf-8"))["files"]
    known["config.toml"] = entry(settings.read_bytes())
    manifest.write_bytes(make_manifest(known, {}))
    return folder


def one_vector() -> Path:
    """The folder of a small run without attention, which need not be right."""
    return trained("rnnencdec", "model.readout=24", steps=40)


@cache
def captioner() -> Path:
    """The folder of a small captioner of drawn shapes: it writes captions, if not always the right ones."""
    settings = [
        "model.features=24", "model.embedding=20", "model.width=28", "model.attention=22", "data.size=120",
        "data.held_out=4", "train.steps=60", "train.validate_every=60", "train.batch_tokens=120", "train.rate=0.01",
        "train.validate_sentences=2", "model.dropout=0.0",
        "decode.max_ratio=0.0", "decode.max_extra=16",
    ]  # fmt: skip
    return _kept("shapes", "captioner", settings)


def _kept(corpus: str, model: str, settings: list[str]) -> Path:
    given: dict[str, Any] = {"corpus": corpus, "model": model, "preset": "tiny", "settings": settings}
    return kept(f"{model}-{corpus}", given, lambda folder: regard.train(**given, out=folder))


def calling(stopped: Callable[[], bool] = lambda: False) -> SimpleNamespace:
    """A call of a model, as its methods see it."""
    return SimpleNamespace(stopped=stopped)


class Model(context.Process):
    """The process of a model, or of the reader, as a fork, which reports its number to the tests."""

    numbers: Connection  # of the server, where it starts

    def start(self) -> None:
        reader = self._args[-1].args[0] is Reader
        super().start()
        self.numbers.send((reader, self.pid))


def _serve(
    address: Connection,
    errors: Connection,
    numbers: Connection,
    limits: dict[str, float],
    forks: str | None,
    files: int,
    cached: bool,
    given: Any,
) -> None:
    if files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.dup2(errors.fileno(), 2)
    if forks:
        share_forkserver(forks)
        Model.numbers = numbers
        parts = {name: getattr(context, name) for name in ("Pipe", "RawValue", "set_forkserver_preload")}
        processes.context = SimpleNamespace(Process=Model, **parts)

    def refuse(tree: dict[str, Any]) -> str:
        raise AssertionError("a trace is written in the process of the event loop")

    trace_file.write.__code__ = refuse.__code__  # also where it was imported by name; no model runs in this process
    if cached:
        add = Middleware._add_headers

        def add_and_keep(middleware: Middleware, headers: list[tuple[bytes, bytes]], path: str) -> None:
            if path.startswith(OPEN_FOLDER):
                headers.append((b"cache-control", b"max-age=86400"))
            add(middleware, headers, path)

        Middleware._add_headers = add_and_keep
    logging.basicConfig(level=logging.WARNING)
    serve(ready=address.send, limits=Limits(**limits), **given)


class Server:
    """A server as a separate process. Its models start as forks, or with `fresh` as they do for users; `files` bounds
    how many files it may have open; with `cached` a browser does not ask again for files of the page that it has, which
    is a quarter of the CPU time of a visit."""

    def __init__(
        self,
        *runs: Path,
        limits: dict[str, float] | None = None,
        fresh: bool = False,
        files: int = 0,
        cached: bool = False,
        **given: Any,
    ) -> None:
        limits = {**dict.fromkeys(TIMES, PATIENCE), **(limits or {})}
        given = {"runs": [str(run) for run in runs], "port": 0, **given}
        (address, ready), (errors, stderr) = context.Pipe(False), context.Pipe(False)
        self._numbers, numbers = context.Pipe(False)
        forks = None if fresh else forkserver_address()
        self.process = context.Process(
            target=_serve, args=(ready, stderr, numbers, limits, forks, files, cached, given)
        )
        self.process.start()
        for end in (ready, stderr, numbers):
            end.close()
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(errors,), daemon=True)
        self._reader.start()
        try:
            self.address, _, self.fragment = address.recv().partition("#")
        except EOFError:
            raise AssertionError(f"The server did not start: {self.errors()}") from None
        self.port = int(self.address.rsplit(":", 1)[1].rstrip("/"))
        self.client = httpx.Client(base_url=self.address, timeout=PATIENCE, trust_env=False)
        health = lambda: self.client.get("/health")  # noqa: E731
        until(lambda: health().status_code == 200, 0.05, lambda: health().text)

    def _read(self, errors: Connection) -> None:
        with open(errors.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
            self.log.extend(lines)
        errors.close()

    def model_process(self, reader: bool = False) -> int:
        """The number of the process of the only model, which has not been replaced; not where it is `fresh`. With
        `reader`, of the process that reads texts and files."""
        while True:
            is_reader, number = self._numbers.recv()
            if is_reader == reader:
                return number

    def errors(self) -> str:
        """What the server wrote to its log, once it has ended."""
        self._reader.join(PATIENCE)
        return "".join(self.log)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        """POST fields as JSON."""
        return self.client.post(path, json=fields)

    def translate(self, text: str | list[str], **more: Any) -> Any:
        """The answer to a translation that must work."""
        response = self.post("/translate", q=text, source="en", target="de", **more)
        assert response.status_code == 200, response.text
        return response.json()

    @property
    def memory(self) -> float:
        """Resident memory in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def send(self, sig: int) -> None:
        """Send a signal."""
        os.kill(self.process.pid, sig)

    def wait(self) -> int:
        """Wait for the end: the exit code."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError("the server does not end")
        return self.process.exitcode

    def stop(self, sig: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end: the exit code."""
        self.client.close()
        self.send(sig)
        return self.wait()


@cache
def shared() -> Server:
    """A server for all tests that leave nothing behind; it ends with the tests."""
    server = Server(trained())
    atexit.register(server.process.kill)
    return server


@contextlib.contextmanager
def serving(*runs: Path, **given: Any) -> Iterator[Server]:
    """A server within a block; it must end by itself on SIGTERM."""
    server = Server(*(runs or (trained(),)), **given)
    try:
        yield server
    finally:
        if server.process.is_alive():
            assert server.stop() == 0, server.errors()
