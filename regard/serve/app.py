"""The application: which path leads where, and what stands around it."""

import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from regard.serve import captions, deepl, libre, own
from regard.serve.fields import Fields, read_fields, read_query
from regard.serve.gate import FAULT, Gate
from regard.serve.house import House
from regard.serve.limits import Limits
from regard.serve.refusal import RefusedError, answer
from regard.serve.spec import describe

PAGE = Path(__file__).parent / "page"
Endpoint = Callable[[House, Request, Fields], Awaitable[Response]]
Reader = Callable[[Request, Limits], Awaitable[Fields]]

ENDPOINTS: dict[str, tuple[tuple[str, ...], Endpoint]] = {
    "/translate": (("POST",), libre.translate),
    "/detect": (("POST",), libre.detect),
    "/languages": (("GET",), libre.list_languages),
    "/frontend/settings": (("GET",), libre.settings),
    "/health": (("GET",), libre.health),
    "/v2/translate": (("POST",), deepl.translate),
    "/v2/languages": (("GET", "POST"), deepl.list_languages),
    "/v2/usage": (("GET", "POST"), deepl.usage),
    "/api/v1/models": (("GET",), own.models),
    "/api/v1/heads": (("GET",), own.heads),
    "/api/v1/trace": (("POST",), own.trace),
    "/api/v1/steps": (("POST",), own.steps),
    "/api/v1/beam": (("POST",), own.beam),
    "/api/v1/alternatives": (("POST",), own.alternatives),
    "/api/v1/what-if": (("POST",), own.what_if),
    "/api/v1/caption": (("POST",), captions.caption),
    "/api/v1/example": (("GET",), captions.example),
}
# A picture is received only after its sender was admitted and there is room for it.
READERS: dict[str, Reader] = {"/api/v1/caption": read_query}


async def spec(house: House, request: Request, fields: Fields) -> Response:
    """GET /spec: this API in OpenAPI's words."""
    return JSONResponse(describe(house.limits, list(house.translators), list(house.captioners)))


async def metrics(house: House, request: Request, fields: Fields) -> Response:
    """GET /metrics: counters for Prometheus."""
    gauges = {
        "regard_waiting_requests": {name: float(worker.accepted) for name, worker in house.workers.items()},
        "regard_model_up": {name: float(not worker.trouble) for name, worker in house.workers.items()},
    }
    return PlainTextResponse(house.metrics.write(gauges), media_type="text/plain; version=0.0.4")


async def page(request: Request) -> Response:
    """GET /: the page for people."""
    return FileResponse(PAGE / "index.html", media_type="text/html")


def build(house: House) -> Gate:
    """The whole application around a house."""

    def bind(endpoint: Endpoint, read: Reader) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            fields = await read(request, house.limits)
            house.door.admit(request.url.path, request.headers, fields.get("api_key", "apiKey"))
            return await endpoint(house, request, fields)

        return act

    endpoints = {**ENDPOINTS, "/spec": (("GET",), spec), "/metrics": (("GET",), metrics)}
    mimetypes.add_type("text/javascript", ".js")  # some systems know it by an older name, which modules refuse
    app = Starlette(
        routes=[
            *(
                Route(path, bind(endpoint, READERS.get(path, read_fields)), methods=list(methods))
                for path, (methods, endpoint) in endpoints.items()
            ),
            Route("/", page),
            Mount("/page", StaticFiles(directory=PAGE)),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)],
        exception_handlers={HTTPException: _plain_error, RefusedError: _refused, Exception: _fault},
        lifespan=_lifespan(house),
    )
    app.router.redirect_slashes = False
    return Gate(app, house.door, house.limits, house.metrics, frozenset([*endpoints, "/"]))


def _lifespan(house: House) -> Callable[[Starlette], "AbstractAsyncContextManager[None]"]:
    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        house.start()
        yield

    return live


async def _plain_error(request: Request, error: Exception) -> Response:
    """Errors of the framework, such as 404 and 405, in our shape."""
    assert isinstance(error, HTTPException)
    refusal = RefusedError(error.status_code, {404: "There is nothing here."}.get(error.status_code, error.detail))
    refusal.headers.update(error.headers or {})
    return answer(request.url.path, refusal)


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the gate logs it, and the client learns nothing of our insides."""
    return answer(request.url.path, FAULT)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return answer(request.url.path, error)
