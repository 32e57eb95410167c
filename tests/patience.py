"""Waiting in tests: as long as it takes, since a busy machine is slow. The bound only ends what hangs."""

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds


def until(true: Callable[[], object], pause: float = 0.02, trouble: Callable[[], str] = lambda: "") -> None:
    """Wait for something that must become true; `trouble` describes what hangs."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"this never became true. {trouble()}"
        time.sleep(pause)
