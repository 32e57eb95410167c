"""One process or several, started by torchrun: which one this is, and sums over all of them.

Every rank takes its rows of the same global batch, and gradients are summed. A rank without rows adds zeros, so that
uneven data never leaves another rank waiting. While they train, each gives signs of life: one that is stopped, or
behind a network that stalls, ends the others with a sentence that names it.
"""

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

LONGEST_WAIT = timedelta(minutes=30)  # for another rank: rank 0 alone reads the corpus and validates
BEAT = 2.0  # seconds between two signs of life
MOST_MISSED = 30  # signs of life of a rank before the others end
LEFT = 2**40  # the count of a rank that is done
BUCKET = 2**25  # bytes of gradients in one message


class Ranks:
    """The processes of a run; one where torchrun did not start them."""

    def __init__(self, device: torch.device) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            torch.cuda.set_device(device)
        self.device = device
        self.store: Any = None  # None: alone, or in a group that someone else has made
        self.pulse: Pulse | None = None
        if self.world > 1 and not dist.is_initialized():
            self.store, _, _ = next(rendezvous("env://", timeout=LONGEST_WAIT))
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                timeout=LONGEST_WAIT,
                store=self.store,
                rank=self.rank,
                world_size=self.world,
            )

    @property
    def first(self) -> bool:
        """Only rank 0 writes files and reports events."""
        return self.rank == 0

    def add(self, *numbers: float) -> list[float]:
        """The sums of these numbers over all ranks."""
        if self.world == 1:
            return list(numbers)
        return self.add_tensor(torch.tensor(numbers, dtype=torch.float64, device=self.device)).tolist()

    def add_tensor(self, total: Tensor) -> Tensor:
        """The sum of this tensor over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(total)
        return total

    def agree(self, value: Tensor) -> Tensor:
        """Rank 0's value, on every rank."""
        if self.world > 1:
            dist.broadcast(value, 0)
        return value

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()

    def watch(self) -> None:
        """Give signs of life from now on, and end this process where those of another rank stay away."""
        if self.store is not None:
            self.pulse = Pulse(self.store.clone(), self.rank, self.world)  # a connection that nothing else waits on

    def close(self) -> None:
        """Leave the group."""
        if self.pulse:
            self.pulse.leave()
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


class Pulse:
    """Signs of life of all ranks, as counters in the store that they met by; one that stands still is missed.

    A rank that waits in a sum over all ranks cannot notice that another one is stopped. So two threads do: one counts
    and reads the counters, which never returns where the store itself is gone, and one looks at what was read. It
    measures in beats, not seconds, so that a pause of all ranks together is none.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.store, self.rank, self.world = store, rank, world
        self.counts, self.left = [0] * world, threading.Event()
        self.counting = threading.Thread(target=self._count, daemon=True)
        self.counting.start()
        threading.Thread(target=self._look, daemon=True).start()

    def leave(self) -> None:
        """The work is done: the other ranks no longer expect signs of life."""
        self.left.set()
        self.counting.join(BEAT)

    def _count(self) -> None:
        with suppress(RuntimeError):  # the rank that holds the store may have left first
            while not self.left.wait(BEAT):
                self.counts = [self.store.add(f"pulse {rank}", int(rank == self.rank)) for rank in range(self.world)]
            self.store.add(f"pulse {self.rank}", LEFT)

    def _look(self) -> None:
        seen, missed = self.counts, [0] * self.world
        while not self.left.wait(BEAT):
            now = self.counts
            missed = [
                0 if now[rank] != seen[rank] or now[rank] >= LEFT else missed[rank] + 1 for rank in range(self.world)
            ]
            seen = now
            if max(missed) >= MOST_MISSED:
                # Where this rank's own count stands still too, the store does not answer. Rank 0 holds it.
                silent = 0 if missed[self.rank] >= MOST_MISSED else missed.index(max(missed))
                sys.stderr.write(
                    f"regard: Rank {silent} has given no sign of life for {MOST_MISSED * BEAT:g} seconds: it "
                    f"is stopped or cannot be reached. Rank {self.rank} ends; to resume, repeat the command.\n"
                )
                sys.stderr.flush()
                os._exit(1)  # the main thread may wait for the other rank where no exception reaches it


class Reducer:
    """Sums gradients over all ranks in buckets, each sent as soon as the backward pass has filled it.

    Gradients come in the reverse order of the weights, roughly. Every rank sends all buckets in one fixed order, also
    those that it has no gradient for.
    """

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.buckets: list[list[nn.Parameter]] = [[]]
        self.place: dict[nn.Parameter, int] = {}
        filled = 0
        for weight in reversed(weights):
            if filled >= BUCKET:
                self.buckets.append([])
                filled = 0
            self.buckets[-1].append(weight)
            self.place[weight] = len(self.buckets) - 1
            filled += weight.nbytes
            weight.register_post_accumulate_grad_hook(self._filled)
        self.missing: list[int] = []  # gradients of each bucket that are not there yet; empty: nothing is sent yet
        self.sent: list[tuple[Tensor, Any]] = []

    def begin(self) -> None:
        """Send what the next backward pass fills: it is the last one of this update."""
        self.missing = [len(bucket) for bucket in self.buckets]

    def finish(self) -> None:
        """Send what is left, and wait: afterwards every gradient is the sum over all ranks."""
        while len(self.sent) < len(self.buckets):
            self._send()
        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
            work.wait()
            for weight, part in zip(bucket, flat.split([weight.numel() for weight in bucket]), strict=True):
                weight.grad = part.view_as(weight) if weight.grad is None else weight.grad.copy_(part.view_as(weight))
        self.sent, self.missing = [], []

    def _filled(self, weight: Tensor) -> None:
        if not self.missing:
            return
        self.missing[self.place[weight]] -= 1  # type: ignore[index]
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            self._send()

    def _send(self) -> None:
        bucket = self.buckets[len(self.sent)]
        for weight in bucket:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        flat = torch.cat([weight.grad.flatten() for weight in bucket if weight.grad is not None])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
