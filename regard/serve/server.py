"""The server as a process: bind, answer requests, and finish the accepted ones after SIGTERM."""

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from regard.errors import RunError
from regard.runs.included import find_runs
from regard.serve.access import Access, read_tokens, secured
from regard.serve.languages import check_code
from regard.serve.limits import Limits, OncePerMinute
from regard.serve.service import Service

if sys.platform != "win32":
    import resource
if TYPE_CHECKING:
    from regard.serve.middleware import Middleware

_SWITCH = 0.001  # seconds after which a busy thread lets another one run
_SPARE_FILES = 128  # open files that are kept for logs, models, pipes and connections being accepted
_CLOSING = 3  # seconds in which clients may read the last answers after the requests are finished


class Server(uvicorn.Server):
    """uvicorn's server; after the first signal it refuses new requests and answers the accepted ones."""

    def __init__(self, middleware: "Middleware") -> None:
        limits = middleware.limits
        config = uvicorn.Config(
            middleware,
            http="h11",  # it bounds the head of a request, unlike httptools
            h11_max_incomplete_event_size=2 * limits.header_bytes,  # the middleware is exact
            ws="none",
            loop="asyncio" if sys.platform == "win32" else "uvloop",  # which does not support Windows
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections + 1,
            timeout_graceful_shutdown=_CLOSING,
            lifespan="off",
        )
        super().__init__(config)
        self.middleware, self.service = middleware, middleware.service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to shut down; a second SIGINT exits immediately."""
        if not self.service.stopping:
            self.service.stopping = True
        elif sig == signal.SIGINT:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: exit once no request is open, or the time to drain is over."""
        if self.service.stopping and not self.should_exit:
            last = time.monotonic() + self.service.limits.drain
            while self.middleware.tasks and time.monotonic() < last and not self.force_exit:
                await asyncio.sleep(0.05)
            self.middleware.end()
            self.should_exit = True
        return await super().on_tick(counter)


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
    """Serve runs, by folder or by a name such as en-fr, until SIGTERM or SIGINT. `ready` is called with the address of
    the page once the models are loaded.

    Until then, requests and /health get a 503. If a model cannot be loaded, the server exits with its error.

    `access` sets the address (default: loopback) and who may use the server; `read_tokens` reads its tokens, including
    REGARD_TOKEN. Beyond loopback a token is required; without one, a random token is generated and added to the
    address. `engine` is as in `regard.load`. POST /suggest appends to the file `suggestions`. `languages` are the
    source and target codes for runs that do not name them.
    """
    folders = find_runs(runs)
    _check_runs(folders, languages)
    access = secured(access or Access(tokens=read_tokens()))
    listener = _bind(access.host, port)
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(access.host, access.host)
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}/"
    address += f"#token={access.shown}" if access.shown else ""
    for name in ("asyncio", "uvicorn.error", "regard.serve"):
        logging.getLogger(name).addFilter(OncePerMinute())
    sys.setswitchinterval(_SWITCH)
    limits = limits or Limits()
    if sys.platform != "win32":  # its sockets are not files
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limits = replace(limits, connections=max(1, min(limits.connections, files - _SPARE_FILES)))
    service = Service([str(folder) for folder in folders], limits, access, engine)
    service.unnamed = dict(zip(("source", "target"), languages, strict=True))
    service.suggestions = None if suggestions is None else Path(suggestions)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The system closes connections whose client has read nothing for so long; accepted sockets inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * limits.reading))
    try:
        # Imported here, while the models are loading: FastAPI takes half a second.
        from regard.serve.app import build

        _answer(Server(build(service)), listener, lambda: ready(address) if ready is not None else None)
    finally:
        service.close()


def _check_runs(runs: Sequence[Path], languages: tuple[str, str]) -> None:
    """Check what can be checked before a process is started."""
    if not runs:
        raise RunError("There is nothing to serve; name at least one run folder.")
    for run in runs:
        if not run.is_dir():
            raise RunError(f"There is no run folder {run}; train one with `regard train ... --out {run}`.")
    for side, code in zip(("source", "target"), languages, strict=True):
        if code:
            check_code(f"data.{side}_language", code)


def _answer(server: Server, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal. A thread loads the models and then calls `ready`; its error is raised here."""
    failed: list[BaseException] = []

    def load() -> None:
        try:
            server.service.open()
            # What is loaded stays loaded, and a full collection over it would block every request.
            gc.collect()
            gc.freeze()
            while not server.started:
                time.sleep(0.01)
            ready()
        except BaseException as error:
            failed.append(error)
            server.should_exit = True

    threading.Thread(target=load, name="load", daemon=True).start()
    server.run(sockets=[listener])
    if failed and not server.service.stopping:
        raise failed[0]


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":  # there, it would share the port with another server
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise RunError(f"Port {port} is in use by another program; choose another with --port (0: any).") from None
        why, other = getattr(error, "strerror", None) or error, f"--host or --port than {host} and {port}"
        raise RunError(f"The server cannot listen there: {why}; choose another {other}.") from None
    return listener
