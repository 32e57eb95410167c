"""The queue of a model: a ticket for each accepted request, and batches made of tickets.

A ticket is a list of sentences to translate, which may share a batch with other tickets of the same options, or one
exclusive job (a trace, a beam tree), which is a batch by itself. The queue is fair: each sweep takes one sentence of
every client, and within a client of every ticket, so that a huge request does not delay small ones.

Costs are characters times beam, which are known without tokenising.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.evaluate.confidence import Confidence
from regard.files.segment import Link, chain_links
from regard.processes import settle

MOST_ROWS = 32  # sentences of a batch
MOST_COST = 32768  # characters times beam of a batch, padding counted
GZIP = 1  # the compression level of answers: the fastest


class Options(NamedTuple):
    """How sentences are translated."""

    beam: int | None = None
    nbest: int = 1
    links: bool = False  # whether to return word links
    terms: tuple[tuple[str, str], ...] = ()  # (source, target): forced translations of terms
    confidence: bool = False  # whether to return the confidence


class TraceRequest(NamedTuple):
    """What to inspect: a sentence, its translation or a prefix of it as text or pieces, and changes."""

    text: str
    target: str | tuple[str, ...] | None = None
    prefix: str | tuple[str, ...] | None = None
    beam: int | None = None
    changes: Sequence[Mapping[str, Any]] = ()  # checked, each with its kind
    tree: bool = False
    layers: tuple[int, ...] | None = None  # the layers and heads to return; None is all
    heads: tuple[int, ...] | None = None
    by: str | None = None  # an attribution method, and the word that it compares with
    against: str | None = None


class MethodCall(NamedTuple):
    """A method of the model and its arguments. If `written`, the model process serialises the result as JSON."""

    method: str
    args: tuple[Any, ...] = ()
    written: bool = False
    compressed: bool = False


class TranslatedText(NamedTuple):
    """The translation of one sentence."""

    text: str
    others: tuple[str, ...] = ()  # the n-best list, `text` first
    tokens: int = 0  # of the source
    finished: str = "end"
    noted: Mapping[str, str] = {}  # its problems: flags, each with its note
    unknown: tuple[str, ...] = ()  # words or characters of the source never seen in training
    links: tuple[Link, ...] = ()
    unplaced: tuple[str, ...] = ()  # terms that could not be placed
    confidence: Confidence | None = None

    def then(self, other: "TranslatedText") -> "TranslatedText":
        """A translation of this translation, as `regard.api.pivot` defines it."""
        sure = None
        if self.confidence and other.confidence:
            sure = Confidence(self.confidence.sentence * other.confidence.sentence, other.confidence.words)
        return other._replace(
            tokens=self.tokens + other.tokens,
            finished=self.finished if self.finished not in ("end", "empty") else other.finished,
            noted={**self.noted, **other.noted, **self.noted},
            unknown=self.unknown,
            links=chain_links(self.links, other.links),
            confidence=sure,
        )


class Row(NamedTuple):
    """One text of a ticket, or its job, and later one row of a batch."""

    ticket: "Ticket"
    place: int
    text: str


@dataclass(eq=False)
class Ticket:
    """An accepted request. `answer` gets the list of translations, or the result of `work`."""

    deadline: float
    client: Hashable = None
    beam: int = 1
    options: Options | None = None
    work: MethodCall | None = None
    waiting: deque[Row] = field(default_factory=deque)
    results: list[Any] = field(default_factory=list)
    missing: int = 0
    answer: "Future[Any]" = field(default_factory=Future)
    gone: bool = False  # its client has disconnected
    part: Callable[[Any], None] = field(default=lambda part: None)  # receives partial results, in another thread

    def __post_init__(self) -> None:
        if self.work is not None:
            self.add([""])

    def add(self, texts: list[str]) -> None:
        """Set the texts to translate."""
        self.results = [None] * len(texts)
        self.missing = len(texts)
        self.waiting.extend(Row(self, place, text) for place, text in enumerate(texts))

    @property
    def cost(self) -> int:
        """Characters times beam of the sentences that wait."""
        return self.beam * sum(len(sentence.text) for sentence in self.waiting)

    @property
    def over(self) -> bool:
        """Whether its result is no longer needed: the client disconnected, the time is up, or it has an answer."""
        return self.gone or self.answer.done() or time.monotonic() > self.deadline

    def give(self, place: int, result: Any) -> None:
        """Set one result; the last one completes the answer."""
        self.results[place] = result
        self.missing -= 1
        if not self.missing:
            settle(self.answer, result if self.work else self.results)


class Queue:
    """Tickets by client. Can be used from several threads."""

    def __init__(self) -> None:
        self._clients: OrderedDict[Hashable, deque[Ticket]] = OrderedDict()  # the next to be served first
        self._changed = threading.Condition()
        self._awake = False

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def put(self, ticket: Ticket) -> None:
        with self._changed:
            self._clients.setdefault(ticket.client, deque()).append(ticket)
            self._changed.notify()

    def wake(self) -> None:
        """End the current or the next `wait`."""
        with self._changed:
            self._awake = True
            self._changed.notify()

    def wait(self, seconds: float) -> bool:
        """Wait for a ticket; whether there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._clients or self._awake, seconds)
            self._awake = False
            return bool(self._clients)

    def take(self, most_cost: int = MOST_COST, exclusive: bool = True, shorter: int | None = None) -> list[Row]:
        """The next batch of sentences, or the next exclusive job; empty if nothing waits.

        Without `exclusive`, only sentences are taken. With a `most_cost` below the default, only those that fit; with
        `shorter`, only those much shorter than this length.
        """
        with self._changed:
            self._clients = OrderedDict(
                (client, kept)
                for client, tickets in self._clients.items()
                if (kept := deque(ticket for ticket in tickets if not ticket.over))
            )
            for first in (ticket for tickets in self._clients.values() for ticket in tickets):
                size = len(first.waiting[0].text)
                # A single sentence cannot be split, so it may exceed the default cost, but not a smaller one.
                large = most_cost < MOST_COST and size * first.beam > most_cost
                if not large and (exclusive or not first.work) and (shorter is None or not _alike(shorter, size)):
                    return self._gather(first, size, most_cost)
            return []

    def _gather(self, first: Ticket, head: int, most_cost: int) -> list[Row]:
        """A batch of sentences like the first one, of `head` characters: the same options, a similar length, no more
        than the cost."""
        batch: list[Row] = []
        longest, took = 0, True
        while took and len(batch) < MOST_ROWS:
            took = False
            for client in list(self._clients):
                for ticket in self._clients.get(client, ()):
                    size = len(ticket.waiting[0].text)
                    cost = max(longest, size) * (len(batch) + 1) * first.beam
                    same = ticket.work is first.work is None and ticket.options == first.options
                    fits = same and cost <= most_cost and _alike(size, head) and len(batch) < MOST_ROWS
                    if fits if batch else ticket is first:
                        batch.append(ticket.waiting.popleft())
                        longest, took = max(longest, size), True
                        self._served(client, ticket)
                        break
        return batch

    def _served(self, client: Hashable, ticket: Ticket) -> None:
        """Move the client behind the others, and the ticket behind the others of its client."""
        tickets = self._clients[client]
        tickets.remove(ticket)
        if ticket.waiting:
            tickets.append(ticket)
        if tickets:
            self._clients.move_to_end(client)
        else:
            del self._clients[client]


def _alike(size: int, other: int) -> bool:
    """Whether two lengths may share a batch, in which the shorter one waits for the longer one."""
    return min(size, other) * 2 + 64 >= max(size, other)
