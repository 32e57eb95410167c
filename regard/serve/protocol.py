"""Connections: how they are accepted, and uvicorn's HTTP protocol with timers and a limit on connections."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from regard.serve.guard import Guard, Refusal, refusal_response, written
from regard.serve.limits import RefusedError

LINGER = 1.0  # seconds that a refused client may keep sending before the connection is closed
log = logging.getLogger("regard.serve")
BACKLOG = 2048  # connections that the system holds until they are accepted
_MOST = 64  # connections being set up at the same time; each has an open file and takes several turns
_SILENT = 1  # seconds that the system holds a connection without data
_PAUSE = 0.1  # seconds before accepting again after the system had no room for a connection


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with timers for every request and response, a limit on connections, and JSON errors.

    A connection is idle until a request has arrived completely. At the limit, a new connection replaces the one that
    has been idle longest; if none is idle, the new one is refused.
    """

    refused = False
    cycle: RequestResponseCycle | None = None  # type: ignore[assignment]
    _opened = False
    _refusal: Refusal | None = None  # the response to the request being received, if its head was enough to refuse it
    _missing = 0  # bytes of that request still to be received
    _starting: RequestResponseCycle | None = None  # the request that waits for its turn and is not counted yet
    _coming = 0  # 1 if it is counted
    _heading = False  # whether the head of a request is incomplete
    _head = 0  # bytes received since it began

    def __init__(
        self,
        guard: Guard,
        idle: dict["Protocol", None],  # the idle connections of the server, longest idle first
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        self.guard, self.idle, self.limits = guard, idle, guard.limits
        self._setup = config, server_state, app_state
        self.server_state, self.connections = server_state, server_state.connections
        self.loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.connections.add(self)
        if len(self.connections) > self.limits.connections:
            if not self.idle:
                self._refuse(503, "The server has too many connections; try again later.", linger=0.0)
                return
            next(iter(self.idle)).drop()
        self.idle[self] = None
        self._start("receive", self.limits.sending)

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        for name in list(self._timers):
            self._end(name)
        if self._opened:
            super().connection_lost(exc)
        self.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        if self in self.idle and "receive" not in self._timers:  # the first bytes of the next request
            self._start("receive", self.limits.sending)
        if self._refusal is None and self._between:
            peer = self.transport.get_extra_info("peername")
            self._refusal = self.guard.refuse_head(data, peer[0] if peer else None)
            self._missing = self._refusal.size if self._refusal else 0
        if self._refusal is not None:
            self._missing -= len(data)
            # Not earlier: closing with unread bytes would reset the connection and lose the response.
            if self._missing <= 0:
                self._answer(self._refusal)
            elif self._opened:
                self._unset_keepalive_if_required()
            return
        self._open()
        super().data_received(data)
        self._head = self._head + len(data) if self._heading else 0
        if self._head > 2 * self.limits.header_bytes:  # the guard is exact
            self._refuse(431, "The head of the request is too long.")
        self._note_progress()

    def _open(self) -> None:
        """Set up uvicorn's protocol; a connection whose only request is refused does without it."""
        if not self._opened:
            self._opened, transport = True, self.transport
            super().__init__(*self._setup)
            super().connection_made(transport)

    def on_message_begin(self) -> None:
        self._heading = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heading = False
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._starting = cycle
        self._count_coming()
        self.guard.state.turns.add(lambda: self._start_in_turn(cycle, app))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._count_coming()

    def _count_coming(self) -> None:
        """Count a request that has arrived completely: its first step puts it into a queue."""
        cycle = self._starting
        if cycle is not None and cycle.scope["method"] == "POST" and not cycle.more_body:
            self._starting, self._coming = None, 1
            self.guard.coming += 1

    def _start_in_turn(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        super()._start_asgi_task(cycle, app)
        self.loop.call_soon(self._arrive, self._coming)
        self._starting, self._coming = None, 0

    def _arrive(self, coming: int) -> None:
        self.guard.coming -= coming

    @property
    def _between(self) -> bool:
        """Whether the next byte begins a request."""
        cycle = self.cycle
        return not self._heading and (cycle is None or (cycle.response_complete and not cycle.more_body))

    def _answer(self, refusal: Refusal) -> None:
        self._refusal = None
        keep = refusal.keep and not self._missing  # below 0, the start of a further request was discarded
        self.transport.write(refusal.write(self.server_state.default_headers, keep))
        if keep:
            self._open()
            self._end("receive")
            self.on_response_complete()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._end("send")
        self._start("flush", self.limits.reading)
        self.idle[self] = None
        super().on_response_complete()
        self._note_progress()  # of a request that arrived before this response

    def _note_progress(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._end("receive")  # reading the body has its own time limit
            if not cycle.more_body:
                self.idle.pop(self, None)
            self._start("send", self.limits.reading_all + self.limits.seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without further requests, even if the last response was not read."""
        self.drop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("read", self.limits.reading)

    def resume_writing(self) -> None:
        self._end("read")
        super().resume_writing()

    def drop(self) -> None:
        """Close the connection immediately and discard unsent data."""
        self.idle.pop(self, None)
        self.transport.abort()

    def _start(self, name: str, seconds: float) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, self._flushed if name == "flush" else self.drop)

    def _flushed(self) -> None:
        self._end("flush")
        if self.transport.get_write_buffer_size():
            self.drop()

    def _end(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP. After a complete request, that request is answered first."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._refuse(400, "This is not an HTTP request.")
        elif cycle.more_body:
            cycle.disconnected = True  # an incomplete request needs no response
            cycle.message_event.set()
            self._refuse(400, "This is not an HTTP request.", started=cycle.response_started)
        else:
            cycle.keep_alive = False
            self.refused = True

    def _refuse(self, status: int, sentence: str, linger: float = LINGER, started: bool = False) -> None:
        if not started:
            answer = refusal_response("", RefusedError(status, sentence, {"Connection": "close"}))
            self.transport.write(STATUS_LINE[status] + written(answer))
        # Closing with unread bytes would reset the connection before the client reads the response.
        self.refused = True
        self.loop.call_later(linger, self.transport.close)


class Listener:
    """A listening socket. `make` creates the protocol of a connection in the running event loop.

    A request without room is refused here with four system calls, without a transport, a parser or a task. uvloop
    accepts one connection per turn of the event loop, so a burst takes as many turns as it has connections; here one
    turn accepts all of them.
    """

    def __init__(self, socket_: socket.socket, guard: Guard, make: Callable[[], Protocol], state: ServerState) -> None:
        self.socket, self.guard, self.make, self.state = socket_, guard, make, state
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._later: asyncio.TimerHandle | None = None
        socket_.setblocking(False)
        socket_.listen(BACKLOG)
        self.hold_silent(_SILENT)
        self._listen()

    def hold_silent(self, seconds: int) -> None:
        """Let the system hold new connections until data arrives, so that one read is enough."""
        if hasattr(socket, "TCP_DEFER_ACCEPT"):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)

    def close(self) -> None:
        """Accept no more connections."""
        if self._later is not None:
            self._later.cancel()
        self.loop.remove_reader(self.socket)

    def _listen(self) -> None:
        self.loop.add_reader(self.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_MOST - len(self._tasks)):
            try:
                one, address = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # closed before it was accepted
                continue
            except OSError as error:
                log.error("No connection can be accepted at the moment: %s", error)
                self.loop.remove_reader(self.socket)
                self._later = self.loop.call_later(_PAUSE, self._listen)
                return
            if not self._refuse(one, address[0]):
                one.setblocking(False)
                task = self.loop.create_task(self.loop.connect_accepted_socket(self.make, one))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _refuse(self, one: socket.socket, client: str) -> bool:
        """Refuse the only, complete request of a connection if there is no room for it; return whether it was."""
        waiting = socket.MSG_DONTWAIT
        try:
            data = one.recv(self.guard.limits.header_bytes, waiting | socket.MSG_PEEK)
            refusal = self.guard.refuse_head(data, client) if data else None
            if refusal is None or refusal.keep or refusal.size != len(data):
                return False
            one.recv(len(data), waiting)  # closing with unread bytes would reset the connection
            one.send(refusal.write(self.state.default_headers, keep=False), waiting)
        except BlockingIOError:  # no data yet
            return False
        except OSError:  # the client disconnected
            pass
        one.close()
        return True
