"""DeepL's second version as another mask of the same models. Codes are upper case there, errors have a `message`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.serve import languages
from regard.serve.fields import Fields
from regard.serve.house import House
from regard.serve.libre import choose, translate_all
from regard.serve.refusal import RefusedError
from regard.serve.text import marked, plain

_NO_LIMIT = 10**12  # characters: DeepL's clients want a number


async def translate(house: House, request: Request, fields: Fields) -> Response:
    """POST /v2/translate."""
    texts = fields.all("text")
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "Value for 'text' not supported: send one text or more.")
    if len(texts) > house.limits.segments:
        raise RefusedError(413, f"At most {house.limits.segments} texts may be sent at once; got {len(texts)}.")
    house.check_size(texts)
    tags = fields.text("tag_handling", "")
    if tags not in ("", "html", "xml"):
        raise RefusedError(400, "Value for 'tag_handling' not supported.")
    source = fields.text("source_lang", "") or "auto"
    choices = await choose(house, texts, source, fields.text("target_lang"))
    layouts = [marked(text) if tags else plain(text) for text in texts]
    found = await translate_all(house, request, [worker for worker, _ in choices], layouts, 1)
    return JSONResponse(
        {
            "translations": [
                {
                    "detected_source_language": worker.model.source.upper(),
                    "text": layout.join([one.text for one in results]),
                    "billed_characters": len(text),  # one client fails without it
                }
                for text, (worker, _), (layout, results) in zip(texts, choices, found, strict=True)
            ]
        }
    )


async def list_languages(house: House, request: Request, fields: Fields) -> Response:
    """GET /v2/languages?type=source|target."""
    kind = fields.text("type", "source") or "source"
    if kind not in ("source", "target"):
        raise RefusedError(400, "Value for 'type' not supported.")
    pairs = house.pairs
    codes = list(pairs) if kind == "source" else dict.fromkeys(code for targets in pairs.values() for code in targets)
    formality = {"supports_formality": False} if kind == "target" else {}
    return JSONResponse([{"language": code.upper(), "name": languages.name(code), **formality} for code in codes])


async def usage(house: House, request: Request, fields: Fields) -> Response:
    """GET /v2/usage: what this server has translated since it started."""
    return JSONResponse({"character_count": house.metrics.characters, "character_limit": _NO_LIMIT})
