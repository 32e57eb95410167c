"""The fields of a request: from the query string and a urlencoded, multipart or JSON body.

Bodies of more than a few kilobytes are parsed in a thread, so that the event loop stays free.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from regard.errors import unknown
from regard.serve.limits import Limits, RefusedError

_FORM = "multipart/form-data"
_QUOTED = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
_MOST_FIELDS = 1000
_MOST_SKIPPED = 8  # times the limit: how much of a larger body is read; many clients do not read while they send
SMALL = 4096  # bytes or characters that are parsed without a thread
_SURROGATE = re.compile("[\ud800-\udfff]")
T = TypeVar("T")


class Fields:
    """Names and values in the order sent. JSON values keep their type; all others are text."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self._values: dict[str, list[Any]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def replace(self, mapping: dict[str, Any]) -> None:
        """Set the fields of a JSON object; they replace all others of the same name."""
        self._values.update({name: [value] for name, value in mapping.items()})

    def check_names(self, known: Iterable[str], where: str) -> None:
        """Refuse an unknown field: a misspelled one would have no effect."""
        for name in self._values:
            check_name(name, known, where)

    def get(self, *names: str) -> Any:
        """The first value of the first name that was sent, or None."""
        return next((self._values[name][0] for name in names if name in self._values), None)

    def all(self, name: str) -> list[Any]:
        """Every value of a name; a JSON array is several values."""
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values

    def text(self, name: str, default: str | None = None) -> str:
        """A field that must be text. Missing without a default: 400."""
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            raise RefusedError(400, f"Invalid request: missing {name} parameter")
        if not isinstance(value, str):
            raise RefusedError(400, f"Invalid request: {name} parameter is not text")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A field that must be an integer between `least` and `most`."""
        value = self.get(name)
        if value is None and name not in self._values:
            return default
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,9}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise RefusedError(400, f"Invalid request: {name} parameter is not a number")
        if not least <= value <= most:
            bound = f">= {least}" if value < least else f"<= {most}"
            raise RefusedError(400, f"Invalid request: {name} parameter must be {bound}")
        return value

    def flag(self, name: str) -> bool:
        """Whether a switch is on: true, 1, yes or on."""
        value = self.get(name)
        return value is True or str(value).lower() in ("true", "1", "yes", "on")


def check_name(name: str, known: Iterable[str], where: str) -> None:
    """Refuse the name of an unknown field."""
    if name not in known:
        raise RefusedError(422, unknown("field", name[:80], known, f" of {where}"))


class Upload(NamedTuple):
    """A file of a form."""

    name: str
    data: bytes


async def read_fields(request: Request, limits: Limits) -> Fields:
    """All fields of a request. The body of a GET is read only if it is a form (some clients send one)."""
    body = await _read_body(request, limits.body, limits.sending)
    pairs, kind = _pairs(request.scope["query_string"]), _kind(request)
    if kind == _FORM:
        pairs += await _form(request, body, 0, "Files are not accepted here; send the text as the field q.")
    elif kind == "application/x-www-form-urlencoded":
        if body.lstrip()[:1] == b"{":  # curl sends everything as a form
            raise RefusedError(400, "The body looks like JSON; send the header Content-Type: application/json with it.")
        pairs += await aside(len(body), _pairs, body)
    fields = Fields(pairs)
    if request.method not in ("GET", "HEAD") and (kind == "application/json" or kind.endswith("+json")):
        fields.replace(await aside(len(body), _json, body, limits))
    return fields


async def read_query(request: Request, limits: Limits) -> Fields:
    """The fields of the query string; the body is not read."""
    return Fields(_pairs(request.scope["query_string"]))


async def read_form(request: Request, limits: Limits) -> Fields:
    """All fields of a form with one file, whose value is an `Upload`."""
    body = await _read_body(request, limits.file, limits.sending_picture)
    sent = await _form(request, body, 1, "Send one file as the field file.") if _kind(request) == _FORM else []
    return Fields([*_pairs(request.scope["query_string"]), *sent])


async def read_upload(request: Request, limits: Limits) -> bytes:
    """The file that a request contains: its body, or the field `image` of a multipart form."""
    body = await _read_body(request, limits.picture, limits.sending_picture)
    if _kind(request) != _FORM:
        return body
    sent = await _form(request, body, 1, "One picture at a time: send one file as the field image.")
    if [name for name, _ in sent] != ["image"]:
        raise RefusedError(400, "The form must hold only the field image; options belong in the query string.")
    image = sent[0][1]
    return image.data if isinstance(image, Upload) else image.encode("utf-8")


async def aside(size: int, work: Callable[..., T], *args: Any) -> T:
    """The result of `work(*args)`; it runs in a thread unless its input is small."""
    return work(*args) if size <= SMALL else await asyncio.to_thread(work, *args)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].lower().replace(" ", "")


async def _read_body(request: Request, most: int, seconds: float) -> bytes:
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


async def _form(request: Request, body: bytes, files: int, too_many: str) -> list[tuple[str, Any]]:
    """The fields of a multipart form, parsed in slices with pauses between them. Nothing is written to disk."""

    async def stream() -> Any:
        for at in range(0, len(body), 1 << 16):
            yield body[at : at + (1 << 16)]
            await asyncio.sleep(0)

    size = len(body) + 1
    parser = MultiPartParser(request.headers, stream(), max_files=files, max_fields=_MOST_FIELDS, max_part_size=size)
    parser.spool_max_size = size
    try:
        form = (await parser.parse()).multi_items()
    except MultiPartException as error:
        raise RefusedError(400, too_many if "files" in error.message else "Invalid multipart form") from None
    except (KeyError, ValueError, LookupError, AssertionError):  # no boundary, an unknown charset
        raise RefusedError(400, "Invalid multipart form") from None
    return [
        (
            _clean(name),
            _clean(value) if isinstance(value, str) else Upload(_clean(value.filename or ""), await value.read()),
        )
        for name, value in form
    ]


def _json(body: bytes, limits: Limits) -> dict[str, Any]:
    _check_values(body, limits.values)
    try:
        tree = json.loads(body, parse_constant=_refuse)
    except RecursionError:
        raise _too_deep(limits) from None
    except ValueError:
        raise RefusedError(400, "Invalid JSON format") from None
    _check_depth(tree, limits)
    if not isinstance(tree, dict):
        raise RefusedError(400, "Invalid JSON format")
    return {_clean(name): _clean(part) for name, part in tree.items()}


def _check_values(body: bytes, most: int) -> None:
    """Refuse JSON with too many values before it is parsed: the parser holds the GIL until it is done."""
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * most or b"".join(bare.split(b'"')[::2]).count(b",") > most:
        raise RefusedError(413, f"The JSON has more than {most} values.")


def _check_depth(tree: Any, limits: Limits) -> None:
    level = [tree]
    for _ in range(limits.depth + 1):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        if not inner:
            return
        level = [value for part in inner for value in part]
    raise _too_deep(limits)


def _too_deep(limits: Limits) -> RefusedError:
    return RefusedError(422, f"The JSON is nested more than {limits.depth} levels deep.")


def _clean(tree: Any) -> Any:
    """The tree with lone surrogates replaced: they cannot be written as UTF-8."""
    if isinstance(tree, str):
        return _SURROGATE.sub("\ufffd", tree)
    if isinstance(tree, list):
        return [_clean(part) for part in tree]
    if isinstance(tree, dict):
        return {_clean(name): _clean(part) for name, part in tree.items()}
    return tree


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
