"""Turns of the event loop: work that comes in bursts is spread over them.

A batch of a model ends with many answers at once, and its clients send as many requests. Handled in one turn, they
would hold everything else for tens of milliseconds; with one of them a turn, a refusal waits for one at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Runs what it is given in order, one in each turn of the event loop. Used in the thread of the loop alone."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def add(self, work: Callable[[], object]) -> None:
        """Let `work` run in a turn of its own."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)

    async def take(self) -> None:
        """Wait for a turn."""
        turn = asyncio.Event()
        self.add(turn.set)
        await turn.wait()
