"""The server's side of a model: its queue, its process, and recovery when that process fails.

A thread per model takes work from the queue, sends it to the process and watches it. A process that dies is replaced,
and its work is retried once; a stuck process is killed. A long job does not block short ones: the process translates
them between two decoding steps.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

from regard.errors import RegardError
from regard.processes import Call, ChildProcess, DiedError, FailedError, settle
from regard.serve import languages
from regard.serve.limits import Limits, RefusedError, busy
from regard.serve.loading import PRELOAD, load_model, load_service
from regard.serve.metrics import Metrics
from regard.serve.queue import MethodCall, Queue, Row, Ticket

log = logging.getLogger("regard.serve")

PATIENCE = 0.1  # seconds that a batch runs alone before short batches may interrupt it
SHORT_COST = 1024  # characters times beam of such a short batch
PROBE = 5.0  # seconds without work after which the model is tested
WATCH = 0.02  # seconds between two checks of a process
MOST_PAUSE = 30.0  # seconds between attempts to start a process that fails
NUMBER_BYTES = 6  # of a number in an answer: four bytes in base64
CHANGED = "the model's answers changed"


class Worker:
    """A model as the server sees it: its description, its health and its queue."""

    def __init__(
        self,
        run: str,
        limits: Limits,
        metrics: Metrics,
        engine: str = "regard",
        threads: int = 1,
        load: Callable[[], Any] | None = None,  # instead of loading the run
    ) -> None:
        self.run, self.limits, self.metrics = run, limits, metrics
        self.queue = Queue()
        self.about: dict[str, Any] = {}  # the description of the model
        self.accepted: Counter[Hashable] = Counter()  # client -> tickets without an answer
        self.held: Callable[[], int] = lambda: 0  # bytes of answers that are not sent yet
        self._cost = 0  # characters times beam of the accepted tickets
        self._trouble = "starting"
        self._sample: Any = None  # the result of the first self-test that succeeded, which later ones must repeat
        self._tested = False
        self._load = partial(load_service, load or partial(load_model, run, limits, engine, threads))
        self._process = ChildProcess(self._load, self.queue.wake, PRELOAD)
        self._stuck = self._closed = False
        self._failures = 0
        self._again: list[list[Row]] = []  # short batches that a process did not finish
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=run, daemon=True)

    def open(self) -> None:
        """Wait until the model is loaded; raises its loading error."""
        try:
            self._process.loaded.result()
            self.about = self.run_in_thread("describe").result()
            for side in {"source", "target"} & self.about.keys():
                self.about[side]["name"] = languages.name(self.about[side]["code"])  # their names take 18 MB
        except FailedError as error:
            raise RuntimeError(f"{self.run}: {error}") from None
        except DiedError:
            raise RuntimeError(f"The process for {self.run} ended while it loaded the model.") from None

    def start(self) -> None:
        """Start working; `trouble` becomes empty after the first self-test."""
        self.metrics.waiting.labels(self.name).set_function(self.accepted.total)
        self.metrics.up.labels(self.name).set_function(lambda: not self.trouble)
        self._thread.start()

    def close(self, seconds: float = 2.0) -> None:
        """End the process."""
        self._closed = True
        self.queue.wake()
        self._process.end()
        self._process.join(seconds)

    @property
    def name(self) -> str:
        return str(self.about["id"])

    @property
    def trouble(self) -> str:
        """Why the model does not answer, or an empty string."""
        if self._process.dead:
            return "dead"
        if self._process.silence > self.limits.stuck:
            return "stuck"
        return self._trouble

    # --- from the event loop

    def refusal(self, client: Hashable = None, cost: int = 0) -> RefusedError | None:
        """Why the model cannot take a request, or None if it can. A quarter of the queue is kept for other clients."""
        if self._failures > 1 or self.trouble == "stuck":
            return RefusedError(503, f"The model {self.name} does not answer at the moment.", {"Retry-After": "10"})
        if self._trouble == CHANGED:  # its folder was replaced, and then its process
            return RefusedError(503, f"The model {self.name} is not the one that was loaded first; restart the server.")
        if cost > self.limits.cost:
            return RefusedError(413, "The texts of this request are too long together; send fewer at once.")
        total, mine = self.accepted.total(), self.accepted[client]
        full = total >= self.limits.queue or mine >= self.limits.queue - self.limits.queue // 4
        return busy("requests are waiting") if full or (total and self._cost + cost > self.limits.cost) else None

    def make_room(self, client: Hashable = None, cost: int = 0) -> None:
        """Refuse a request that the model cannot take. Call it before any costly work."""
        refusal = self.refusal(client, cost)
        if refusal is not None:
            self.metrics.count_refusal(refusal)
            raise refusal

    def submit(self, ticket: Ticket) -> None:
        """Accept a ticket; its slot is released when it is answered or its client disconnects."""
        client, cost = ticket.client, ticket.cost

        def release(_: Any) -> None:
            with self._lock:
                self.accepted[client] -= 1
                self.accepted += Counter()  # without the clients at zero
                self._cost -= cost

        with self._lock:
            self.accepted[client] += 1
            self._cost += cost
        ticket.answer.add_done_callback(release)
        self.queue.put(ticket)

    def run_in_thread(self, method: str, *args: Any) -> "Future[Any]":
        """The result of a method that needs no decoding, in the second thread of the process."""
        return self._process.call_in_thread(MethodCall(method, args)).result

    # --- the thread

    def _run(self) -> None:
        while not self._closed:
            if self._process.dead:
                self._replace()
            elif not self._tested or not (self._again or self.queue.wait(PROBE)):
                self._probe()
            elif taken := self._again.pop() if self._again else self.queue.take():
                self._serve(taken)

    def _replace(self) -> None:
        """Start another process, with exponential backoff after repeated failures."""
        self.metrics.restarts.labels(self.name).inc()
        self._trouble = "restarting"
        log.error("The process of the model %s ended; starting another", self.name)
        self._process.join()
        if self._failures:
            time.sleep(min(2.0**self._failures, MOST_PAUSE))
        if not self._closed:
            self._failures += 1
            self._process = ChildProcess(self._load, self.queue.wake, PRELOAD)
            with suppress(DiedError, FailedError, RegardError):
                self._process.loaded.result()
                self._probe()

    def _probe(self) -> None:
        """Test the model: its sample translation must be the same as the first time."""
        self._tested = True
        last = time.monotonic() + self.limits.seconds
        call = self._process.call(MethodCall("self_test"))
        self._watch(call, lambda: time.monotonic() > last)
        try:
            found = call.result.result()
            self._sample = found if self._sample is None else self._sample
            self._trouble = "" if found == self._sample else CHANGED
            self._failures = 0
        except Exception:
            self._trouble = "the model fails"

    def _watch(self, call: Call, over: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait for a call; stop it when it is `over`, kill the process if it is stuck."""
        stopped = self._stuck = False
        while not wait([call.result], WATCH).done:
            meanwhile()
            if not stopped and over():
                self._process.stop(call)
                stopped = True
            if self._process.silence > 2 * self.limits.stuck:
                log.error("The model %s is stuck; ending its process", self.name)
                self._stuck = True
                self._process.kill()
                call.result.exception()  # waits until the end is noticed

    def _serve(self, batch: list[Row]) -> None:
        """Process a batch; retry it once if the process dies."""
        for last in (False, True):
            if self._process.dead and not self._closed:
                self._replace()
            while self._again:
                self._serve(self._again.pop())
            if self._trouble == CHANGED:
                return _fail(batch, self.refusal())
            try:
                return self._work(batch)
            except DiedError:
                if last or self._stuck:  # a stuck job would be stuck again
                    sentence = f"The process of the model {self.name} ended during this request."
                    return _fail(batch, RefusedError(503, sentence, {"Retry-After": "10"}))

    def _work(self, batch: list[Row], alone: bool = True) -> None:
        """Let the process do a batch and give out the results; if not `alone`, during the job that it works on."""
        ticket, began = batch[0].ticket, time.monotonic()
        work = ticket.work or MethodCall("translate", ([row.text for row in batch], ticket.options))
        if work.written and self.held() + self.limits.numbers * NUMBER_BYTES > self.limits.held:
            sentence = "Too many responses are waiting to be read by clients."
            return _fail(batch, RefusedError(503, sentence, {"Retry-After": "5"}))
        call = self._process.call(work, part=ticket.part) if alone else self._process.interrupt(work)
        longest = None if ticket.work else max(len(row.text) for row in batch)
        meanwhile = self._let_pass(longest) if alone else lambda: None
        self._watch(call, lambda: all(row.ticket.over for row in batch), meanwhile)
        error = call.result.exception()
        if isinstance(error, DiedError):
            raise error
        if error is not None:
            return _fail(batch, error)
        found = call.result.result()
        if alone:  # otherwise its time counts for the job that it interrupts
            self.metrics.busy.labels(self.name).inc(time.monotonic() - began)
        if not ticket.work:
            self.metrics.sentences.labels(self.name).observe(len(batch))
            self.metrics.tokens.labels(self.name).inc(sum(one.tokens for one in found))
        for row, result in zip(batch, [found] if ticket.work else found, strict=True):
            row.ticket.give(row.place, result)

    def _let_pass(self, longest: int | None) -> Callable[[], None]:
        """What is done during a long job: translate short batches, for at most half of the time.

        Sentences about as long as the `longest` of the running batch wait for the next one.
        """
        began, shared = time.monotonic(), 0.0

        def translate_short() -> None:
            nonlocal shared
            now = time.monotonic()
            if now - began > PATIENCE + 2 * shared:
                short = self.queue.take(SHORT_COST, exclusive=False, shorter=longest)
                if short:
                    try:
                        self._work(short, alone=False)
                    except DiedError:
                        self._again.append(short)
                    shared += time.monotonic() - now

        return translate_short


def _fail(batch: list[Row], error: BaseException | None) -> None:
    for row in batch:
        settle(row.ticket.answer, error=error)
