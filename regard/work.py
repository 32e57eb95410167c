"""Long work: its progress, and calls that run ahead in threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice, repeat, takewhile
from threading import Thread, current_thread
from typing import Any, TypeVar

from regard.errors import little_memory

T = TypeVar("T")
Progress = Callable[[int, int | None], None]  # (done, total); total is None if it is not known


def reporting(
    parts: Iterable[T], progress: Progress | None, total: int | None, size: Callable[[T], int] = lambda part: 1
) -> Iterator[T]:
    """Yield `parts`; after each one, call `progress` with the total size so far and `total`."""
    done = 0
    for part in parts:
        yield part
        done += size(part)
        if progress:
            progress(done, total)


@contextmanager
def prefetch(items: Iterator[T], depth: int = 4) -> Iterator[Iterator[T]]:
    """Run an iterator in a background thread, at most `depth` items ahead; leaving the block ends the thread.

    An error in the iterator is raised in place of its item.
    """
    end: Any = object()
    with in_threads(repeat(partial(next, items, end)), depth) as ahead:
        yield takewhile(lambda item: item is not end, ahead)


@contextmanager
def in_threads(calls: Iterable[Callable[[], T]], depth: int, threads: int = 1) -> Iterator[Iterator[T]]:
    """The results of calls, in order, computed in threads at most `depth` calls ahead, until the block is left.

    An error in a call is raised in place of its result.
    """
    begun, rest = list[Thread](), iter(calls)
    if little_memory():
        raise MemoryError  # Python would wait without end for a thread that has no memory to begin with
    with ThreadPoolExecutor(threads, "regard-prefetch", lambda: begun.append(current_thread())) as pool:
        ahead = deque[Future[T]]()

        def result(future: Future[T]) -> T:
            while True:
                try:
                    return future.result(timeout=1)
                except TimeoutError:
                    if future.done():
                        return future.result()  # it arrived just now, or the call itself raised the error
                    if any(not thread.is_alive() for thread in begun):
                        raise MemoryError("The thread that reads ahead has died.") from None

        def taken() -> Iterator[T]:
            while ahead:
                item = result(ahead.popleft())
                ahead.extend(pool.submit(call) for call in islice(rest, 1))
                yield item

        try:
            ahead.extend(pool.submit(call) for call in islice(rest, depth))
            yield taken()
        finally:
            pool.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """The number of cores that this process may use; a scheduler or taskset may limit them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
