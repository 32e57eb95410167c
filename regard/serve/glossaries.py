"""DeepL's glossaries, version 2: terms that a client stores and selects when it translates.

They are kept in memory, separately for each client, until the server ends.
"""

import csv
import io
import uuid
from datetime import UTC, datetime

from starlette.responses import JSONResponse, Response

from regard.serve.languages import without_region
from regard.serve.limits import RefusedError
from regard.serve.state import Call
from regard.serve.stored import Glossary

MOST = 100  # glossaries of a server
MOST_TERMS = 5_000  # of a glossary
LONGEST = 200  # characters of a term


async def create(call: Call) -> Response:
    """POST /v2/glossaries."""
    kind = call.fields.text("entries_format")
    if kind not in ("tsv", "csv"):
        raise RefusedError(400, "Value for 'entries_format' not supported.")
    pairs = {(without_region(a), without_region(b)) for a, targets in call.state.pairs.items() for b in targets}
    source, target = (without_region(call.fields.text(name)) for name in ("source_lang", "target_lang"))
    if (source, target) not in pairs:
        raise RefusedError(400, f"Unsupported glossary source and target language pair: {source[:20]}, {target[:20]}.")
    terms = read_terms(call.fields.text("entries"), kind)
    if len(call.state.glossaries) >= MOST:
        raise RefusedError(456, f"There are {MOST} glossaries already; delete one first.")
    made = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found = Glossary(str(uuid.uuid4()), call.fields.text("name"), source, target, terms, made)
    call.state.glossaries.add(call.client, found)
    return JSONResponse(found.describe(), 201)


def read_terms(entries: str, kind: str) -> tuple[tuple[str, str], ...]:
    """The terms of a glossary in TSV or CSV."""
    lines = entries.replace("\r\n", "\n").split("\n")
    rows = csv.reader(io.StringIO(entries)) if kind == "csv" else (line.split("\t") for line in lines)
    terms: dict[str, str] = {}
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
    if not terms:
        raise RefusedError(400, "Invalid glossary entries: there is no entry.")
    return tuple(terms.items())


async def every(call: Call) -> Response:
    """GET or POST /v2/glossaries."""
    if call.request.method == "POST":
        return await create(call)
    return JSONResponse({"glossaries": [one.describe() for one in call.state.glossaries.of(call.client)]})


async def one(call: Call) -> Response:
    """GET or DELETE /v2/glossaries/ID."""
    found = call.state.glossaries.find(call.client, call.request.path_params["id"])
    if call.request.method == "DELETE":
        call.state.glossaries.remove(call.client, found.id)
        return Response(status_code=204)
    return JSONResponse(found.describe())


async def entries(call: Call) -> Response:
    """GET /v2/glossaries/ID/entries."""
    found = call.state.glossaries.find(call.client, call.request.path_params["id"])
    return Response("\n".join("\t".join(pair) for pair in found.terms), media_type="text/tab-separated-values")


async def language_pairs(call: Call) -> Response:
    """GET /v2/glossary-language-pairs."""
    pairs = [{"source_lang": a, "target_lang": b} for a, targets in call.state.pairs.items() for b in targets]
    return JSONResponse({"supported_languages": pairs})
