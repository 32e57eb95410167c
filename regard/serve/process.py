"""The server as a process: bind, answer, and on SIGTERM finish what was accepted."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from regard.errors import ConfigError, RunError
from regard.serve.app import build
from regard.serve.door import Door, is_loopback
from regard.serve.gate import Gate
from regard.serve.house import House
from regard.serve.limits import Limits
from regard.serve.protocol import Protocol
from regard.serve.runs import load

log = logging.getLogger("regard.serve")


class Server(uvicorn.Server):
    """uvicorn's server, whose first signal lets it refuse new requests until the accepted ones are answered."""

    def __init__(self, config: uvicorn.Config, gate: Gate, house: House, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.gate = gate
        self.house = house
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: begin to stop, or with a second SIGINT stop at once."""
        if self.gate.stopping and sig == signal.SIGINT:
            self.should_exit = self.force_exit = True
            return
        self.gate.stopping = self.house.stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: leave once nothing is under way, or the time to finish is over."""
        if self.gate.stopping and not self.should_exit:
            await self._drain()
            self.should_exit = True
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        # A little longer than needed, so that those who were just connecting hear 503 instead of a reset.
        last = time.monotonic() + self.house.limits.drain
        quiet = 0
        while quiet < 3 and time.monotonic() < last and not self.force_exit:
            await asyncio.sleep(0.1)
            quiet = 0 if self.gate.under_way else quiet + 1


def serve(
    runs: Sequence[str | Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    token: str | None = None,
    *,
    limits: Limits | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve runs until SIGTERM or SIGINT. `ready` is told the address of the page once the port is open.

    Beyond loopback a token is needed to use the API; one is made where none is given, and is part of that address.
    `hosts` are further names that the server answers to, `origins` pages of other servers that may call it.
    """
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("A token must have at least 8 characters, all of them printable ASCII without spaces.")
    limits = limits or Limits()
    listener = _bind(host, port)
    house = House(load(runs), limits, Door(host, token, tuple(name.lower() for name in hosts), frozenset(origins)))
    gate = build(house)
    config = uvicorn.Config(
        gate,
        http=type("Patient", (Protocol,), {"sending": limits.sending}),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=limits.header_bytes * 2,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
        lifespan="on",
    )
    address = _address(host, listener.getsockname()[1], token)
    Server(config, gate, house, lambda: ready(address) if ready is not None else None).run(sockets=[listener])
    if not house.close():
        # A thread that is stuck in a model cannot be ended, and would keep the process from ending.
        log.error("A model did not stop; leaving without it")
        logging.shutdown()
        os._exit(1)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise RunError(f"The server cannot listen on {host}, port {port}: {error}. Try another --port.") from None
    return listener


def _address(host: str, port: int, token: str | None) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")
