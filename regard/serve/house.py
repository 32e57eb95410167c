"""The running server as the endpoints see it: its models, its limits, and the way work is handed to a worker."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from regard.errors import ConfigError, DataError, ShapeError
from regard.serve import languages
from regard.serve.door import Door
from regard.serve.fields import Fields
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Model, Options
from regard.serve.refusal import RefusedError, StoppedError
from regard.serve.work import Ticket
from regard.serve.worker import Worker

_QUICK = 2000  # characters that may be split into tokens without leaving the event loop


class House:
    """The models side by side, and what every endpoint needs."""

    def __init__(self, models: list[Model], limits: Limits, door: Door) -> None:
        self.limits = limits
        self.door = door
        self.metrics = Metrics()
        self.workers = {model.id: Worker(model, limits, self.metrics) for model in models}
        self.stopping = False

    def start(self) -> None:
        """Start every worker."""
        for worker in self.workers.values():
            worker.start()

    def close(self) -> bool:
        """Let the workers end; whether all of them have."""
        ended = [worker.close() for worker in self.workers.values()]
        return all(ended)

    @property
    def trouble(self) -> str:
        """What keeps the server from being ready, or an empty string."""
        if self.stopping:
            return "stopping"
        return next((f"{name}: {worker.trouble}" for name, worker in self.workers.items() if worker.trouble), "")

    # --- choosing a model

    @property
    def pairs(self) -> dict[str, list[str]]:
        """Source code -> target codes."""
        pairs: dict[str, list[str]] = {}
        for worker in self.workers.values():
            targets = pairs.setdefault(worker.model.source, [])
            if worker.model.target not in targets:
                targets.append(worker.model.target)
        return pairs

    def named(self, name: str | None) -> Worker:
        """The worker of a model's id; the first one where none is named."""
        if name is None:
            return next(iter(self.workers.values()))
        if name not in self.workers:
            raise RefusedError(404, f"There is no model {name[:80]!r} here; GET /api/v1/models lists them.")
        return self.workers[name]

    def between(self, source: str, target: str) -> Worker | None:
        """The first worker that translates from one code into the other."""
        for worker in self.workers.values():
            if (worker.model.source, worker.model.target) == (source, target):
                return worker
        return None

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The loaded source languages, the one that fits a text best first, with their fit in per cent."""
        fits: dict[str, float] = {}
        for worker in self.workers.values():
            fit = worker.model.fit(text[:_QUICK])
            fits[worker.model.source] = max(fits.get(worker.model.source, 0.0), fit)
        return sorted(((code, round(100 * fit, 1)) for code, fit in fits.items()), key=lambda each: -each[1])

    def language(self, code: str, known: list[str]) -> str:
        """The known code that a client means, or a refusal."""
        found = languages.among(code, known)
        if found is None:
            raise RefusedError(400, f"{code[:40]} is not supported")
        return found

    # --- work

    async def translate(self, request: Request, worker: Worker, texts: list[str], options: Options) -> list[Any]:
        """A `Translation` for each text, or a refusal; nothing is done any more once the client has gone away."""
        if not texts:
            return []
        self.check_size(texts)
        worker.make_room()
        if sum(map(len, texts)) <= _QUICK:
            tokens = [worker.model.count(text) for text in texts]
        else:
            tokens = await asyncio.to_thread(lambda: [worker.model.count(text) for text in texts])
        self._check_tokens(tokens)
        ticket = Ticket(time.monotonic() + self.limits.seconds, options.beam or worker.model.beam, options)
        ticket.add(texts, tokens)
        worker.make_room(ticket.cost)
        self.metrics.characters += sum(map(len, texts))
        return list(await self._wait(request, worker, ticket))

    async def work(self, request: Request, worker: Worker, text: str, work: Callable[[Callable[[], bool]], Any]) -> Any:
        """The result of exclusive work on one text: `work(stop)` runs in the model's thread."""
        self.check_size([text])
        worker.make_room()
        self._check_tokens([await asyncio.to_thread(worker.model.count, text)])
        return await self._wait(request, worker, Ticket(time.monotonic() + self.limits.seconds, work=work))

    def check_size(self, texts: list[str]) -> None:
        """Refuse texts that are too long before they are split into tokens."""
        longest = max(map(len, texts), default=0)
        if longest > self.limits.characters:
            raise RefusedError(
                422, f"Invalid request: request ({longest}) exceeds text limit ({self.limits.characters})"
            )

    def _check_tokens(self, tokens: list[int]) -> None:
        if max(tokens) > self.limits.tokens:
            raise RefusedError(
                422, f"A text has {max(tokens)} tokens, more than {self.limits.tokens}; send shorter ones."
            )

    async def _wait(self, request: Request, worker: Worker, ticket: Ticket) -> Any:
        worker.submit(ticket)
        answer = asyncio.wrap_future(ticket.answer)
        leaving = asyncio.create_task(_until_gone(request))
        try:
            left = ticket.deadline - time.monotonic()
            await asyncio.wait({answer, leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if leaving.done():
                raise RefusedError(400, "The client went away.")
            raise RefusedError(503, f"This took longer than {self.limits.seconds:g} seconds.", {"Retry-After": "10"})
        except StoppedError:
            raise RefusedError(
                503, f"This took longer than {self.limits.seconds:g} seconds.", {"Retry-After": "10"}
            ) from None
        except (ConfigError, DataError, ShapeError) as error:
            raise RefusedError(422, str(error)) from error
        finally:
            ticket.gone = True
            ticket.answer.cancel()
            leaving.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def wanted_model(house: House, fields: Fields) -> Worker:
    """The worker that the field `model` names; the first one without it."""
    return house.named(fields.text("model", "") or None)
