"""Recording attention: what every attention module computed, by forward hooks and nothing else.

    with record(model) as seen:
        model(source, lengths, target)
    seen["decoder.attention"].weights          # [B, (H), T, S]

A model has no flag for this and behaves the same: an `Attention` under a hook runs its plain form instead of a fused
kernel, so the output may differ by a kernel's rounding and by nothing more.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.attend import Look, Memory
from regard.errors import ConfigError, ShapeError, check_known
from regard.layers.attention import Attention
from regard.look.foreign import foreign_attentions, watch_foreign


class Seen(NamedTuple):
    """What one attention module computed, its calls joined along T; with a dimension H where the module has heads."""

    context: Tensor  # [B, (H), T, Dv]
    weights: Tensor  # [B, (H), T, S]
    scores: Tensor  # [B, (H), T, S]; -inf where the memory's mask is False
    query: Tensor  # [B, (H), T, D]
    centre: Tensor | None = None  # [B, T]: the centre of local attention


class Recorded(Mapping[str, Seen]):
    """Dotted module name -> `Seen`, for the modules that were called. `calls` gives single calls, unjoined."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Seen]] = {}
        self._joined: dict[str, Seen] = {}

    def keep(self, name: str, seen: Seen) -> None:
        """Add one call of the module `name`."""
        self._calls.setdefault(name, []).append(seen)
        self._joined.pop(name, None)

    def calls(self, name: str) -> list[Seen]:
        """Every call of `name`, in order: one for a forward pass, one for each step of a search."""
        check_known("recorded attention", name, self._calls)
        return list(self._calls[name])

    def __getitem__(self, name: str) -> Seen:
        if name not in self._calls:
            raise KeyError(name)
        if name not in self._joined:  # called for every sentence of a batch
            self._joined[name] = join(self._calls[name], name)
        return self._joined[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)


def join(calls: list[Seen], name: str = "attention") -> Seen:
    """Calls of one module joined along T; where S grew (a cache), earlier rows get weight 0 and score -inf there."""
    if len(calls) == 1:
        return calls[0]
    if len({call.weights.shape[:-2] for call in calls}) > 1:
        sizes = ", ".join(str(list(call.weights.shape[:-2])) for call in calls[:4])
        raise ShapeError(
            f"The calls of '{name}' were recorded with different batches ({sizes}, ...) and cannot be joined along T; "
            f"record one forward pass of the finished sentences, or read them one by one with calls('{name}')."
        )
    size = max(call.weights.shape[-1] for call in calls)

    def widened(rows: Tensor, fill: float) -> Tensor:
        return nn.functional.pad(rows, (0, size - rows.shape[-1]), value=fill)

    centres = [call.centre for call in calls if call.centre is not None]
    return Seen(
        context=torch.cat([call.context for call in calls], dim=-2),
        weights=torch.cat([widened(call.weights, 0.0) for call in calls], dim=-2),
        scores=torch.cat([widened(call.scores, float("-inf")) for call in calls], dim=-2),
        query=torch.cat([call.query for call in calls], dim=-2),
        centre=torch.cat(centres, dim=1) if centres else None,
    )


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every `Attention` of a model by its dotted name, in the order of the model's definition."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


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
    torch.Size([1, 7, 7])
    """
    recorded = Recorded()
    handles = []
    modules: dict[str, Any] = attentions(model)
    ours = type(model).__module__.startswith("regard.") or hasattr(model, "looking")  # which may hold no attention
    others = {} if modules or ours else foreign_attentions(model)
    if not modules and not others and not ours:
        raise ConfigError(
            f"{type(model).__name__} holds no attention that can be recorded: neither regard's Attention, nor "
            f"nn.MultiheadAttention, nor a module of transformers."
        )
    modules = modules or others
    for name in names or ():
        check_known("attention module", name, modules)

    def keep(name: str, seen: Seen) -> None:
        free = {key: part.detach() for key, part in seen._asdict().items() if part is not None}
        recorded.keep(name, Seen(**free) if detach else seen)

    def keep_foreign(name: str, context: Tensor, weights: Tensor, query: Tensor) -> None:
        keep(name, Seen(context, weights, weights.log(), query))

    def watch(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], look: Look) -> None:
            query, memory, centre = arguments(args, named)
            if look.weights is None or look.scores is None:
                raise ShapeError(
                    f"'{name}' gave no weights while it was recorded; under a hook it must run its plain form."
                )
            scores = look.scores if memory.mask is None else look.scores.masked_fill(~memory.mask, float("-inf"))
            keep(name, Seen(look.context, look.weights, scores, query, centre))

        return hook

    try:
        for name in modules if names is None else names:
            if name in others:
                handles += watch_foreign(name, others[name], keep_foreign)
            else:
                handles.append(modules[name].register_forward_hook(watch(name), with_kwargs=True))
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
