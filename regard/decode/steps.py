"""The loop that all searches share: step the model, advance the search, drop the sentences that are done."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from regard.core.nested import device_of, map_nested
from regard.decode.captured import captured_steps
from regard.decode.terms import Terms
from regard.errors import DataError
from regard.kernels.choose import steps_path
from regard.kernels.past import with_room
from regard.kernels.step_model import for_steps
from regard.models.contract import SequenceModel, State, take, take_beams

EVERY = 4  # on a GPU, steps between two checks whether sentences are done
ROOM = 8  # steps that a fresh past has room for


class SearchRequest(NamedTuple):
    """What a caller asks of one search besides its settings."""

    prefixes: Sequence[Sequence[int]] | None = None  # ids that the translation of each row must begin with
    terms: Terms | None = None  # runs of ids that it must hold, by beam search alone
    observe: Callable[[Any], None] | None = None  # is shown every step of a beam search
    stop: Callable[[], bool] | None = None  # is called before every step, and ends the search when it returns True

    def take(self, rows: Sequence[int]) -> "SearchRequest":
        """The same for some rows."""
        prefixes = None if self.prefixes is None else [self.prefixes[row] for row in rows]
        return self._replace(prefixes=prefixes, terms=None if self.terms is None else self.terms.take(rows))


PLAIN = SearchRequest()


class Search(Protocol):
    """What a search keeps of its A sentences: a NamedTuple of tensors that begin with A."""

    @property
    def row(self) -> Tensor: ...  # [A] of the batch

    @property
    def done(self) -> Tensor: ...  # [A]

    @property
    def token(self) -> Tensor: ...  # [A, k] what the model reads next


AnySearch = TypeVar("AnySearch", bound=Search)
Found = TypeVar("Found")  # a hypothesis, or several
Advanced = tuple[AnySearch, Tensor | None]  # and the rows of the model that continue [A * K]; None where all do


def take_steps(
    model: SequenceModel,
    begin: Callable[[Tensor, int, torch.device], AnySearch],
    advance: Callable[[AnySearch, Tensor], Advanced[AnySearch]],
    hypotheses_of: Callable[[AnySearch], list[Found]],
    state: State,
    limits: Tensor,
    request: SearchRequest,
) -> list[Found]:
    """Search from `state` until every sentence is done, none longer than `limits` [B]: the hypotheses of each sentence.

    `begin(limits, T, device)` makes a search with room for T tokens, and `advance` continues each sentence by a token.
    A search that is stopped gives what it has. On a GPU a step is captured as a CUDA graph where the model allows it,
    unless each of them is observed or terms are wanted.
    """
    if not len(limits):
        return []
    device, steps = device_of(state), int(limits.max())
    search = begin(limits, steps if is_host(device) else -(-steps // 64) * 64, device)  # few sizes for all on a GPU
    largest = max(map(max, filter(None, request.prefixes or ())), default=-1)
    found: list[Any] = [None] * len(limits)

    def step(stepped: Any, search: AnySearch, state: State) -> tuple[AnySearch, State, Tensor | None]:
        logits, state = stepped.step(search.token.flatten(), state)
        if largest >= logits.shape[1]:
            raise DataError(
                f"A forced prefix holds token {largest}, but the vocabulary has {logits.shape[1]} tokens; "
                f"encode the prefix with the model's own target vocabulary."
            )
        after, rows = advance(search, logits)
        return after, state, rows

    def collect(some: AnySearch) -> None:
        for row, hypotheses in zip(some.row.tolist(), hypotheses_of(some), strict=True):
            found[row] = hypotheses

    beams, on_gpu = search.token.shape[1], not is_host(device)
    if on_gpu and torch.is_autocast_enabled("cuda") and hasattr(state, "memory"):
        state = state._replace(memory=map_nested(state.memory, cast_once))
    if beams > 1:
        state = take(state, torch.arange(len(search.row), device=search.row.device).repeat_interleave(beams))
    kind = largest, getattr(advance, "func", advance), *getattr(advance, "keywords", {}).values()
    observed = request.observe is not None or request.terms is not None
    capturable = on_gpu and steps_path(model, "cuda", observed).name != "plain"
    if not (capturable and captured_steps(model, step, kind, search, state, steps, collect, request.stop)):
        plain_steps(partial(step, for_steps(model)), search, with_room(state, ROOM), steps, collect, request.stop)
    return found


def cast_once(x: Tensor) -> Tensor:
    """Keys and values in the dtype of autocast, cast once for a search and not at every step."""
    return x.to(torch.get_autocast_dtype("cuda")) if x.dtype == torch.float32 and x.dim() > 2 else x


def plain_steps(
    step: Callable[[AnySearch, State], tuple[AnySearch, State, Tensor | None]],
    search: AnySearch,
    state: State,
    steps: int,
    collect: Callable[[AnySearch], None],
    stop: Callable[[], bool] | None,
) -> None:
    """The loop without graphs: `collect` gets finished sentences, and in the end all that are left.

    A CPU drops each finished sentence; a GPU is queried rarely and drops half of them at once.
    """
    every, share = (1, 1.0) if is_host(search.done.device) else (EVERY, 0.5)
    for number in range(1, steps + 1):
        if stop is not None and stop():
            break
        beams = search.token.numel()
        search, state, rows = step(search, state)
        if number % every == 0:
            going = (~search.done).nonzero().squeeze(1)  # [A]
            if not len(going):
                break
            if len(going) < share * len(search.done):
                collect(take(search, search.done.nonzero().squeeze(1)))
                search = take(search, going)
                kept = torch.arange(search.token.shape[1], device=going.device) + going[:, None] * search.token.shape[1]
                rows = kept.flatten() if rows is None else rows[kept.flatten()]
                state = take(state, rows)
                continue
        if rows is None:
            continue
        if len(rows) != beams:
            state = take(state, rows)  # the first step: K rows of one
        elif not rows.is_cpu or not torch.equal(rows, torch.arange(len(rows))):
            state = take_beams(state, rows)
    collect(search)


def is_host(device: torch.device) -> bool:
    """Whether the host reads the numbers of a device without waiting, and a step needs no graph."""
    return device.type == "cpu"
