"""The application: the routes of the endpoints, the files of the page, and the OpenAPI description."""

import copy
import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from regard.serve import api_v1, deepl, libre
from regard.serve.call import Admitted, accepts_gzip
from regard.serve.limits import FAULT, RefusedError
from regard.serve.middleware import Middleware, refusal_response
from regard.serve.parameters import FORMS, FieldsRoute
from regard.serve.schemas import explain
from regard.serve.service import Service

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "serve" / "page", PACKAGE / "look" / "page")  # the shell of the page, and the views it shows
_NOT_FOUND = "Not found; GET /spec lists the endpoints."
_SMALL = 2000  # bytes; a shorter file is not compressed
# The kind of model whose queue a POST to a path needs.
QUEUED = dict.fromkeys(("/translate", "/translate_file", "/v2/translate"), "translate")
QUEUED |= {f"/api/v1/{name}": "translate" for name in ("trace", "steps", "path", "worth", "beam", "alternatives")}
QUEUED |= {"/api/v1/what-if": "translate", "/api/v1/caption": "caption"}


def build(service: Service) -> Middleware:
    """The whole application."""
    app = FastAPI(
        title="regard",
        version="1",
        description="Translation compatible with LibreTranslate and DeepL v2, captions of pictures, and the attention "
        "of the model.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError, RefusedError, Exception), _explain),
    )
    app.state.service = service
    for routes in (libre.routes, libre.files, deepl.routes, api_v1.routes, api_v1.pictures, about):
        app.include_router(routes)
    add_page(app)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=tuple(service.access.origins),
        allow_methods=("GET", "POST"),
        allow_headers=("Authorization", "Content-Type"),
        expose_headers=("Authorization",),
        max_age=1728000,
    )
    return Middleware(app, service, QUEUED)


async def _explain(request: Request, error: Exception) -> Response:
    """An error as JSON: our own refusal, or the framework's. The details of a fault are logged by the middleware and
    not sent to the client."""
    path = request.url.path
    if isinstance(error, RequestValidationError):
        error = explain(list(error.errors()), path)
    elif isinstance(error, HTTPException):
        error = RefusedError(error.status_code, _NOT_FOUND if error.status_code == 404 else error.detail, error.headers)
    return refusal_response(path, error if isinstance(error, RefusedError) else FAULT)


# --- the server about itself

about = APIRouter(route_class=FieldsRoute, responses=libre.ERRORS)


@about.get("/metrics", response_class=PlainTextResponse)
async def metrics(call: Admitted) -> Response:
    """Counters for Prometheus."""
    return PlainTextResponse(call.service.metrics.write(), media_type="text/plain; version=0.0.4")


@about.get("/spec")
async def spec(call: Admitted) -> dict[str, Any]:
    """This document."""
    return describe(call.request.app, next(iter(call.service.of_kind("translate").values()), None))


@about.get("/page/file.html", include_in_schema=False)
async def exported(call: Admitted) -> Response:
    """The page of an exported file, without data."""
    return HTMLResponse(await call.run_in_thread(next(iter(call.service.workers.values())), "exported"))


def describe(app: FastAPI, worker: Any) -> dict[str, Any]:
    """FastAPI's OpenAPI document, with an example for each endpoint that takes JSON, for the model that the server uses
    by default, and with the forms that the endpoints of LibreTranslate and DeepL also take."""
    document = copy.deepcopy(app.openapi())
    examples = _examples(worker.about if worker is not None else {})
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if path == "/translate_file":
            content[FORMS[2]] = content.pop(FORMS[0])
        elif FORMS[0] in content:
            content[FORMS[0]]["example"] = examples[path]
            if not path.startswith("/api/v1/"):
                content |= {kind: {"schema": content[FORMS[0]]["schema"]} for kind in FORMS[1:]}
    return document


def _examples(about: Mapping[str, Any]) -> dict[str, Any]:
    """A valid body for each endpoint that takes JSON."""
    source, target = (about.get(side, {}).get("code", code) for side, code in (("source", "en"), ("target", "fr")))
    text = next(iter(about.get("examples", ())), "Hello")
    pair = {"source": source, "target": target}
    pair_deepl = {"source_lang": source.upper(), "target_lang": target.upper()}
    # A model without attention has nothing to change but the words.
    change = {"prefix": []} if about.get("fixed") else {"changes": [{"kind": "temperature", "value": 0.5}]}
    return {
        "/translate": {"q": text, **pair},
        "/detect": {"q": text},
        "/suggest": {"q": "Hello", "s": "Salut", **pair},
        "/v2/translate": {"text": [text], **pair_deepl},
        "/v2/glossaries": {"name": "terms", **pair_deepl, "entries": "house\tmaison", "entries_format": "tsv"},
        **{f"/api/v1/{name}": {"text": text} for name in ("trace", "worth", "beam")},
        **{f"/api/v1/{name}": {"text": text, "t": 0} for name in ("steps", "path")},
        "/api/v1/alternatives": {"text": text, "prefix": []},
        "/api/v1/what-if": {"text": text, **change},
    }


# --- the page


def add_page(app: FastAPI) -> None:
    """The page, the description of the API for people, and their files."""
    mimetypes.add_type("text/javascript", ".js")  # some systems have an older type, which browsers refuse for modules
    # By name, in memory: reading a file would cost a millisecond or two and an open file. The first folder wins.
    files: dict[str, tuple[bytes, bytes | None, str, dict[str, str]]] = {}
    for file in [file for folder in FOLDERS for file in sorted(folder.iterdir()) if file.is_file()]:
        plain = file.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(plain).hexdigest()[:32]}"', "Vary": "Accept-Encoding"}
        packed = gzip.compress(plain, mtime=0) if len(plain) > _SMALL else None
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        files.setdefault(file.name, (plain, packed, kind, headers))

    async def answer(name: str, request: Request) -> Response:
        """A file; 304 without content if the client has it already."""
        name = request.path_params.get("name", name)
        if name not in files:
            raise RefusedError(404, _NOT_FOUND)
        plain, packed, kind, headers = files[name]
        known = request.headers.get("if-none-match", "").split(",")
        if headers["ETag"] in [tag.strip().removeprefix("W/") for tag in known]:
            return Response(status_code=304, headers=headers)
        if packed is not None and accepts_gzip(request):
            return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
        return Response(plain, headers=headers, media_type=kind)

    # Starlette's routes: files need no fields and no token.
    for path, name in (("/", "index.html"), ("/docs", "docs.html"), ("/page/{name}", "")):
        app.add_route(path, partial(answer, name))
