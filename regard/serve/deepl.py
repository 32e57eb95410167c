"""DeepL's API, version 2. Its language codes are upper case, and its errors have a `message`."""

from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response

from regard.files.html import Rules, xml_rules
from regard.files.html import read as read_html
from regard.serve import languages
from regard.serve.layout import read_plain
from regard.serve.libre import choose, lay_out, translate_all
from regard.serve.limits import RefusedError
from regard.serve.queue import Written
from regard.serve.state import Call

_NO_LIMIT = 10**12  # characters: DeepL's clients expect a number


async def translate(call: Call) -> Response:
    """POST /v2/translate."""
    texts = call.fields.all("text")
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "Value for 'text' not supported: send one text or more.")
    if len(texts) > call.limits.segments:
        raise RefusedError(413, f"At most {call.limits.segments} texts are possible in a request; got {len(texts)}.")
    call.check_size(texts)
    tags = call.fields.text("tag_handling", "")
    if tags not in ("", "html", "xml"):
        raise RefusedError(400, "Value for 'tag_handling' not supported.")
    source, target = call.fields.text("source_lang", "") or "auto", call.fields.text("target_lang")
    choices = await choose(call, texts, source, target)
    read = partial(read_html, rules=_rules(call)) if tags == "xml" else read_html if tags else read_plain
    layouts = await lay_out(call, texts, read)
    terms = call.state.glossaries.terms(call.client, call.fields.text("glossary_id", ""), source, target)
    found = await translate_all(call, [one.worker for one in choices], layouts, terms=terms)

    def build() -> dict[str, Any]:
        return {
            "translations": [
                {
                    "detected_source_language": choice.source.upper(),
                    "text": layout.write(results),
                    "billed_characters": len(text),  # the official Python client fails without it
                    **_unplaced(results),
                }
                for text, choice, (layout, results) in zip(texts, choices, found, strict=True)
            ]
        }

    return await call.respond(sum(map(len, texts)), build)


def _unplaced(results: list[Written]) -> dict[str, list[str]]:
    """The glossary terms that could not be placed, if any: a field that DeepL does not have."""
    found = list(dict.fromkeys(term for one in results for term in one.unplaced))
    return {"unplaced_terms": found} if found else {}


def _rules(call: Call) -> Rules:
    """The XML rules of a request; by default every element is inline."""

    def names(field: str) -> list[str]:
        return [name for one in call.fields.all(field) if isinstance(one, str) for name in one.split(",") if name]

    return xml_rules(names("splitting_tags"), names("ignore_tags"))


async def list_languages(call: Call) -> Response:
    """GET /v2/languages?type=source|target."""
    kind = call.fields.text("type", "source") or "source"
    if kind not in ("source", "target"):
        raise RefusedError(400, "Value for 'type' not supported.")
    codes = list(call.state.pairs) if kind == "source" else call.state.targets
    formality = {"supports_formality": False} if kind == "target" else {}
    return JSONResponse([{"language": code.upper(), "name": languages.name(code), **formality} for code in codes])


async def usage(call: Call) -> Response:
    """GET /v2/usage: the characters translated since the server started."""
    return JSONResponse({"character_count": call.state.metrics.characters, "character_limit": _NO_LIMIT})
