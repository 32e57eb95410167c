"""What search, training, serving and recording know of a sequence model, and nothing else:

    encode(source, lengths) -> Memory                 read once
    start(memory) -> State                            before the first token
    step(token, state) -> (logits, State)             one token for every row
    hidden(source, lengths, target) -> [B, T, D]      all steps at once, up to the output layer
    output                                            the output layer, [..., D] -> logits [..., V]
    forward(source, lengths, target) -> logits        output(hidden(...))

Rows of `source` end with END before the padding, and `lengths` counts it. Rows of `target` are y_1 ... y_T with
END last; models shift them right themselves, so `forward(...)[:, t]` are the logits of `target[:, t]` and equal those
of the t-th `step` (the first step reads START).

`step` never writes into the state it is given: a state can be stepped more than once, and each result continued. A
model never waits for the device (no `.item()`, `.cpu()` or `if tensor`), so that a GPU is never idle and `encode` and
`step` can be traced and exported. Tests check all of this for every registered model.

A language model has nothing to read first: it has `start(rows)`, `step`, `hidden(target)`, `output` and
`forward(target)`, and a search continues from `start(rows)` as from any other state. A long text is read in rows:
`stream(rows)` is the state before the first row, `read` continues from it, and its state never grows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.nested import map_nested
from regard.data.batching import shift_right as shift_right
from regard.errors import ConfigError, ShapeError, numbered

# A NamedTuple of tensors (or nested NamedTuples of them), the batch first in each; what else it holds, all rows share.
State = Any
AnyState = TypeVar("AnyState")
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # what ids and lengths may be


@runtime_checkable
class SequenceModel(Protocol):
    """A model that writes one sequence while attending to another."""

    output: nn.Module

    def encode(self, source: Tensor, lengths: Tensor) -> Memory: ...

    def start(self, memory: Memory) -> State: ...

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]: ...

    def hidden(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor: ...

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor: ...


@runtime_checkable
class LanguageModel(Protocol):
    """A model that writes a text and attends to nothing but its own past.

    `start(rows)` is the state before the first word of `rows` texts, on the device of the model's weights.
    """

    output: nn.Module

    def start(self, rows: int) -> State: ...

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]: ...

    def hidden(self, target: Tensor) -> Tensor: ...

    def forward(self, target: Tensor) -> Tensor: ...

    def stream(self, rows: int) -> State: ...

    def read(self, words: Tensor, state: State) -> tuple[Tensor, State]: ...


class EncoderDecoder(nn.Module):
    """Base class of sequence models; subclasses define `encode`, `start` and `decode`.

    `decode(words, state)` takes any number of words [B, T] and returns what `output` reads, [B, T, D], and the state
    after them. A model with a faster way for one step or for all at once has its own `step` or `hidden`.
    A model without `decode` defines `step` and `hidden` itself.
    """

    encode: Callable[[Tensor, Tensor], Memory]
    start: Callable[[Memory], State]
    decode: Callable[[Tensor, State], tuple[Tensor, State]]
    output: nn.Module

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """token [B] -> logits [B, V]."""
        units, state = self.decode(token[:, None], state)
        return self.output(units[:, 0]), state

    def hidden(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """What the output layer reads, [B, T, D], each step reading the true word before it."""
        check_target(target, source)
        return self.decode(shift_right(target), self.start(self.encode(source, lengths)))[0]

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T]."""
        return self.output(self.hidden(source, lengths, target))


class TextModel(nn.Module):
    """Base class of language models; subclasses define `start` and `decode`, as those of `EncoderDecoder` do.

    A long text is read in rows, by `stream` and `read`: a model whose state grows with the text defines `cut`, and one
    whose state depends on where a row began has its own `stream` and `read`.
    """

    start: Callable[[int], State]
    decode: Callable[[Tensor, State], tuple[Tensor, State]]
    output: nn.Module

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """token [B] -> logits [B, V]."""
        units, state = self.decode(token[:, None], state)
        return self.output(units[:, 0]), state

    def hidden(self, target: Tensor) -> Tensor:
        """What the output layer reads, [B, T, D], each step reading the true word before it."""
        check_target(target)
        return self.decode(shift_right(target), self.start(len(target)))[0]

    def stream(self, rows: int) -> State:
        """The state before `rows` texts that are read row by row."""
        return self.cut(self.start(rows))

    def read(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """The next words [B, T] of each text -> what the output layer reads [B, T, D], and a state of the same size."""
        units, state = self.decode(words, state)
        return units, self.cut(state)

    def cut(self, state: State) -> State:
        """What a row leaves to the next one, in a size that does not depend on the text."""
        return state

    def forward(self, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T]."""
        return self.output(self.hidden(target))


class AttentionLayout(NamedTuple):
    """How the rows of a model's weights relate to the words it writes; every model states it as `attention_layout`.

    `query` is "previous" where the query is the state before the step, which has not read y_{t-1}, and "current" where
    it has. `cross` are the dotted names of the attention modules that look at the source; their heads share the keys
    and values of `key_heads`, 0 is one for each head. `shift` is 0 where row t aligns the word written (y_t), as in all
    models here, and 1 where it aligns the word read (y_{t-1}).
    """

    query: str
    cross: tuple[str, ...] = ()
    key_heads: int = 0
    shift: int = 0


def attentions_to_source(model: nn.Module) -> tuple[str, ...]:
    """The dotted names of the attention modules that look at the source."""
    layout: Any = model.attention_layout
    found: tuple[str, ...] = layout.cross
    return found


def take(state: AnyState, rows: Tensor) -> AnyState:
    """The same state for `rows`, in that order; a row may occur more than once."""
    mapped: AnyState = map_nested(state, lambda tensor: tensor.index_select(0, rows))
    return mapped


def take_beams(state: AnyState, rows: Tensor) -> AnyState:
    """`take`, for rows that change places among the beams of one sentence: their `memory` is the same and stays."""
    parts: Any = state
    if not hasattr(parts, "memory"):
        return take(state, rows)
    moved: AnyState = take(parts._replace(memory=None), rows)._replace(memory=parts.memory)
    return moved


def check_batch(source: Tensor, lengths: Tensor) -> None:
    """Refuse a batch of ids that no model can read."""
    if (
        source.dim() != 2
        or source.dtype not in WHOLE
        or lengths.dtype not in WHOLE
        or lengths.shape != source.shape[:1]
    ):
        raise ShapeError(
            f"A batch is ids [B, S] with lengths [B], all whole numbers; got {source.dtype} {list(source.shape)} "
            f"and lengths {lengths.dtype} {list(lengths.shape)}. Pad rows to one length and count END in lengths."
        )
    # Only where it is free: on a GPU the check would make the host wait, and a traced model cannot check.
    if torch.compiler.is_compiling() or not lengths.is_cpu or not lengths.numel():
        return
    if not 1 <= lengths.min() <= lengths.max() <= source.shape[1]:
        raise ShapeError(
            f"lengths must lie between 1 and the {source.shape[1]} columns of the source; got {int(lengths.min())} to "
            f"{int(lengths.max())}. Count END, and no padding."
        )


def check_bound(name: str, bound: int) -> None:
    """Refuse to carry a past of any length from row to row."""
    if not bound:
        raise ConfigError(
            f"data.streams carries a state from row to row, and that of this model grows with the text; set "
            f"model.{name}, the number of last words that it keeps, or leave data.streams out."
        )


def check_target(target: Tensor, source: Tensor | None = None) -> None:
    """Refuse texts that are not ids [B, T], or have another number of rows than the source (see `check_batch`)."""
    rows = len(source) if source is not None and source.dim() == 2 else None
    if target.dim() != 2 or target.dtype not in WHOLE or (rows is not None and len(target) != rows):
        pairs = "" if rows is None else f" for the {rows} rows of the source"
        raise ShapeError(
            f"A batch of texts is ids [B, T], whole numbers{pairs}; got {target.dtype} {list(target.shape)}. "
            f"Pad rows to one length; one text alone is target[None]."
        )


def guided_module(model: nn.Module, layer: int) -> str:
    """The name of the attention over the source to guide; with a single layer, the default -2 means that layer."""
    cross = attentions_to_source(model)
    place = -1 if layer == -2 and len(cross) == 1 else layer
    if not -len(cross) <= place < len(cross):
        layers = numbered("layer", len(cross))
        raise ConfigError(f"train.guided_layer is {layer}, but the attention over the source has {layers}.")
    return cross[place]


def guided_head(weights: Tensor, head: int) -> Tensor:
    """The weights of the guided head (-1: the mean of all): [B, (H), T, S] -> [B, T, S]."""
    if weights.dim() == 3:
        return weights
    return weights.mean(1) if head < 0 else weights[:, head]
