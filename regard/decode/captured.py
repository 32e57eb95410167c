"""A decoding step as a CUDA graph: the model, the choice of tokens, the bookkeeping and the reordering in one launch.

A step of a small batch is hundreds of launches that cost more than their arithmetic. Captured once over buffers of a
fixed size it is replayed for all sentences and steps of that size. Rows, slots of the past and the length of the source
are rounded up to a few sizes, and the graphs of a model are kept as long as its weights are what they were.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from regard.collector import without_collector
from regard.core.nested import leaves, map_nested, on_host
from regard.errors import brief
from regard.kernels.choose import refused
from regard.kernels.graphs import unlock_generator
from regard.kernels.past import change_places, with_room
from regard.kernels.step_model import for_steps
from regard.models.contract import State, take

log = logging.getLogger("regard.decode")

POLL = 2  # steps between two checks whether sentences are done; the next step is launched before the result is read
ROOM = 32  # slots of a past in the first graph; the next one has twice as many
GRAPHS = 8  # kept for each model

_graphs: "WeakKeyDictionary[Any, OrderedDict[Any, Graph]]" = WeakKeyDictionary()
_starts: "WeakKeyDictionary[Any, OrderedDict[Any, StartGraph | None]]" = WeakKeyDictionary()
# All that a graph leaves behind is in its own tensors, so the graphs of a device share their memory. It is freed with
# the last of them, and its handle is void after that.
_alive: "dict[torch.device, WeakSet[torch.cuda.CUDAGraph]]" = {}
_own = threading.local()  # streams: the streams of a thread, one for each device


def captured_steps(
    model: Any,
    stepped: Callable[[], Any],
    step: Callable[[Any, State], tuple[Any, State, Tensor | None]],
    kind: tuple[Any, ...],
    search: Any,
    state: State,
    steps: int,
    collect: Callable[[Any], None],
    stop: Callable[[], bool] | None,
) -> bool:
    """`plain_steps` by graphs: True when the search is over, False where the first step could not be captured.

    `stepped()` is the model as `step` uses it; `kind` is all that `step` depends on besides the model and the shapes.
    """
    number, room = 0, min(ROOM, rounded(steps))
    search, state = fill(search, state, rounded(len(search.row)))
    while number < steps:
        state = with_room(state, room, fixed=True)
        weights = weights_of(model)
        graphs = current(_graphs.setdefault(model, OrderedDict()), weights)
        key = kind, signature((search, state)), weights
        graph = graphs.pop(key, None)  # so that no other thread replays it meanwhile
        if graph is None:
            try:
                graph = Graph(step, search, state, read_by(model, stepped()))
            except (RuntimeError, TypeError) as error:
                graphs.clear()
                if number:
                    raise
                refuse(model, error)
                return False
        graph.load(search, state)
        made, stopped = replay(graph, min(room, steps) - number, stop)
        number += made
        found = on_host(graph.search)
        done = found.done.tolist()
        over = stopped or all(done) or number >= steps
        ready = ((found.row >= 0) & (found.done | over)).nonzero().squeeze(1)
        collect(found if len(ready) == len(done) else take(found, ready))
        if not over:
            going = [place for place, finished in enumerate(done) if not finished]
            search, state = fill(*keep(graph.search, graph.state, going), rounded(len(going)))
            room = room if number < room else min(2 * room, rounded(steps))
        graphs[key] = graph
        while len(graphs) > GRAPHS:
            graphs.popitem(last=False)
        if over:
            break
    return True


def replay(graph: "Graph", most: int, stop: Callable[[], bool] | None) -> tuple[int, bool]:
    """Make at most `most` steps, until few sentences are left or `stop()`; returns how many, and whether it stopped."""
    answer = None
    for number in range(most):
        if stop is not None and stop():
            return number, True
        graph.replay()
        if answer is not None and few_left(answer()):
            return number + 1, False
        answer = later(graph.search.done) if (number + 1) % POLL == 0 else None
    return most, False


def captured_start(model: Any, source: Tensor, lengths: Tensor) -> State:
    """`model.start(model.encode(source, lengths))`, by a graph from the second time that these sizes are read.

    A corpus of many sizes, each captured for nothing, is read by plain calls.
    """
    weights = weights_of(model)
    graphs = current(_starts.setdefault(model, OrderedDict()), weights)
    key = signature((source, lengths)), weights
    again, graph = key in graphs, graphs.pop(key, None)  # so that no other thread replays it meanwhile
    if again and graph is None:
        try:
            graph = StartGraph(model, source, lengths)
        except (RuntimeError, TypeError) as error:
            refuse(model, error)
    state = model.start(model.encode(source, lengths)) if graph is None else graph(source, lengths)
    graphs[key] = graph
    while len(graphs) > GRAPHS:
        graphs.popitem(last=False)
    return state


class StartGraph:
    """A source read into the first state, over fixed tensors."""

    def __init__(self, model: Any, source: Tensor, lengths: Tensor) -> None:
        self.inputs = copied((source, lengths))
        low = for_steps(model)
        self.kept = read_by(model, low)

        def read() -> State:
            return low.start(low.encode(*self.inputs))

        self.state = copied(read())
        self.replay = capture(read, lambda: overwrite(self.state, read()), source.device)

    def __call__(self, source: Tensor, lengths: Tensor) -> State:
        overwrite(self.inputs, (source, lengths))
        self.replay()
        return copied(self.state)  # another search may replay before this one is over


def refuse(model: Any, error: Exception) -> None:
    """Log why a model cannot be captured, and remember it unless only memory was short."""
    full = isinstance(error, torch.OutOfMemoryError)
    why = "the GPU's memory is full" if full else brief(error)
    reason = f"{type(model).__name__} cannot be captured: {why}."
    log.warning("Decoding runs without a CUDA graph: %s", reason)
    if not full:
        refused[model] = reason


def few_left(done: list[bool]) -> bool:
    """Whether buffers of half the size, or none, are enough for the sentences that are not done."""
    return all(done) or rounded(len(done) - sum(done)) <= len(done) // 2


def later(numbers: Tensor) -> Callable[[], list[Any]]:
    """Begin to copy `numbers` to the host; the result waits for the copy, not for what is launched after it."""
    if numbers.is_cpu:
        known = numbers.tolist()
        return lambda: known
    there, copied = numbers.to("cpu", non_blocking=True), torch.cuda.Event()
    copied.record(torch.cuda.current_stream(numbers.device))

    def wait() -> list[Any]:
        copied.synchronize()
        return there.tolist()

    return wait


class Graph:
    """One step over fixed tensors: `load` fills them, `replay` advances them."""

    def __init__(self, step: Callable[..., Any], search: Any, state: State, kept: list[Tensor]) -> None:
        self.search, self.state, self.kept = copied(search), copied(state), kept

        def run(search: Any, state: State) -> None:
            after, moved, rows = step(search, state)
            if rows is not None:
                moved = change_places(moved, rows, search.token.shape[1])
            overwrite((search, state), (after, moved))

        spare = copied(search), copied(state)
        self.replay = capture(lambda: run(*spare), lambda: run(self.search, self.state), search.row.device)

    def load(self, search: Any, state: State) -> None:
        overwrite((self.search, self.state), (search, state))


def read_by(model: nn.Module, low: nn.Module) -> list[Tensor]:
    """What must outlive a graph: what it reads, and the weights whose addresses are its key."""
    return [*low.parameters(), *low.buffers(), *model.parameters()]


def capture(warm: Callable[[], None], run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """`run` as a CUDA graph; `warm` does the same before, with other tensors, for what is set up at first use."""
    stream, graph = own_stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    lowered = torch.is_autocast_enabled("cuda")
    # Autocast frees the weights that it cast when it ends; a graph may not depend on them.
    with (
        torch.cuda.stream(stream),
        without_collector(),  # freeing an older graph, which is cyclic garbage, would end the capture
        torch.autocast("cuda", torch.get_autocast_dtype("cuda"), enabled=lowered, cache_enabled=False),
    ):
        warm()
        stream.synchronize()
        others = _alive.setdefault(device, WeakSet())
        pool = next((other.pool() for other in list(others)), None)
        graph.capture_begin(pool, capture_error_mode="thread_local")  # other threads may use the GPU meanwhile
        try:
            run()
        except BaseException:
            others.clear()
            with suppress(RuntimeError):
                graph.capture_end()
            unlock_generator(device)
            raise
        graph.capture_end()
        others.add(graph)
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay


def own_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which this thread captures.

    Memory that was freed on a stream is used again on that stream alone, also in the memory that graphs share. With a
    stream for each capture, each of torch's 32 streams would keep the logits of a large batch, twice.
    """
    streams: dict[torch.device, torch.cuda.Stream] = _own.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


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


def signature(inputs: Any) -> tuple[Any, ...]:
    """All that a graph depends on but the numbers."""
    lowered = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    return lowered, *((tensor.shape, tensor.dtype, tensor.device) for tensor in leaves(inputs))


def weights_of(model: nn.Module) -> tuple[Any, ...]:
    """Where the weights are and how often they were changed; a search may have laid out copies of them."""
    return tuple((weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in model.parameters())


def current(graphs: "OrderedDict[Any, Any]", weights: tuple[Any, ...]) -> "OrderedDict[Any, Any]":
    """The graphs of a model without those of older weights, whose copies would stay in memory."""
    for key in [key for key in graphs if key[-1] != weights]:
        graphs.pop(key, None)  # another thread may have taken it
    return graphs


def rounded(size: int) -> int:
    """The next of 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, ...: few sizes, and at most half of one is wasted."""
    power = 1 << max(0, size - 1).bit_length()
    return power * 3 // 4 if power >= 16 and size <= power * 3 // 4 else power


def fill(search: Any, state: State, size: int) -> tuple[Any, State]:
    """`size` sentences: those that are there, then copies of the first that are done and belong to no row."""
    count = len(search.row)
    if count == size:
        return search, state
    search, state = keep(search, state, [*range(count), *[0] * (size - count)])
    search.row[count:], search.done[count:] = -1, True
    return search, state


def keep(search: Any, state: State, places: list[int]) -> tuple[Any, State]:
    """The sentences at these places, with all their beams."""
    beams = search.token.shape[1]
    chosen = torch.tensor(places).to(search.row.device, non_blocking=True)
    rows = (chosen[:, None] * beams + torch.arange(beams, device=chosen.device)).flatten()
    return take(search, chosen), take(state, rows)
