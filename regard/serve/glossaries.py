"""DeepL's glossaries, version 2: terms that a client stores and selects when it translates.

They are kept in memory, separately for each client, until the server ends.
"""

import csv
import io
import uuid
from datetime import UTC, datetime

from fastapi import APIRouter, Response

from regard.serve import schemas
from regard.serve.call import Admitted
from regard.serve.deepl import ERRORS
from regard.serve.languages import without_region
from regard.serve.limits import RefusedError
from regard.serve.parameters import FieldsRoute
from regard.serve.stored import Glossary

routes = APIRouter(prefix="/v2", route_class=FieldsRoute, responses=ERRORS)

MOST = 100  # glossaries of a server
MOST_OF_CLIENT = 25
MOST_TERMS = 5_000  # of a glossary
LONGEST = 200  # characters of a term


@routes.post("/glossaries", status_code=201)
async def create(call: Admitted, body: schemas.GlossaryRequest) -> schemas.Glossary:
    """Store terms."""
    pairs = {(without_region(a), without_region(b)) for a, targets in call.service.pairs.items() for b in targets}
    source, target = without_region(body.source_lang), without_region(body.target_lang)
    if (source, target) not in pairs:
        raise RefusedError(400, f"Unsupported glossary source and target language pair: {source[:20]}, {target[:20]}.")
    terms = read_terms(body.entries, body.entries_format)
    stored = [client for client, _ in call.service.glossaries]
    if len(stored) >= MOST or stored.count(call.client) >= MOST_OF_CLIENT:
        most = f"A client may have {MOST_OF_CLIENT} glossaries, and all clients {MOST}"
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
    return call.service.glossaries.find(call.client, id).about


@routes.delete("/glossaries/{id}", status_code=204)
async def delete(call: Admitted, id: str) -> None:
    """Delete a glossary."""
    call.service.glossaries.find(call.client, id)
    del call.service.glossaries[call.client, id]


@routes.get(
    "/glossaries/{id}/entries", response_class=Response, responses={200: {"content": {"text/tab-separated-values": {}}}}
)
async def entries(call: Admitted, id: str) -> Response:
    """The entries of a glossary."""
    found = call.service.glossaries.find(call.client, id)
    return Response("\n".join("\t".join(pair) for pair in found.terms), media_type="text/tab-separated-values")


@routes.get("/glossary-language-pairs")
async def language_pairs(call: Admitted) -> schemas.GlossaryPairs:
    """Language pairs that support glossaries."""
    pairs = [(source, target) for source, targets in call.service.pairs.items() for target in targets]
    found = [schemas.GlossaryPair(source_lang=source, target_lang=target) for source, target in pairs]
    return schemas.GlossaryPairs(supported_languages=found)
