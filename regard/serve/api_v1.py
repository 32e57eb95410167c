"""The endpoints under /api/v1/: the attention of a model, the arithmetic of a step, what-ifs, captions of pictures."""

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
    """GET /api/v1/models: the loaded models, each of the kind "translate" or "caption"."""
    return JSONResponse(
        {"models": [{**worker.about, "status": worker.trouble or "ok"} for worker in call.state.workers.values()]}
    )


async def heads(call: Call) -> Response:
    """GET /api/v1/heads: how well each head aligns, for models of a corpus with known word links."""
    return await call.answer(call.translator, "head_errors")


async def trace(call: Call) -> Response:
    """POST /api/v1/trace: all attention of one sentence, or of some layers and heads, in the format of regard.look."""
    return await call.answer(call.translator, "look", _look(call))


async def beam(call: Call) -> Response:
    """POST /api/v1/beam: the search tree of one sentence, with the trace of its best translation."""
    return await call.answer(call.translator, "look", _look(call)._replace(tree=True))


async def steps(call: Call) -> Response:
    """POST /api/v1/steps: the arithmetic of one step in full, so that a reader can compute it again: of word t of the
    translation, or in a module of the encoder of word t of the source."""
    t, head = call.fields.number("t", 0, 0, _MOST_STEPS), call.fields.number("head", 0, 0, 1000)
    return await call.answer(call.translator, "step", _look(call), t, _name(call), head)


async def path(call: Call) -> Response:
    """POST /api/v1/path: what each layer of a Transformer adds at a decoding step, and what it would write; or, for a
    module of the encoder, what each of its layers adds to word t of the source."""
    t = call.fields.number("t", 0, 0, _MOST_STEPS)
    return await call.answer(call.translator, "path", _look(call), t, _name(call))


async def worth(call: Call) -> Response:
    """POST /api/v1/worth: how much less likely a translation is without each head, the most important first."""
    return await call.answer(call.translator, "worth", _look(call))


async def alternatives(call: Call) -> Response:
    """POST /api/v1/alternatives: words that could come at a position of the translation, with probabilities."""
    worker = call.translator
    text, most = _text(call), call.fields.number("most", 8, 1, 50)
    prefix = _text_or_pieces(call, "prefix", required=True)
    return await call.answer(worker, "alternatives", text, prefix, most)


async def what_if(call: Call) -> Response:
    """POST /api/v1/what-if: a trace under changes, or with a forced beginning."""
    worker, look = call.translator, _look(call)
    if look.changes in (None, []) and look.prefix is None:
        raise RefusedError(422, "A what-if needs changes, or a prefix to continue.")
    return await call.answer(worker, "look", look)


async def caption(call: Call) -> Response:
    """POST /api/v1/caption: the body is a JPEG, PNG or WebP file, alone or as the field `image` of a form."""
    worker = call.captioner
    nbest = call.fields.number("nbest", 1, 1, call.limits.alternatives + 1)
    beam = call.fields.number("beam", 0, 1, call.limits.beam) or None
    with call.receiving(worker):
        data = await read_upload(call.request, call.limits)
        pixels = await call.aside(worker, "read", data)
    del data
    return await call.answer(worker, "caption", pixels, beam, nbest)


async def example(call: Call) -> Response:
    """GET /api/v1/example: a picture like those that a captioner was trained on, and its right caption."""
    number = call.fields.number("number", 0, 0, _MOST_EXAMPLES - 1)
    text, png = await call.aside(call.captioner, "example", number)
    return JSONResponse({"number": number, "caption": text, "png": base64.b64encode(png).decode("ascii")})


def _look(call: Call) -> TraceRequest:
    return TraceRequest(
        text=_text(call),
        target=_text_or_pieces(call, "target"),
        prefix=_text_or_pieces(call, "prefix"),
        beam=call.fields.number("beam", 0, 1, call.limits.beam) or None,
        changes=call.fields.get("changes"),
        layers=_numbers(call, "layers"),
        heads=_numbers(call, "heads"),
    )


def _name(call: Call) -> str | None:
    """The attention module that is named, if any."""
    return call.fields.text("name", "") or None


def _text(call: Call) -> str:
    text = call.fields.text("text")
    call.check_size([text])
    if "\n" in text:
        raise RefusedError(422, "text must be one line; send the lines of a longer text one by one.")
    if not any(letter.isalnum() for letter in text):
        raise RefusedError(422, "text must hold at least one letter or digit.")
    return text


def _text_or_pieces(call: Call, name: str, required: bool = False) -> str | tuple[str, ...] | None:
    given = call.fields.get(name)
    if given is None and not required:
        return None
    if isinstance(given, str):
        call.check_size([given])
        return given
    if not isinstance(given, list) or not all(isinstance(piece, str) for piece in given):
        got = brief(json.dumps(given, ensure_ascii=False))
        raise RefusedError(422, f"{name} must be text, or a list of pieces as in the tokens of a trace; got {got}.")
    if len(given) > call.limits.tokens:
        raise RefusedError(422, f"{name} may have at most {call.limits.tokens} pieces; got {len(given)}.")
    return tuple(given)


def _numbers(call: Call, name: str) -> tuple[int, ...] | None:
    given = call.fields.get(name)
    if given is None:
        return None
    whole = isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)
    if not whole or not given or not all(0 <= one <= 1000 for one in given):
        raise RefusedError(422, f"{name} must be a list of whole numbers from 0, such as [0, 2].")
    return tuple(dict.fromkeys(given))
