"""Accepting connections. A request for which there is no room is refused here: by four calls to the system, without a
transport, a parser or a task. All others get a connection of the HTTP protocol.

uvloop accepts one connection in each turn of the event loop, so that a burst waits for as many turns as it has
connections; here a turn takes as many as there are.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from uvicorn.server import ServerState

from regard.serve.guard import Guard
from regard.serve.protocol import Protocol

log = logging.getLogger("regard.serve")
BACKLOG = 2048  # connections that the system holds until they are accepted
_MOST = 64  # connections that are accepted and not yet made; one takes more than a turn, and has a file
_SILENT = 1  # seconds that the system holds a connection on which nothing was sent
_PAUSE = 0.1  # seconds without accepting after the system had no room for another connection


class Listener:
    """A listening socket. `make` makes the protocol of a connection, in the event loop that is running."""

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
        """Let the system hold new connections until something was sent on them: then one look is enough."""
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
            except ConnectionError:  # it was closed before it was accepted
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
        """Answer a whole request for which there is no room, if it is the only one; whether that was done."""
        waiting = socket.MSG_DONTWAIT
        try:
            data = one.recv(self.guard.limits.header_bytes, waiting | socket.MSG_PEEK)
            refusal = self.guard.refuse_head(data, client) if data else None
            if refusal is None or refusal.keep or refusal.size != len(data):
                return False
            one.recv(len(data), waiting)  # closed with bytes of the client unread, the connection would be reset
            one.send(refusal.write(self.state.default_headers, keep=False), waiting)
        except BlockingIOError:  # nothing has come yet
            return False
        except OSError:  # the client has gone away
            pass
        one.close()
        return True
