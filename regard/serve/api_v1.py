"""The endpoints under /api/v1/: the attention of a model, the arithmetic of a step, what-ifs, captions of pictures."""

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.serve.fields import Fields, read_upload
from regard.serve.limits import RefusedError
from regard.serve.queue import TraceRequest
from regard.serve.state import ServerState

_MOST_EXAMPLES = 1_000_000
_MOST_STEPS = 10_000


async def models(state: ServerState, request: Request, fields: Fields) -> Response:
    """GET /api/v1/models: the loaded models, each of the kind "translate" or "caption"."""
    return JSONResponse(
        {"models": [{**worker.about, "status": worker.trouble or "ok"} for worker in state.workers.values()]}
    )


async def heads(state: ServerState, request: Request, fields: Fields) -> Response:
    """GET /api/v1/heads: how well each head aligns, for models of a corpus with known word links."""
    return JSONResponse(await state.work(request, state.translator(fields), "head_errors"))


async def trace(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/trace: all attention of one sentence, or of some layers and heads, in the format of regard.look."""
    return await state.answer(request, state.translator(fields), "look", _look(state, fields))


async def beam(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/beam: the search tree of one sentence, with the trace of its best translation."""
    return await state.answer(request, state.translator(fields), "look", _look(state, fields)._replace(tree=True))


async def steps(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/steps: the arithmetic of one step in full, so that a reader can compute it again: of word t of the
    translation, or in a module of the encoder of word t of the source."""
    t, head = fields.number("t", 0, 0, _MOST_STEPS), fields.number("head", 0, 0, 1000)
    return await state.answer(request, state.translator(fields), "step", _look(state, fields), t, _name(fields), head)


async def path(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/path: what each layer of a Transformer adds at a decoding step, and what it would write; or, for a
    module of the encoder, what each of its layers adds to word t of the source."""
    t = fields.number("t", 0, 0, _MOST_STEPS)
    return await state.answer(request, state.translator(fields), "path", _look(state, fields), t, _name(fields))


async def worth(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/worth: how much less likely a translation is without each head, the most important first."""
    return JSONResponse({"heads": await state.work(request, state.translator(fields), "worth", _look(state, fields))})


async def alternatives(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/alternatives: words that could come at a position of the translation, with probabilities."""
    worker = state.translator(fields)
    text, most = _text(state, fields), fields.number("most", 8, 1, 50)
    prefix = _pieces(state, "prefix", fields.get("prefix"))
    return JSONResponse({"alternatives": await state.work(request, worker, "alternatives", text, prefix, most)})


async def what_if(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/what-if: a trace under changes, or with a forced beginning."""
    worker, look = state.translator(fields), _look(state, fields)
    if look.changes in (None, []) and look.prefix is None:
        raise RefusedError(422, "A what-if needs changes, or a prefix to continue.")
    return await state.answer(request, worker, "look", look)


async def caption(state: ServerState, request: Request, fields: Fields) -> Response:
    """POST /api/v1/caption: the body is a JPEG, PNG or WebP file, alone or as the field `image` of a form."""
    worker = state.captioner(fields)
    nbest = fields.number("nbest", 1, 1, state.limits.alternatives + 1)
    beam = fields.number("beam", 0, 0, state.limits.beam) or None
    with state.receiving(worker, request):
        data = await read_upload(request, state.limits)
        pixels = await state.aside(request, worker, "read", data)
    del data
    return await state.answer(request, worker, "caption", pixels, beam, nbest)


async def example(state: ServerState, request: Request, fields: Fields) -> Response:
    """GET /api/v1/example: a picture like those that a captioner was trained on, and its right caption."""
    number = fields.number("number", 0, 0, _MOST_EXAMPLES - 1)
    text, png = await state.aside(request, state.captioner(fields), "example", number)
    return JSONResponse({"number": number, "caption": text, "png": base64.b64encode(png).decode("ascii")})


def _look(state: ServerState, fields: Fields) -> TraceRequest:
    return TraceRequest(
        text=_text(state, fields),
        target=_text_or_pieces(state, "target", fields.get("target")),
        prefix=_text_or_pieces(state, "prefix", fields.get("prefix")),
        beam=fields.number("beam", 0, 0, state.limits.beam) or None,
        changes=fields.get("changes"),
        layers=_numbers("layers", fields.get("layers")),
        heads=_numbers("heads", fields.get("heads")),
    )


def _name(fields: Fields) -> str | None:
    """The attention module that is named, if any."""
    return fields.text("name", "") or None


def _text(state: ServerState, fields: Fields) -> str:
    text = fields.text("text")
    state.check_size([text])
    if "\n" in text:
        raise RefusedError(422, "text must be one line; send the lines of a longer text one by one.")
    if not any(letter.isalnum() for letter in text):
        raise RefusedError(422, "text must hold at least one letter or digit.")
    return text


def _text_or_pieces(state: ServerState, name: str, given: Any) -> str | tuple[str, ...] | None:
    if isinstance(given, str):
        state.check_size([given])
        return given
    return None if given is None else _pieces(state, name, given)


def _pieces(state: ServerState, name: str, pieces: Any) -> tuple[str, ...]:
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise RefusedError(422, f"{name} must be a list of pieces, as in the tokens of a trace.")
    if len(pieces) > state.limits.tokens:
        raise RefusedError(422, f"{name} may have at most {state.limits.tokens} pieces; got {len(pieces)}.")
    return tuple(pieces)


def _numbers(name: str, given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    whole = isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)
    if not whole or not given or not all(0 <= one <= 1000 for one in given):
        raise RefusedError(422, f"{name} must be a list of whole numbers from 0, such as [0, 2].")
    return tuple(dict.fromkeys(given))
