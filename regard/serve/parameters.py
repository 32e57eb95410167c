"""The fields of a request, whether they are in the query string, a form, a multipart form or JSON.

`FieldsRoute` hands all of them to FastAPI as one JSON object, so that one pydantic model describes every way to send
them. Bodies of more than a few kilobytes are parsed in a thread, so that the event loop stays free.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response, UploadFile
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from regard.serve.limits import Limits, RefusedError
from regard.serve.schemas import KEYS
from regard.text.normalise import well_formed

FORMS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
REPEATED = ("text", "ignore_tags", "splitting_tags")  # of which a form may hold several; of others, the first counts
SMALL = 4096  # bytes or characters that are parsed without a thread
_QUOTED = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
_MOST_FIELDS = 1000
_MOST_SKIPPED = 8  # times the limit: how much of a larger body is read; many clients do not read while they send
_SLICE = 1 << 16  # bytes of a multipart form that are parsed at once
Fields = dict[str, Any]
T = TypeVar("T")


class FieldsRoute(APIRoute):
    """A route whose fields may be sent in any format. The body of a GET is read only if it is a form."""

    files = 0  # that the fields may include, in a multipart form

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, for a request with all fields in its JSON body and in its query string."""
        handle = super().get_route_handler()

        async def act(request: Request) -> Response:
            service = request.app.state.service
            with service.receive() if self.files else nullcontext():
                fields = await read_fields(request, service.limits, self.files)
            request.state.key = next((fields[name] for name in KEYS if name in fields), None)
            return await handle(_RequestWithFields(request, fields))

        return act


class FileRoute(FieldsRoute):
    """A route whose fields may include a file."""

    files = 1


class _RequestWithFields(Request):
    def __init__(self, request: Request, fields: Fields) -> None:
        headers = [header for header in request.scope["headers"] if header[0] != b"content-type"]
        changed: Fields = {"headers": [*headers, (b"content-type", FORMS[0].encode())]}
        if request.method in ("GET", "HEAD"):
            changed["query_string"] = urlencode(fields).encode()
        super().__init__({**request.scope, **changed}, request.receive)
        self._fields = fields

    async def body(self) -> bytes:
        return b"{}"  # not empty: FastAPI calls json()

    async def json(self) -> Fields:
        return self._fields


async def read_fields(request: Request, limits: Limits, files: int) -> Fields:
    """All fields of a request. JSON values keep their type and replace others of the same name; all others are text,
    or at most `files` files."""
    most, seconds = (limits.file, limits.sending_picture) if files else (limits.body, limits.sending)
    body = await read_body(request, most, seconds)
    pairs, kind = _pairs(request.scope["query_string"]), media_type(request)
    if kind == FORMS[2]:
        too_many = (
            "Send one file as the field file." if files else "Send text as the field q; files are not accepted here."
        )
        pairs += await read_form(request, body, files, too_many)
    elif kind == FORMS[1]:
        if body.lstrip()[:1] == b"{":  # curl sends everything as a form
            raise RefusedError(400, "The body looks like JSON; send the header Content-Type: application/json with it.")
        pairs += await unless_small(len(body), _pairs, body)
    fields: Fields = {}
    for name, value in pairs:
        if name in REPEATED:
            fields.setdefault(name, []).append(value)
        else:
            fields.setdefault(name, value)
    if request.method not in ("GET", "HEAD") and (kind == FORMS[0] or kind.endswith("+json")):
        fields.update(await unless_small(len(body), _read_json, body, limits))
    return fields


async def unless_small(size: int, work: Callable[..., T], *args: Any) -> T:
    """The result of `work(*args)`; it runs in a thread unless its input is small."""
    return work(*args) if size <= SMALL else await asyncio.to_thread(work, *args)


def media_type(request: Request) -> str:
    """The media type of a body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].lower().replace(" ", "")


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """A body of at most `most` bytes that arrives within `seconds`."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > _MOST_SKIPPED * most:
                    break
    except TimeoutError:
        if size <= most:
            raise RefusedError(408, "The request took too long to arrive.", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise RefusedError(400, "The client closed the connection.") from None
    if size > most:
        raise RefusedError(413, f"The request is larger than {most} bytes.", {"Connection": "close"})
    return b"".join(parts)


async def read_form(request: Request, body: bytes, files: int, too_many: str) -> list[tuple[str, Any]]:
    """The fields of a multipart form, parsed in slices with pauses between them; files stay `UploadFile`s."""

    async def stream() -> AsyncIterator[Message]:
        for at in range(0, len(body), _SLICE):
            yield {"type": "http.request", "body": body[at : at + _SLICE], "more_body": True}
            await asyncio.sleep(0)
        yield {"type": "http.request", "body": b"", "more_body": False}

    again = Request(request.scope, aiter(stream()).__anext__)
    try:
        form = await again.form(max_files=files, max_fields=_MOST_FIELDS, max_part_size=len(body) + 1)
    except HTTPException as error:
        raise RefusedError(400, too_many if "files" in error.detail else "Invalid multipart form") from None
    except (KeyError, ValueError, LookupError, AssertionError):  # no boundary, an unknown charset
        raise RefusedError(400, "Invalid multipart form") from None
    return [
        (_clean(name), value if isinstance(value, UploadFile) else _clean(value)) for name, value in form.multi_items()
    ]


def _pairs(encoded: bytes) -> list[tuple[str, Any]]:
    """The fields of a query string or urlencoded form; a percent sign without two hex digits stays as it is."""
    if encoded.count(b"&") >= _MOST_FIELDS:
        raise RefusedError(413, f"The request has more than {_MOST_FIELDS} fields.")
    parts = [part.partition(b"=") for part in encoded.replace(b"+", b" ").split(b"&") if part]
    return [(_unquote(name), _unquote(value)) for name, _, value in parts]


def _unquote(encoded: bytes) -> str:
    # urllib's unquote splits at every percent sign: a megabyte of them takes a second.
    return _QUOTED.sub(lambda found: bytes.fromhex(found[0].replace(b"%", b"").decode()), encoded).decode(
        "utf-8", "replace"
    )


def _read_json(body: bytes, limits: Limits) -> Fields:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    too_deep = RefusedError(422, f"The JSON is nested more than {limits.depth} levels deep.")
    # Values are counted before the JSON is parsed: the parser holds the GIL until it is done.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * limits.values or b"".join(bare.split(b'"')[::2]).count(b",") > limits.values:
        raise RefusedError(413, f"The JSON has more than {limits.values} values.")
    try:
        tree = json.loads(body, parse_constant=refuse)
    except RecursionError:
        raise too_deep from None
    except ValueError:
        raise RefusedError(400, "Invalid JSON format") from None
    level, depth = [tree], 0
    while inner := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        if depth > limits.depth:
            raise too_deep
        level = [value for part in inner for value in (part.values() if isinstance(part, dict) else part)]
    if not isinstance(tree, dict):
        raise RefusedError(400, "Invalid JSON format")
    return {_clean(name): _clean(part) for name, part in tree.items()}


def _clean(tree: Any) -> Any:
    """The tree with lone surrogates replaced: they cannot be written as UTF-8."""
    if isinstance(tree, str):
        return well_formed(tree)
    if isinstance(tree, list):
        return [_clean(part) for part in tree]
    if isinstance(tree, dict):
        return {_clean(name): _clean(part) for name, part in tree.items()}
    return tree
