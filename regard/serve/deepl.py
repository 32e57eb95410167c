"""DeepL's API, version 2. Its language codes are upper case, and its errors have a `message`."""

import time
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Response

from regard.files.html import read as read_html
from regard.files.html import xml_rules
from regard.serve import languages, schemas
from regard.serve.call import Admitted
from regard.serve.layout import join_texts, read_plain, split_texts
from regard.serve.libre import choose, parse, translate_all
from regard.serve.limits import RefusedError
from regard.serve.parameters import FieldsRoute
from regard.serve.queue import TranslatedText

ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": schemas.Message, "description": "why it was refused"}}
routes = APIRouter(prefix="/v2", route_class=FieldsRoute, responses=ERRORS)
Side = Literal["", "source", "target"]
_NO_QUOTA = 10**12  # characters: what DeepL reports without a limit, as its clients expect a number


@routes.post("/translate", response_model=schemas.DeepLTranslations)
async def translate(call: Admitted, body: schemas.DeepLTranslateRequest) -> Response:
    """Translate, as DeepL does."""
    texts, source, target = body.text, body.source_lang or "auto", body.target_lang
    if len(texts) > call.limits.segments:
        raise RefusedError(413, f"At most {call.limits.segments} texts are possible in a request; got {len(texts)}.")
    call.check_size(*texts)
    choices = await choose(call, texts, source, target)
    # By default, every element of XML is inline.
    read_xml = partial(read_html, rules=xml_rules(body.splitting_tags, body.ignore_tags))
    read = read_xml if body.tag_handling == "xml" else read_html if body.tag_handling == "html" else read_plain
    layouts = await parse(call, texts, read, split_texts, call.limits.sentences)
    terms = call.service.glossaries.terms(call.client, body.glossary_id or "", source, target)
    found = await translate_all(call, [one.route for one in choices], layouts, terms=terms)
    joined = await parse(call, texts, read, join_texts, found)

    def build() -> dict[str, Any]:
        return {
            "translations": [
                {
                    "detected_source_language": choice.source.upper(),
                    "text": one.text,
                    "billed_characters": len(text),  # the official Python client fails without it
                    **_unplaced(results),
                }
                for text, choice, one, results in zip(texts, choices, joined, found, strict=True)
            ]
        }

    return await call.respond(sum(map(len, texts)), build)


def _unplaced(results: list[TranslatedText]) -> dict[str, list[str]]:
    """The glossary terms that could not be placed, if any: a field that DeepL does not have."""
    found = list(dict.fromkeys(term for one in results for term in one.unplaced))
    return {"unplaced_terms": found} if found else {}


@routes.get("/languages", response_model_exclude_none=True)
async def list_languages(call: Admitted, type: Side = "source") -> list[schemas.DeepLLanguage]:
    """Languages, as DeepL lists them."""
    codes = call.service.targets if type == "target" else list(call.service.reachable)
    formality = False if type == "target" else None
    return [
        schemas.DeepLLanguage(language=code.upper(), name=languages.name(code), supports_formality=formality)
        for code in codes
    ]


@routes.post("/languages", response_model_exclude_none=True, include_in_schema=False)
async def post_languages(
    call: Admitted, type: Annotated[Side, Body(embed=True)] = "source"
) -> list[schemas.DeepLLanguage]:
    """The same, for clients that send fields only in a body."""
    return await list_languages(call, type)


@routes.get("/usage")
@routes.post("/usage", include_in_schema=False)
async def usage(call: Admitted) -> schemas.Usage:
    """The characters that a token has translated today and its quota; without a token, those since the start."""
    if call.token is None:
        return schemas.Usage(character_count=call.service.metrics.characters, character_limit=_NO_QUOTA)
    used = call.token.used_today(time.monotonic())
    return schemas.Usage(character_count=used, character_limit=call.token.quota or _NO_QUOTA)
