"""The application: the routes of the endpoints, and the files of the page."""

import gzip
import hashlib
import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from regard.serve import api_v1, deepl, glossaries, libre
from regard.serve.fields import Fields, read_fields, read_form, read_query
from regard.serve.guard import Guard, refusal_response
from regard.serve.limits import FAULT, Limits, RefusedError
from regard.serve.spec import describe
from regard.serve.state import Call, ServerState, accepts_gzip

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "serve" / "page", PACKAGE / "look" / "page")  # the shell of the page, and the views it shows
Endpoint = Callable[[Call], Awaitable[Response]]
ReadFields = Callable[[Request, Limits], Awaitable[Fields]]
_NOT_FOUND = "Not found; GET /spec lists the endpoints."
_SMALL = 2000  # bytes; a shorter file is not compressed


class PageFile(NamedTuple):
    """A file of the page, held in memory: reading it from disk would cost a millisecond or two and an open file."""

    plain: bytes
    packed: bytes | None
    kind: str
    headers: Mapping[str, str]


def read_files(folders: Iterable[Path]) -> dict[str, PageFile]:
    """The files of the folders by name; the first folder wins."""
    mimetypes.add_type("text/javascript", ".js")  # some systems have an older type, which browsers refuse for modules
    found: dict[str, PageFile] = {}
    for path in [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]:
        plain = path.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(plain).hexdigest()[:32]}"', "Vary": "Accept-Encoding"}
        packed = gzip.compress(plain, mtime=0) if len(plain) > _SMALL else None
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        found.setdefault(path.name, PageFile(plain, packed, kind, headers))
    return found


def answer_file(files: Mapping[str, PageFile], name: str, request: Request) -> Response:
    """The response to a request for a file: 304 without content if the client has it already."""
    if name not in files:
        raise RefusedError(404, _NOT_FOUND)
    plain, packed, kind, headers = files[name]
    known = request.headers.get("if-none-match", "").split(",")
    if headers["ETag"] in [tag.strip().removeprefix("W/") for tag in known]:
        return Response(status_code=304, headers={"ETag": headers["ETag"], "Vary": headers["Vary"]})
    if packed is not None and accepts_gzip(request):
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
    return Response(plain, headers=dict(headers), media_type=kind)


async def spec(call: Call) -> Response:
    """GET /spec: the OpenAPI description of this server."""
    return JSONResponse(describe(call.limits, call.state.of_kind("translate"), call.state.of_kind("caption")))


async def metrics(call: Call) -> Response:
    """GET /metrics: counters for Prometheus."""
    return PlainTextResponse(call.state.metrics.write(), media_type="text/plain; version=0.0.4")


async def exported(call: Call) -> Response:
    """GET /page/file.html: the page of an exported file, without data."""
    return HTMLResponse(await call.aside(next(iter(call.state.workers.values())), "exported"))


ENDPOINTS: dict[str, tuple[tuple[str, ...], Endpoint]] = {
    "/translate": (("POST",), libre.translate),
    "/detect": (("POST",), libre.detect),
    "/translate_file": (("POST",), libre.translate_file),
    "/download_file/{name}": (("GET",), libre.download_file),
    "/suggest": (("POST",), libre.suggest),
    "/languages": (("GET",), libre.list_languages),
    "/frontend/settings": (("GET",), libre.settings),
    "/health": (("GET",), libre.health),
    "/v2/translate": (("POST",), deepl.translate),
    "/v2/languages": (("GET", "POST"), deepl.list_languages),
    "/v2/glossaries": (("GET", "POST"), glossaries.every),
    "/v2/glossaries/{id}": (("GET", "DELETE"), glossaries.one),
    "/v2/glossaries/{id}/entries": (("GET",), glossaries.entries),
    "/v2/glossary-language-pairs": (("GET",), glossaries.language_pairs),
    "/v2/usage": (("GET", "POST"), deepl.usage),
    "/api/v1/models": (("GET",), api_v1.models),
    "/api/v1/heads": (("GET",), api_v1.heads),
    "/api/v1/trace": (("POST",), api_v1.trace),
    "/api/v1/steps": (("POST",), api_v1.steps),
    "/api/v1/path": (("POST",), api_v1.path),
    "/api/v1/worth": (("POST",), api_v1.worth),
    "/api/v1/beam": (("POST",), api_v1.beam),
    "/api/v1/alternatives": (("POST",), api_v1.alternatives),
    "/api/v1/what-if": (("POST",), api_v1.what_if),
    "/api/v1/caption": (("POST",), api_v1.caption),
    "/api/v1/example": (("GET",), api_v1.example),
    "/spec": (("GET",), spec),
    "/metrics": (("GET",), metrics),
}
# The kind of model whose queue a POST to a path needs.
QUEUED = dict.fromkeys(("/translate", "/translate_file", "/v2/translate"), "translate")
QUEUED |= {f"/api/v1/{name}": "translate" for name in ("trace", "steps", "path", "worth", "beam", "alternatives")}
QUEUED |= {"/api/v1/what-if": "translate", "/api/v1/caption": "caption"}
# A picture is received only after the client was authenticated and there is room for it.
READERS: dict[str, ReadFields] = {"/api/v1/caption": read_query, "/translate_file": read_form}


def known_fields(limits: Limits) -> dict[str, tuple[str, ...]]:
    """The fields of the /api/v1/ endpoints, from /spec. The other APIs have fields that we do not support; they are
    ignored."""
    known = {}
    for path, operations in describe(limits, {}, {})["paths"].items():
        if path.startswith("/api/v1/"):
            (operation,) = operations.values()
            content = operation.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {"schema": {}})["schema"]
            parameters = (parameter["name"] for parameter in operation.get("parameters", ()))
            known[path] = (*parameters, *body.get("properties", ()), "api_key", "apiKey")
    return known


def build(state: ServerState) -> Guard:
    """The whole application."""

    known = known_fields(state.limits)

    def bind(endpoint: Endpoint, read: ReadFields) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            fields = await read(request, state.limits)
            key = fields.get("api_key", "apiKey")
            request.scope["regard.token"] = state.access.admit(request.url.path, request.headers, key)
            if state.loading and request.url.path not in ("/health", "/metrics"):
                raise RefusedError(
                    503, "The models are being loaded; GET /health reports when they are ready.", {"Retry-After": "2"}
                )
            if request.url.path in known:
                fields.check_names(known[request.url.path], request.url.path)
            return await endpoint(Call(state, request, fields))

        return act

    files = read_files(FOLDERS)

    def send(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            return answer_file(files, request.path_params.get("name", name), request)

        return act

    app = Starlette(
        routes=[
            *(
                Route(path, bind(endpoint, READERS.get(path, read_fields)), methods=list(methods))
                for path, (methods, endpoint) in ENDPOINTS.items()
            ),
            Route("/", send("index.html")),
            Route("/docs", send("docs.html")),  # the API for people
            Route("/page/file.html", bind(exported, read_fields)),
            Route("/page/{name}", send("")),
        ],
        exception_handlers=dict.fromkeys((HTTPException, RefusedError, Exception), _explain),
    )
    app.router.redirect_slashes = False
    return Guard(app, state, frozenset([*ENDPOINTS, "/", "/docs"]), QUEUED)


async def _explain(request: Request, error: Exception) -> Response:
    """An error as JSON: our own refusal, or the framework's, such as 404 and 405. The details of a fault are logged by
    the guard and not sent to the client."""
    if isinstance(error, HTTPException):
        error = RefusedError(error.status_code, _NOT_FOUND if error.status_code == 404 else error.detail, error.headers)
    return refusal_response(request.url.path, error if isinstance(error, RefusedError) else FAULT)
