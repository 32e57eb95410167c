"""CUDA graphs: work that is recorded once and then replayed by one launch, without the cost of its many small calls.

Updates (`Recorded`) and decoding (`decode.captured`) use the same `Graph`. Recorded work may only read its inputs and
tensors that keep their address, and must not wait for the device.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from regard.collector import without_collector
from regard.core.nested import leaves, map_nested

MOST = 96  # graphs of updates that are kept; the least recently used one is dropped first
WARM = 2  # updates that run plainly before any is recorded: libraries and optimisers set themselves up in them

Shapes = tuple[tuple[torch.Size, torch.dtype], ...]


class GraphMemory:
    """Memory that several graphs of a device share: a replay may overwrite the results of another graph.

    It is freed with the last graph, and its handle is invalid after that.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.alive: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self.threads = threading.local()

    @property
    def stream(self) -> torch.cuda.Stream:
        """The stream on which this thread records.

        Memory that was freed on a stream is used again on that stream alone. With a stream for each recording, each of
        torch's 32 streams would keep the logits of a large batch, twice.
        """
        if not hasattr(self.threads, "stream"):
            self.threads.stream = torch.cuda.Stream(self.device)
        stream: torch.cuda.Stream = self.threads.stream
        return stream


class Graph:
    """`run(*inputs)` over copies of `inputs`, nested tuples of tensors: `load` fills them, `replay` runs.

    `result` is what `run` returned. With `warm`, `run` is called once before, over other copies, for what libraries
    set up at their first use.
    """

    def __init__(
        self, run: Callable[..., Any], inputs: tuple[Any, ...], memory: GraphMemory, warm: bool = True
    ) -> None:
        self.inputs = copied(inputs)
        self.result: Any = None

        def recorded() -> None:
            self.result = run(*self.inputs)

        spare = copied(inputs) if warm else ()
        self.replay = capture(recorded, (lambda: run(*spare)) if warm else None, memory)

    def load(self, *inputs: Any) -> None:
        """Copy `inputs` into the tensors of the graph."""
        overwrite(self.inputs, inputs)


def capture(run: Callable[[], None], warm: Callable[[], Any] | None, memory: GraphMemory) -> Callable[[], None]:
    """`run` as a CUDA graph, which the returned function replays; `warm` is called before."""
    device, stream, graph = memory.device, memory.stream, torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    # Autocast frees the weights that it cast when it ends; a graph may not depend on them.
    lowered = torch.is_autocast_enabled("cuda")
    uncached = (
        torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False) if lowered else nullcontext()
    )
    # Freeing an older graph, which is cyclic garbage, would end the recording.
    with torch.cuda.stream(stream), without_collector(), uncached:
        if warm is not None:
            warm()
        stream.synchronize()
        pool = next((other.pool() for other in list(memory.alive)), None)
        graph.capture_begin(pool, capture_error_mode="thread_local")  # other threads may use the GPU meanwhile
        try:
            run()
        except BaseException:
            memory.alive.clear()
            with suppress(RuntimeError):
                graph.capture_end()
            _unlock_generator(device)
            raise
        graph.capture_end()
        memory.alive.add(graph)
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay


class Recorded:
    """`work(*tensors) -> Tensor`, recorded for each set of shapes and replayed.

    The first call with new shapes runs plainly, the second one records. Work that cannot be recorded runs plainly from
    then on, and `refusal` says why. A result is valid until the next call. Random numbers follow the seed that is set
    before a call, recorded or not.
    """

    def __init__(self, work: Callable[..., Tensor], device: torch.device, most: int = MOST) -> None:
        self.work, self.device, self.most = work, device, most
        self.refusal = ""
        self.graphs: OrderedDict[Shapes, Graph] = OrderedDict()
        self.memory = GraphMemory(device)
        self.seen: set[Shapes] = set()
        self.calls = 0

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The result of the work; inputs may be on the device, or in pinned memory of the host."""
        shapes = tuple((part.shape, part.dtype) for part in inputs)
        self.calls += 1
        known = shapes in self.graphs
        if not known and not self.refusal and shapes in self.seen and self.calls > WARM:
            known = self.record(shapes, inputs)
        if not known:
            self.seen.add(shapes)
            return self.work(*(part.to(self.device, non_blocking=True) for part in inputs))
        graph = self.graphs[shapes]
        self.graphs.move_to_end(shapes)
        for buffer, part in zip(graph.inputs, inputs, strict=True):
            buffer.copy_(part, non_blocking=True)
        graph.replay()
        result: Tensor = graph.result
        return result

    def record(self, shapes: Shapes, inputs: tuple[Tensor, ...]) -> bool:
        """Record the work for these shapes; returns whether it could be."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # what plain calls used, the memory of graphs can take
        try:
            there = tuple(part.to(self.device) for part in inputs)
            self.graphs[shapes] = Graph(self.work, there, self.memory, warm=False)
        except RuntimeError as error:
            self.graphs.clear()
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            if isinstance(error, torch.OutOfMemoryError):
                self.seen.clear()
            else:
                self.refusal = str(error).split("\n")[0]
            return False
        if len(self.graphs) > self.most:
            self.graphs.popitem(last=False)
        return True


def overwrite(into: Any, out: Any) -> None:
    """Copy tensors of the same shapes, and of types that those of `into` hold exactly. One that shares its memory with
    another of `into` is copied twice."""
    olds, news = list(leaves(into)), list(leaves(out))
    kinds = [(old.dtype, new.dtype) for old, new in zip(olds, news, strict=False)]
    if [old.shape for old in olds] != [new.shape for new in news] or any(
        torch.promote_types(old, new) != old for old, new in kinds
    ):
        raise TypeError("the state changes its shapes or types from step to step.")
    owned = {old.untyped_storage().data_ptr() for old in olds}
    copies: dict[tuple[torch.dtype, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}  # a launch copies many
    for old, new, kind in zip(olds, news, kinds, strict=True):
        if new.data_ptr() != old.data_ptr() or new.stride() != old.stride():
            ours, theirs = copies.setdefault(kind, ([], []))
            ours.append(old)
            theirs.append(new.clone() if new.untyped_storage().data_ptr() in owned else new)
    for ours, theirs in copies.values():
        torch._foreach_copy_(ours, theirs)


def copied(part: Any) -> Any:
    """Nested tuples with copies of their tensors, none of which shares memory with another."""
    fresh = map_nested(part, lambda tensor: torch.empty_like(tensor, memory_format=torch.contiguous_format))
    overwrite(fresh, part)
    return fresh


def _unlock_generator(device: torch.device) -> None:
    """Replace the generator of random numbers, which a failed recording leaves locked."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    fresh = torch.Generator(device)
    fresh.manual_seed(torch.cuda.initial_seed())
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())
