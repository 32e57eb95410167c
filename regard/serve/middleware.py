"""What surrounds every request: checks before any work, response headers, time limits on sending, metrics."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.access import OPEN_FOLDER
from regard.serve.limits import FAULT, SHUTTING_DOWN, RefusedError
from regard.serve.service import Service

log = logging.getLogger("regard.serve")
_SLICE = 1 << 16  # bytes of an answer that are sent at once, so that a connection never buffers much more
HEADERS = {
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


class UnreadError(Exception):
    """The client does not read its answer."""


class Middleware:
    """The outermost ASGI layer. `queued` are the paths whose POST needs the queue of a model, with the kind of that
    model."""

    def __init__(self, app: ASGIApp, service: Service, queued: Mapping[str, str]) -> None:
        self.app, self.service, self.queued = app, service, queued
        self.limits, self.metrics = service.limits, service.metrics
        self.tasks: set[asyncio.Task[Any] | None] = set()  # of unanswered requests
        self.ending = False

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

        async def respond(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                self._add_headers(message["headers"], path)
            await self._send(message, send)

        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            await self._check(scope, receive)
            # FastAPI's routes answer GET; uvicorn, which keeps its own scope, leaves out the body of an answer to HEAD.
            scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self.app(scope, receive, respond)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            if not started:
                await refusal_response(path, SHUTTING_DOWN)(scope, receive, respond)
        except RefusedError as refusal:
            await refusal_response(path, refusal)(scope, receive, respond)
        except UnreadError:
            log.warning("A client did not read its answer; its connection is closed")  # by uvicorn, as it is incomplete
        except Exception:
            log.exception("A request to %s failed", path)
            if not started:
                await refusal_response(path, FAULT)(scope, receive, respond)
        finally:
            self.tasks.discard(task)
            # The path of the route, such as /v2/glossaries/{id}: clients must not make up labels.
            route = scope.get("route")
            name = route.path if route is not None else path if path in self.queued else "other"
            self.metrics.requests.labels(name, status).inc()
            self.metrics.seconds.labels(name).observe(time.monotonic() - began)

    async def _check(self, scope: Scope, receive: Receive) -> None:
        """Refuse a request for its head alone: too large, from another site, or without room in a queue."""
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        headers, method, path = Headers(raw=raw), scope["method"], scope["path"]
        size = sum(len(name) + len(value) + 4 for name, value in raw) + len(scope["raw_path"] + scope["query_string"])
        if len(raw) > self.limits.headers or size > self.limits.header_bytes:
            self.metrics.refused.labels("headers").inc()
            raise RefusedError(
                431, f"More than {self.limits.headers} headers or {self.limits.header_bytes} bytes of them."
            )
        try:
            self.service.access.check(method, path, headers)
        except RefusedError:
            self.metrics.refused.labels("access").inc()
            raise
        if self.service.stopping and path != "/health":
            raise SHUTTING_DOWN
        # A request of an allowed origin is refused by its endpoint, whose answer carries the headers for that origin.
        if method == "POST" and path in self.queued and "origin" not in headers:
            client = scope["client"][0] if scope["client"] and not self.service.access.tokens else None
            refusal = self.service.refusal(self.queued[path], client)
            if refusal is not None:
                self.metrics.count_refusal(refusal)
                await self._discard_body(receive)
                raise refusal

    async def _discard_body(self, receive: Receive) -> None:
        """Receive a body without keeping it: closing with unread bytes would reset the connection before the client
        reads its answer."""
        try:
            async with asyncio.timeout(self.limits.sending):
                while (await receive()).get("more_body", False):
                    pass
        except TimeoutError:
            raise RefusedError(408, "The request took too long to arrive.", {"Connection": "close"}) from None

    async def _send(self, message: Message, send: Send) -> None:
        """Send a message in slices, each within a time limit, and count its bytes until they are sent."""
        body, parts = message.get("body", b""), [message]
        if len(body) > _SLICE:
            slices = [body[at : at + _SLICE] for at in range(0, len(body), _SLICE)]
            parts = [{**message, "body": bytes(one), "more_body": True} for one in slices]
            parts[-1]["more_body"] = message.get("more_body", False)
        end = time.monotonic() + self.limits.reading_all
        self.service.held += len(body)
        try:
            for part in parts:
                async with asyncio.timeout(min(self.limits.reading, end - time.monotonic())):
                    await send(part)
        except TimeoutError:
            raise UnreadError from None
        finally:
            self.service.held -= len(body)

    def _add_headers(self, headers: list[tuple[bytes, bytes]], path: str) -> None:
        present = {name for name, _ in headers}
        added = dict(HEADERS)
        added[b"cache-control"] = b"no-cache" if path == "/" or path.startswith(OPEN_FOLDER) else b"no-store"
        if b"access-control-allow-origin" in present:
            added[b"cross-origin-resource-policy"] = b"cross-origin"
        if self.service.stopping:
            added[b"connection"] = b"close"
        headers.extend((name, value) for name, value in added.items() if name not in present)
