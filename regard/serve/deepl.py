"""DeepL's API, version 2. Its language codes are upper case, and its errors have a `message`.

Glossaries, the terms that a client stores and selects when it translates, are kept in memory, separately for each
client, until the server ends.
"""

import csv
import io
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Response

from regard.files.html import read as read_html
from regard.files.html import xml_rules
from regard.serve import languages, schemas
from regard.serve.call import Admitted, Call
from regard.serve.layout import join_texts, read_plain, split_texts
from regard.serve.limits import RefusedError
from regard.serve.parameters import FieldsRoute
from regard.serve.queue import Options
from regard.serve.service import Glossary
from regard.text.languages import without_region

ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": schemas.Message, "description": "why it was refused"}}
routes = APIRouter(prefix="/v2", route_class=FieldsRoute, responses=ERRORS)
Side = Literal["", "source", "target"]
MOST_GLOSSARIES, MOST_OF_CLIENT = 100, 25  # of a server, and of a client
MOST_TERMS = 5_000  # of a glossary
LONGEST = 200  # characters of a term
_NO_QUOTA = 10**12  # characters: what DeepL reports without a limit, as its clients expect a number


@routes.post("/translate", response_model=schemas.DeepLTranslations)
async def translate(call: Admitted, body: schemas.DeepLTranslateRequest) -> Response:
    """Translate, as DeepL does."""
    texts, source, target = body.text, body.source_lang or "auto", body.target_lang
    if len(texts) > call.limits.segments:
        raise RefusedError(413, f"At most {call.limits.segments} texts are possible in a request; got {len(texts)}.")
    call.check_size(*texts)
    choices = await call.choose(texts, source, target)
    # By default, every element of XML is inline.
    read_xml = partial(read_html, rules=xml_rules(body.splitting_tags, body.ignore_tags))
    read = read_xml if body.tag_handling == "xml" else read_html if body.tag_handling == "html" else read_plain
    layouts = await call.parse(texts, read, split_texts, call.limits.sentences)
    terms = call.terms(body.glossary_id, source, target)
    found = await call.translate_all(choices, layouts, Options(terms=terms))
    joined = await call.parse(texts, read, join_texts, found)

    def build() -> dict[str, Any]:
        translations = []
        for text, choice, one, results in zip(texts, choices, joined, found, strict=True):
            answer: dict[str, Any] = {"detected_source_language": choice.source.upper(), "text": one.text}
            answer["billed_characters"] = len(text)  # the official Python client fails without it
            if unplaced := list(dict.fromkeys(term for each in results for term in each.unplaced)):
                answer["unplaced_terms"] = unplaced  # a field that DeepL does not have
            translations.append(answer)
        return {"translations": translations}

    return await call.respond(sum(map(len, texts)), build)


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


# --- glossaries


@routes.post("/glossaries", status_code=201)
async def create(call: Admitted, body: schemas.GlossaryRequest) -> schemas.Glossary:
    """Store terms."""
    source, target = (without_region(code) for code in (body.source_lang, body.target_lang))
    pairs = {(without_region(a), without_region(b)) for a, b in _pairs(call)}
    if (source, target) not in pairs:
        raise RefusedError(400, f"Unsupported glossary source and target language pair: {source[:20]}, {target[:20]}.")
    terms = read_terms(body.entries, body.entries_format)
    stored = [client for client, _ in call.service.glossaries]
    if len(stored) >= MOST_GLOSSARIES or stored.count(call.client) >= MOST_OF_CLIENT:
        most = f"A client may have {MOST_OF_CLIENT} glossaries, and all clients {MOST_GLOSSARIES}"
        raise RefusedError(456, f"{most}; delete one first.")
    about = schemas.Glossary(
        glossary_id=str(uuid.uuid4()),
        name=body.name,
        source_lang=source,
        target_lang=target,
        creation_time=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        entry_count=len(terms),
    )
    call.service.glossaries[call.client, about.glossary_id] = Glossary(about, terms)
    return about


def read_terms(entries: str, kind: str) -> tuple[tuple[str, str], ...]:
    """The terms of a glossary in TSV or CSV."""
    lines = entries.replace("\r\n", "\n").split("\n")
    rows = csv.reader(io.StringIO(entries, newline="")) if kind == "csv" else (line.split("\t") for line in lines)
    terms: dict[str, str] = {}
    try:
        for number, row in enumerate(rows, 1):
            if not row or row == [""]:
                continue
            pair = [part.strip() for part in row[:2]]
            if len(pair) < 2 or not all(pair) or max(map(len, pair)) > LONGEST:
                raise RefusedError(400, f"Invalid glossary entries: entry {number} needs a source and a target term.")
            if pair[0] in terms:
                raise RefusedError(400, f"Invalid glossary entries: entry {number} repeats a source term.")
            terms[pair[0]] = pair[1]
            if len(terms) > MOST_TERMS:
                raise RefusedError(413, f"A glossary may have at most {MOST_TERMS} entries.")
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise RefusedError(400, f"Invalid glossary entries: they are not valid CSV ({error}).") from None
    if not terms:
        raise RefusedError(400, "Invalid glossary entries: there is no entry.")
    return tuple(terms.items())


@routes.get("/glossaries")
async def list_glossaries(call: Admitted) -> schemas.Glossaries:
    """The glossaries of this client."""
    mine = [one.about for (client, _), one in call.service.glossaries.items() if client == call.client]
    return schemas.Glossaries(glossaries=mine)


@routes.get("/glossaries/{id}")
async def show(call: Admitted, id: str) -> schemas.Glossary:
    """A glossary."""
    return call.glossary(id).about


@routes.delete("/glossaries/{id}", status_code=204)
async def delete(call: Admitted, id: str) -> None:
    """Delete a glossary."""
    call.glossary(id)
    del call.service.glossaries[call.client, id]


@routes.get(
    "/glossaries/{id}/entries", response_class=Response, responses={200: {"content": {"text/tab-separated-values": {}}}}
)
async def entries(call: Admitted, id: str) -> Response:
    """The entries of a glossary."""
    lines = ("\t".join(pair) for pair in call.glossary(id).terms)
    return Response("\n".join(lines), media_type="text/tab-separated-values")


@routes.get("/glossary-language-pairs")
async def language_pairs(call: Admitted) -> schemas.GlossaryPairs:
    """Language pairs that support glossaries."""
    found = [schemas.GlossaryPair(source_lang=source, target_lang=target) for source, target in _pairs(call)]
    return schemas.GlossaryPairs(supported_languages=found)


def _pairs(call: Call) -> list[tuple[str, str]]:
    """The pairs of codes that one model translates."""
    return [pair for pair, route in call.service.routes.items() if not route[1:]]
