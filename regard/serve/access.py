"""Who may use the server: its names, the pages that may call it, tokens, and the wire protocol with its timers.

A browser lets every page that it shows send requests to loopback. So each request, whatever its method, must be
addressed to a name of this server (a page that rebinds its own name to 127.0.0.1 is not), and one that a page sends
must come from this server's page or from an origin that was allowed by name.
"""

import asyncio
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from regard.errors import ConfigError
from regard.serve.limits import FAULT, SHUTTING_DOWN, Limits, RefusedError
from regard.serve.metrics import Metrics
from regard.serve.turns import Turns

log = logging.getLogger("regard.serve")

_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_OPEN = ("/", "/health")  # need no token: they reveal nothing, and the page must load before a token can be entered
_OPEN_FOLDER = "/page/"
# The plain head of a request. Every quantifier is possessive: the time is in proportion to the length.
_HEAD = re.compile(rb"POST (/[!->@-~]*+)(?:\?[!-~]*+)?+ HTTP/1\.1\r\n((?:[\w-]++:[\t -~]*+\r\n){1,100}+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")  # a longer one may be more than int() takes
# Headers that need more than such a head: the answer depends on them, or the body does.
_SPECIAL = frozenset((b"origin", b"sec-fetch-site", b"expect", b"transfer-encoding", b"upgrade"))
_DAY = 86400.0
LINGER = 1.0  # seconds in which a refused client may keep sending before the connection is closed
SAFE = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


def refusal_response(path: str, refusal: RefusedError) -> JSONResponse:
    """{"error": sentence}, or {"message": sentence} for the paths of DeepL's API."""
    key = "message" if path.startswith("/v2/") else "error"
    return JSONResponse({key: refusal.sentence}, refusal.status, refusal.headers)


class AccessToken:
    """A secret that clients send, with its rate (requests a second) and quota (characters a day) if it has them."""

    def __init__(self, name: str, token: str, rate: float | None = None, quota: int | None = None) -> None:
        if len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"The token {name} must have at least 8 characters, all of them printable ASCII without spaces."
            )
        if (rate is not None and rate <= 0) or (quota is not None and quota <= 0):
            raise ConfigError(f"The rate and the quota of the token {name} must be positive numbers.")
        self.name, self.secret, self.rate, self.quota = name, token.encode(), rate, quota
        self._left = self._burst = max(1.0, rate or 1.0)  # requests that may come at once
        self._seen = time.monotonic()
        self._used, self._day = 0, 0.0

    def count_request(self, now: float) -> None:
        """Refuse with 429 above the rate."""
        if self.rate is None:
            return
        self._left = min(self._burst, self._left + (now - self._seen) * self.rate)
        self._seen = now
        if self._left < 1:
            wait = str(max(1, round((1 - self._left) / self.rate)))
            raise RefusedError(429, f"Slowdown: at most {self.rate:g} requests a second", {"Retry-After": wait})
        self._left -= 1

    def count_characters(self, characters: int, now: float, path: str) -> None:
        """Refuse above the quota: with 456 for DeepL's clients, with 403 for others, as their APIs do."""
        if now - self._day >= _DAY:
            self._used, self._day = 0, now
        if self.quota is not None and self._used + characters > self.quota:
            raise RefusedError(456 if path.startswith("/v2/") else 403, "The quota of this API key is used up.")
        self._used += characters


@dataclass(frozen=True)
class Access:
    """`host` is the address that the server binds to; `hosts` and `origins` are allowed besides its own."""

    host: str = "127.0.0.1"
    tokens: tuple[AccessToken, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: frozenset[str] = field(default_factory=frozenset)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse with 403 everything but our page, allowed origins, and clients that are not browsers."""
        self.check_host(_single(headers, "host"))
        origin = _single(headers, "origin")
        if origin is not None:
            host = headers["host"].lower()
            if origin.lower() not in (f"http://{host}", f"https://{host}") and origin not in self.origins:
                raise RefusedError(403, "This origin may not use this server.")
            return
        # Some requests of a page carry no Origin; every current browser states the kind of site instead.
        site = headers.get("sec-fetch-site", "none")
        opening = method in ("GET", "HEAD") and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and not opening:
            raise RefusedError(403, "Another website may not use this server.")

    def admit(self, path: str, headers: Headers, key: object) -> AccessToken | None:
        """The token of a request, from the field api_key or an Authorization header; None if none is needed."""
        if not self.tokens or path in _OPEN or path.startswith(_OPEN_FOLDER):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("bearer", "deepl-auth-key") or not given:
            given = key if isinstance(key, str) else ""
        if not given and not path.startswith("/v2/"):
            raise RefusedError(400, "Please contact the server operator to get an API key")
        found = [token for token in self.tokens if hmac.compare_digest(given.encode(), token.secret)]
        if not found:
            raise RefusedError(403, "Invalid API key")
        found[0].count_request(time.monotonic())
        return found[0]

    def check_host(self, host: str | None) -> None:
        """Refuse with 403 a request that is addressed to another name."""
        # Not by Starlette's TrustedHostMiddleware: it takes the first of several Hosts, cannot allow addresses but not
        # names, and answers with plain text or a redirect. Its CORSMiddleware is used below.
        found = _HOST.fullmatch(host or "")
        if found is None:
            raise RefusedError(403, "The Host of the request is missing or malformed.")
        name = found[1].strip("[]").lower()
        if name in _LOCAL or name in self.hosts or name == self.host.lower():
            return
        # A rebinding page needs a name; a bare address is what the user typed.
        if not is_loopback(self.host) and _is_address(name):
            return
        raise RefusedError(403, "This server does not answer to that Host; see the option --allow-host.")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _single(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise RefusedError(403, f"The request has more than one {name.title()}.")
    return values[0] if values else None


class Refusal(NamedTuple):
    """The answer to a request of `size` bytes, and whether the connection stays open after it."""

    status: int
    rest: bytes  # of the answer
    counters: tuple[Counter, ...]
    size: int
    keep: bool

    def write(self, headers: Iterable[tuple[bytes, bytes]], keep: bool) -> bytes:
        """The whole answer, which is counted."""
        for counter in self.counters:
            counter.inc()
        return STATUS_LINE[self.status] + _lines(headers) + (b"" if keep else b"connection: close\r\n") + self.rest


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers)


def _written(answer: JSONResponse) -> bytes:
    """An answer as it is sent, after its status line."""
    return _lines(answer.raw_headers) + b"\r\n" + bytes(answer.body)


class Guard:
    """The outermost layer: checks each request, gives it its deadline, adds the headers of every answer, counts."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits,
        metrics: Metrics,
        paths: frozenset[str],
        refuse_early: Callable[[str, str | None, int], RefusedError | None],
        turns: Turns,
    ) -> None:
        self.app = CORSMiddleware(
            app,
            allow_origins=tuple(access.origins),
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type"),
            expose_headers=("Authorization",),
            max_age=1728000,
        )
        self.access, self.limits, self.metrics = access, limits, metrics
        self.paths = paths  # the names that metrics may show; all others are "other"
        self.tasks: set[asyncio.Task[Any] | None] = set()  # of the requests that have no whole answer yet
        self.stopping = self.ending = False
        self.refuse_early, self.turns = refuse_early, turns
        self.coming = 0  # requests that were let through and have not reached a queue yet
        self._written: dict[tuple[str, int, str], tuple[bytes, tuple[Counter, ...]]] = {}  # refusals and their counters

    @property
    def under_way(self) -> int:
        return len(self.tasks) + self.coming

    def end(self) -> None:
        """Answer the requests that are still under way with 503: the time to finish them is over."""
        self.ending = True
        for task in self.tasks:
            if task is not None:
                task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, started, path = time.monotonic(), 500, False, scope["path"]
        scope["regard.deadline"] = began + self.limits.seconds
        name = "/page/" if path.startswith(_OPEN_FOLDER) else path if path in self.paths else "other"

        async def leave(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                self._add_headers(message["headers"], path)
            await send(message)

        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            try:
                self._check(scope)
            except RefusedError as refusal:
                if refusal is not SHUTTING_DOWN:
                    self.metrics.refused.labels("headers" if refusal.status == 431 else "access").inc()
                raise
            await self.app(scope, receive, leave)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            if not started:
                await refusal_response(path, SHUTTING_DOWN)(scope, receive, leave)
        except RefusedError as refusal:
            await refusal_response(path, refusal)(scope, receive, leave)
        except Exception:
            log.exception("A request to %s failed", name)
            if not started:
                await refusal_response(path, FAULT)(scope, receive, leave)
        finally:
            self.tasks.discard(task)
            self.metrics.requests.labels(name, status).inc()
            self.metrics.seconds.labels(name).observe(time.monotonic() - began)

    def refuse_head(self, data: bytes, client: str | None) -> Refusal | None:
        """The answer to the request that begins with `data` if no model has room for it. None for all others.

        Under overload most requests end here, so it must cost little: no task, no routing, no parser. What is not the
        plain head of a request is left to the parser.
        """
        head = _HEAD.match(data)
        if head is None or head.end() > self.limits.header_bytes or self.stopping:
            return None
        lines = [line.partition(b":") for line in head[2].split(b"\r\n")[:-1]]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        if not len(headers) == len(lines) <= self.limits.headers or not _SPECIAL.isdisjoint(headers):
            return None
        path = head[1].decode()
        # Behind a proxy the address is that of the proxy.
        refusal = self.refuse_early(path, None if b"x-forwarded-for" in headers else client, self.coming)
        length, connection = headers.get(b"content-length", b"0"), headers.get(b"connection", b"keep-alive").lower()
        if refusal is None or not _LENGTH.fullmatch(length) or connection not in (b"close", b"keep-alive"):
            return None
        with suppress(RefusedError):  # for another reason, which the guard finds again
            self.access.check_host(headers.get(b"host", b"").decode())
            key = (path, refusal.status, refusal.sentence)
            if key not in self._written:
                answer = refusal_response(path, refusal)
                self._add_headers(answer.raw_headers, path)
                counters = (self.metrics.requests.labels(path, refusal.status), *self.metrics.no_room(refusal))
                self._written[key] = _written(answer), counters
            return Refusal(refusal.status, *self._written[key], head.end() + int(length), connection == b"keep-alive")
        return None

    def _check(self, scope: Scope) -> None:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) + 4 for name, value in raw) + len(scope["raw_path"] + scope["query_string"])
        if len(raw) > self.limits.headers or size > self.limits.header_bytes:
            raise RefusedError(
                431, f"More than {self.limits.headers} headers or {self.limits.header_bytes} bytes of them."
            )
        self.access.check(scope["method"], scope["path"], Headers(raw=raw))
        if self.stopping and scope["path"] != "/health":
            raise SHUTTING_DOWN

    def _add_headers(self, headers: list[tuple[bytes, bytes]], path: str) -> None:
        present = {name for name, _ in headers}
        added = dict(SAFE)
        added[b"cache-control"] = b"no-cache" if path == "/" or path.startswith(_OPEN_FOLDER) else b"no-store"
        if b"access-control-allow-origin" in present:
            added[b"cross-origin-resource-policy"] = b"cross-origin"
        if self.stopping:
            added[b"connection"] = b"close"
        headers.extend((name, value) for name, value in added.items() if name not in present)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with timers for every request and answer, a bound on connections, and JSON errors.

    A connection is idle until a request has arrived completely. At the bound the connection that has been idle longest
    gives way to a new one; if none is idle, the new one is refused.
    """

    limits = Limits()
    idle: dict["Protocol", None]  # of one server, the longest idle first
    guard: Guard
    refused = False
    cycle: RequestResponseCycle | None = None  # type: ignore[assignment]
    _opened = False
    _refusal: Refusal | None = None  # the answer to the request that is being received, if its head was enough,
    _missing = 0  # and the bytes of that request that have not come yet
    _starting: RequestResponseCycle | None = None  # the request that waits for its turn, unless it is counted,
    _coming = 0  # and 1 if it is
    _heading = False  # whether the head of a request is incomplete,
    _head = 0  # and how many bytes have come since it began

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._setup = config, server_state, app_state, _loop
        self.server_state, self.connections = server_state, server_state.connections
        self.loop = _loop or asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.connections.add(self)
        if len(self.connections) > self.limits.connections:
            if not self.idle:
                self._refuse(503, "The server has too many connections.", linger=0.0)
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
            # Not before: closed with bytes of the client unread, the connection would be reset and the answer lost.
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
        """Set up what uvicorn needs for a connection; one whose only request is refused at once needs nothing."""
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
        self.guard.turns.add(lambda: self._start_in_turn(cycle, app))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._count_coming()

    def _count_coming(self) -> None:
        """A request that has come whole will be in a queue with its first step; another one waits for its client."""
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
        keep = refusal.keep and not self._missing  # the beginning of a further request is gone
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
        self._note_progress()  # of a request that came before this answer

    def _note_progress(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._end("receive")  # reading the body has its own time limit
            if not cycle.more_body:
                self.idle.pop(self, None)
            self._start("send", self.limits.reading_all + self.limits.seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which no further request came, also if the last answer was not read."""
        self.drop()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("read", self.limits.reading)

    def resume_writing(self) -> None:
        self._end("read")
        super().resume_writing()

    def drop(self) -> None:
        """Close the connection at once; what was not sent is lost."""
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
        """Answer what is not HTTP. What follows a whole request waits: first that request gets its answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._refuse(400, "This is not an HTTP request.")
        elif cycle.more_body:
            cycle.disconnected = True  # nobody needs the answer of a request that does not end
            cycle.message_event.set()
            self._refuse(400, "This is not an HTTP request.", started=cycle.response_started)
        else:
            cycle.keep_alive = False
            self.refused = True

    def _refuse(self, status: int, sentence: str, linger: float = LINGER, started: bool = False) -> None:
        if not started:
            answer = refusal_response("", RefusedError(status, sentence, {"Connection": "close"}))
            self.transport.write(STATUS_LINE[status] + _written(answer))
        # Closed at once, with bytes of the client unread, the connection would be reset before the answer is read.
        self.refused = True
        self.loop.call_later(linger, self.transport.close)
