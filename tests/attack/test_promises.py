"""Every promise, tried a few times; `make attack` tries them often."""

import doctest
from pathlib import Path

import durability  # noqa: F401 - each adds its checks
import patterns  # noqa: F401
import promises
import pytest
import serving  # noqa: F401
import shards  # noqa: F401
import texts  # noqa: F401
import untrusted  # noqa: F401
from promises import CHECKS, Check, attempt

PROMISED = {
    *(f"R{n}" for n in range(1, 13)), *(f"D{n}" for n in range(1, 6)), *(f"S{n}" for n in range(1, 8)),
    *(f"X{n}" for n in range(1, 12)), *(f"F{n}" for n in range(1, 6)),
}  # fmt: skip


# `make test` has these in test_serve_life.py, test_serve_limits.py and test_serve_picture.py.
REPEATED = {"overload", "disconnect", "stop", "replaced", "slow", "captions"}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(
            one, id=f"{one.promise}-{one.once.__name__}", marks=[pytest.mark.slow] * (one.once.__name__ in REPEATED)
        )
        for one in CHECKS
        if one.small
    ],
)
def test_a_promise(one: Check):
    result = attempt(one, one.small)
    assert result.tries == one.small
    assert not result.failures, "\n".join(result.examples)


def test_every_promise_has_a_check():
    assert {one.promise for one in CHECKS} == PROMISED
    assert doctest.testmod(promises).attempted


def test_a_broken_promise_is_noticed():
    def broken(draw, folder: Path) -> None:
        assert folder.is_dir()
        assert draw.random() < 0.5

    result = attempt(Check("Z1", "half of the time", 0, 0, broken), 40)
    assert 5 < result.failures < 35
    assert len(result.examples) == promises.SHOWN
