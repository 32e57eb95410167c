"""LibreTranslate's API for texts and files, which many editors, content systems and client libraries use.

A translated file stays in memory under an unguessable name for a while; the oldest file makes room for new ones.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from regard.errors import DataError
from regard.files.document import FORMATS, find_format
from regard.files.html import read as read_html
from regard.serve import languages, schemas
from regard.serve.call import Admitted, Call
from regard.serve.layout import Split, join_file, join_texts, read_plain, split_file, split_texts
from regard.serve.limits import RefusedError
from regard.serve.parameters import FieldsRoute, FileRoute
from regard.serve.queue import MethodCall, Options, Ticket, TranslatedText
from regard.serve.service import Route, StoredFile

ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": schemas.Error, "description": "why it was refused"}}
routes = APIRouter(route_class=FieldsRoute, responses=ERRORS)
files = APIRouter(route_class=FileRoute, responses=ERRORS)
_SECONDS, _MOST_FILES, _MOST_BYTES = 3600.0, 64, 64 << 20  # how long, how many, how much of translated files
# The second header lets nginx pass on each event at once.
_EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}


@routes.post("/translate", response_model=schemas.Translated, responses={200: {"content": {"text/event-stream": {}}}})
async def translate(call: Admitted, body: schemas.TranslateRequest) -> Response:
    """Translate one text or, as JSON, many."""
    texts = body.q if isinstance(body.q, list) else [body.q]
    if len(texts) > call.limits.segments:
        raise RefusedError(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({call.limits.segments})")
    call.check_size(*texts)
    call.check_most("alternatives", body.alternatives, call.limits.alternatives)
    nbest, html = body.alternatives + 1, body.format == "html"
    choices = await call.choose(texts, body.source, body.target, body.model or "")
    if body.confidence:
        if body.stream:
            raise RefusedError(400, "Invalid request: stream gives no confidence; leave one of them out")
        for worker in (one for choice in choices for one in choice.route if not one.about["calibrated"]):
            raise RefusedError(
                400,
                f"The confidence of {worker.name} is not calibrated; run `regard calibrate` with held-out sentences.",
            )
    read = read_html if html else read_plain
    layouts = await call.parse(texts, read, split_texts, call.limits.sentences)
    if body.stream:
        if isinstance(body.q, list) or html or nbest > 1:
            raise RefusedError(400, "Invalid request: stream needs one text, without HTML and alternatives")
        return await stream(call, choices[0].route, texts[0], layouts[0])
    options = Options(None, nbest, body.alignment, (), body.confidence)
    found = await call.translate_all(choices, layouts, options)
    joined = await call.parse(texts, read, join_texts, found)

    def build() -> dict[str, Any]:
        each: dict[str, list[Any]] = {"translatedText": [one.text for one in joined]}
        if body.source.lower() == "auto":
            each["detectedLanguage"] = [{"confidence": one.sure, "language": one.source} for one in choices]
        if nbest > 1:
            each["alternatives"] = [one.alternatives for one in joined]
        if body.alignment:
            each["alignment"] = [[link._asdict() for link in one.links if not html] for one in joined]
        if body.confidence:
            each["confidence"] = [
                [
                    {"source": span, "confidence": sure and sure.sentence, "words": sure.words if sure else []}
                    for span, sure in zip(layout.spans, (one.confidence for one in results), strict=True)
                ]
                for layout, results in zip(layouts, found, strict=True)
            ]
        # Sentences with problems: span in the source, flags in words too, and words never seen in training.
        notes = [
            [
                {"source": span, "flags": [*one.noted], "notes": [*one.noted.values()], "unknown": one.unknown}
                for span, one in zip(layout.spans, results, strict=True)
                if one.noted
            ]
            for layout, results in zip(layouts, found, strict=True)
        ]
        if any(notes):
            each["notes"] = notes
        return each if isinstance(body.q, list) else {name: values[0] for name, values in each.items()}

    return await call.respond(nbest * sum(map(len, texts)), build)


@files.post("/translate_file")
async def translate_file(call: Admitted, body: schemas.TranslateFileRequest) -> schemas.TranslatedFile:
    """Translate a file; its extension selects the format. The answer is the address of the result."""
    path, data = PurePath(PurePath(body.file.filename or "").name or "file"), await body.file.read()
    source, target = body.source, body.target
    terms = call.terms(body.glossary_id, source, target)
    choice, line = None, call.limits.line
    try:
        form = find_format(path.name)
    except DataError as error:
        raise RefusedError(400, str(error)) from None
    for turn in range(len(form.reads)):
        layout = await call.read(split_file, data, path.name, turn, line, call.limits.sentences)
        if choice is None:
            (choice,) = await call.choose([" ".join(layout.sentences)[:2000]], source, target, body.model or "")
            code = choice.target
        (results,) = await call.translate_all([choice], [layout], Options(terms=terms))
        language = "" if code == languages.UNDETERMINED else code
        data = await call.read(join_file, data, path.name, turn, line, results, language)
    key, files = secrets.token_urlsafe(16) + path.suffix.lower(), call.service.files
    files[key] = StoredFile(data, f"{path.stem}_{code}{path.suffix}", time.monotonic() + _SECONDS)
    while len(files) > _MOST_FILES or sum(len(one.data) for one in files.values()) > _MOST_BYTES:
        files.popitem(last=False)
    return schemas.TranslatedFile(translatedFileUrl=f"{call.request.base_url}download_file/{key}")


@routes.get(
    "/download_file/{name}", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}}
)
async def download_file(call: Admitted, name: str) -> Response:
    """A translated file."""
    found = call.service.files.get(name)
    if found is None or time.monotonic() > found.until:
        raise RefusedError(404, "This file does not exist or has expired; translate it again.")
    shown = re.sub(r"[^A-Za-z0-9._-]", "_", found.name)
    headers = {"Content-Disposition": f'attachment; filename="{shown}"'}
    return Response(found.data, media_type="application/octet-stream", headers=headers)


async def stream(call: Call, route: Route, text: str, layout: Split) -> StreamingResponse:
    """The response to "stream": true: server-sent events, each with a sentence and its translation so far.

    A request that cannot be accepted is refused before the first event. Through English, the events are those of the
    second translation.
    """
    if not route:
        return StreamingResponse(iter([_event({"translatedText": text})]), headers=_EVENTS)
    sentences = [one.text for one in await call.translate(route[:-1], layout.sentences, Options())]
    worker = route[-1]
    work = MethodCall("stream", (sentences,))
    ticket = Ticket(call.deadline, call.client, worker.about["beam"], work=work)
    worker.make_room(ticket.client, ticket.beam * sum(map(len, sentences)))
    call.count(sentences)
    loop, parts = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def put(part: Any) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    ticket.part = put
    ticket.answer.add_done_callback(lambda _: put(None))
    worker.submit(ticket)
    return StreamingResponse(_events(call, ticket, text, layout, parts), headers=_EVENTS)


async def _events(
    call: Call, ticket: Ticket, text: str, layout: Split, parts: "asyncio.Queue[Any]"
) -> AsyncIterator[str]:
    def event(place: int, text: str, **more: Any) -> str:
        return _event({"sentence": place, "source": layout.spans[place], "translatedText": text, **more})

    written: dict[int, TranslatedText] = {}  # by number: a replaced process starts over
    try:
        while (part := await parts.get()) is not None:
            place, found = part
            if isinstance(found, TranslatedText):
                written[place] = found
                noted = {"flags": [*found.noted], "notes": [*found.noted.values()]}
                yield event(place, found.text, done=True, **noted, unknown=found.unknown)
            else:
                yield event(place, found)
        ticket.answer.result()
        results = [written[place] for place in sorted(written)]
        (joined,) = await call.parse([text], read_plain, join_texts, [results])
        yield _event({"translatedText": joined.text})
    except RefusedError as refusal:
        yield _event({"error": refusal.sentence})
    except Exception:
        yield _event({"error": "The translation was stopped: it took too long, or the model failed."})
    finally:
        ticket.gone = True
        ticket.answer.cancel()


def _event(tree: dict[str, Any]) -> str:
    return f"data: {json.dumps(tree, ensure_ascii=False, allow_nan=False)}\n\n"


@routes.post("/detect")
async def detect(call: Admitted, body: schemas.DetectRequest) -> list[schemas.Detected]:
    """The loaded source languages that fit a text, best first."""
    call.check_size(body.q)
    (found,) = await call.detect([body.q])
    return [schemas.Detected(confidence=sure, language=code) for code, sure in found[:3] if sure or code == found[0][0]]


@routes.get("/languages", response_model_exclude_defaults=True)
async def list_languages(call: Admitted) -> list[schemas.Language]:
    """Every language of the loaded models, with the languages it can be translated into."""
    pairs, routes = call.service.reachable, call.service.routes
    return [
        schemas.Language(
            code=code,
            name=languages.name(code),
            targets=pairs.get(code, []),
            pivoted=[target for target in pairs.get(code, []) if routes[code, target][1:]],
        )
        for code in dict.fromkeys([*pairs, *call.service.targets])
    ]


@routes.get("/frontend/settings")
async def settings(call: Admitted) -> dict[str, Any]:
    """Settings for a web form."""
    first = next(iter(call.service.of_kind("translate").values()), None)
    return {
        "apiKeys": bool(call.service.access.tokens),
        "charLimit": call.limits.characters,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": bool(call.service.access.tokens),
        "language": {side: first.about[side] for side in ("source", "target")} if first else {},
        "suggestions": call.service.suggestions is not None,
        "supportedFilesFormat": [f".{ending}" for ending in FORMATS],
    }


@routes.post("/suggest")
async def suggest(call: Admitted, body: schemas.SuggestRequest) -> schemas.Success:
    """Append a better translation of a text to the operator's file, if there is one."""
    if call.service.suggestions is None:
        raise RefusedError(403, "Suggestions are disabled on this server.")
    call.check_size(body.q, body.s)
    line = json.dumps(body.model_dump(include={"q", "s", "source", "target"}), ensure_ascii=False)
    with call.service.suggestions.open("a", encoding="utf-8", newline="\n") as file:
        file.write(f"{line}\n")
    return schemas.Success(success=True)


@routes.get(
    "/health", responses={503: {"model": schemas.Health, "description": "not ready"}}, response_model_exclude_none=True
)
async def health(call: Admitted, response: Response) -> schemas.Health:
    """Whether every model has passed its self-test and none is stuck."""
    if call.service.trouble:
        response.status_code = 503
        return schemas.Health(status="unavailable", error=call.service.trouble)
    return schemas.Health(status="ok")
