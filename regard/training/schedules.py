"""Learning-rate schedules: pure functions of the progress of training, so that resuming needs no extra state."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Moment(NamedTuple):
    """The progress of training at an update."""

    step: int  # the number of the update, from 1
    total: int  # total updates
    epoch: float  # completed epochs, including the fraction of the current one
    stalls: int  # validations so far without a new best
    width: int  # the model's width, for Noam
    share: float = 0.0  # of the time limit that is over


Schedule = Callable[[Moment, Any], float]


def constant(at: Moment, config: Any) -> float:
    """rate, after a linear rise over `warmup` updates."""
    return config.rate * _rise(at, config)


def noam(at: Moment, config: Any) -> float:
    """rate * width^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani 2017, eq. 3); its warm-up is 4000."""
    warmup = max(1, config.warmup)
    return config.rate * at.width**-0.5 * min(at.step**-0.5, at.step * warmup**-1.5)


def inverse_sqrt(at: Moment, config: Any) -> float:
    """Noam's shape with its peak at `rate`."""
    warmup = max(1, config.warmup)
    return config.rate * min(at.step / warmup, (warmup / at.step) ** 0.5)


def cosine(at: Moment, config: Any) -> float:
    """From `rate` to zero along half a cosine after the warm-up, by updates or by time, whichever ends first."""
    done = max((at.step - config.warmup) / max(1, at.total - config.warmup), at.share)
    return config.rate * _rise(at, config) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, done))))


def halving(at: Moment, config: Any) -> float:
    """rate, halved at `halve_after` epochs and every `halve_every` epochs after that (Sutskever: 5 and 0.5)."""
    if at.epoch < config.halve_after:
        return config.rate
    return config.rate * 0.5 ** (1 + math.floor((at.epoch - config.halve_after) / config.halve_every))


def decay(at: Moment, config: Any) -> float:
    """rate * decay^k after k epochs (Cheng 2016: 0.85), `decay_after` of them uncounted (Zaremba 2014: 1 / 1.2, 5)."""
    return config.rate * _rise(at, config) * config.decay ** max(0, math.floor(at.epoch) - config.decay_after)


def plateau(at: Moment, config: Any) -> float:
    """rate, halved for every validation without a new best."""
    return config.rate * _rise(at, config) * 0.5**at.stalls


def _rise(at: Moment, config: Any) -> float:
    return min(1.0, at.step / config.warmup) if config.warmup else 1.0


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "noam": noam,
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "halving": halving,
    "decay": decay,
    "plateau": plateau,
}
