"""The running server as the endpoints see it: its models, its limits, and the way work is handed to a worker."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request

from regard.data.images import Pixels
from regard.errors import ConfigError, DataError, ShapeError
from regard.serve import languages
from regard.serve.door import Door
from regard.serve.fields import Fields
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Options, Stop, TranslationModel
from regard.serve.pictures import CaptionModel
from regard.serve.refusal import RefusedError, StoppedError
from regard.serve.work import Ticket
from regard.serve.worker import M, Worker

_SOON = {"Retry-After": "1"}
_QUICK = 2000  # characters that may be split into tokens without leaving the event loop


class House:
    """The models side by side, and what every endpoint needs."""

    def __init__(self, models: Sequence[TranslationModel | CaptionModel], limits: Limits, door: Door) -> None:
        self.limits = limits
        self.door = door
        self.metrics = Metrics()
        self.translators: dict[str, Worker[TranslationModel]] = {}
        self.captioners: dict[str, Worker[CaptionModel]] = {}
        for model in models:
            if isinstance(model, TranslationModel):
                self.translators[model.id] = Worker(model, limits, self.metrics)
            else:
                self.captioners[model.id] = Worker(model, limits, self.metrics)
        made: dict[str, Worker[Any]] = {**self.translators, **self.captioners}
        self.workers = {model.id: made[model.id] for model in models}  # of every kind, in the order given
        self.stopping = False
        self._receiving = 0  # pictures
        # Pictures are decoded one after the other: the largest that is allowed unfolds into some 300 MB.
        self._reader = ThreadPoolExecutor(1, "pictures")

    def start(self) -> None:
        """Start every worker."""
        for worker in self.workers.values():
            worker.start()

    def close(self) -> bool:
        """Let the workers end; whether all of them have."""
        self._reader.shutdown(wait=False, cancel_futures=True)
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
        for worker in self.translators.values():
            targets = pairs.setdefault(worker.model.source, [])
            if worker.model.target not in targets:
                targets.append(worker.model.target)
        return pairs

    def translator(self, name: str | None) -> Worker[TranslationModel]:
        """The worker of a translator's id; the first one where none is named."""
        return self._named(name, self.translators, "translates")

    def captioner(self, name: str | None) -> Worker[CaptionModel]:
        """The worker of a captioner's id; the first one where none is named."""
        return self._named(name, self.captioners, "describes pictures")

    def _named(self, name: str | None, among: Mapping[str, Worker[M]], does: str) -> Worker[M]:
        if name is not None and name not in self.workers:
            raise RefusedError(404, f"There is no model {name[:80]!r} here; GET /api/v1/models lists them.")
        if name is not None and name not in among:
            raise RefusedError(422, f"The model {name} is none that {does}; GET /api/v1/models tells the kinds.")
        if not among:
            raise RefusedError(404, f"No model here {does}; GET /api/v1/models tells the kinds of those that are.")
        return among[name] if name is not None else next(iter(among.values()))

    def between(self, source: str, target: str) -> Worker[TranslationModel] | None:
        """The first worker that translates from one code into the other."""
        for worker in self.translators.values():
            if (worker.model.source, worker.model.target) == (source, target):
                return worker
        return None

    def detect(self, text: str) -> list[tuple[str, float]]:
        """The loaded source languages, the one that fits a text best first, with their fit in per cent."""
        fits: dict[str, float] = {}
        for worker in self.translators.values():
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

    async def translate(
        self, request: Request, worker: Worker[TranslationModel], texts: list[str], options: Options
    ) -> list[Any]:
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

    async def look(
        self, request: Request, worker: Worker[TranslationModel], text: str, work: Callable[[Stop], Any]
    ) -> Any:
        """The result of exclusive work on one text, once its size is known to be allowed."""
        self.check_size([text])
        worker.make_room()
        self._check_tokens([await asyncio.to_thread(worker.model.count, text)])
        return await self.work(request, worker, work)

    async def work(self, request: Request, worker: Worker[M], work: Callable[[Stop], Any]) -> Any:
        """The result of exclusive work: `work(stop)` runs in the model's thread."""
        worker.make_room()
        return await self._wait(request, worker, Ticket(time.monotonic() + self.limits.seconds, work=work))

    @contextmanager
    def receiving(self, worker: Worker[CaptionModel]) -> Iterator[None]:
        """The time in which a picture is received and read: refused where too many are, or too much waits already."""
        worker.make_room()
        if self._receiving >= self.limits.pictures:
            self.metrics.refuse("queue")
            raise RefusedError(429, "Slowdown: too many pictures are arriving, try again in a second", _SOON)
        self._receiving += 1
        try:
            yield
        finally:
            self._receiving -= 1

    async def read_picture(self, worker: Worker[CaptionModel], data: bytes) -> Pixels:
        """The square of a picture that a model sees, or a refusal that says what is wrong with the picture."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, worker.model.read, data)
        except DataError as error:
            raise RefusedError(422, str(error)) from None

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

    async def _wait(self, request: Request, worker: Worker[Any], ticket: Ticket) -> Any:
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


def wanted_model(house: House, fields: Fields) -> Worker[TranslationModel]:
    """The translator that the field `model` names; the first one without it."""
    return house.translator(fields.text("model", "") or None)
