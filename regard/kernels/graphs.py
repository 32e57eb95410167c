"""The same work again and again on a GPU: recorded as a CUDA graph, once for each shape, and replayed in one launch."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from regard.collector import without_collector

MOST = 96  # graphs that are kept; the least recently used one is dropped first
WARM = 2  # calls that run plainly before anything is recorded: libraries and optimisers set themselves up in them

Shapes = tuple[tuple[torch.Size, torch.dtype], ...]


class Captured:
    """`work(*tensors) -> Tensor`, recorded for each set of shapes and replayed.

    The first call with new shapes runs plainly, the second one records. `work` must depend on its arguments and on
    tensors that stay where they are, and must not wait for the device. Work that cannot be recorded runs plainly
    from then on, and `refusal` says why. All graphs share one memory pool, so a result is valid until the next call.

    Random numbers follow the seed that is set before a call, recorded or not.
    """

    def __init__(self, work: Callable[..., Tensor], device: torch.device, most: int = MOST) -> None:
        self.work, self.device, self.most = work, device, most
        self.refusal = ""
        self.graphs: OrderedDict[Shapes, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = OrderedDict()
        self.seen: set[Shapes] = set()
        self.calls = 0
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

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
        graph, buffers, result = self.graphs[shapes]
        self.graphs.move_to_end(shapes)
        for buffer, part in zip(buffers, inputs, strict=True):
            buffer.copy_(part, non_blocking=True)
        graph.replay()
        return result

    def record(self, shapes: Shapes, inputs: tuple[Tensor, ...]) -> bool:
        """Record the work for these shapes; returns whether it could be."""
        buffers = [part.to(self.device, copy=True) for part in inputs]
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        try:
            # Only this thread is held to the rules of recording: another one may be loading the next batch. Freeing the
            # graphs of an earlier training, which are cyclic garbage, would end the recording.
            with (
                without_collector(),
                torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"),
            ):
                result = self.work(*buffers)
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # `graph` leaves its own stream behind when recording fails
            self.forget()
            if isinstance(error, torch.OutOfMemoryError):
                self.seen.clear()
            else:
                self.refusal = str(error).split("\n")[0]
            return False
        self.graphs[shapes] = graph, buffers, result
        if len(self.graphs) > self.most:
            self.graphs.popitem(last=False)
        return True

    def forget(self) -> None:
        """Drop all graphs."""
        self.graphs.clear()
        self.pool = torch.cuda.graph_pool_handle()
        unlock_generator(self.device)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()


def unlock_generator(device: torch.device) -> None:
    """Replace the generator of random numbers, which a failed recording leaves locked."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    fresh = torch.Generator(device)
    fresh.manual_seed(torch.cuda.initial_seed())
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())
