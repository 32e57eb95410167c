"""What waits for a model: tickets, one for each accepted request, and the queue that makes batches of them.

A ticket is either a list of sentences to translate, which may share a batch with those of other tickets that were asked
for in the same way, or one piece of exclusive work (a trace, a beam tree). The queue takes turns: each sweep takes one
sentence of every ticket, so that a request of 128 sentences and one of a single sentence share the next batch.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MOST_ROWS = 32  # sentences of a batch
MOST_COST = 8192  # tokens times beam of a batch, padding counted


@dataclass(frozen=True)
class Sentence:
    """One text of a ticket."""

    ticket: "Ticket"
    place: int
    text: str
    tokens: int


@dataclass(eq=False)
class Ticket:
    """An accepted request. `answer` gets the list of results, or the result of `work`."""

    deadline: float
    beam: int = 1
    options: Hashable = None  # tickets of equal options may share a batch
    work: Callable[[Callable[[], bool]], Any] | None = None
    waiting: deque[Sentence] = field(default_factory=deque)
    results: list[Any] = field(default_factory=list)
    missing: int = 0
    answer: "Future[Any]" = field(default_factory=Future)
    gone: bool = False  # nobody waits for the answer any more

    def add(self, texts: list[str], tokens: list[int]) -> None:
        """The texts to translate, and how many tokens each has."""
        self.results = [None] * len(texts)
        self.missing = len(texts)
        self.waiting.extend(
            Sentence(self, place, text, size) for place, (text, size) in enumerate(zip(texts, tokens, strict=True))
        )

    @property
    def cost(self) -> int:
        """Tokens times beam of what waits."""
        return self.beam * sum(sentence.tokens for sentence in self.waiting)

    @property
    def over(self) -> bool:
        """Whether working on it is of no use: its client went away, its time is up, or it has its answer."""
        return self.gone or self.answer.done() or time.monotonic() > self.deadline

    def give(self, place: int, result: Any) -> None:
        """Note one result; the last one makes the answer."""
        self.results[place] = result
        self.missing -= 1
        if not self.missing:
            settle(self.answer, self.results)


def settle(answer: "Future[Any]", result: Any = None, error: BaseException | None = None) -> None:
    """Give a future its answer, unless it has one."""
    with suppress(InvalidStateError):  # it was cancelled in this moment
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)


class Queue:
    """Tickets in order of arrival. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tickets)

    def put(self, ticket: Ticket) -> None:
        """Let a ticket wait."""
        with self._changed:
            self._tickets.append(ticket)
            self._changed.notify()

    def wait(self, seconds: float) -> bool:
        """Wait until there is a ticket, for so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._tickets) or self._closed, seconds)

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, most_cost: int = MOST_COST, exclusive: bool = True) -> Ticket | list[Sentence] | None:
        """The next exclusive ticket, or the next batch of sentences, or None where nothing waits.

        Without `exclusive`, and for any smaller cost than usual, only sentences that fit are taken.
        """
        with self._changed:
            self._tickets = deque(ticket for ticket in self._tickets if not ticket.over)
            for first in self._tickets:
                if first.work is not None:
                    if exclusive:
                        self._tickets.remove(first)
                        return first
                    continue
                batch = self._gather(first, most_cost)
                if batch:
                    return batch
            return None

    def _gather(self, first: Ticket, most_cost: int) -> list[Sentence]:
        """A batch of sentences like the first one's: the same options, a similar length, no more than the cost."""
        head = first.waiting[0]
        # A single long sentence may exceed the usual cost, since it cannot be cut; but not a smaller allowance.
        if most_cost < MOST_COST and head.tokens * first.beam > most_cost:
            return []
        batch: list[Sentence] = []
        longest = 0
        kin = [ticket for ticket in self._tickets if ticket.work is None and ticket.options == first.options]
        took = True
        while took and len(batch) < MOST_ROWS:
            took = False
            for ticket in kin:
                if not ticket.waiting or len(batch) == MOST_ROWS:
                    continue
                tokens = ticket.waiting[0].tokens
                cost = max(longest, tokens) * (len(batch) + 1) * first.beam
                if batch and (cost > most_cost or not _alike(tokens, head.tokens)):
                    continue
                batch.append(ticket.waiting.popleft())
                longest, took = max(longest, tokens), True
        shared = {sentence.ticket for sentence in batch}
        untouched = [ticket for ticket in self._tickets if ticket not in shared]
        self._tickets = deque([*untouched, *(ticket for ticket in kin if ticket in shared and ticket.waiting)])
        return batch


def _alike(tokens: int, other: int) -> bool:
    """Whether two lengths may share a batch: the short one would wait for the long one to end."""
    return min(tokens, other) * 2 + 16 >= max(tokens, other)
