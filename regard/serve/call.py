"""An admitted request, and how it reaches a model."""

import asyncio
import gzip
import json
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Depends, Request, Response, Security
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBearer

from regard.processes import DiedError
from regard.serve import languages
from regard.serve.access import AccessToken
from regard.serve.layout import Read, Split, read_plain
from regard.serve.limits import RefusedError, StoppedError
from regard.serve.parameters import SMALL, unless_small
from regard.serve.queue import GZIP, MethodCall, Options, Ticket, TranslatedText
from regard.serve.schemas import KEYS
from regard.serve.service import Glossary, Route, Service, pivot_name
from regard.serve.worker import Worker
from regard.text.languages import without_region

T = TypeVar("T")


class Choice(NamedTuple):
    """The models and the languages of a text; no model for a text that is already in the target language."""

    route: Route
    source: str
    target: str
    sure: float = 100.0  # confidence in the detected source language, in percent


class Call:
    """A request whose client may use the server."""

    def __init__(self, request: Request, token: AccessToken | None) -> None:
        self.service: Service = request.app.state.service
        self.request, self.token, self.limits = request, token, self.service.limits
        self.deadline = float(request.scope["regard.deadline"])  # shared by all work for the request

    @property
    def client(self) -> Hashable:
        """The name of the token, or the client's address."""
        return self.token.name if self.token else self.request.client.host if self.request.client else None

    # --- checks

    def check_size(self, *texts: str) -> None:
        """Refuse texts that are too long."""
        longest = max(map(len, texts), default=0)
        if longest > self.limits.characters:
            raise RefusedError(
                422, f"Invalid request: request ({longest}) exceeds text limit ({self.limits.characters})"
            )

    def check_most(self, name: str, value: int | None, most: int) -> None:
        """Refuse a number above a limit."""
        if value is not None and value > most:
            raise RefusedError(400, f"Invalid request: {name} parameter must be <= {most}")

    def count(self, texts: Sequence[str]) -> None:
        """Count the characters of a request, and refuse it above the quota of its token."""
        characters = sum(map(len, texts))
        if self.token:
            self.token.count_characters(characters, time.monotonic(), self.request.url.path)
        self.service.metrics.characters += characters

    def glossary(self, id: str) -> Glossary:
        """A glossary of the client; raises if there is none."""
        if (self.client, id) not in self.service.glossaries:
            raise RefusedError(404, "Glossary not found.")
        return self.service.glossaries[self.client, id]

    def terms(self, id: str | None, source: str, target: str) -> tuple[tuple[str, str], ...]:
        """The terms of a glossary, whose languages must match the request's; none without an id."""
        if not id:
            return ()
        about, terms = self.glossary(id)
        if source == "auto":
            raise RefusedError(400, "Value for 'source_lang' is required with a glossary.")
        pair = about.source_lang, about.target_lang
        if (without_region(source), without_region(target)) != pair:
            raise RefusedError(400, f"The glossary is for {' to '.join(pair)}; the request is {source} to {target}.")
        return terms

    # --- work

    async def choose(self, texts: list[str], source: str, target: str, model: str = "") -> list[Choice]:
        """The model for each text."""
        named = self.service.route_named(model)
        routes, pairs = self.service.routes, self.service.reachable
        into = self.service.language(target, self.service.targets)
        if model:
            code, goal = named[0].about["source"]["code"], named[-1].about["target"]["code"]
            if goal != into or (source.lower() != "auto" and self.service.language(source, list(pairs)) != code):
                raise RefusedError(
                    400, f"The model {pivot_name(named)} translates {code} to {goal}, not {source} to {target}."
                )
            return [Choice(named, code, goal)] * len(texts)
        if source.lower() != "auto":
            code = self.service.language(source, list(pairs))
            if (code, into) not in routes:
                raise _no_pair(code, into)
            return [Choice(routes[code, into], code, into)] * len(texts)
        chosen = []
        for found in await self.detect(texts):
            fits = [(code, fit) for code, fit in found if code == into or into in pairs[code]]
            if not fits:
                raise _no_pair("auto", into)
            code, sure = fits[0]
            chosen.append(Choice(routes.get((code, into), ()), code, into, sure))
        return chosen

    async def parse(self, texts: list[str], read: Read, work: Callable[..., T], *args: Any) -> T:
        """The result of `work`, one of the functions of `layout` for texts. Only short plain texts are parsed here."""
        given = texts, read, self.limits.line, *args
        return work(*given) if read is read_plain and sum(map(len, texts)) <= SMALL else await self.read(work, *given)

    async def translate_all(
        self, choices: list[Choice], layouts: list[Split], options: Options
    ) -> list[list[TranslatedText]]:
        """Translate the sentences of every layout, with word links also where tags are to be placed.

        All sentences of a model are sent together.
        """
        results: list[list[TranslatedText]] = [[] for _ in layouts]
        for route in dict.fromkeys(choice.route for choice in choices):
            mine = [number for number, choice in enumerate(choices) if choice.route == route]
            sentences = [sentence for number in mine for sentence in layouts[number].sentences]
            links = options.links or any(layouts[number].tagged for number in mine)
            found = iter(await self.translate(route, sentences, options._replace(links=links)))
            for number in mine:
                results[number] = [next(found) for _ in layouts[number].sentences]
        return results

    async def detect(self, texts: list[str]) -> list[list[tuple[str, float]]]:
        """For each text, the loaded source languages with a confidence in percent, best first.

        The confidence is how well the text fits the vocabulary, times the probability of the language among the loaded
        ones. It is low for a text in none of them, and for a text that fits two.
        """
        fits: list[dict[str, tuple[float, float]]] = [{} for _ in texts]
        for worker in self.service.of_kind("translate").values():
            code = worker.about["source"]["code"]
            for each, found in zip(fits, await self.run_in_thread(worker, "fit", texts), strict=True):
                each[code] = max(each.get(code, found), found)
        return [_confidences(each) for each in fits]

    async def translate(self, route: Route, texts: list[str], options: Options) -> list[TranslatedText]:
        """Translate each text; the work stops when the client disconnects.

        Without a model, the texts are already in the target language and are returned unchanged.
        """
        if not route or not texts:
            return [TranslatedText(text) for text in texts]
        if route[1:] and options.terms:
            raise RefusedError(400, "Terms are for one model, and this pair is translated with two; leave them out.")
        found: list[TranslatedText] = []
        for worker in route:
            asked = options if worker is route[-1] else options._replace(nbest=1)
            beam = max(worker.about["beam"], asked.nbest)
            if asked.nbest > 1:
                asked = asked._replace(beam=beam)
            ticket = Ticket(self.deadline, self.client, beam, asked)
            ticket.add([one.text for one in found] or texts)
            worker.make_room(ticket.client, ticket.cost)
            if not found:
                self.count(texts)
            each = list(await self._wait(worker, ticket))
            found = [one.then(other) for one, other in zip(found, each, strict=True)] if found else each
        return found

    async def read(self, work: Callable[..., T], *args: Any) -> T:
        """The result of a function of `layout` in the process of the reader, which is ended if it does not finish."""
        self.service.reader.make_room(self.client)
        ticket = Ticket(self.deadline, self.client, work=MethodCall("call", (work, args)))
        found: T = await self._wait(self.service.reader, ticket)
        return found

    async def answer(self, worker: Worker, method: str, *args: Any) -> Response:
        """The result of an exclusive method of the model; the model process serialises and compresses it."""
        packed = accepts_gzip(self.request)
        return _json_response(await self.written(worker, packed, method, *args), packed)

    async def written(self, worker: Worker, packed: bool, method: str, *args: Any) -> bytes:
        """The result of an exclusive method of the model as JSON, compressed if `packed`."""
        worker.make_room(self.client)
        work = MethodCall(method, args, True, packed)
        return bytes(await self._wait(worker, Ticket(self.deadline, self.client, work=work)))

    async def respond(self, size: int, build: Callable[[], Any]) -> Response:
        """The result of `build` as a JSON response; a large one is built and compressed in a thread."""
        packed = size > SMALL and accepts_gzip(self.request)

        def write() -> bytes:
            data = json.dumps(build(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
            return gzip.compress(data, GZIP, mtime=0) if packed else data

        return _json_response(await unless_small(size, write), packed)

    async def run_in_thread(self, worker: Worker, method: str, *args: Any) -> Any:
        """The result of a method that needs no decoding; retried once if the process dies."""
        worker.make_room()
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                for _ in range(2):
                    while worker.trouble in ("dead", "restarting"):
                        await asyncio.sleep(0.1)
                    with suppress(DiedError):
                        return await asyncio.wrap_future(worker.run_in_thread(method, *args))
        except TimeoutError:
            raise self._too_late() from None
        raise RefusedError(503, f"The model {worker.name} does not answer at the moment.", {"Retry-After": "10"})

    async def _wait(self, worker: Worker, ticket: Ticket) -> Any:
        worker.submit(ticket)
        answer = asyncio.wrap_future(ticket.answer)

        async def leave() -> None:
            while (await self.request.receive())["type"] != "http.disconnect":
                pass

        leaving = asyncio.create_task(leave())
        try:
            left = ticket.deadline - time.monotonic()
            await asyncio.wait({answer, leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if leaving.done():
                raise RefusedError(400, "The client closed the connection.")
            raise self._too_late()
        except StoppedError:
            raise self._too_late() from None
        finally:
            ticket.gone = True
            ticket.answer.cancel()
            leaving.cancel()

    def _too_late(self) -> RefusedError:
        return RefusedError(503, f"This took longer than {self.limits.seconds:g} seconds.", {"Retry-After": "10"})


# /spec describes these ways to send a token; `Access.admit` reads all of them.
_BEARER = HTTPBearer(auto_error=False, description="the token", scheme_name="bearer")
_DEEPL = APIKeyHeader(
    name="Authorization", auto_error=False, description="DeepL-Auth-Key and the token", scheme_name="deepl"
)
_QUERY = APIKeyQuery(name="api_key", auto_error=False, description="the token", scheme_name="api_key")


def admit(
    request: Request,
    bearer: Annotated[Any, Security(_BEARER)],
    deepl: Annotated[Any, Security(_DEEPL)],
    query: Annotated[str | None, Security(_QUERY)],
) -> Call:
    """The call of a request with a valid token, if one is needed, to a server that has loaded its models."""
    service: Service = request.app.state.service
    path = request.url.path
    key = getattr(request.state, "key", None) or next(
        (request.query_params[name] for name in KEYS if name in request.query_params), None
    )
    token = service.access.admit(path, request.headers, key)
    if service.loading and path not in ("/health", "/metrics"):
        raise RefusedError(
            503, "The models are being loaded; GET /health reports when they are ready.", {"Retry-After": "2"}
        )
    return Call(request, token)


Admitted = Annotated[Call, Depends(admit)]


def _no_pair(source: str, target: str) -> RefusedError:
    into, out = languages.name(target), languages.name(source)
    return RefusedError(400, f"{into} ({target}) is not available as a target language from {out} ({source})")


def accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _json_response(body: bytes, packed: bool) -> Response:
    headers = {"Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if packed else {})}
    return Response(body, headers=headers, media_type="application/json")


def _confidences(fits: Mapping[str, tuple[float, float]]) -> list[tuple[str, float]]:
    """Languages with (fit, code length in nats) -> languages with their confidence in percent, best first."""
    shortest = min((length for _, length in fits.values()), default=0.0)
    likely = {code: math.exp(shortest - length) for code, (_, length) in fits.items()}
    total = sum(likely.values())
    found = [(code, round(100 * fit * likely[code] / total, 1)) for code, (fit, _) in fits.items()]
    return sorted(found, key=lambda pair: (-pair[1], fits[pair[0]][1]))  # if none fits, the likeliest first
