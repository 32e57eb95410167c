"""The order of samples is a pure function of (lengths, batch_tokens, seed, epoch), the same for any number of ranks."""

import threading
import time
from concurrent.futures import Future
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import batching
from regard.data.batching import ShardedPlan
from regard.data.pairs import PairSet
from regard.data.store import Column
from regard.symbols import END, PAD
from regard.work import in_threads, prefetch


def pair_set(pairs):
    """Pairs given without END."""
    source, target = (Column.of([[*pair[side], END] for pair in pairs]) for side in (0, 1))
    return PairSet(source, target, np.arange(1, len(pairs) + 1))


def random_rows(count, seed=0, most=30):
    draw = np.random.default_rng(seed)
    make = lambda: draw.integers(4, 50, size=draw.integers(1, most)).tolist()  # noqa: E731
    return pair_set([(make(), make()) for _ in range(count)])


def batches(rows, made, start=0, rank=0, world=1):
    """The part of each batch that a rank sees, from position `start` on."""
    return [rows.batch(made[k][rank::world].tolist()) for k in range(start, len(made))]


def plan(rows, tokens=100, seed=1, epoch=0):
    return ShardedPlan(rows.sides[0], rows.sides[1], tokens, seed, epoch)


@given(count=st.integers(0, 120), tokens=st.integers(1, 200), seed=st.integers(0, 2**70), epoch=st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_every_pair_once_and_never_too_wide(count, tokens, seed, epoch):
    rows = random_rows(count, seed=count)
    made = plan(rows, tokens, seed, epoch)
    parts = [made[position].tolist() for position in range(len(made))]
    assert sorted(index for part in parts for index in part) == list(range(count))
    for part in parts:
        width = max(max(rows.sides[0][index], rows.sides[1][index]) for index in part)
        assert len(part) == 1 or width * len(part) <= tokens
    again = plan(rows, tokens, seed, epoch)
    assert [again[position].tolist() for position in range(len(again))] == parts


def test_seed_and_epoch_change_the_order_and_buckets_keep_padding_small():
    rows = random_rows(2000)
    orders = {np.concatenate(plan(rows, 500, seed, epoch)).tobytes() for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    made = plan(rows, 500)
    total = sum(batch.source.numel() for batch in batches(rows, made))
    assert rows.sides[0][:].sum() / total > 0.97
    lengths = [int(rows.sides[0][made[position][0]]) for position in range(len(made))]
    assert lengths != sorted(lengths)  # short sentences do not all come first


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_ranks_sees_the_same_samples_in_the_same_order(seed):
    rows = random_rows(83, seed)
    made = plan(rows, 90, seed, epoch=seed % 3)
    whole = [batch.indices.tolist() for batch in batches(rows, made)]
    for world in range(1, 9):
        parts = [
            [batch.indices.tolist() for batch in batches(rows, made, rank=rank, world=world)] for rank in range(world)
        ]
        assert {len(part) for part in parts} == {len(whole)}  # no rank runs out before another
        for position, expected in enumerate(whole):
            woven = [0] * len(expected)
            for rank in range(world):
                woven[rank::world] = parts[rank][position]
            assert woven == expected


def test_going_on_in_the_middle_with_other_ranks_misses_and_repeats_nothing():
    rows = random_rows(200)
    made = plan(rows)
    seen = []
    for start, stop, world in ((0, 5, 4), (5, 9, 2), (9, len(made), 1)):
        for rank in range(world):
            for position, batch in enumerate(batches(rows, made, start, rank, world), start=start):
                if position < stop:
                    seen += batch.indices.tolist()
    assert sorted(seen) == list(range(200))


def test_rows_end_with_end_then_padding():
    rows = pair_set([([5, 6, 7], [8]), ([9], [10, 11])])
    batch = rows.batch([1, 0])
    assert batch.indices.tolist() == [1, 0]
    assert batch.source.tolist() == [[9, END, PAD, PAD], [5, 6, 7, END]]
    assert batch.target.tolist() == [[10, 11, END], [8, END, PAD]]
    assert batch.source_lengths.tolist() == [2, 4]
    assert batch.target_lengths.tolist() == [3, 2]
    assert {tensor.dtype for tensor in batch} == {torch.int64}


def test_an_empty_part_is_an_empty_batch():
    batch = random_rows(3).batch([])
    assert [tuple(tensor.shape) for tensor in batch] == [(0,), (0, 0), (0,), (0, 0), (0,)]


def test_a_sentence_beyond_the_limit_is_a_batch_alone():
    rows = pair_set([([5] * 50, [5] * 3), ([5] * 3, [5] * 3), ([5] * 3, [5] * 3)])
    made = plan(rows, 12)
    assert sorted(map(len, made)) == [1, 2]


def test_the_stream_of_draws_is_pinned():
    """Resuming with a later numpy must give the same order, so the order itself is written down here."""
    lengths = np.full(9, 4, np.int64)
    made = ShardedPlan(lengths, lengths, 12, seed=3, epoch=2)
    assert [made[position].tolist() for position in range(3)] == [[7, 5, 0], [6, 4, 1], [2, 8, 3]]


def test_a_large_corpus_is_planned_in_shards_of_blocks_from_all_over_it(monkeypatch):
    monkeypatch.setattr(batching, "BLOCK", 8)
    monkeypatch.setattr(batching, "BLOCKS", 4)
    rows, tokens = random_rows(500), 90
    asked = []

    class Watched:
        def __init__(self, lengths):
            self.lengths = lengths

        def __len__(self):
            return len(self.lengths)

        def __getitem__(self, examples):
            asked.append(len(examples))
            return self.lengths[examples]

    made = ShardedPlan(Watched(rows.sides[0]), Watched(rows.sides[1]), tokens, 1, 0)
    parts = [made[place].tolist() for place in range(len(made))]
    assert len(made.shards) == 16
    assert max(asked) <= 8 * 4  # never the lengths of more than a shard
    assert sorted(index for part in parts for index in part) == list(range(500))
    for part in parts:
        width = max(max(rows.sides[0][index], rows.sides[1][index]) for index in part)
        assert len(part) == 1 or width * len(part) <= tokens
    where = [{index // 8 for index in np.concatenate(made._batches(shard)).tolist()} for shard in range(16)]
    assert sorted(block for blocks in where for block in blocks) == list(range(63))  # a block lies in one shard
    assert max(max(blocks) - min(blocks) for blocks in where) > 30
    again = plan(rows, tokens, epoch=1)
    assert len(again) == len(made)
    assert again.order.tolist() != made.order.tolist()
    assert [again[place].tolist() for place in range(len(again))] != parts
    middle = plan(rows, tokens)  # resumed in the middle, and read backwards
    assert [middle[place].tolist() for place in reversed(range(20, len(middle)))] == parts[:19:-1]


def test_prefetch_gives_the_same_items_and_ends_its_thread():
    before = threading.active_count()
    with prefetch(iter(range(100)), depth=3) as items:
        assert list(items) == list(range(100))
        assert list(items) == []
    with prefetch(iter(range(10**9)), depth=3) as items:
        assert next(items) == 0
    assert threading.active_count() == before


def test_prefetch_stays_only_a_little_ahead():
    made = []

    def count():
        for number in range(1000):
            made.append(number)
            yield number

    with prefetch(count(), depth=3) as items:
        next(items)
        time.sleep(0.2)
        assert len(made) <= 6


def test_a_thread_that_dies_is_noticed(monkeypatch):
    def dies(*_):
        raise SystemError("error return without exception set")

    monkeypatch.setattr("concurrent.futures.thread._WorkItem.run", dies)
    with prefetch(iter(range(3))) as items, pytest.raises(MemoryError, match="died"):
        next(items)


def test_a_time_out_of_the_iterator_is_its_own():
    def late():
        yield 1
        raise TimeoutError("the disk")

    with prefetch(late()) as items:
        assert next(items) == 1
        with pytest.raises(TimeoutError, match="the disk"):
            next(items)


def test_an_item_that_comes_while_the_wait_ends_is_taken(monkeypatch):
    def wait(future, timeout=None):
        found = result(future)
        if timeout is None:
            return found
        raise TimeoutError

    result = Future.result
    monkeypatch.setattr(Future, "result", wait)
    with prefetch(iter("ab")) as items:
        assert list(items) == ["a", "b"]


def test_no_thread_begins_without_memory(monkeypatch):
    monkeypatch.setattr("regard.work.little_memory", lambda: True)
    with pytest.raises(MemoryError), prefetch(iter("ab")):
        pass


def test_an_error_in_the_thread_is_raised_in_its_place():
    def broken():
        yield 1
        raise ValueError("torn page")

    with prefetch(broken()) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="torn page"):
            next(items)
        with pytest.raises(StopIteration):
            next(items)


def test_calls_in_threads_have_their_results_in_order_and_stay_a_little_ahead():
    before, made, later = threading.active_count(), [], threading.Event()

    def call(number):
        made.append(number)
        if number == 0:
            later.wait(20)  # the second call is over first
        later.set()
        return number

    with in_threads((partial(call, number) for number in range(100)), depth=5, threads=2) as results:
        assert next(results) == 0
        assert len(made) <= 6
        assert list(results) == list(range(1, 100))
    assert threading.active_count() == before


def test_an_error_in_one_of_several_threads_is_raised_in_its_place():
    def call(number):
        return 1 // (2 - number)

    with in_threads((partial(call, number) for number in range(4)), depth=4, threads=3) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_an_error_while_calls_are_collected_does_not_wait_for_them():
    made = []

    def calls():
        for number in range(50):
            yield partial(lambda number: (time.sleep(0.05), made.append(number)), number)
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"), in_threads(calls(), depth=60):
        pass
    assert len(made) < 50
