"""The running server as its endpoints see it: the loaded models, and how a request reaches one of them."""

import asyncio
import gzip
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from regard.processes import DiedError
from regard.runs.included import FOLDERS
from regard.serve import languages
from regard.serve.access import Access, AccessToken
from regard.serve.fields import SMALL, Fields, aside
from regard.serve.limits import Limits, RefusedError, StoppedError, busy
from regard.serve.metrics import Metrics
from regard.serve.model_process import GZIP
from regard.serve.queue import MethodCall, Options, Ticket, Written
from regard.serve.stored import Glossaries, StoredFiles
from regard.serve.worker import Worker
from regard.work import usable_cores

log = logging.getLogger("regard.serve")
_SLICE = 1 << 16  # bytes of an answer that are sent at once
EACH = 4  # pieces of work in a turn of the event loop, each a millisecond or less


class ServerState:
    """The loaded models and everything else that endpoints share."""

    def __init__(self, runs: Sequence[str], limits: Limits, access: Access, engine: str = "regard") -> None:
        self.limits = limits
        self.access = access
        self.metrics = Metrics()
        self.turns = Turns()
        self.files, self.glossaries = StoredFiles(), Glossaries()
        self.held = 0  # bytes of answers that clients have not read yet
        self.stopping = False
        self.suggestions: Path | None = None  # the file that keeps them
        self.unnamed = {"source": "", "target": ""}  # the languages of runs that do not name them
        self.receiving = 0  # pictures
        self.workers: dict[str, Worker] = {}  # in the order given; empty while they are loaded
        self.loading = True
        # The threads of a model wait for each other at every operation. With more threads than free cores, each wait
        # lasts until the system schedules the slowest one.
        threads = max(1, (usable_cores() - 1) // max(1, len(runs)))
        self._opened = [Worker(run, limits, self.metrics, engine, threads) for run in runs]  # loaded in parallel
        self.metrics.held.set_function(lambda: self.held)

    def open(self) -> None:
        """Wait until every model is loaded, and start them; raises the first loading error."""
        loaded: dict[str, Worker] = {}
        for worker in self._opened:
            worker.open()
            worker.held = lambda: self.held
            worker.about["id"] = _unused(worker.name, loaded)
            loaded[worker.name] = worker
        self.workers = loaded
        self._name_languages()
        for worker in loaded.values():
            worker.start()
        self.loading = False

    def _name_languages(self) -> None:
        """Set the languages of runs that do not name them; warn if the operator does not either."""
        left = []
        for worker in self.of_kind("translate").values():
            for side, given in self.unnamed.items():
                if worker.about[side]["code"] == languages.UNDETERMINED:
                    code = languages.canonical(given)
                    worker.about[side] = {"code": code, "name": languages.name(code)}
                    left += [] if given else [worker.run]
        if left:
            log.warning(
                "%s: the run does not name its languages, so they are served as %s; name them with --source-language "
                "and --target-language, or train with data.source_language and data.target_language.",
                ", ".join(dict.fromkeys(left)),
                languages.UNDETERMINED,
            )

    def close(self) -> None:
        """End all model processes; immediately if they are still loading."""
        for worker in self._opened:
            worker.close(*([0.0] if self.loading else []))

    @property
    def trouble(self) -> str:
        """Why the server is not ready, or an empty string."""
        if self.stopping:
            return "stopping"
        if self.loading:
            return "the models are being loaded"
        return next((f"{name}: {worker.trouble}" for name, worker in self.workers.items() if worker.trouble), "")

    # --- choosing a model

    def of_kind(self, kind: str) -> dict[str, Worker]:
        """The models that translate ("translate") or describe pictures ("caption")."""
        return {name: worker for name, worker in self.workers.items() if worker.about["kind"] == kind}

    @property
    def pairs(self) -> dict[str, list[str]]:
        """Source code -> target codes."""
        pairs: dict[str, list[str]] = {}
        for worker in self.of_kind("translate").values():
            targets = pairs.setdefault(worker.about["source"]["code"], [])
            if worker.about["target"]["code"] not in targets:
                targets.append(worker.about["target"]["code"])
        return pairs

    @property
    def targets(self) -> list[str]:
        """The codes of all target languages, without duplicates."""
        return list(dict.fromkeys(code for codes in self.pairs.values() for code in codes))

    def named(self, name: str, kind: str) -> Worker:
        """The model of a kind with this name; the first of the kind if the name is empty."""
        among, does = self.of_kind(kind), {"translate": "translates", "caption": "describes pictures"}[kind]
        if name in FOLDERS and name not in self.workers:
            name = FOLDERS[name]  # en-fr/bahdanau is the model en-fr-bahdanau
        if name and name not in self.workers:
            raise RefusedError(404, f"There is no model {name[:80]!r}; GET /api/v1/models lists them.")
        if name and name not in among:
            raise RefusedError(422, f"The model {name} is not one that {does}; GET /api/v1/models lists the kinds.")
        if not among:
            raise RefusedError(404, f"No loaded model {does}; GET /api/v1/models lists the models and their kinds.")
        return among[name] if name else next(iter(among.values()))

    def between(self, source: str, target: str) -> Worker | None:
        """The first translator from one code into the other."""
        for worker in self.of_kind("translate").values():
            if (worker.about["source"]["code"], worker.about["target"]["code"]) == (source, target):
                return worker
        return None

    def language(self, code: str, known: list[str]) -> str:
        """The known code that matches a client's code; raises if there is none."""
        found = languages.among(code, known)
        if found is None:
            raise RefusedError(400, f"{code[:40]} is not supported")
        return found

    # --- work

    def refusal(self, kind: str, client: Hashable, coming: int) -> RefusedError | None:
        """Why no model of a kind can take a request after `coming` others, or None if one can."""
        found = [worker.refusal(client, coming=coming) for worker in self.of_kind(kind).values()]
        return found[0] if all(found) and found else None


class Call:
    """An authenticated request: its fields, and how it is sent to a model."""

    def __init__(self, state: ServerState, request: Request, fields: Fields) -> None:
        self.state, self.request, self.fields, self.limits = state, request, fields, state.limits
        self.deadline = float(request.scope["regard.deadline"])  # shared by all work for the request
        self.token: AccessToken | None = request.scope.get("regard.token")

    @property
    def client(self) -> Hashable:
        """The name of the token, or the client's address."""
        return self.token.name if self.token else self.request.client.host if self.request.client else None

    @property
    def translator(self) -> Worker:
        """The translator in the field `model`; by default the first one."""
        return self.state.named(self.fields.text("model", ""), "translate")

    @property
    def captioner(self) -> Worker:
        """The captioner in the field `model`; by default the first one."""
        return self.state.named(self.fields.text("model", ""), "caption")

    async def detect(self, texts: list[str]) -> list[list[tuple[str, float]]]:
        """For each text, the loaded source languages with a confidence in percent, best first.

        The confidence is how well the text fits the vocabulary, times the probability of the language among the loaded
        ones. It is low for a text in none of them, and for a text that fits two.
        """
        fits: list[dict[str, tuple[float, float]]] = [{} for _ in texts]
        for worker in self.state.of_kind("translate").values():
            code = worker.about["source"]["code"]
            for each, found in zip(fits, await self.aside(worker, "fit", texts), strict=True):
                each[code] = max(each.get(code, found), found)
        return [_confidences(each) for each in fits]

    async def translate(self, worker: Worker | None, texts: list[str], options: Options) -> list[Written]:
        """Translate each text; the work stops when the client disconnects.

        Without a model, the texts are already in the target language and are returned unchanged.
        """
        if worker is None or not texts:
            return [Written(text) for text in texts]
        beam = max(worker.about["beam"], options.nbest)
        if options.nbest > 1:
            options = options._replace(beam=beam)
        ticket = Ticket(self.deadline, self.client, beam, options)
        ticket.add(texts)
        worker.make_room(ticket.client, ticket.cost)
        self.count(texts)
        return list(await self._wait(worker, ticket))

    def count(self, texts: Sequence[str]) -> None:
        """Count the characters of a request, and refuse it above the quota of its token."""
        characters = sum(map(len, texts))
        if self.token:
            self.token.count_characters(characters, time.monotonic(), self.request.url.path)
        self.state.metrics.characters += characters

    async def answer(self, worker: Worker, method: str, *args: Any) -> Response:
        """The result of an exclusive method of the model; the model process serialises and compresses it."""
        packed = accepts_gzip(self.request)
        worker.make_room(self.client)
        work = MethodCall(method, args, True, packed)
        body = await self._wait(worker, Ticket(self.deadline, self.client, work=work))
        return SlicedResponse(self.state, body, packed)

    async def aside(self, worker: Worker, method: str, *args: Any) -> Any:
        """The result of a method that needs no decoding; retried once if the process dies."""
        worker.make_room()
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                for _ in range(2):
                    while worker.trouble in ("dead", "restarting"):
                        await asyncio.sleep(0.1)
                    with suppress(DiedError):
                        return await asyncio.wrap_future(await asyncio.to_thread(worker.run_in_thread, method, *args))
        except TimeoutError:
            raise self._late() from None
        raise RefusedError(503, f"The model {worker.name} does not answer at the moment.", {"Retry-After": "10"})

    @contextmanager
    def receiving(self, worker: Worker) -> Iterator[None]:
        """Hold a slot while a picture is received and decoded; refuse it if all slots or the queue are full."""
        worker.make_room(self.client)
        if self.state.receiving >= self.limits.pictures:
            self.state.metrics.refused.labels("queue").inc()
            raise busy("pictures are arriving")
        self.state.receiving += 1
        try:
            yield
        finally:
            self.state.receiving -= 1

    def check_size(self, texts: Sequence[str]) -> None:
        """Refuse texts that are too long."""
        longest = max(map(len, texts), default=0)
        if longest > self.limits.characters:
            raise RefusedError(
                422, f"Invalid request: request ({longest}) exceeds text limit ({self.limits.characters})"
            )

    async def respond(self, size: int, build: Callable[[], Any]) -> Response:
        """The result of `build` as a JSON response; a large one is built and compressed in a thread."""
        packed = size > SMALL and accepts_gzip(self.request)
        return SlicedResponse(self.state, await aside(size, lambda: _write(build(), packed)), packed)

    async def _wait(self, worker: Worker, ticket: Ticket) -> Any:
        worker.submit(ticket)
        answer = asyncio.wrap_future(ticket.answer)
        leaving = asyncio.create_task(_until_gone(self.request))
        try:
            left = ticket.deadline - time.monotonic()
            await asyncio.wait({answer, leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await self.state.turns.take()  # a batch completes many answers at once
                return answer.result()
            if leaving.done():
                raise RefusedError(400, "The client closed the connection.")
            raise self._late()
        except StoppedError:
            raise self._late() from None
        finally:
            ticket.gone = True
            ticket.answer.cancel()
            leaving.cancel()

    def _late(self) -> RefusedError:
        return RefusedError(503, f"This took longer than {self.limits.seconds:g} seconds.", {"Retry-After": "10"})


class Turns:
    """Runs callbacks in order, a few in each turn of the event loop. Not thread-safe.

    A batch completes many answers at once, and its clients then send as many requests. Handled in one turn, they would
    block everything else for tens of milliseconds; a few per turn delay a refusal by those few only.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._due = False  # whether `_next` is scheduled

    def add(self, work: Callable[[], object]) -> None:
        """Run `work` in its turn."""
        self._waiting.append(work)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(EACH, len(self._waiting))):
            loop.call_soon(self._waiting.popleft())
        self._due = bool(self._waiting)
        if self._due:
            loop.call_soon(self._next)

    async def take(self) -> None:
        """Wait for a turn."""
        turn = asyncio.Event()
        self.add(turn.set)
        await turn.wait()


class SlicedResponse(Response):
    """A response sent in slices, so that the connection never buffers more than one; counted until it is sent."""

    media_type = "application/json"

    def __init__(self, state: ServerState, body: bytes, compressed: bool) -> None:
        super().__init__(body, headers={"Vary": "Accept-Encoding"})
        if compressed:
            self.headers["Content-Encoding"] = "gzip"
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(self.body)
        self.state.held += size
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for at in range(0, max(1, size), _SLICE):
                part = bytes(self.body[at : at + _SLICE])
                await send({"type": "http.response.body", "body": part, "more_body": at + _SLICE < size})
        finally:
            self.state.held -= size


def _write(tree: Any, packed: bool) -> bytes:
    data = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    return gzip.compress(data, GZIP, mtime=0) if packed else data


def accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _confidences(fits: Mapping[str, tuple[float, float]]) -> list[tuple[str, float]]:
    """Languages with (fit, code length in nats) -> languages with their confidence in percent, best first."""
    shortest = min((length for _, length in fits.values()), default=0.0)
    likely = {code: math.exp(shortest - length) for code, (_, length) in fits.items()}
    total = sum(likely.values())
    found = [(code, round(100 * fit * likely[code] / total, 1)) for code, (fit, _) in fits.items()]
    return sorted(found, key=lambda pair: (-pair[1], fits[pair[0]][1]))  # if none fits, the likeliest first


def _unused(name: str, among: Mapping[str, Worker]) -> str:
    number, found = 1, name
    while found in among:
        number, found = number + 1, f"{name}-{number + 1}"
    return found


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
