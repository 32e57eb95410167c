"""Turns of the event loop: work that comes in bursts is spread over them.

A batch of a model ends with many answers at once, and its clients send as many requests. Handled in one turn, they
would hold everything else for tens of milliseconds; with a few of them in a turn, a refusal waits for those at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable

EACH = 4  # a millisecond or less each


class Turns:
    """Runs what it is given in order, a few in each turn of the event loop. Used in the thread of the loop alone."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._due = False  # whether the next turn is one

    def add(self, work: Callable[[], object]) -> None:
        """Let `work` run when it is its turn."""
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
