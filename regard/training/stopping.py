"""SIGTERM and Ctrl-C: training finishes the current update, saves, and exits."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 143  # as a shell reports SIGTERM
TWICE = 1.0  # seconds: torchrun passes on the Ctrl-C that the terminal has sent us already


class BrokenOff(BaseException):
    """Raised out of work that need not be finished; only the loop may catch it."""


@contextmanager
def exiting() -> Iterator[None]:
    """SIGTERM exits in this block, in which there is nothing to save, and what was begun is cleaned up.

    Only the main thread can listen.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Stop:
    """Whether a stop was requested. A second Ctrl-C exits at once, without saving."""

    def __init__(self) -> None:
        self.requested = self.by_keyboard = False
        self._when = 0.0
        self._may_break = False

    @property
    def reason(self) -> str:
        """Why training ends, for `events.Finished`."""
        return "interrupted" if self.by_keyboard else "stopped"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGTERM and Ctrl-C as a request in this block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._request) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Work in this block is broken off by a request at once, with `BrokenOff`."""
        self._may_break = True
        try:
            if self.requested:
                raise BrokenOff
            yield
        finally:
            self._may_break = False

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT and time.monotonic() - self._when > TWICE:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._when = True, time.monotonic()
            self.by_keyboard = number == signal.SIGINT
        if self._may_break:
            self._may_break = False
            raise BrokenOff
