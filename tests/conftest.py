"""Tests look for wrong answers, not for slow machines: no example has a deadline, and no file waits for the disk."""

import unsynced  # noqa: F401
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
