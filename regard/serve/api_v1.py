"""The endpoints under /api/v1/: attention, the arithmetic of a step, what-ifs, captions of pictures."""

import base64
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from regard.serve import schemas
from regard.serve.call import Admitted, Call
from regard.serve.libre import ERRORS
from regard.serve.limits import RefusedError
from regard.serve.parameters import FORMS, FieldsRoute, media_type, read_body, read_form
from regard.serve.queue import TraceRequest
from regard.serve.service import pivot_name
from regard.serve.worker import Worker

routes = APIRouter(prefix="/api/v1", route_class=FieldsRoute, responses=ERRORS)
pictures = APIRouter(prefix="/api/v1", responses=ERRORS)  # received only after the client was admitted
_PICTURE = {"type": "string", "format": "binary"}
_PICTURE_BODY = {
    "application/octet-stream": {"schema": _PICTURE},
    FORMS[2]: {"schema": {"type": "object", "required": ["image"], "properties": {"image": _PICTURE}}},
}
Tree = dict[str, Any]


def _translator(call: Call, body: schemas.ModelRequest) -> Worker:
    return call.service.named(body.model or "", "translate")


@routes.get("/models")
async def models(call: Admitted) -> schemas.Models:
    """The loaded models; `kind` is "translate" or "caption"."""
    workers, pivots = call.service.workers.values(), []
    for route in (one for one in call.service.routes.values() if one[1:]):
        sides = {"source": route[0].about["source"], "target": route[1].about["target"]}
        pivots.append(schemas.Pivot(id=pivot_name(route), **sides, through=[worker.name for worker in route]))
    described = [{**worker.about, "status": worker.trouble or "ok"} for worker in workers]
    return schemas.Models(models=described, pivots=pivots)


@routes.get("/heads", response_model=schemas.HeadErrors)
async def heads(call: Admitted, query: Annotated[schemas.ModelRequest, Query()]) -> Response:
    """How well each head aligns, for models of a corpus with known word links."""
    return await call.answer(_translator(call, query), "head_errors")


@routes.post("/trace", response_model=Tree)
async def trace(call: Admitted, body: schemas.TraceRequest) -> Response:
    """The attention of one sentence, or of some layers and heads, as regard.look writes it. A pair that is translated
    through English, such as the model fr-en+en-de, has two: `halves`."""
    route, look = call.service.route_named(body.model or ""), _look(call, body)
    if not route[1:]:
        return await call.answer(route[0], "look", look)
    if look.changes or look.against or (look.target or look.prefix) is not None:
        raise RefusedError(422, "This is for one model; look into one half, with the text that it reads.")
    halves: list[bytes] = []
    for worker in route:
        halves.append(await call.written(worker, False, "look", look))
        look = look._replace(text=json.loads(halves[-1])["target"]["text"])
    return Response(b'{"halves":[%b]}' % b",".join(halves), media_type="application/json")


@routes.post("/beam", response_model=Tree)
async def beam(call: Admitted, body: schemas.BeamRequest) -> Response:
    """The search tree of one sentence, with the trace of its best translation."""
    return await call.answer(_translator(call, body), "look", _look(call, body)._replace(tree=True))


@routes.post("/steps", response_model=Tree)
async def steps(call: Admitted, body: schemas.StepRequest) -> Response:
    """Every number of one step, so that a reader can recompute it: word t of the translation, or word t of the source
    if `name` is an encoder module."""
    return await call.answer(_translator(call, body), "step", _look(call, body), body.t, body.name or None, body.head)


@routes.post("/path", response_model=Tree)
async def path(call: Admitted, body: schemas.PathRequest) -> Response:
    """What each layer of a Transformer adds at a decoding step, and what it would predict; if `name` is an encoder
    module, what each encoder layer adds to word t of the source."""
    return await call.answer(_translator(call, body), "path", _look(call, body), body.t, body.name or None)


@routes.post("/worth", response_model=schemas.Worth)
async def worth(call: Admitted, body: schemas.LookRequest) -> Response:
    """How much less likely a translation is without each head, the most important first."""
    return await call.answer(_translator(call, body), "worth", _look(call, body))


@routes.post("/alternatives", response_model=schemas.Alternatives)
async def alternatives(call: Admitted, body: schemas.AlternativesRequest) -> Response:
    """The words that could follow a prefix of the translation, with probabilities."""
    worker, text = _translator(call, body), _text(call, body.text)
    return await call.answer(worker, "alternatives", text, _pieces(call, "prefix", body.prefix), body.most)


@routes.post("/what-if", response_model=Tree)
async def what_if(call: Admitted, body: schemas.TraceRequest) -> Response:
    """A trace under changes, or with a forced prefix."""
    worker, look = _translator(call, body), _look(call, body)
    if not look.changes and look.prefix is None:
        raise RefusedError(422, "A what-if needs changes, or a prefix to continue.")
    return await call.answer(worker, "look", look)


@pictures.post(
    "/caption",
    response_model=schemas.Caption,
    openapi_extra={"requestBody": {"required": True, "content": _PICTURE_BODY}},
)
async def caption(call: Admitted, query: Annotated[schemas.CaptionRequest, Query()]) -> Response:
    """Describe a JPEG, PNG or WebP picture (the body, or the field `image` of a form), with attention for each word."""
    worker = call.service.named(query.model or "", "caption")
    call.check_most("nbest", query.nbest, call.limits.alternatives + 1)
    call.check_most("beam", query.beam, call.limits.beam)
    worker.make_room(call.client)
    with call.service.receive():
        pixels = await call.run_in_thread(worker, "read", await _read_picture(call))
    return await call.answer(worker, "caption", pixels, query.beam, query.nbest)


async def _read_picture(call: Call) -> bytes:
    request, limits = call.request, call.limits
    body = await read_body(request, limits.picture, limits.sending_picture)
    if media_type(request) != FORMS[2]:
        return body
    sent = await read_form(request, body, 1, "One picture at a time: send one file as the field image.")
    if [name for name, _ in sent] != ["image"]:
        raise RefusedError(400, "The form must hold only the field image; options belong in the query string.")
    image = sent[0][1]
    return image.encode("utf-8") if isinstance(image, str) else bytes(await image.read())


@pictures.get("/example")
async def example(call: Admitted, query: Annotated[schemas.ExampleRequest, Query()]) -> schemas.Example:
    """A picture from the training distribution of a captioner, and its reference caption."""
    worker = call.service.named(query.model or "", "caption")
    text, png = await call.run_in_thread(worker, "example", query.number)
    return schemas.Example(number=query.number, caption=text, png=base64.b64encode(png).decode("ascii"))


def _look(call: Call, body: schemas.SearchRequest) -> TraceRequest:
    """What to inspect, within the limits of the server."""
    given = body.model_dump(include={"target", "prefix", "beam", "layers", "heads", "by", "against"}, exclude_none=True)
    if "target" in given and "prefix" in given:
        raise RefusedError(422, "Send target, a whole translation, or prefix, the start of one; not both.")
    changes = body.changes or []
    if len(changes) > call.limits.changes:
        raise RefusedError(422, f"At most {call.limits.changes} changes are possible at once; got {len(changes)}.")
    call.check_most("beam", body.beam, call.limits.beam)
    given |= {name: tuple(dict.fromkeys(given[name])) for name in ("layers", "heads") if name in given}
    given |= {name: _pieces(call, name, given[name]) for name in ("target", "prefix") if name in given}
    return TraceRequest(_text(call, body.text), changes=[one.model_dump() for one in changes], **given)


def _text(call: Call, text: str) -> str:
    call.check_size(text)
    if "\n" in text:
        raise RefusedError(422, "text must be one line; send each line in its own request.")
    if not any(letter.isalnum() for letter in text):
        raise RefusedError(422, "text must contain at least one letter or digit.")
    return text


def _pieces(call: Call, name: str, value: str | list[str]) -> str | tuple[str, ...]:
    if isinstance(value, str):
        call.check_size(value)
        return value
    if len(value) > call.limits.tokens:
        raise RefusedError(422, f"{name} may have at most {call.limits.tokens} pieces; got {len(value)}.")
    return tuple(value)
