"""The outermost layer around the application: checks and counts each request, and adds response headers."""

import asyncio
import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from regard.serve.access import OPEN_FOLDER
from regard.serve.limits import FAULT, SHUTTING_DOWN, RefusedError
from regard.serve.state import ServerState

log = logging.getLogger("regard.serve")

# The plain head of a request. Every quantifier is possessive, so matching takes linear time.
_HEAD = re.compile(rb"POST (/[!->@-~]*+)(?:\?[!-~]*+)?+ HTTP/1\.1\r\n((?:[\w-]++:[\t -~]*+\r\n){1,100}+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")  # a longer one may exceed the limit of int()
# Headers on which the response or the body depends; such a request is left to the parser.
_SPECIAL = frozenset((b"origin", b"sec-fetch-site", b"expect", b"transfer-encoding", b"upgrade"))
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


class Refusal(NamedTuple):
    """The response to a request of `size` bytes; `keep` says whether the client wants to keep the connection."""

    status: int
    rest: bytes  # of the response, after its status line
    counters: tuple[Counter, ...]
    size: int
    keep: bool

    def write(self, headers: Iterable[tuple[bytes, bytes]], keep: bool) -> bytes:
        """The whole response; counts it."""
        for counter in self.counters:
            counter.inc()
        close = b"" if keep else b"connection: close\r\n"
        return STATUS_LINE[self.status] + header_lines(headers) + close + self.rest


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers)


def written(answer: JSONResponse) -> bytes:
    """A response in wire format, without its status line."""
    return header_lines(answer.raw_headers) + b"\r\n" + bytes(answer.body)


class Guard:
    """The outermost layer: checks each request, sets its deadline, adds response headers, counts."""

    def __init__(self, app: ASGIApp, state: ServerState, paths: Collection[str], queued: Mapping[str, str]) -> None:
        self.state, self.access, self.limits, self.metrics = state, state.access, state.limits, state.metrics
        self.app = CORSMiddleware(
            app,
            allow_origins=tuple(self.access.origins),
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Content-Type"),
            expose_headers=("Authorization",),
            max_age=1728000,
        )
        self.paths = paths  # the paths that metrics show; all others are "other"
        self.queued = queued  # path -> the kind of model whose queue a POST to it needs
        self.tasks: set[asyncio.Task[Any] | None] = set()  # of unanswered requests
        self.stopping = self.ending = False
        self.coming = 0  # requests that have passed the guard and have not reached a queue
        self._written: dict[tuple[str, int, str], tuple[bytes, tuple[Counter, ...]]] = {}  # refusals and their counters

    @property
    def under_way(self) -> int:
        return len(self.tasks) + self.coming

    def end(self) -> None:
        """Answer the remaining requests with 503: the time to finish them is over."""
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
        name = "/page/" if path.startswith(OPEN_FOLDER) else path if path in self.paths else "other"

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
        """The refusal of the request that begins with `data`, if no model has room for it; otherwise None.

        Under overload most requests end here, so it must be cheap: no task, no routing, no parser. Anything but a plain
        head is left to the parser.
        """
        head = _HEAD.match(data)
        if head is None or head.end() > self.limits.header_bytes or self.stopping:
            return None
        lines = [line.partition(b":") for line in head[2].split(b"\r\n")[:-1]]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        if not len(headers) == len(lines) <= self.limits.headers or not _SPECIAL.isdisjoint(headers):
            return None
        path = head[1].decode()
        # Behind a proxy the address is the proxy's, and a token may be in the body.
        known = None if b"x-forwarded-for" in headers or self.access.tokens else client
        kind = self.queued.get(path)
        refusal = self.state.refusal(kind, known, self.coming) if kind is not None else None
        length, connection = headers.get(b"content-length", b"0"), headers.get(b"connection", b"keep-alive").lower()
        if refusal is None or not _LENGTH.fullmatch(length) or connection not in (b"close", b"keep-alive"):
            return None
        with suppress(RefusedError):  # a wrong host: `_check` refuses it again
            self.access.check_host(headers.get(b"host", b"").decode())
            key = (path, refusal.status, refusal.sentence)
            if key not in self._written:
                answer = refusal_response(path, refusal)
                self._add_headers(answer.raw_headers, path)
                counters = (self.metrics.requests.labels(path, refusal.status), *self.metrics.no_room(refusal))
                self._written[key] = written(answer), counters
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
        added[b"cache-control"] = b"no-cache" if path == "/" or path.startswith(OPEN_FOLDER) else b"no-store"
        if b"access-control-allow-origin" in present:
            added[b"cross-origin-resource-policy"] = b"cross-origin"
        if self.stopping:
            added[b"connection"] = b"close"
        headers.extend((name, value) for name, value in added.items() if name not in present)
