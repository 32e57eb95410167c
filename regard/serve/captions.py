"""Our endpoints for pictures under /api/v1/: what a captioner writes of one, and one to try it on."""

import base64

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.data.images import picture_format
from regard.errors import DataError
from regard.look.store import write
from regard.serve.fields import Fields, read_upload
from regard.serve.house import House
from regard.serve.refusal import RefusedError

_MOST_EXAMPLES = 1_000_000


async def caption(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/caption: the body is a JPEG, PNG or WebP file, alone or as the field `image` of a form."""
    worker = house.captioner(fields.text("model", "") or None)
    nbest = fields.number("nbest", 1, 1, house.limits.alternatives + 1)
    beam = fields.number("beam", 0, 0, house.limits.beam) or None
    with house.receiving(worker):
        data = await read_upload(request, house.limits)
        try:
            picture_format(data, "The body")
        except DataError as error:
            raise RefusedError(415, str(error)) from None
        pixels = await house.read_picture(worker, data)
    del data
    found = await house.work(request, worker, lambda stop: worker.model.caption(pixels, beam, nbest, stop))
    return Response(write(found), media_type="application/json")


async def example(house: House, request: Request, fields: Fields) -> Response:
    """GET /api/v1/example: a picture drawn like those that a captioner learned from, and its right caption."""
    worker = house.captioner(fields.text("model", "") or None)
    number = fields.number("number", 0, 0, _MOST_EXAMPLES - 1)
    try:
        made = worker.model.example(number)
    except DataError as error:
        raise RefusedError(404, str(error)) from None
    png = base64.b64encode(made.png).decode("ascii")
    return JSONResponse({"number": number, "caption": made.caption, "png": png})
