"""The server as a process: bind, answer requests, and finish the accepted ones after SIGTERM."""

import asyncio
import errno
import gc
import logging
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from regard.errors import RunError
from regard.serve.access import Access, read_tokens, secured
from regard.serve.app import build
from regard.serve.guard import Guard
from regard.serve.languages import check_code
from regard.serve.limits import Limits
from regard.serve.model_process import SWITCH, OncePerMinute
from regard.serve.protocol import Listener, Protocol
from regard.serve.state import ServerState

_SPARE_FILES = 128  # open files that are kept for logs, models, pipes and connections being accepted
_ACCEPTING = 2.0  # seconds to accept the connections in the backlog at shutdown
_LAST = 0.3  # seconds in which requests on accepted connections still get a 503


class Server(uvicorn.Server):
    """uvicorn's server; after the first signal it refuses new requests and answers the accepted ones."""

    def __init__(self, config: uvicorn.Config, guard: Guard, state: ServerState) -> None:
        super().__init__(config)
        self.guard, self.state = guard, state
        self.listening = threading.Event()
        self.listeners: list[Listener] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup([])  # connections are accepted by our own listeners
        protocol = partial(Protocol, self.guard, {}, self.config, self.server_state, self.lifespan.state)
        self.listeners = [Listener(one, self.guard, protocol, self.server_state) for one in sockets or ()]
        # What is loaded stays loaded, and a full collection over it would block every request.
        gc.collect()
        gc.freeze()
        self.listening.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to shut down; a second SIGINT exits immediately."""
        if self.guard.stopping:
            if sig == signal.SIGINT:
                self.should_exit = self.force_exit = True
            return
        self.guard.stopping = self.state.stopping = True
        for listener in self.listeners:
            listener.hold_silent(0)  # connections that the system still holds at exit are reset

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: exit once no request is open, or the time to drain is over."""
        if self.guard.stopping and not self.should_exit:
            last = time.monotonic() + self.state.limits.drain
            while self.guard.under_way and time.monotonic() < last and not self.force_exit:
                await asyncio.sleep(0.05)
            self.guard.end()
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening; connections that are already accepted still get a 503 instead of a reset."""
        held = select.poll()
        for one in sockets or ():
            one.listen(0)  # later connections are refused instead of reset, while those in the backlog are accepted
            held.register(one, select.POLLIN)
        last = time.monotonic() + _ACCEPTING
        while held.poll(0) and time.monotonic() < last:
            await asyncio.sleep(0)
        for listener in self.listeners:
            listener.close()
        for one in sockets or ():
            one.close()
        last = time.monotonic() + _LAST
        while time.monotonic() < last or (self.guard.under_way and time.monotonic() < last + _LAST):
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def serve(
    runs: Sequence[str | Path],
    port: int = 5000,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    engine: str = "regard",
    suggestions: str | Path | None = None,
    languages: tuple[str, str] = ("", ""),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve runs until SIGTERM or SIGINT. `ready` is called with the address of the page once the models are loaded.

    Until then, requests and /health get a 503. If a model cannot be loaded, the server exits with its error.

    `access` sets the address (default: loopback) and who may use the server; `read_tokens` reads its tokens, including
    REGARD_TOKEN. Beyond loopback a token is required; without one, a random token is generated and added to the
    address. `engine` is as in `regard.load`. POST /suggest appends to the file `suggestions`. `languages` are the
    source and target codes for runs that do not name them.
    """
    _check_runs(runs, languages)
    access = secured(access or Access(tokens=read_tokens()))
    listener = _bind(access.host, port)
    address = _address(access.host, listener.getsockname()[1], access.shown)
    for name in ("asyncio", "uvicorn.error", "regard.serve"):
        logging.getLogger(name).addFilter(OncePerMinute())
    sys.setswitchinterval(SWITCH)
    state = ServerState([str(run) for run in runs], _within_open_files(limits or Limits()), access, engine)
    state.unnamed = dict(zip(("source", "target"), languages, strict=True))
    state.suggestions = None if suggestions is None else Path(suggestions)
    try:
        _answer(_server(state), listener, lambda: ready(address) if ready is not None else None)
    finally:
        state.close()


def _check_runs(runs: Sequence[str | Path], languages: tuple[str, str]) -> None:
    """Check what can be checked before a process is started."""
    if not runs:
        raise RunError("There is nothing to serve; name at least one run folder.")
    for run in runs:
        if not Path(run).is_dir():
            raise RunError(f"There is no run folder {run}; train one with `regard train ... --out {run}`.")
    for side, code in zip(("source", "target"), languages, strict=True):
        if code:
            check_code(f"data.{side}_language", code)


def _within_open_files(limits: Limits) -> Limits:
    """The limits, with at most as many connections as the process may open files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return replace(limits, connections=max(1, min(limits.connections, files - _SPARE_FILES)))


def _server(state: ServerState) -> Server:
    guard = build(state)
    config = uvicorn.Config(
        guard,
        http="httptools",
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(state.limits.sending) or 1,
        timeout_graceful_shutdown=3,
        lifespan="off",
    )
    return Server(config, guard, state)


def _answer(server: Server, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal. A thread loads the models and then calls `ready`; its error is raised here."""
    failed: list[BaseException] = []

    def load() -> None:
        try:
            server.state.open()
            server.listening.wait()
            ready()
        except BaseException as error:
            failed.append(error)
            server.should_exit = True

    threading.Thread(target=load, name="load", daemon=True).start()
    server.run(sockets=[listener])
    if failed and not server.state.stopping:
        raise failed[0]


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise RunError(f"Port {port} is in use by another program; choose another with --port (0: any).") from None
        why, other = getattr(error, "strerror", None) or error, f"--host or --port than {host} and {port}"
        raise RunError(f"The server cannot listen there: {why}; choose another {other}.") from None
    return listener


def _address(host: str, port: int, token: str | None) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")
