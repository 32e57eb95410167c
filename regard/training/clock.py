"""The time of training: its limit (`train.minutes`), the pace of updates, the time left."""

import statistics
import time

TOO_FEW = 300  # updates; with fewer in total, a translator learns hardly anything
KNOWN = 0.1  # share of the time after which the pace is known: on a GPU the first updates compile kernels


class Clock:
    """Counts the seconds of training over all starts of a run. `limit` is 0 if there is no time limit."""

    def __init__(self, minutes: float) -> None:
        self.limit = minutes * 60
        self.since: float | None = None  # the start of the command, if its preparations count too
        self.validating = 0.0  # seconds of the last validation
        self._zero = self._last = 0.0  # start of all training, and of the current update
        self._laps: list[float] = []  # until the pace is known
        self._known = False
        self._made, self._set_up = 0, 0.0  # laps of this start, and the end of the first, which includes set-up

    def start(self, spent: float) -> None:
        """Continue after the `spent` seconds of earlier starts."""
        self._zero = (self.since or time.monotonic()) - spent
        self._known = not self.limit or self.share(spent) >= KNOWN  # an earlier start has reported it

    def rest(self) -> None:
        """Do not count the time until now for the next update."""
        self._last = time.monotonic()

    def spent(self) -> float:
        """The seconds of training so far."""
        return time.monotonic() - self._zero

    def lap(self) -> float:
        """The seconds since the last lap, or rest."""
        before = self._last
        self.rest()
        seconds = max(1e-9, self._last - before)
        self._made += 1
        if self._made == 1:
            self._set_up = self._last
        elif not self._known:
            self._laps.append(seconds)
        return seconds

    def is_over(self, spent: float) -> bool:
        """Whether the time is up; a last validation must fit into it."""
        return bool(self.limit) and spent + self.validating >= self.limit

    def share(self, spent: float) -> float:
        """The share of the time limit that is over; 0 without a limit."""
        return spent / self.limit if self.limit else 0.0

    def left(self, spent: float, step: int, total: int) -> float | None:
        """Seconds to the end of training, after update `step` of `total`; None if the pace is not known."""
        limits = [self.limit - spent] if self.limit else []
        if self._made > 1:
            limits.append((self._last - self._set_up) / (self._made - 1) * (total - step))
        return max(0.0, min(limits)) if limits else None

    def fit(self, spent: float, step: int) -> int | None:
        """The estimated total number of updates at the median pace, after update `step`; returned once, when a tenth of
        the time is over."""
        if self._known or self.share(spent) < KNOWN or not (self._laps or self.is_over(spent)):
            return None
        self._known = True
        return step + (int(max(0.0, self.limit - spent) / statistics.median(self._laps)) if self._laps else 0)
