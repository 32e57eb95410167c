"""Attention of other libraries under `record`: torch's `nn.MultiheadAttention`, and the modules of transformers.

Their scores stay inside, so that the logarithm of the weights stands for them: the same up to a constant in each row.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.errors import ConfigError

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
