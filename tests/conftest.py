"""Tests look for wrong answers, not for slow machines: no example has a deadline, and no file waits for the disk.

One browser serves all tests."""

from collections.abc import Iterator
from typing import Any

import pytest
import unsynced  # noqa: F401
from browser_parts import browser
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium."""
    with browser() as running:
        yield running
