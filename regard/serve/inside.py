"""What happens between attention and output: the path of a step through a Transformer, and the worth of its heads."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.attend import Look
from regard.errors import DataError
from regard.layers.attention import Attention
from regard.layers.transformer import PreNorm, TransformerLayer
from regard.look.change import all_heads
from regard.look.record import attentions
from regard.serve.step_details import numbers

LIKELIEST = 3  # words that a layer would write
TOGETHER = 16  # heads that are left out in one forward pass, where there is room
Forward = Callable[..., Tensor]  # (rows = 1) -> logits [rows, T, V] of the same translation


@torch.inference_mode()
def follow_path(
    model: nn.Module, run: Forward, t: int, name: Callable[[int], dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """For each decoder layer at step t: the residual stream before it, the context of each head, what its parts add to
    the stream, and the stream behind it. Without `name`, the same of the encoder's layers at source position t.

    "adds" is false where every sum is normalised, so that the parts alone do not add up to the stream.
    "lens" is what the model would write if this layer were the last one, each word as `name` describes it:
    softmax(W norm(x)) (nostalgebraist 2020).
    """
    every = [one for one in model.modules() if isinstance(one, TransformerLayer)]
    layers = [one for one in every if (one.cross_attention is None) == (name is None)]
    if not layers:
        raise DataError("Only a Transformer has a path through layers to show; this model has none.")
    seen: list[dict[str, Tensor]] = [{} for _ in layers]

    def keep(place: int, part: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            seen[place][part] = (output[0] if isinstance(output, tuple) else output)[0, t]  # [D]

        return hook

    def keep_heads(place: int, part: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, look: Look) -> None:
            seen[place][part] = look.context[0, :, t]  # [H, D/H]

        return hook

    def keep_input(place: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            seen[place]["before"] = args[0][0, t]  # [D]

        return hook

    with ExitStack() as stack:
        for place, layer in enumerate(layers):
            parts: dict[str, nn.Module] = {"self": layer.self_attention, "feed": layer.feed_forward}
            if layer.cross_attention is not None:
                parts["cross"] = layer.cross_attention
            handles = [module.register_forward_hook(keep(place, part)) for part, module in parts.items()]
            for part, module in parts.items():
                attention = getattr(module, "attention", None)  # an SSRU has none
                if isinstance(attention, Attention):
                    handles.append(attention.register_forward_hook(keep_heads(place, f"{part}_heads")))
            handles.append(layer.register_forward_pre_hook(keep_input(place)))
            handles.append(layer.register_forward_hook(keep(place, "stream")))
            for handle in handles:
                stack.callback(handle.remove)
        run()
    return [
        {
            "layer": place,
            "adds": isinstance(layer.join_feed, PreNorm),
            **{part: numbers(value) for part, value in one.items()},
            **({} if name is None else {"lens": _likeliest(model, one["stream"], name)}),
        }
        for place, (layer, one) in enumerate(zip(layers, seen, strict=True))
    ]


def _likeliest(model: nn.Module, stream: Tensor, name: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    logits: Tensor = model.output(model.decoder_norm(stream))  # type: ignore[operator]  # [V]
    chances, ids = logits.double().softmax(-1).topk(LIKELIEST)
    return [{**name(int(index)), "probability": float(chance)} for chance, index in zip(chances, ids, strict=True)]


@torch.inference_mode()
def weigh_heads(
    model: nn.Module, run: Forward, written: Sequence[int], together: int = TOGETHER
) -> list[dict[str, Any]]:
    """How much less likely the translation is without each head, the most important first: the drop of its
    log-probability, as `regard heads` measures heads by the drop of a score.

    Every row of a batch leaves out another head, so that all heads cost a few forward passes of `together` rows.
    """
    places = [(name, head) for name in attentions(model) for head in all_heads(model, name)]
    whole = _logprobs(run(), written)[0]
    without: list[float] = []
    for first in range(0, len(places), together):
        some = places[first : first + together]
        with ExitStack() as stack:
            for name in {name for name, _ in some}:
                out = [(row, head) for row, (other, head) in enumerate(some) if other == name]
                stack.callback(attentions(model)[name].register_forward_hook(_leave_out(out)).remove)
            without += _logprobs(run(len(some)), written)
    found = [
        {"name": name, "head": head or 0, "drop": whole - one}
        for (name, head), one in zip(places, without, strict=True)
    ]
    return sorted(found, key=lambda one: -one["drop"])


def _leave_out(out: list[tuple[int, int | None]]) -> Callable[..., Look]:
    """A hook that gives head `head` of row `row` of a batch nothing to see."""

    def hook(module: nn.Module, args: Any, look: Look) -> Look:
        assert look.weights is not None
        context, weights = look.context.clone(), look.weights.clone()  # [B, (H), T, Dv], [B, (H), T, S]
        for row, head in out:
            at = (row,) if head is None else (row, head)
            context[at], weights[at] = 0, 0
        return look._replace(context=context, weights=weights)

    return hook


def _logprobs(logits: Tensor, written: Sequence[int]) -> list[float]:
    """The log-probability of the translation in each row of logits [B, T, V]."""
    chances = logits.double().log_softmax(-1)  # [B, T, V]
    ids = torch.tensor(written, device=chances.device).expand(len(chances), -1)  # [B, T]
    found: list[float] = chances.gather(-1, ids[..., None]).sum((1, 2)).tolist()
    return found
