"""LibreTranslate's API for texts and files, which many editors, content systems and client libraries use.

A translated file stays in memory under an unguessable name for a while; the oldest file makes room for new ones.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import PurePath
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response, StreamingResponse

from regard.errors import DataError
from regard.files.document import FORMATS, find_format, read_document
from regard.files.html import read as read_html
from regard.files.segment import Part
from regard.serve import languages
from regard.serve.fields import Upload, aside
from regard.serve.layout import Layout, read_plain
from regard.serve.limits import RefusedError
from regard.serve.queue import MethodCall, Options, Ticket, Written
from regard.serve.state import Call
from regard.serve.worker import Worker


async def translate(call: Call) -> Response:
    """POST /translate: one text or, as JSON, many."""
    q = call.fields.get("q")
    texts = _texts(q, call)
    source, target = call.fields.text("source"), call.fields.text("target")
    form = call.fields.text("format", "text") or "text"
    if form not in ("text", "html"):
        raise RefusedError(400, f"{form[:40]} format is not supported")
    nbest = call.fields.number("alternatives", 0, 0, call.limits.alternatives) + 1
    choices = await choose(call, texts, source, target)
    layouts = await lay_out(call, texts, read_html if form == "html" else read_plain)
    if call.fields.flag("stream"):
        if isinstance(q, list) or form == "html" or nbest > 1:
            raise RefusedError(400, "Invalid request: stream needs one text, without HTML and alternatives")
        return await stream(call, choices[0].worker, layouts[0])
    aligned = call.fields.flag("alignment")
    found = await translate_all(call, [one.worker for one in choices], layouts, nbest, aligned=aligned)

    def build() -> dict[str, Any]:
        each: dict[str, list[Any]] = {"translatedText": [layout.write(results) for layout, results in found]}
        if source.lower() == "auto":
            each["detectedLanguage"] = [{"confidence": one.sure, "language": one.source} for one in choices]
        if nbest > 1:
            each["alternatives"] = [other(layout, results) for layout, results in found]
        if aligned:
            linked = [layout.links(results) if form == "text" else [] for layout, results in found]
            each["alignment"] = [[link._asdict() for link in some] for some in linked]
        notes = [notes_of(layout, results) for layout, results in found]
        if any(notes):
            each["notes"] = notes
        return each if isinstance(q, list) else {name: values[0] for name, values in each.items()}

    return await call.respond(nbest * sum(map(len, texts)), build)


def _texts(q: Any, call: Call) -> list[str]:
    if q is None:
        raise RefusedError(400, "Invalid request: missing q parameter")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "Invalid request: q parameter is not text")
    if len(texts) > call.limits.segments:
        raise RefusedError(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({call.limits.segments})")
    call.check_size(texts)
    return texts


class Choice(NamedTuple):
    """The model and the languages of a text; no model for a text that is already in the target language."""

    worker: Worker | None
    source: str
    target: str
    sure: float = 100.0  # confidence in the detected source language, in percent


async def choose(call: Call, texts: list[str], source: str, target: str) -> list[Choice]:
    """The model for each text."""
    named = call.translator
    pairs = call.state.pairs
    into = call.state.language(target, call.state.targets)
    if call.fields.text("model", ""):
        code, goal = (named.about[side]["code"] for side in ("source", "target"))
        if goal != into or (source.lower() != "auto" and call.state.language(source, list(pairs)) != code):
            raise RefusedError(400, f"The model {named.name} translates {code} to {goal}, not {source} to {target}.")
        return [Choice(named, code, goal)] * len(texts)
    if source.lower() != "auto":
        code = call.state.language(source, list(pairs))
        worker = call.state.between(code, into)
        if worker is None:
            raise _no_pair(code, into)
        return [Choice(worker, code, into)] * len(texts)
    chosen = []
    for found in await call.detect(texts):
        fits = [(code, fit) for code, fit in found if code == into or into in pairs[code]]
        if not fits:
            raise _no_pair("auto", into)
        code, sure = fits[0]
        chosen.append(Choice(call.state.between(code, into), code, into, sure))
    return chosen


def _no_pair(source: str, target: str) -> RefusedError:
    into, out = languages.name(target), languages.name(source)
    return RefusedError(400, f"{into} ({target}) is not available as a target language from {out} ({source})")


async def lay_out(call: Call, texts: list[str], read: Callable[[str], Iterable[Part]]) -> list[Layout]:
    """The layout of each text, split by `read`; the number of sentences of all texts is limited."""

    def split() -> list[Layout]:
        layouts: list[Layout] = []
        left = call.limits.sentences
        for text in texts:
            layouts.append(Layout(read(text), call.limits.line, left))
            left -= len(layouts[-1].sentences)
        return layouts

    return await aside(sum(map(len, texts)), split)


async def translate_all(
    call: Call,
    workers: list[Worker | None],
    layouts: list[Layout],
    nbest: int = 1,
    terms: tuple[tuple[str, str], ...] = (),
    aligned: bool = False,
) -> list[tuple[Layout, list[Written]]]:
    """Translate the sentences of every layout, with word links if they are `aligned` or have tags to place.

    All sentences of a model are sent together.
    """
    results: list[list[Written]] = [[] for _ in layouts]
    for worker in dict.fromkeys(workers):
        mine = [number for number, one in enumerate(workers) if one is worker]
        sentences = [sentence for number in mine for sentence in layouts[number].sentences]
        links = aligned or any(layouts[number].tagged for number in mine)
        found = iter(await call.translate(worker, sentences, Options(None, nbest, links, terms)))
        for number in mine:
            results[number] = [next(found) for _ in layouts[number].sentences]
    return list(zip(layouts, results, strict=True))


def other(layout: Layout, results: list[Written]) -> list[str]:
    """The alternatives of a text: the second-best translation of every sentence, then the third-best, and so on.

    A text with tags has none.
    """
    deepest = 0 if layout.tagged else max((len(one.others) for one in results), default=0)

    def ranked(rank: int) -> str:
        return layout.write([one._replace(text=[one.text, *one.others[1:]][: rank + 1][-1]) for one in results])

    return [text for text in dict.fromkeys(map(ranked, range(1, deepest))) if text != ranked(0)]


def notes_of(layout: Layout, results: list[Written]) -> list[dict[str, Any]]:
    """The sentences of a text with problems: span in the source, flags, and words never seen in training."""
    return [
        {"source": span, "flags": one.flags, "unknown": one.unknown}
        for span, one in zip(layout.spans, results, strict=True)
        if one.flags
    ]


async def translate_file(call: Call) -> Response:
    """POST /translate_file: a form with the file and the languages; returns the address of the result."""
    upload = call.fields.get("file")
    if not isinstance(upload, Upload):
        raise RefusedError(400, "Invalid request: missing file parameter")
    source, target = call.fields.text("source"), call.fields.text("target")
    path, data = PurePath(PurePath(upload.name).name or "file"), upload.data
    terms = call.state.glossaries.terms(call.client, call.fields.text("glossary_id", ""), source, target)
    choice = None
    for read in _refusing(400, find_format, path.name).reads:
        document = await aside(len(data), _refusing, 400, read_document, data, path.name, read)
        layout = await aside(len(data), Layout, document.parts, call.limits.line, call.limits.sentences)
        if choice is None:
            (choice,) = await choose(call, [" ".join(layout.sentences)[:2000]], source, target)
            code = choice.target
        ((_, results),) = await translate_all(call, [choice.worker], [layout], terms=terms)
        language = "" if code == languages.UNDETERMINED else code
        written = await aside(len(data), layout.write, results)
        # A character that the encoding of the file cannot write is refused.
        data = await aside(len(written), _refusing, 422, document.encode, written, language)
    key = call.state.files.put(data, f"{path.stem}_{code}{path.suffix}")
    return JSONResponse({"translatedFileUrl": f"{call.request.base_url}download_file/{key}"})


def _refusing(status: int, work: Callable[..., Any], *args: Any) -> Any:
    """The result of `work`; its DataError becomes a refusal."""
    try:
        return work(*args)
    except DataError as error:
        raise RefusedError(status, str(error)) from None


async def download_file(call: Call) -> Response:
    """GET /download_file/NAME: a translated file."""
    found = call.state.files.get(call.request.path_params["name"])
    if found is None:
        raise RefusedError(404, "This file does not exist or has expired; translate it again.")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", found.name)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(found.data, media_type="application/octet-stream", headers=headers)


async def stream(call: Call, worker: Worker | None, layout: Layout) -> StreamingResponse:
    """The response to "stream": true: server-sent events, each with a sentence and its translation so far.

    A request that cannot be accepted is refused before the first event.
    """
    if worker is None:
        as_it_is = layout.write(await call.translate(None, layout.sentences, Options()))
        return StreamingResponse(iter([_event({"translatedText": as_it_is})]), media_type="text/event-stream")
    work = MethodCall("stream", (layout.sentences,))
    ticket = Ticket(call.deadline, call.client, worker.about["beam"], work=work)
    worker.make_room(ticket.client, ticket.beam * sum(map(len, layout.sentences)))
    call.count(layout.sentences)
    loop, parts = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def put(part: Any) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    ticket.part = put
    ticket.answer.add_done_callback(lambda _: put(None))
    worker.submit(ticket)
    return StreamingResponse(_events(ticket, layout, parts), media_type="text/event-stream")


async def _events(ticket: Ticket, layout: Layout, parts: "asyncio.Queue[Any]") -> AsyncIterator[str]:
    def event(place: int, text: str, **more: Any) -> str:
        return _event({"sentence": place, "source": layout.spans[place], "translatedText": text, **more})

    written: dict[int, Written] = {}  # by number: a replaced process starts over
    try:
        while (part := await parts.get()) is not None:
            place, found = part
            if isinstance(found, Written):
                written[place] = found
                yield event(place, found.text, done=True, flags=found.flags, unknown=found.unknown)
            else:
                yield event(place, found)
        ticket.answer.result()
        yield _event({"translatedText": layout.write([written[place] for place in sorted(written)])})
    except RefusedError as refusal:
        yield _event({"error": refusal.sentence})
    except Exception:
        yield _event({"error": "The translation was stopped: it took too long, or the model failed."})
    finally:
        ticket.gone = True
        ticket.answer.cancel()


def _event(tree: dict[str, Any]) -> str:
    return f"data: {json.dumps(tree, ensure_ascii=False, allow_nan=False)}\n\n"


async def detect(call: Call) -> Response:
    """POST /detect: the loaded source languages that fit a text, best first."""
    text = call.fields.text("q")
    call.check_size([text])
    (found,) = await call.detect([text])
    return JSONResponse(
        [{"confidence": sure, "language": code} for code, sure in found[:3] if sure or code == found[0][0]]
    )


async def list_languages(call: Call) -> Response:
    """GET /languages: every language of the loaded models, with the languages it can be translated into."""
    pairs = call.state.pairs
    codes = dict.fromkeys([*pairs, *call.state.targets])
    return JSONResponse(
        [{"code": code, "name": languages.name(code), "targets": pairs.get(code, [])} for code in codes]
    )


async def settings(call: Call) -> Response:
    """GET /frontend/settings: settings for a web form."""
    first = next(iter(call.state.of_kind("translate").values()), None)
    return JSONResponse(
        {
            "apiKeys": bool(call.state.access.tokens),
            "charLimit": call.limits.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": bool(call.state.access.tokens),
            "language": {side: first.about[side] for side in ("source", "target")} if first else {},
            "suggestions": call.state.suggestions is not None,
            "supportedFilesFormat": [f".{ending}" for ending in FORMATS],
        }
    )


async def suggest(call: Call) -> Response:
    """POST /suggest: append a better translation `s` of `q` to the operator's file, if there is one."""
    if call.state.suggestions is None:
        raise RefusedError(403, "Suggestions are disabled on this server.")
    kept = {name: call.fields.text(name) for name in ("q", "s", "source", "target")}
    call.check_size([kept["q"], kept["s"]])
    line = json.dumps(kept, ensure_ascii=False)
    with call.state.suggestions.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return JSONResponse({"success": True})


async def health(call: Call) -> Response:
    """GET /health: "ok" if every model has passed its self-test and none is stuck; otherwise 503 and the reason."""
    if call.state.trouble:
        return JSONResponse({"status": "unavailable", "error": call.state.trouble}, 503)
    return JSONResponse({"status": "ok"})
