"""The outermost layer: every request passes the limits and the door, every answer leaves with its headers."""

import logging
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.door import Door
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.refusal import RefusedError, answer

log = logging.getLogger("regard.serve")

SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
FAULT = RefusedError(500, "Something went wrong in the server; its log says what.")


class Gate:
    """Checks each request before the application sees it, and counts what is under way."""

    def __init__(self, app: ASGIApp, door: Door, limits: Limits, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app = app
        self.door = door
        self.limits = limits
        self.metrics = metrics
        self.paths = paths  # the names that metrics may show; all others are "other"
        self.under_way = 0
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, origin, started = time.monotonic(), 500, None, False

        async def leave(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                self._dress(message, scope["path"], origin)
            await send(message)

        self.under_way += 1
        try:
            origin = self._check(scope)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in Headers(scope=scope):
                await Response(status_code=200)(scope, receive, leave)
            else:
                await self.app(scope, receive, leave)
        except RefusedError as refusal:
            await answer(scope["path"], refusal)(scope, receive, leave)
        except Exception:
            log.exception("A request to %s failed", self._name(scope["path"]))
            if not started:
                await answer(scope["path"], FAULT)(scope, receive, leave)
        finally:
            self.under_way -= 1
            self.metrics.request(self._name(scope["path"]), status, time.monotonic() - began)

    def _check(self, scope: Scope) -> str | None:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) + 4 for name, value in raw) + len(scope["raw_path"] + scope["query_string"])
        if len(raw) > self.limits.headers or size > self.limits.header_bytes:
            self.metrics.refuse("headers")
            raise RefusedError(
                431, f"More than {self.limits.headers} headers or {self.limits.header_bytes} bytes of them."
            )
        try:
            origin = self.door.check(scope["method"], scope["path"], Headers(raw=raw))
        except RefusedError:
            self.metrics.refuse("door")
            raise
        if self.stopping and scope["path"] != "/health":
            raise RefusedError(503, "The server is shutting down.", {"Retry-After": "5", "Connection": "close"})
        return origin

    def _dress(self, message: Message, path: str, origin: str | None) -> None:
        headers = MutableHeaders(raw=message["headers"])
        for name, value in SAFE.items():
            headers.setdefault(name, value)
        headers.setdefault("Cache-Control", "no-cache" if path == "/" or path.startswith("/page/") else "no-store")
        if self.stopping:
            headers["Connection"] = "close"
        if origin is not None:
            headers.update(_cors(origin))

    def _name(self, path: str) -> str:
        if path.startswith("/page/"):
            return "/page/"
        return path if path in self.paths else "other"


def _cors(origin: str) -> dict[str, Any]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Expose-Headers": "Authorization",
        "Access-Control-Max-Age": "1728000",
        "Vary": "Origin",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
