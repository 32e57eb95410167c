"""Files through the server, as LibreTranslate does it: POST /translate_file, then GET /download_file/NAME.

What was translated waits in memory, under a name that nobody can guess, until it is read or makes room for others.
"""

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.data.formats.document import read_document, readers
from regard.errors import DataError
from regard.serve import languages
from regard.serve.fields import Fields, Upload, aside
from regard.serve.layout import Layout
from regard.serve.libre import choose, translate_all
from regard.serve.limits import RefusedError
from regard.serve.state import ServerState, client


async def translate_file(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /translate_file: a form with the file and the languages; the answer names the address of the result."""
    upload = fields.get("file")
    if not isinstance(upload, Upload):
        raise RefusedError(400, "Invalid request: missing file parameter")
    source, target = fields.text("source"), fields.text("target")
    path, data = PurePath(PurePath(upload.name).name or "file"), upload.data
    terms = state.glossaries.terms(client(request), fields.text("glossary_id", ""), source, target)
    worker = None
    for read in _refusing(400, readers, path.name):
        document = await aside(len(data), _refusing, 400, read_document, data, path.name, read)
        layout = await aside(len(data), Layout, document.parts, state.limits.line, state.limits.sentences)
        if worker is None:
            sample = " ".join(layout.sentences)[:2000]
            ((worker, _),) = await choose(state, request, fields, [sample], source, target)
        ((_, results),) = await translate_all(state, request, [worker], [layout], 1, terms)
        code = worker.about["target"]["code"]
        language = "" if code == languages.UNDETERMINED else code
        written = await aside(len(data), layout.write, results)
        # A character that the encoding of the file cannot write is refused.
        data = await aside(len(written), _refusing, 422, document.encode, written, language)
    assert worker is not None
    key = state.shelf.put(data, f"{path.stem}_{worker.about['target']['code']}{path.suffix}")
    return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{key}"})


def _refusing(status: int, work: Callable[..., Any], *args: Any) -> Any:
    """The result of `work`; its sentence where it refuses the file."""
    try:
        return work(*args)
    except DataError as error:
        raise RefusedError(status, str(error)) from None


async def download_file(state: ServerState, request: Request, fields: Fields) -> Response:
    """GET /download_file/NAME: a translated file."""
    found = state.shelf.get(request.path_params["name"])
    if found is None:
        raise RefusedError(404, "There is no such file here, or it was removed; translate it again.")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", found.name)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(found.data, media_type="application/octet-stream", headers=headers)
