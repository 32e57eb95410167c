"""Recording attention: what every attention module computed, by forward hooks and nothing else.

    with record(model) as seen:
        model(source, lengths, target)
    seen["decoder.attention"].weights          # [B, (H), T, S]

A model has no flag for this and behaves the same: an `Attention` under a hook runs its plain form instead of a fused
kernel, so the output may differ by a kernel's rounding and by nothing more.

Attention of other libraries is recorded too: torch's `nn.MultiheadAttention`, transformers' modules, and the weights in
the outputs of transformers' models. Scores stay inside these modules, so that the logarithm of the weights stands for
them: the same up to a constant in each row.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.core.attend import Look, Memory
from regard.core.nested import map_nested
from regard.errors import ConfigError, DataError, ShapeError, check_known
from regard.layers.attention import Attention


class AttentionCall(NamedTuple):
    """One call of an attention module: its inputs, and what it computed; with a dimension H where the module has heads.

    Several calls of a module are joined along T; then `memory` and `extra`, which differ from call to call, are None.
    """

    context: Tensor  # [B, (H), T, Dv]
    weights: Tensor  # [B, (H), T, S]
    scores: Tensor  # [B, (H), T, S]; -inf where the memory's mask is False
    query: Tensor  # [B, (H), T, D]
    centre: Tensor | None = None  # [B, T]: the centre of local attention
    memory: Memory | None = None  # keys [B, (H), S, D], values [B, (H), S, Dv], mask
    extra: Tensor | None = None  # what the score reads besides query and keys


class Recorded(Mapping[str, AttentionCall]):
    """Dotted module name -> its calls joined along T, for the modules that were called; `calls` gives single ones."""

    def __init__(self) -> None:
        self._calls: dict[str, list[AttentionCall]] = {}
        self._joined: dict[str, AttentionCall] = {}  # read for every sentence of a batch

    def add(self, name: str, call: AttentionCall) -> None:
        """Add one call of the module `name`."""
        self._calls.setdefault(name, []).append(call)
        self._joined.pop(name, None)

    def calls(self, name: str) -> list[AttentionCall]:
        """Every call of `name`, in order: one for a forward pass, one for each step of a search."""
        check_known("recorded attention", name, self._calls)
        return list(self._calls[name])

    def __getitem__(self, name: str) -> AttentionCall:
        calls = self._calls[name]
        if name not in self._joined:
            self._joined[name] = calls[0] if len(calls) == 1 else join(calls, name)
        return self._joined[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)


def join(calls: list[AttentionCall], name: str = "attention") -> AttentionCall:
    """Calls of one module joined along T; where S grew (a cache), earlier rows get weight 0 and score -inf there."""
    if len({call.weights.shape[:-2] for call in calls}) > 1:
        sizes = ", ".join(str(list(call.weights.shape[:-2])) for call in calls[:4])
        raise ShapeError(
            f"The calls of '{name}' were recorded with different batches ({sizes}, ...) and cannot be joined along T; "
            f"record one forward pass of the finished sentences, or read them one by one with calls('{name}')."
        )
    size = max(call.weights.shape[-1] for call in calls)

    def rows(part: str, fill: float) -> Tensor:
        parts = [getattr(call, part) for call in calls]
        return torch.cat([nn.functional.pad(one, (0, size - one.shape[-1]), value=fill) for one in parts], dim=-2)

    centres = [call.centre for call in calls if call.centre is not None]
    return AttentionCall(
        context=torch.cat([call.context for call in calls], dim=-2),
        weights=rows("weights", 0.0),
        scores=rows("scores", float("-inf")),
        query=torch.cat([call.query for call in calls], dim=-2),
        centre=torch.cat(centres, dim=1) if centres else None,
    )


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every `Attention` of a model by its dotted name, in the order of the model's definition."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


def side_of(name: str) -> str:
    """The side of a model that a module with this dotted name belongs to: "encoder" or "decoder"."""
    return "encoder" if name.startswith("encoder") else "decoder"


def layer_of(name: str) -> int | None:
    """The number of the layer in a dotted name, such as 2 in decoder.2.cross_attention; None without one."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def arguments(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, Memory, Tensor | None]:
    """Query, memory and centre of a call of `Attention`, however they were passed."""
    given = dict(zip(("query", "memory", "centre"), args, strict=False)) | named
    return given["query"], given["memory"], given.get("centre")


@contextmanager
def record(model: nn.Module, names: Iterable[str] | None = None, detach: bool = True) -> Iterator[Recorded]:
    """Keep scores, weights, context and query of every attention while the block runs; leaves no hook behind.

    What is kept is detached but not copied. Blocks may be nested, and a `change` inside or outside is seen as changed.
    `names` records only these modules, so that the rest keep their fused kernels. With `detach=False` what is kept
    is part of the graph: a loss of the weights trains the model.

    A model of another library is recorded too, where it uses `nn.MultiheadAttention` or is one of transformers with
    attn_implementation="eager"; there `scores` are the logarithm of the weights. What cannot be recorded is refused.

    >>> translator = regard.load("en-fr/bahdanau")
    >>> with regard.record(translator.model) as seen:
    ...     found = translator.translate("Where is the station?", beam=1)
    >>> seen["decoder.attention"].weights.shape  # [B, T, S]: each piece that was written, and the end
    torch.Size([1, 7, 6])
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"record takes a model, such as translator.model; got {type(model).__name__}.")
    recorded = Recorded()
    # A model of ours may hold no attention.
    ours = type(model).__module__.startswith("regard.") or hasattr(model, "attention_layout")
    modules = attentions(model) or ({} if ours else foreign_attentions(model))
    if not modules and not ours:
        raise ConfigError(
            f"{type(model).__name__} holds no attention that can be recorded: neither regard's Attention, nor "
            f"nn.MultiheadAttention, nor a module of transformers."
        )
    for name in names or ():
        check_known("attention module", name, modules)

    def store(name: str, call: AttentionCall) -> None:
        recorded.add(name, map_nested(call, Tensor.detach) if detach else call)

    with ExitStack() as stack:
        for name in modules if names is None else names:
            for hook in _watch(name, modules[name], partial(store, name)):
                stack.enter_context(hook)
        yield recorded


Store = Callable[[AttentionCall], None]


def _watch(name: str, module: nn.Module, store: Store) -> list[RemovableHandle]:
    """Hooks that pass every call of `module` to `store`; `name` is for the error sentence."""
    if isinstance(module, nn.MultiheadAttention):
        return _watch_torch(module, store)

    def own(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], look: Look) -> None:
        query, memory, centre = arguments(args, named)
        assert look.weights is not None  # under a hook, the plain form is run
        assert look.scores is not None
        scores = look.scores if memory.mask is None else look.scores.masked_fill(~memory.mask, float("-inf"))
        store(AttentionCall(look.context, look.weights, scores, query, centre, memory, named.get("extra")))

    def of_transformers(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        if not isinstance(weights, Tensor) or weights.dim() != 4:
            raise ConfigError(
                f"'{name}' ({type(module).__name__}) returns no attention weights, so it cannot be recorded: a fused "
                f"kernel never forms them. Load the model with attn_implementation='eager'."
            )
        query = args[0] if args else named.get("hidden_states", output[0])
        store(_without_scores(output[0], weights, query))

    hook = own if isinstance(module, Attention) else of_transformers
    return [module.register_forward_hook(hook, with_kwargs=True)]


# --- attention of other libraries


def foreign_attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The innermost modules that are called Attention, by their dotted names."""

    def is_attention(module: nn.Module) -> bool:
        return type(module).__name__.endswith("Attention")

    named = {name: module for name, module in model.named_modules() if is_attention(module)}
    return {name: module for name, module in named.items() if sum(map(is_attention, module.modules())) == 1}


def _without_scores(context: Tensor, weights: Tensor, query: Tensor) -> AttentionCall:
    """What another library shows: context and query [B, T, D], weights [B, H, T, S]; their logarithm is the scores."""
    return AttentionCall(context, weights, weights.log(), query)


def _watch_torch(module: nn.MultiheadAttention, store: Store) -> list[RemovableHandle]:
    """Request the weights of every head, and return to the caller what it has requested."""
    wanted: list[tuple[bool, bool]] = []

    def before(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = inspect.signature(module.forward).bind(*args, **named)
        given.apply_defaults()
        wanted.append((given.arguments["need_weights"], given.arguments["average_attn_weights"]))
        return (), {**given.arguments, "need_weights": True, "average_attn_weights": False}

    def after(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        context, weights = output  # weights [B, H, T, S]
        query, (need, average) = named["query"], wanted.pop()
        if query.dim() == 2:
            store(_without_scores(context[None], weights[None], query[None]))
        elif getattr(module, "batch_first", False):
            store(_without_scores(context, weights, query))
        else:
            store(_without_scores(context.transpose(0, 1), weights, query.transpose(0, 1)))
        heads = 0 if query.dim() == 2 else 1
        return context, (weights.mean(heads) if average else weights) if need else None

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]


def as_array(values: Any) -> NDArray[Any]:
    """Numbers of numpy, torch or lists as an array."""
    return np.asarray(values.detach().cpu().float() if isinstance(values, Tensor) else values)


# --- outputs of transformers' models, without importing that library


def cross_attentions(outputs: Any, row: int = 0) -> NDArray[np.float32]:
    """Cross-attention weights [L, H, T, S] of sentence `row`.

    Takes the outputs of a forward pass (a tuple over layers of [B, H, T, S]) or of `generate` (a tuple over steps of
    tuples over layers of [B * beams, H, 1, S]; with beams, the rows are followed back through `beam_indices`).
    """
    alone = not _get(outputs, "cross_attentions") and _get(outputs, "attentions")
    advice = "these are of a model without an encoder, so leave the target out" if alone else ""
    return np.concatenate(_steps(outputs, "cross_attentions", row, advice), axis=2)


def self_attentions(outputs: Any, row: int = 0) -> NDArray[np.float32]:
    """Weights [L, H, T, T] of a model without an encoder, for sentence `row`.

    A forward pass gives a tuple over layers of [B, H, T, T]; `generate` gives them for the text that it continues, and
    then for one token after another.
    """
    steps = _steps(outputs, "attentions", row)
    size = steps[-1].shape[-1]
    return np.concatenate([np.pad(step, [(0, 0)] * 3 + [(0, size - step.shape[-1])]) for step in steps], axis=2)


def _steps(outputs: Any, name: str, row: int, advice: str = "") -> list[NDArray[np.float32]]:
    """The weights [L, H, t, S] of each step; a forward pass is one."""
    found, indices = _get(outputs, name), _get(outputs, "beam_indices")
    stepwise = bool(found) and isinstance(found[0], list | tuple)
    parts = [part for step in found or () for part in (step if stepwise else [step])]
    if not parts or any(part is None for part in parts):  # a fused kernel leaves None, or steps without layers
        advice = advice or (
            "fused kernels do not keep them. Load the model with attn_implementation='eager' and call it with "
            "output_attentions=True (generate needs return_dict_in_generate=True too)"
        )
        raise DataError(f"These outputs hold no weights in '{name}': {advice}.")
    rows = len(indices) if indices is not None else len(found[0][0] if stepwise else found[0])
    if not 0 <= row < rows:
        raise DataError(f"There is no sentence {row}: these outputs hold {rows}, counted from 0.")
    if not stepwise:
        return [np.stack([as_array(layer)[row] for layer in found])]
    # The batch row that the hypothesis lived in at each step; -1 marks what lies after its end.
    lived = [row] * len(found) if indices is None else [int(at) for at in as_array(indices)[row] if at >= 0]
    return [np.stack([as_array(layer)[at] for layer in step]) for at, step in zip(lived, found, strict=False)]


def _get(outputs: Any, name: str) -> Any:
    return outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
