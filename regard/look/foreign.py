"""Attention of other libraries: torch's `nn.MultiheadAttention` and transformers' modules under `record`, and the
weights in the outputs of transformers' models.

Scores stay inside these modules, so that the logarithm of the weights stands for them: the same up to a constant in
each row.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.errors import ConfigError, DataError
from regard.look.trace_data import as_array

Keep = Callable[[str, Tensor, Tensor, Tensor], None]  # name, context [B, T, D], weights [B, H, T, S], query [B, T, D]


def foreign_attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The innermost modules that are called Attention, by their dotted names."""
    named = {name: module for name, module in model.named_modules() if _is_attention(module)}
    return {name: one for name, one in named.items() if sum(map(_is_attention, one.modules())) == 1}


def watch_foreign(name: str, module: nn.Module, keep: Keep) -> list[RemovableHandle]:
    """Hooks that show `keep` every call of `module`."""
    if isinstance(module, nn.MultiheadAttention):
        return _watch_torch(name, module, keep)

    def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        if not isinstance(weights, Tensor) or weights.dim() != 4:
            raise ConfigError(
                f"'{name}' ({type(module).__name__}) returns no attention weights, so it cannot be recorded: a fused "
                f"kernel never forms them. Load the model with attn_implementation='eager'."
            )
        query = args[0] if args else named.get("hidden_states", output[0])
        keep(name, output[0], weights, query)

    return [module.register_forward_hook(hook, with_kwargs=True)]


def _is_attention(module: nn.Module) -> bool:
    return type(module).__name__.endswith("Attention")


def _watch_torch(name: str, module: nn.MultiheadAttention, keep: Keep) -> list[RemovableHandle]:
    """The weights of every head are requested, and the caller gets what it requested."""
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
            keep(name, context[None], weights[None], query[None])
        elif getattr(module, "batch_first", False):
            keep(name, context, weights, query)
        else:
            keep(name, context.transpose(0, 1), weights, query.transpose(0, 1))
        heads = 0 if query.dim() == 2 else 1
        return context, (weights.mean(heads) if average else weights) if need else None

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]


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
