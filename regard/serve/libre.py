"""LibreTranslate's endpoints: the contract that editors, content systems and client libraries already speak."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regard.serve import languages
from regard.serve.align import links
from regard.serve.fields import Fields
from regard.serve.house import House
from regard.serve.models import Options, TranslationModel
from regard.serve.refusal import RefusedError
from regard.serve.text import Layout, marked, plain
from regard.serve.worker import Worker


async def translate(house: House, request: Request, fields: Fields) -> Response:
    """POST /translate: one text or, as JSON, many."""
    q = fields.get("q")
    texts = _texts(q, house)
    source, target = fields.text("source"), fields.text("target")
    form = fields.text("format", "text") or "text"
    if form not in ("text", "html"):
        raise RefusedError(400, f"{form[:40]} format is not supported")
    nbest = fields.number("alternatives", 0, 0, house.limits.alternatives) + 1
    layouts = [marked(text) if form == "html" else plain(text) for text in texts]
    choices = await choose(house, texts, source, target, fields.text("model", "") or None)
    workers = [worker for worker, _ in choices]
    found = await translate_all(house, request, workers, layouts, nbest)
    each: dict[str, list[Any]] = {
        "translatedText": [layout.join([one.text for one in results]) for layout, results in found],
    }
    if source.lower() == "auto":
        each["detectedLanguage"] = [{"confidence": sure, "language": worker.model.source} for worker, sure in choices]
    if nbest > 1:
        each["alternatives"] = [[] if form == "html" else other(layout, results) for layout, results in found]
    if fields.flag("alignment"):
        each["alignment"] = [
            [] if form == "html" else await links(house, request, worker, layout, results)
            for worker, (layout, results) in zip(workers, found, strict=True)
        ]
    return JSONResponse(each if isinstance(q, list) else {name: values[0] for name, values in each.items()})


def _texts(q: Any, house: House) -> list[str]:
    if q is None:
        raise RefusedError(400, "Invalid request: missing q parameter")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "Invalid request: q parameter is not text")
    if len(texts) > house.limits.segments:
        raise RefusedError(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({house.limits.segments})")
    house.check_size(texts)
    return texts


async def choose(
    house: House, texts: list[str], source: str, target: str, name: str | None = None
) -> list[tuple[Worker[TranslationModel], float]]:
    """The worker for each text, and how sure its source language is, in per cent (100 where it was named)."""
    house.translator(name)  # refuses where nobody translates
    pairs = house.pairs
    into = house.language(target, sorted({code for codes in pairs.values() for code in codes}))
    if name is not None:
        return [(house.translator(name), 100.0)] * len(texts)
    if source.lower() != "auto":
        code = house.language(source, list(pairs))
        worker = house.between(code, into)
        if worker is None:
            raise _no_pair(code, into)
        return [(worker, 100.0)] * len(texts)
    chosen = []
    for text in texts:
        fits = [(code, fit) for code, fit in await asyncio.to_thread(house.detect, text) if into in pairs[code]]
        if not fits:
            raise _no_pair("auto", into)
        worker = house.between(fits[0][0], into)
        assert worker is not None
        chosen.append((worker, fits[0][1]))
    return chosen


def _no_pair(source: str, target: str) -> RefusedError:
    into, out = languages.name(target), languages.name(source)
    return RefusedError(400, f"{into} ({target}) is not available as a target language from {out} ({source})")


async def translate_all(
    house: House, request: Request, workers: list[Worker[TranslationModel]], layouts: list[Layout], nbest: int
) -> list[tuple[Layout, list[Any]]]:
    """The translations of every layout's sentences; those of one model are handed over together."""
    results: list[list[Any]] = [[] for _ in layouts]
    for worker in dict.fromkeys(workers):
        mine = [number for number, one in enumerate(workers) if one is worker]
        sentences = [sentence for number in mine for sentence in layouts[number].sentences]
        beam = max(worker.model.beam, nbest) if nbest > 1 else None
        found = iter(await house.translate(request, worker, sentences, Options(beam, nbest)))
        for number in mine:
            results[number] = [next(found) for _ in layouts[number].sentences]
    return list(zip(layouts, results, strict=True))


def other(layout: Layout, results: list[Any]) -> list[str]:
    """The alternatives of a text: the second best of each of its sentences together, the third best, and so on."""
    best = layout.join([one.text for one in results])
    deepest = max((len(one.nbest) for one in results), default=0)
    joined = [
        layout.join([one.nbest[min(rank, len(one.nbest) - 1)].text if one.nbest else one.text for one in results])
        for rank in range(1, deepest)
    ]
    return [text for text in dict.fromkeys(joined) if text != best]


async def detect(house: House, request: Request, fields: Fields) -> Response:
    """POST /detect: the loaded source languages that fit a text, best first."""
    text = fields.text("q")
    house.check_size([text])
    found = await asyncio.to_thread(house.detect, text)
    return JSONResponse(
        [{"confidence": sure, "language": code} for code, sure in found[:3] if sure or code == found[0][0]]
    )


async def list_languages(house: House, request: Request, fields: Fields) -> Response:
    """GET /languages: every language that occurs, with the languages it can be translated into."""
    pairs = house.pairs
    codes = dict.fromkeys([*pairs, *(code for targets in pairs.values() for code in targets)])
    return JSONResponse(
        [{"code": code, "name": languages.name(code), "targets": pairs.get(code, [])} for code in codes]
    )


async def settings(house: House, request: Request, fields: Fields) -> Response:
    """GET /frontend/settings: what a form for this server needs to know."""
    first = next((worker.model for worker in house.translators.values()), None)
    sides = {"source": first.source, "target": first.target} if first else {}
    return JSONResponse(
        {
            "apiKeys": house.door.token is not None,
            "charLimit": house.limits.characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": house.door.token is not None,
            "language": {side: {"code": code, "name": languages.name(code)} for side, code in sides.items()},
            "suggestions": False,
            "supportedFilesFormat": [],
        }
    )


async def health(house: House, request: Request, fields: Fields) -> Response:
    """GET /health: "ok" where every model has written its sample and none is stuck; 503 and the reason otherwise."""
    if house.trouble:
        return JSONResponse({"status": "unavailable", "error": house.trouble}, 503)
    return JSONResponse({"status": "ok"})
