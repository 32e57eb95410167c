"""One thread for each model: it takes what waits in its queue, and shows that it is alive.

A long sentence would keep the others waiting. But decoding asks `stop` before every step, and a model keeps nothing
between steps, so in that moment the worker translates a short batch that waits, and then goes on with the long one.
"""

import logging
import threading
import time
from typing import Any, Generic, Protocol, TypeVar

from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Options, TranslationModel
from regard.serve.refusal import RefusedError, StoppedError
from regard.serve.work import Queue, Sentence, Ticket, settle

log = logging.getLogger("regard.serve")

PATIENCE = 0.1  # seconds that a batch runs alone before short ones may come in between
SHORT_COST = 1024  # tokens times beam of such a short batch
PROBE = 5.0  # seconds of idleness after which the worker tries itself


class Model(Protocol):
    """What a worker and the list of models ask of a model of any kind."""

    kind: str
    id: str

    def describe(self) -> dict[str, Any]:
        """What a reader wants to know of the model."""

    def rehearse(self) -> str:
        """What the model writes of a sample of its own: always the same, where it is well."""


M = TypeVar("M", bound=Model)


class Worker(Generic[M]):
    """A model, its thread and its queue."""

    def __init__(self, model: M, limits: Limits, metrics: Metrics) -> None:
        self.model = model
        self.limits = limits
        self.metrics = metrics
        self.queue = Queue()
        self.accepted = 0  # tickets without an answer
        self._cost = 0  # their tokens times beam
        self._trouble = "starting"
        self._rehearsed: str | None = None  # what the model must always write of its sample
        self._beat = time.monotonic()
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"model {model.id}", daemon=True)

    def start(self) -> None:
        """Start the thread; `trouble` becomes empty once the model has written its sample."""
        self._thread.start()

    def close(self, seconds: float = 2.0) -> bool:
        """Let the thread end after what it is doing; whether it has ended within these seconds."""
        self._closed = True
        self.queue.close()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def trouble(self) -> str:
        """What keeps this worker from answering, or an empty string."""
        if self._thread.ident is not None and not self._thread.is_alive():
            return "dead"
        if not self._trouble and time.monotonic() - self._beat > self.limits.stuck:
            return "stuck"
        return self._trouble

    # --- from the server's side

    def make_room(self, cost: int = 0) -> None:
        """Refuse with 429 where too much waits already. Called before anything costly is done for a request."""
        if self.trouble in ("dead", "stuck"):
            raise RefusedError(503, f"The model {self.model.id} does not answer at the moment.", {"Retry-After": "10"})
        if self.accepted >= self.limits.queue or (self.accepted and self._cost + cost > self.limits.cost):
            self.metrics.refuse("queue")
            raise RefusedError(
                429, "Slowdown: too many requests are waiting, try again in a second", {"Retry-After": "1"}
            )

    def submit(self, ticket: Ticket) -> None:
        """Accept a ticket; its slot is free again as soon as it has its answer or nobody waits for it."""
        cost = ticket.cost

        def release(_: Any) -> None:
            with self._lock:
                self.accepted -= 1
                self._cost -= cost

        with self._lock:
            self.accepted += 1
            self._cost += cost
        ticket.answer.add_done_callback(release)
        self.queue.put(ticket)

    # --- the thread

    def _run(self) -> None:
        self._probe()
        while not self._closed:
            if not self.queue.wait(PROBE):
                self._probe()
                continue
            self._beat = time.monotonic()
            taken = self.queue.take()
            if isinstance(taken, Ticket):
                self._work(taken)
            elif taken:
                self._translate(taken, alone=True)
            self._beat = time.monotonic()

    def _probe(self) -> None:
        """Rehearse: the worker is well if that works and gives what it gave the first time."""
        self._beat = time.monotonic()
        try:
            if self._rehearsed is None:
                self._rehearsed = self.model.rehearse()
            self._trouble = "" if self.model.rehearse() == self._rehearsed else "the model's answers changed"
        except Exception:
            log.exception("The model %s fails at its own sample", self.model.id)
            self._trouble = "the model fails"
        self._beat = time.monotonic()

    def _work(self, ticket: Ticket) -> None:
        def stop() -> bool:
            self._beat = time.monotonic()
            return ticket.over

        assert ticket.work is not None
        began = time.monotonic()
        try:
            settle(ticket.answer, ticket.work(stop))
        except Exception as error:
            settle(ticket.answer, error=error)
        self.metrics.work(self.model.id, time.monotonic() - began)

    def _translate(self, batch: list[Sentence], alone: bool) -> None:
        options = batch[0].ticket.options
        assert isinstance(options, Options)
        assert isinstance(self.model, TranslationModel)  # nobody else is asked for sentences
        began, between = time.monotonic(), 0.0

        def stop() -> bool:
            nonlocal between
            self._beat = now = time.monotonic()
            # Short batches get at most half of the time, so that the long one goes on.
            if alone and now - began > PATIENCE + 2 * between and len(self.queue):
                short = self.queue.take(SHORT_COST, exclusive=False)
                if isinstance(short, list):
                    self._translate(short, alone=False)
                    between += time.monotonic() - now
            return all(sentence.ticket.over for sentence in batch)

        try:
            results = self.model.translate([sentence.text for sentence in batch], options, stop)
        except Exception as error:
            for sentence in batch:
                settle(sentence.ticket.answer, error=error)
            return
        seconds = time.monotonic() - began - between
        self.metrics.batch(self.model.id, len(batch), sum(sentence.tokens for sentence in batch), seconds)
        for sentence, result in zip(batch, results, strict=True):
            if result.finished == "stopped":
                settle(sentence.ticket.answer, error=StoppedError())
            else:
                sentence.ticket.give(sentence.place, result)
