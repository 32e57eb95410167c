"""Our own endpoints under /api/v1/: what a model saw while it wrote, and what it would do if it saw something else."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.look.store import write
from regard.serve import whatif
from regard.serve.fields import Fields
from regard.serve.house import House, wanted_model
from regard.serve.models import Look
from regard.serve.refusal import RefusedError
from regard.serve.worker import Worker


async def models(house: House, request: Request, fields: Fields) -> Response:
    """GET /api/v1/models: what is loaded, each of the kind "translate" or "caption"."""
    return JSONResponse({"models": [_describe(worker) for worker in house.workers.values()]})


def _describe(worker: Worker[Any]) -> dict[str, Any]:
    model = worker.model
    return {"id": model.id, "kind": model.kind, **model.describe(), "status": worker.trouble or "ok"}


async def heads(house: House, request: Request, fields: Fields) -> Response:
    """GET /api/v1/heads: how well each head aligns, for models of a corpus whose links are known."""
    worker = wanted_model(house, fields)
    return JSONResponse(await house.work(request, worker, worker.model.head_errors))


async def trace(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/trace: everything seen while one sentence was written, in the format of regard.look."""
    worker, look = wanted_model(house, fields), _look(house, fields)
    found = await house.look(request, worker, look.text, lambda stop: worker.model.look(look, stop))
    return _json(found)


async def beam(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/beam: the search tree of one sentence, with the trace of its best translation."""
    worker, look = wanted_model(house, fields), _look(house, fields, tree=True)
    found = await house.look(request, worker, look.text, lambda stop: worker.model.look(look, stop))
    return _json(found)


async def steps(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/steps: the arithmetic of one decoding step in full, so that a reader can do it again."""
    worker, look = wanted_model(house, fields), _look(house, fields)
    t = fields.number("t", 0, 0, 10_000)
    name, head = fields.text("name", "") or None, fields.number("head", 0, 0, 1000)
    found = await house.look(request, worker, look.text, lambda stop: worker.model.step(look, t, name, head, stop))
    return _json(found)


async def alternatives(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/alternatives: what could stand at a position of the translation, each with its probability."""
    worker = wanted_model(house, fields)
    text, most = _text(fields), fields.number("most", 8, 1, 50)
    prefix = _pieces(house, "prefix", fields.get("prefix"))
    found = await house.look(request, worker, text, lambda stop: worker.model.alternatives(text, prefix, most))
    return JSONResponse({"alternatives": found})


async def what_if(house: House, request: Request, fields: Fields) -> Response:
    """POST /api/v1/what-if: a trace under changes; with "continue" the rest after `prefix` is written anew."""
    worker, look = wanted_model(house, fields), _look(house, fields)
    if not look.changes and look.prefix is None:
        raise RefusedError(422, "A what-if needs changes, or a prefix to go on from.")
    found = await house.look(request, worker, look.text, lambda stop: worker.model.look(look, stop))
    return _json(found)


def _look(house: House, fields: Fields, tree: bool = False) -> Look:
    target, prefix = fields.get("target"), fields.get("prefix")
    house.check_size([given for given in (target, prefix) if isinstance(given, str)])
    return Look(
        text=_text(fields),
        target=_text_or_pieces(house, "target", target),
        prefix=_text_or_pieces(house, "prefix", prefix),
        beam=fields.number("beam", 0, 0, house.limits.beam) or None,
        changes=tuple(whatif.parse(fields.get("changes"), house.limits)),
        tree=tree,
    )


def _text(fields: Fields) -> str:
    text = fields.text("text")
    if "\n" in text:
        raise RefusedError(422, "text must be one line; send the lines of a longer text one by one.")
    if not any(letter.isalnum() for letter in text):
        raise RefusedError(422, "text must hold at least one letter or digit.")
    return text


def _text_or_pieces(house: House, name: str, given: Any) -> str | tuple[str, ...] | None:
    return given if given is None or isinstance(given, str) else _pieces(house, name, given)


def _pieces(house: House, name: str, pieces: Any) -> tuple[str, ...]:
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise RefusedError(422, f"{name} must be a list of pieces, as the tokens of a trace name them.")
    if len(pieces) > house.limits.tokens:
        raise RefusedError(422, f"{name} may have at most {house.limits.tokens} pieces; got {len(pieces)}.")
    return tuple(pieces)


def _json(tree: dict[str, Any]) -> Response:
    """A tree that may hold arrays, written as a trace is."""
    return Response(write(tree), media_type="application/json")
