"""SIGTERM and Ctrl-C: training finishes the current update, saves, and exits."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

TERMINATED = 143  # the exit code that shells use for SIGTERM
TWICE = 1.0  # seconds: torchrun forwards the Ctrl-C that the terminal has already sent us


class BrokenOff(BaseException):
    """Interrupts work that need not be finished; only the loop may catch it."""


@contextmanager
def handling(act: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Call `act` on these signals in this block; only the main thread can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, act) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exiting() -> AbstractContextManager[None]:
    """Exit on SIGTERM in this block, where there is nothing to save; context managers clean up."""
    return handling(lambda number, frame: sys.exit(TERMINATED), signal.SIGTERM)


class Stop:
    """Whether a stop was requested. A second Ctrl-C exits without saving."""

    def __init__(self) -> None:
        self.requested = self.by_keyboard = False
        self._when = 0.0
        self._may_break = False

    @property
    def reason(self) -> str:
        """Why training ends, for `events.Finished`."""
        return "interrupted" if self.by_keyboard else "stopped"

    def listening(self) -> AbstractContextManager[None]:
        """Treat SIGTERM and Ctrl-C as a stop request in this block."""
        return handling(self._request, signal.SIGTERM, signal.SIGINT)

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """A request interrupts this block immediately, with `BrokenOff`."""
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
