"""Batches by token count, in an order that depends only on the seed and the epoch.

The batches of an epoch are a pure function of (lengths, batch_tokens, seed, epoch). They are the same for any number
of ranks: rank r of W takes rows r, r + W, r + 2W, ... of every batch. So a checkpoint only needs the position in the
epoch, and a run may resume with another number of ranks.

A corpus is planned in shards of a million pairs, so that no process holds the lengths or the order of all of it. The
pairs of a shard come from blocks all over the corpus; the order of shards, and of the batches in them, changes with
every epoch.

CUDA graphs need few shapes: `ShardedPlan(..., even=True)` plans batches with lengths on a coarse scale, and `make_even`
pads a batch to that scale. The padding is masked everywhere, so that the loss does not change.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.symbols import PAD, START

Row = Sequence[int] | NDArray[Any]  # token ids
EpochPlan = Sequence[NDArray[np.int64]]  # the indices of the examples of each batch
BLOCK = 4096  # consecutive examples that stay in one shard, so that they are read together from disk
BLOCKS = 256  # in a shard


class Lengths(Protocol):
    """The lengths of all examples: an array, or an object that is indexed like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, examples: Any) -> NDArray[np.int64]: ...


class Batch(NamedTuple):
    """Rows of ids with END, padded with PAD; lengths include END."""

    indices: Tensor  # [B] which pairs of the dataset these are
    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target: Tensor  # [B, T]
    target_lengths: Tensor  # [B]


class PackedBatch(NamedTuple):
    """Concatenated sentences, one row per side; `slots` and `queries` are the positions of each sentence's words.

    The padding at the end of a row consists of sentences of PAD, so that each position belongs to one sentence.
    """

    source: Tensor  # [1, N]
    slots: Tensor  # [B, S] positions in `source`; -1 after the end of a sentence
    words: Tensor  # [1, M] the input of the decoder: START, then the target without its last word
    queries: Tensor  # [B, T] positions in `words` and `target`; -1 after the end of a sentence
    target: Tensor  # [1, M]


class Examples(Protocol):
    """The interface of a dataset, of every task."""

    @property
    def sides(self) -> tuple[Lengths, Lengths]:
        """The lengths [N] of both sides of all examples, by which batches are planned."""
        ...

    def __len__(self) -> int: ...

    def batch(self, numbers: Sequence[int], epoch: int = 0) -> Any:
        """These examples (possibly none), in that order, as a NamedTuple of tensors on the CPU."""
        ...


class ShardedPlan(EpochPlan):
    """Batches of pairs of similar length: B * max(S, T) <= batch_tokens.

    The pairs of a shard are sorted by length with random ties and split into batches, which are shuffled. A pair longer
    than `batch_tokens` is its own batch. With `even`, lengths are rounded by `round_up`. One shard is in memory at a
    time.
    """

    def __init__(
        self, source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, epoch: int,
        even: bool = False,
    ) -> None:  # fmt: skip
        self.lengths = source_lengths, target_lengths
        self.batch_tokens, self.even, self.seed, self.epoch = batch_tokens, even, seed % 2**63, epoch
        blocks = -(-len(source_lengths) // BLOCK)
        # The blocks of a shard are the same in all epochs, and so is the number of its batches.
        self.shards = np.array_split(_shuffled(blocks, [self.seed]), -(-blocks // BLOCKS)) if blocks else []
        kinds = (np.sort(self._kinds(self._examples(shard))) for shard in range(len(self.shards)))
        counts = np.array([len(_borders(some, batch_tokens)) for some in kinds], np.int64)
        self.order = _shuffled(len(counts), [self.seed, epoch])
        self.ends = np.cumsum(counts[self.order])
        self.read: tuple[int, list[NDArray[np.int64]]] = -1, []  # the last shard and its batches

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        turn = int(np.searchsorted(self.ends, place, side="right"))
        shard = int(self.order[turn])
        if self.read[0] != shard:
            self.read = shard, self._batches(shard)
        return self.read[1][place - int(self.ends[turn])]  # from the end of the shard

    def _examples(self, shard: int) -> NDArray[np.int64]:
        """The indices of the examples of a shard."""
        found = (np.sort(self.shards[shard])[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        return found[found < len(self.lengths[0])]

    def _kinds(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sort key of each example: the lengths of both sides as one number."""
        source, target = (round_up(side[examples]) if self.even else side[examples] for side in self.lengths)
        return source << 32 | target

    def _batches(self, shard: int) -> list[NDArray[np.int64]]:
        examples = self._examples(shard)
        kinds = self._kinds(examples)
        stream = np.random.Philox(np.random.SeedSequence([self.seed, self.epoch, shard]))
        order = np.lexsort((stream.random_raw(len(examples)), kinds))
        cut = np.split(examples[order], _borders(kinds[order], self.batch_tokens)[1:])
        return [cut[index] for index in np.argsort(stream.random_raw(len(cut)), kind="stable")]


def _shuffled(count: int, entropy: list[int]) -> NDArray[np.int64]:
    """0 ... count - 1 in an order that depends only on `entropy`.

    It sorts raw 64-bit draws: numpy guarantees that this stream never changes, unlike `permutation`.
    """
    stream = np.random.Philox(np.random.SeedSequence(entropy))
    return np.argsort(stream.random_raw(count), kind="stable") if count else np.zeros(0, np.int64)


def _borders(kinds: NDArray[np.int64], batch_tokens: int) -> list[int]:
    """The start of each batch among examples sorted by length."""
    ends = np.append(np.flatnonzero(np.diff(kinds)) + 1, len(kinds))  # of the runs of equal lengths
    widths = np.maximum(kinds[ends - 1] >> 32, kinds[ends - 1] & 0xFFFFFFFF)
    borders, place, widest = [0], 0, 0
    for width, end in zip(widths.tolist(), ends.tolist(), strict=True):
        while place < end:
            fits = max(1, batch_tokens // max(widest, width))
            if place - borders[-1] >= fits:
                borders.append(place)
                widest = 0
            else:
                widest = max(widest, width)
                place = min(end, borders[-1] + fits)
    return borders


def round_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths on a coarse scale: multiples of 4 up to 32, then four values between each power of two and the next."""
    octave = np.ceil(np.log2(np.maximum(lengths, 32))).astype(np.int64)  # 5 up to 32, 6 up to 64, ...
    steps = 2 ** (octave - 3)
    return -(-lengths // steps) * steps


def make_even(batch: Any, batch_tokens: int, world: int = 1) -> Any:
    """A batch (a NamedTuple of tensors) padded to a recurring shape: rounded lengths, and rows that depend on them.

    Integer and boolean tensors have lengths in all dimensions after the first. Added ids are PAD; an added row has
    length 1, so that there is something to encode.
    """
    evened = []
    for part, shape in zip(batch, even_shapes(batch, batch_tokens, world), strict=True):
        filled = part.new_full(shape, 1 if part.dim() == 1 else PAD)
        filled[tuple(slice(size) for size in part.shape)] = part
        evened.append(filled)
    return type(batch)(*evened)


def even_shapes(batch: Any, batch_tokens: int, world: int) -> list[torch.Size]:
    """The shapes to which `make_even` pads the parts of a batch."""
    shapes = [
        [*part.shape[:1], *round_up(np.array(part.shape[1:], np.int64)).tolist()] if _has_lengths(part) else part.shape
        for part in batch
    ]
    widest = max((max(shape[1:]) for shape, part in zip(shapes, batch, strict=True) if _has_lengths(part)), default=1)
    rows = max(len(batch[0]), -(-(batch_tokens // max(1, widest)) // world))
    return [torch.Size((rows, *shape[1:])) for shape in shapes]


def shift_right(target: Tensor) -> Tensor:
    """y_1 ... y_T -> START, y_1 ... y_{T-1}: the decoder input for predicting `target` [B, T]."""
    return torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)


def pack(batch: Batch, batch_tokens: int = 0, world: int = 1) -> PackedBatch:
    """Concatenate the sentences of a batch. With `batch_tokens`, use few tensor shapes: `even_shapes` bounds them, and
    the length of a row is a multiple of a 32nd of its bound. The padding of a row consists of sentences of PAD."""
    shapes = even_shapes(batch, batch_tokens, world) if batch_tokens else [part.shape for part in batch]
    steps = [max(1, shape.numel() // 32) if batch_tokens else 1 for shape in shapes]
    spare = max(-(-(steps[side] - 1) // max(1, shapes[side][1])) for side in (1, 3))  # sentences for the most PAD
    source, slots = _end_to_end([batch.source], batch.source_lengths, shapes[1], steps[1], spare)
    sides = [shift_right(batch.target), batch.target]
    target, queries = _end_to_end(sides, batch.target_lengths, shapes[3], steps[3], spare)
    return PackedBatch(source[:1], slots, target[:1], queries, target[1:])


def _end_to_end(sides: list[Tensor], lengths: Tensor, most: torch.Size, step: int, spare: int) -> tuple[Tensor, Tensor]:
    """Rows [B, S] of each side as one row [sides, N], and the positions of the words, [B' + spare, S'] with `most` =
    [B', S']. N is a multiple of `step`."""
    inside = torch.arange(sides[0].shape[1]) < lengths[:, None]  # [B, S]
    count = int(lengths.sum())
    row = torch.full((len(sides), -(-count // step) * step), PAD)
    for number, rows in enumerate(sides):
        row[number, :count] = rows[inside]
    places = torch.full((most[0] + spare, most[1]), -1, dtype=torch.int32)
    places[: len(lengths), : inside.shape[1]][inside] = torch.arange(count, dtype=torch.int32)
    filling = torch.arange(count, row.shape[1], dtype=torch.int32)
    places[most[0] :].view(-1)[: len(filling)] = filling
    return row, places


def _has_lengths(part: Tensor) -> bool:
    return part.dim() > 1 and part.dtype in (torch.int64, torch.bool)


def pad(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Rows of ids as one tensor padded with PAD, and their lengths. Without rows: shapes [0, 0] and [0]."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # [B]
    filled = np.full((len(rows), lengths.max(initial=0)), PAD, dtype=np.int64)  # [B, S]
    if len(rows):
        filled[np.arange(filled.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(filled), torch.from_numpy(lengths)
