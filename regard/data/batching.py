"""Batches by token count, in an order that depends on the seed and the epoch and on nothing else.

The batches of an epoch are a pure function of (lengths, batch_tokens, seed, epoch). They are the same for any number
of ranks: rank r of W takes rows r, r + W, r + 2W, ... of every batch. Position k in the epoch is therefore all that a
checkpoint needs, and a run may go on with another number of ranks.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ConfigError
from regard.symbols import PAD

Item = TypeVar("Item")


class Batch(NamedTuple):
    """Rows of ids that end with END and then PAD; lengths count END."""

    indices: Tensor  # [B] which pairs of the dataset these are
    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target: Tensor  # [B, T]
    target_lengths: Tensor  # [B]


class Pairs(Protocol):
    """What batching needs of a dataset."""

    def __len__(self) -> int: ...

    def pair(self, index: int, epoch: int = 0) -> tuple[Sequence[int], Sequence[int]]:
        """Source and target ids, END included; `epoch` matters where segmentations are drawn anew."""
        ...


class Plan:
    """The batches of one epoch: `plan[k]` are the indices of batch k, `len(plan)` how many there are."""

    def __init__(self, order: NDArray[np.int64], borders: NDArray[np.int64], epoch: int) -> None:
        self.order = order
        self.borders = borders
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.borders) - 1

    def __getitem__(self, position: int) -> NDArray[np.int64]:
        if not 0 <= position < len(self):
            raise IndexError(f"An epoch of {len(self)} batches has no batch {position}.")
        return self.order[self.borders[position] : self.borders[position + 1]]


def plan_epoch(
    source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], batch_tokens: int, seed: int, epoch: int
) -> Plan:
    """Batches of pairs of like length, none wider than `batch_tokens`: B * max(S, T) <= batch_tokens.

    Pairs are sorted by length with ties in random order, cut, and the batches shuffled. A pair longer than
    `batch_tokens` is a batch alone.
    """
    if batch_tokens < 1:
        raise ConfigError(f"train.batch_tokens must be at least 1; got {batch_tokens}.")
    count = len(source_lengths)
    # raw 64-bit draws, sorted: numpy promises that this stream never changes, unlike `permutation`
    stream = np.random.Philox(np.random.SeedSequence([seed % 2**63, epoch]))
    ties = stream.random_raw(count) if count else np.zeros(0, np.uint64)
    order = np.lexsort((ties, target_lengths, source_lengths)).astype(np.int64)
    widths = np.maximum(source_lengths, target_lengths)[order].tolist()
    borders = [0]
    widest = 0
    for place, width in enumerate(widths):
        widest = max(widest, width)
        if place > borders[-1] and widest * (place + 1 - borders[-1]) > batch_tokens:
            borders.append(place)
            widest = width
    if not count:
        return Plan(order, np.zeros(1, np.int64), epoch)
    cut = np.split(order, borders[1:])
    shuffled = [cut[index] for index in np.argsort(stream.random_raw(len(cut)), kind="stable")]
    sizes = [0, *(len(batch) for batch in shuffled)]
    return Plan(np.concatenate(shuffled), np.cumsum(sizes, dtype=np.int64), epoch)


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as one tensor filled up with PAD, and their lengths. No rows give tensors of shape [0, 0] and [0]."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)  # [B]
    widest = int(lengths.max()) if rows else 0
    filled = np.full((len(rows), widest), PAD, dtype=np.int64)
    for index, row in enumerate(rows):
        filled[index, : len(row)] = row
    return torch.from_numpy(filled), lengths  # [B, S], [B]


def make_batch(pairs: Pairs, indices: Sequence[int], epoch: int = 0) -> Batch:
    """The pairs asked for, as one batch in that order. No indices give an empty batch."""
    rows = [pairs.pair(int(index), epoch) for index in indices]
    source, source_lengths = pad([row[0] for row in rows])  # [B, S], [B]
    target, target_lengths = pad([row[1] for row in rows])  # [B, T], [B]
    chosen = torch.tensor([int(index) for index in indices], dtype=torch.int64)  # [B]
    return Batch(chosen, source, source_lengths, target, target_lengths)


def batches(pairs: Pairs, plan: Plan, start: int = 0, rank: int = 0, world: int = 1) -> Iterator[Batch]:
    """This rank's part of every batch of the epoch from position `start` on. A part may be empty."""
    for position in range(start, len(plan)):
        yield make_batch(pairs, plan[position][rank::world].tolist(), plan.epoch)


class Prefetch(Generic[Item]):
    """Runs an iterator in a background thread, at most `depth` items ahead; use it in a `with` block.

    An error in the iterator is raised where its item would have come. Leaving the block ends the thread.
    """

    def __init__(self, items: Iterator[Item], depth: int = 4) -> None:
        self._items = items
        self._queue: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._done = False
        self._thread = threading.Thread(target=self._run, name="regard-prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put((True, item)):
                    return
            self._put((False, None))
        except BaseException as error:
            self._put((False, error))

    def _put(self, entry: tuple[bool, Item | BaseException | None]) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._done:
            raise StopIteration
        more, item = self._queue.get()
        if more:
            return item  # type: ignore[return-value]
        self._done = True
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    def close(self) -> None:
        """End the thread; items that were not taken are lost."""
        self._stop.set()
        self._done = True
        self._thread.join()

    def __enter__(self) -> "Prefetch[Item]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
