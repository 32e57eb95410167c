"""One process or several, started by torchrun: ranks and sums over them.

Every rank takes its rows of the same global batch, and gradients are summed. A rank without rows adds zeros, so that
uneven data never makes another rank wait. During training each rank sends heartbeats: if one stops or cannot be
reached, the others exit with a message that names it.
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

LONGEST_WAIT = timedelta(minutes=30)  # for another rank: only rank 0 reads the corpus and validates
BEAT = 2.0  # seconds between heartbeats
MOST_MISSED = 30  # missed heartbeats of a rank before the others exit
LEFT = 2**40  # the counter of a rank that is done
BUCKET = 2**25  # bytes of gradients in one message


class Ranks:
    """The processes of a run; a single one without torchrun."""

    def __init__(self, device: torch.device) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            torch.cuda.set_device(device)
        self.device = device
        self.store: Any = None  # None: a single process, or a group that the caller has initialised
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
        """Wait for every rank."""
        if self.world > 1:
            dist.barrier()

    def watch(self) -> None:
        """Send heartbeats from now on, and end this process if those of another rank stop."""
        if self.store is not None:
            self.pulse = Pulse(self.store.clone(), self.rank, self.world)  # over a separate connection

    def close(self) -> None:
        """Leave the group."""
        if self.pulse:
            self.pulse.leave()
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


class Pulse:
    """Heartbeats of all ranks, as counters in their rendezvous store.

    A rank that waits in an all-reduce cannot notice that another one has stopped, so two threads do. One updates and
    reads the counters, which blocks if the store itself is gone; the other checks what was read. It counts beats, not
    seconds, so that a pause of all ranks together does not matter.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.store, self.rank, self.world = store, rank, world
        self.counts, self.left = [0] * world, threading.Event()
        self.counting = threading.Thread(target=self._count, daemon=True)
        self.counting.start()
        threading.Thread(target=self._look, daemon=True).start()

    def leave(self) -> None:
        """Tell the other ranks not to expect heartbeats any more."""
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
                # If this rank's own counter has stopped too, the store does not answer. Rank 0 holds it.
                silent = 0 if missed[self.rank] >= MOST_MISSED else missed.index(max(missed))
                sys.stderr.write(
                    f"regard: Rank {silent} has not responded for {MOST_MISSED * BEAT:g} seconds: it "
                    f"is stopped or cannot be reached. Rank {self.rank} exits; to resume, repeat the command.\n"
                )
                sys.stderr.flush()
                os._exit(1)  # the main thread may wait in a collective, where no exception reaches it


class Reducer:
    """Sums gradients over all ranks in buckets, each sent as soon as the backward pass has filled it.

    Gradients arrive roughly in the reverse order of the weights. Every rank sends all buckets in the same order, even
    those without a gradient.
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
        self.missing: list[int] = []  # missing gradients of each bucket; empty: sending has not begun
        self.sent: list[tuple[Tensor, Any]] = []

    def begin(self) -> None:
        """Send the buckets during the next backward pass, the last one of this update."""
        self.missing = [len(bucket) for bucket in self.buckets]

    def finish(self) -> None:
        """Send the remaining buckets and wait; afterwards every gradient is the sum over all ranks."""
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
