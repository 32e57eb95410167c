"""The endpoints under /api/v1/: attention, the arithmetic of a step, what-ifs, captions of pictures."""

import base64
import json

from starlette.responses import JSONResponse, Response

from regard.errors import brief
from regard.serve.fields import read_upload
from regard.serve.limits import RefusedError
from regard.serve.queue import TraceRequest
from regard.serve.state import Call

_MOST_EXAMPLES = 1_000_000
_MOST_STEPS = 10_000


async def models(call: Call) -> Response:
    """GET /api/v1/models: the loaded models; `kind` is "translate" or "caption"."""
    return JSONResponse(
        {"models": [{**worker.about, "status": worker.trouble or "ok"} for worker in call.state.workers.values()]}
    )


async def heads(call: Call) -> Response:
    """GET /api/v1/heads: how well each head aligns, for models of a corpus with known word links."""
    return await call.answer(call.translator, "head_errors")


async def trace(call: Call) -> Response:
    """POST /api/v1/trace: the attention of one sentence, or of some layers and heads, as regard.look writes it."""
    return await call.answer(call.translator, "look", _look(call))


async def beam(call: Call) -> Response:
    """POST /api/v1/beam: the search tree of one sentence, with the trace of its best translation."""
    return await call.answer(call.translator, "look", _look(call)._replace(tree=True))


async def steps(call: Call) -> Response:
    """POST /api/v1/steps: every number of one step, so that a reader can recompute it: word t of the translation, or
    word t of the source if `name` is an encoder module."""
    t, head = call.fields.number("t", 0, 0, _MOST_STEPS), call.fields.number("head", 0, 0, 1000)
    return await call.answer(call.translator, "step", _look(call), t, _name(call), head)


async def path(call: Call) -> Response:
    """POST /api/v1/path: what each layer of a Transformer adds at a decoding step, and what it would predict; if `name`
    is an encoder module, what each encoder layer adds to word t of the source."""
    t = call.fields.number("t", 0, 0, _MOST_STEPS)
    return await call.answer(call.translator, "path", _look(call), t, _name(call))


async def worth(call: Call) -> Response:
    """POST /api/v1/worth: how much less likely a translation is without each head, the most important first."""
    return await call.answer(call.translator, "worth", _look(call))


async def alternatives(call: Call) -> Response:
    """POST /api/v1/alternatives: the words that could follow a prefix of the translation, with probabilities."""
    worker = call.translator
    text, most = _text(call), call.fields.number("most", 8, 1, 50)
    prefix = _text_or_pieces(call, "prefix", required=True)
    return await call.answer(worker, "alternatives", text, prefix, most)


async def what_if(call: Call) -> Response:
    """POST /api/v1/what-if: a trace under changes, or with a forced prefix."""
    worker, look = call.translator, _look(call)
    if look.changes in (None, []) and look.prefix is None:
        raise RefusedError(422, "A what-if needs changes, or a prefix to continue.")
    return await call.answer(worker, "look", look)


async def caption(call: Call) -> Response:
    """POST /api/v1/caption: the body is a JPEG, PNG or WebP file, or a form with such a file as the field `image`."""
    worker = call.captioner
    nbest = call.fields.number("nbest", 1, 1, call.limits.alternatives + 1)
    beam = call.fields.number("beam", 0, 1, call.limits.beam) or None
    with call.receiving(worker):
        data = await read_upload(call.request, call.limits)
        pixels = await call.aside(worker, "read", data)
    del data
    return await call.answer(worker, "caption", pixels, beam, nbest)


async def example(call: Call) -> Response:
    """GET /api/v1/example: a picture from the training distribution of a captioner, and its reference caption."""
    number = call.fields.number("number", 0, 0, _MOST_EXAMPLES - 1)
    text, png = await call.aside(call.captioner, "example", number)
    return JSONResponse({"number": number, "caption": text, "png": base64.b64encode(png).decode("ascii")})


def _look(call: Call) -> TraceRequest:
    target, prefix = _text_or_pieces(call, "target"), _text_or_pieces(call, "prefix")
    if target is not None and prefix is not None:
        raise RefusedError(422, "Send target, a whole translation, or prefix, the start of one; not both.")
    return TraceRequest(
        text=_text(call),
        target=target,
        prefix=prefix,
        beam=call.fields.number("beam", 0, 1, call.limits.beam) or None,
        changes=call.fields.get("changes"),
        layers=_numbers(call, "layers"),
        heads=_numbers(call, "heads"),
    )


def _name(call: Call) -> str | None:
    """The attention module in the field `name`, if any."""
    return call.fields.text("name", "") or None


def _text(call: Call) -> str:
    text = call.fields.text("text")
    call.check_size([text])
    if "\n" in text:
        raise RefusedError(422, "text must be one line; send each line in its own request.")
    if not any(letter.isalnum() for letter in text):
        raise RefusedError(422, "text must contain at least one letter or digit.")
    return text


def _text_or_pieces(call: Call, name: str, required: bool = False) -> str | tuple[str, ...] | None:
    value = call.fields.get(name)
    if value is None and not required:
        return None
    if isinstance(value, str):
        call.check_size([value])
        return value
    if not isinstance(value, list) or not all(isinstance(piece, str) for piece in value):
        got = brief(json.dumps(value, ensure_ascii=False))
        raise RefusedError(422, f"{name} must be text, or a list of pieces as in the tokens of a trace; got {got}.")
    if len(value) > call.limits.tokens:
        raise RefusedError(422, f"{name} may have at most {call.limits.tokens} pieces; got {len(value)}.")
    return tuple(value)


def _numbers(call: Call, name: str) -> tuple[int, ...] | None:
    value = call.fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(type(n) is int and 0 <= n <= 1000 for n in value):
        raise RefusedError(422, f"{name} must be a list of integers from 0, such as [0, 2].")
    return tuple(dict.fromkeys(value))
