"""Waiting in tests: as long as it takes, since a busy machine is slow. The bound only ends what hangs."""

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds


def until(
    true: Callable[[], object], pause: float = 0.02, trouble: Callable[[], str] = lambda: "", most: float = PATIENCE
) -> None:
    """Wait at most this many seconds until a condition holds; `trouble` describes what hangs."""
    end = time.monotonic() + most
    while not true():
        assert time.monotonic() < end, f"this never became true. {trouble()}"
        time.sleep(pause)
