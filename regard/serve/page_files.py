"""The files of the page, held in memory, plain and compressed: they are few and small, and do not change.

Read from disk, each would take the server a millisecond or two and a second open file.
"""

import gzip
import hashlib
import mimetypes
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from regard.serve.limits import RefusedError
from regard.serve.state import accepts_gzip

_SMALL = 2000  # bytes; what is shorter is sent as it is


class PageFile(NamedTuple):
    """A file as it is sent."""

    plain: bytes
    packed: bytes | None
    kind: str
    headers: Mapping[str, str]


def read_files(folders: Iterable[Path]) -> dict[str, PageFile]:
    """The files of some folders by their names; of equal names the first one counts."""
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
    """The answer to a request for a file; without its content if the client has that already."""
    if name not in files:
        raise RefusedError(404, "There is nothing here.")
    plain, packed, kind, headers = files[name]
    known = request.headers.get("if-none-match", "").split(",")
    if headers["ETag"] in [tag.strip().removeprefix("W/") for tag in known]:
        return Response(status_code=304, headers={"ETag": headers["ETag"], "Vary": headers["Vary"]})
    if packed is not None and accepts_gzip(request):
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
    return Response(plain, headers=dict(headers), media_type=kind)
