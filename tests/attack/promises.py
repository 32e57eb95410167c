"""The promises of regard, each with a check that is tried many times: the same code for a few tries and for a night.

A check is a function that makes one try: it gets a random generator and an empty folder, and raises (mostly an
AssertionError) where the promise was broken. `small` tries are made by `make test`, `large` by `make attack`.
"""

import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import RegardError

Try = Callable[[random.Random, Path], None]
SHOWN = 5  # failures of a check that are described


@dataclass(frozen=True)
class Check:
    """One check of a promise."""

    promise: str  # its number, as R1
    says: str
    small: int
    large: int
    once: Try


@dataclass
class Result:
    """What became of the tries of a check."""

    tries: int = 0
    failures: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


CHECKS: list[Check] = []


def refused(action: Callable[[], object], what: str) -> None:
    """Do something that must be refused in a sentence."""
    try:
        action()
    except RegardError:
        return
    raise AssertionError(f"{what} was accepted")


def check(promise: str, says: str, small: int, large: int) -> Callable[[Try], Try]:
    """Add a check to the list."""

    def add(once: Try) -> Try:
        CHECKS.append(Check(promise, says, small, large, once))
        return once

    return add


def attempt(one: Check, tries: int, seed: int = 1) -> Result:
    """Try a check `tries` times. Try n always draws the same numbers, so that a failure can be repeated."""
    result, began = Result(), time.monotonic()
    for number in range(tries):
        folder = Path(tempfile.mkdtemp(prefix="attack-"))
        try:
            one.once(random.Random(f"{one.promise} {one.says} {seed} {number}"), folder)
        except Exception as error:
            result.failures += 1
            if len(result.examples) < SHOWN:
                result.examples.append(f"try {number}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        result.tries += 1
    result.seconds = time.monotonic() - began
    return result


def bound(tries: int, failures: int, level: float = 0.95) -> float:
    """The failure rate below which the true one lies at this level (Clopper-Pearson, one-sided).

    >>> round(bound(100, 0), 4), round(bound(100, 2), 4)
    (0.0295, 0.0616)
    """
    if failures >= tries:
        return 1.0
    low, high = failures / tries, 1.0
    for _ in range(60):  # the rate at which `failures` or fewer are seen with a probability of 1 - level
        middle = (low + high) / 2
        seen = sum(
            math.exp(
                math.lgamma(tries + 1) - math.lgamma(k + 1) - math.lgamma(tries - k + 1)
                + k * math.log(middle) + (tries - k) * math.log1p(-middle)
            )
            for k in range(failures + 1)
        )  # fmt: skip
        low, high = (middle, high) if seen > 1 - level else (low, middle)
    return high
