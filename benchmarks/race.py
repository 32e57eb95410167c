"""Measure several ways to do the same work side by side: in turns, so that whatever else the machine does hits all."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Work = Callable[[int], float]  # the number of the round -> units of work done (tokens, sentences)


@dataclass
class Lane:
    """One contestant and what was measured of it."""

    name: str
    work: Work
    seconds: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)

    def speed(self) -> float:
        """Units a second, the median over the rounds."""
        return statistics.median(unit / second for unit, second in zip(self.units, self.seconds, strict=True))

    def against(self, other: "Lane") -> float:
        """How many times as fast as `other`: the median over the rounds of the ratio within a round."""
        pairs = zip(self.units, self.seconds, other.units, other.seconds, strict=True)
        return statistics.median((unit / second) / (unit2 / second2) for unit, second, unit2, second2 in pairs)

    def over_all(self, other: "Lane") -> float:
        """The same for all rounds together, which differ where their batches do."""
        ours, theirs = (sum(lane.units) / sum(lane.seconds) for lane in (self, other))
        return ours / theirs


def race(lanes: list[Lane], rounds: int, clock: str = "wall", warm_up: int = 1) -> None:
    """Let every lane work once a round, in an order that turns from round to round."""
    now = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
    for number in range(-warm_up, rounds):
        turn = number % len(lanes)
        for lane in lanes[turn:] + lanes[:turn]:
            wait()
            before = now()
            units = lane.work(max(number, 0))
            wait()
            if number >= 0:
                lane.seconds.append(now() - before)
                lane.units.append(units)


def translates(translator: Any, texts: list[str], batch: int, beam: int) -> Work:
    """The work of translating `batch` sentences, other ones in every round."""

    def work(number: int) -> float:
        start = number * batch % (len(texts) - batch + 1)
        translator.translate(texts[start : start + batch], beam=beam, split=False)
        return batch

    return work


def wait() -> None:
    """Let a GPU finish what it was given, so that the clock sees it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(title: str, unit: str, ours: list[Lane], peers: list[Lane]) -> None:
    """Print speeds, and each of ours against each peer and against the best of them."""
    print(f"\n{title}")
    best = max(peers, key=Lane.speed) if peers else None
    for lane in ours + peers:
        print(f"  {lane.name:<44} {lane.speed():>10.1f} {unit}/s{'   best peer' if lane is best else ''}")
    for lane in ours:
        for peer in peers:
            together = f"all rounds together {lane.over_all(peer):.2f}x"
            print(f"  {lane.name} / {peer.name}: {lane.against(peer):.2f}x, {together}")


def machine(device: str, clock: str) -> str:
    """What the numbers were measured on."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    return f"torch {torch.__version__}, {name}, {torch.get_num_threads()} threads, {clock} clock"
