"""The steps of a search as CUDA graphs: the model, the choice of tokens, the bookkeeping and the reordering.

A step of a small batch is hundreds of launches, each of which takes longer than its arithmetic. Recorded once over
buffers of a fixed size (`kernels.graphs`), one launch replays it for all sentences and steps of that size. Rows, slots
of the past and the length of the source are rounded up to a few sizes, and the graphs of a model are kept as long as
its weights are unchanged.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.core.nested import leaves, on_host
from regard.errors import brief
from regard.kernels.choose import refused
from regard.kernels.graphs import Graph, GraphMemory, copied, overwrite
from regard.kernels.past import change_places, with_room
from regard.kernels.step_model import for_steps
from regard.models.contract import State, take

log = logging.getLogger("regard.decode")

POLL = 2  # steps between two checks whether sentences are done; the next step is launched before the result is read
ROOM = 32  # slots of a past in the first graph; the next one has twice as many
GRAPHS = 16  # kept for each model: of its steps, and of sources that it read

_graphs: "WeakKeyDictionary[Any, OrderedDict[Any, Graph | None]]" = WeakKeyDictionary()
_memories: dict[torch.device, GraphMemory] = {}  # all that a graph leaves behind is in its own tensors


def captured_steps(
    model: Any,
    step: Callable[[Any, Any, State], tuple[Any, State, Tensor | None]],
    kind: tuple[Any, ...],
    search: Any,
    state: State,
    steps: int,
    collect: Callable[[Any], None],
    stop: Callable[[], bool] | None,
) -> bool:
    """`plain_steps` by graphs: True when the search is over, False where the first step could not be captured.

    `step` is called with `for_steps(model)`, the search and the state; `kind` is all else that it depends on, besides
    the shapes.
    """
    number, room = 0, min(ROOM, rounded(steps))
    search, state = fill(search, state, rounded(len(search.row)))
    while number < steps:
        state = with_room(state, room, fixed=True)
        graphs, weights = graphs_of(model)
        key = kind, signature((search, state)), weights
        graph = graphs.pop(key, None)  # so that no other thread replays it meanwhile
        if graph is None:
            try:
                graph = record_step(model, step, search, state)
            except (RuntimeError, TypeError) as error:
                graphs.clear()
                if number:
                    raise
                refuse(model, error)
                return False
        graph.load(search, state)
        made, stopped = replay(graph, min(room, steps) - number, stop)
        number += made
        here, there = graph.inputs
        found = on_host(here)
        done = found.done.tolist()
        over = stopped or all(done) or number >= steps
        ready = ((found.row >= 0) & (found.done | over)).nonzero().squeeze(1)
        collect(found if len(ready) == len(done) else take(found, ready))
        if not over:
            going = [place for place, finished in enumerate(done) if not finished]
            search, state = fill(*some_sentences(here, there, going), rounded(len(going)))
            room = room if number < room else min(2 * room, rounded(steps))
        put_back(graphs, key, graph)
        if over:
            break
    return True


def record_step(model: Any, step: Callable[..., Any], search: Any, state: State) -> Graph:
    """A graph whose inputs are the search and the state; a replay advances them by a token."""
    stepped = for_steps(model)

    def run(search: Any, state: State) -> list[Tensor]:
        after, moved, rows = step(stepped, search, state)
        if rows is not None:
            moved = change_places(moved, rows, search.token.shape[1])
        overwrite((search, state), (after, moved))
        return read_by(model, stepped)

    return Graph(run, (search, state), memory_of(search.row.device))


def replay(graph: Graph, most: int, stop: Callable[[], bool] | None) -> tuple[int, bool]:
    """Make at most `most` steps, until few sentences are left or `stop()`; returns how many, and whether it stopped."""
    answer = None
    for number in range(most):
        if stop is not None and stop():
            return number, True
        graph.replay()
        if answer is not None and few_left(answer()):
            return number + 1, False
        answer = later(graph.inputs[0].done) if (number + 1) % POLL == 0 else None
    return most, False


def captured_start(model: Any, source: Tensor, lengths: Tensor) -> State:
    """`model.start(model.encode(source, lengths))`, by a graph from the second time that these sizes are read.

    A corpus of many sizes, each captured for nothing, is read by plain calls.
    """
    graphs, weights = graphs_of(model)
    key = "start", signature((source, lengths)), weights
    again, graph = key in graphs, graphs.pop(key, None)  # so that no other thread replays it meanwhile
    if again and graph is None:
        try:
            graph = record_start(model, source, lengths)
        except (RuntimeError, TypeError) as error:
            refuse(model, error)
    if graph is None:
        state = model.start(model.encode(source, lengths))
    else:
        overwrite(graph.inputs[:2], (source, lengths))
        graph.replay()
        state = copied(graph.inputs[2])  # another search may replay before this one is over
    put_back(graphs, key, graph)
    return state


def record_start(model: Any, source: Tensor, lengths: Tensor) -> Graph:
    """A graph whose inputs are a source and a state; a replay reads the source into the state."""
    stepped = for_steps(model)

    def run(source: Tensor, lengths: Tensor, state: State) -> list[Tensor]:
        overwrite(state, stepped.start(stepped.encode(source, lengths)))
        return read_by(model, stepped)

    state = stepped.start(stepped.encode(source, lengths))
    return Graph(run, (source, lengths, state), memory_of(source.device))


def read_by(model: nn.Module, stepped: nn.Module) -> list[Tensor]:
    """What must live as long as a graph: what it reads, and the weights whose addresses are its key."""
    return [*stepped.parameters(), *stepped.buffers(), *model.parameters()]


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


def memory_of(device: torch.device) -> GraphMemory:
    """The memory of all searches on a device."""
    return _memories.setdefault(device, GraphMemory(device))


def signature(inputs: Any) -> tuple[Any, ...]:
    """All that a graph depends on but the numbers."""
    lowered = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    return lowered, *((tensor.shape, tensor.dtype, tensor.device) for tensor in leaves(inputs))


def weights_of(model: nn.Module) -> tuple[Any, ...]:
    """Where the weights are and how often they were changed; a search may have laid out copies of them."""
    return tuple((weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in model.parameters())


def graphs_of(model: nn.Module) -> "tuple[OrderedDict[Any, Graph | None], tuple[Any, ...]]":
    """The graphs of a model, without those of older weights, whose copies would stay in memory; and `weights_of`."""
    graphs, weights = _graphs.setdefault(model, OrderedDict()), weights_of(model)
    for key in [key for key in graphs if key[-1] != weights]:
        graphs.pop(key, None)  # another thread may have taken it
    return graphs, weights


def put_back(graphs: "OrderedDict[Any, Graph | None]", key: Any, graph: Graph | None) -> None:
    """Keep a graph as the one that was used last, and drop those that were not used for longest."""
    graphs[key] = graph
    while len(graphs) > GRAPHS:
        graphs.popitem(last=False)


def rounded(size: int) -> int:
    """The next of 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, ...: few sizes, and at most half of one is wasted."""
    power = 1 << max(0, size - 1).bit_length()
    return power * 3 // 4 if power >= 16 and size <= power * 3 // 4 else power


def fill(search: Any, state: State, size: int) -> tuple[Any, State]:
    """`size` sentences: those that are there, then copies of the first that are done and belong to no row."""
    count = len(search.row)
    if count == size:
        return search, state
    search, state = some_sentences(search, state, [*range(count), *[0] * (size - count)])
    search.row[count:], search.done[count:] = -1, True
    return search, state


def some_sentences(search: Any, state: State, places: list[int]) -> tuple[Any, State]:
    """The sentences at these places, with all their beams."""
    beams = search.token.shape[1]
    chosen = torch.tensor(places).to(search.row.device, non_blocking=True)
    rows = (chosen[:, None] * beams + torch.arange(beams, device=chosen.device)).flatten()
    return take(search, chosen), take(state, rows)
