"""What happens between attention and output: the path of a step through a Transformer, and the worth of its heads."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import DataError
from regard.layers.transformer import TransformerLayer
from regard.look.change import importance
from regard.serve.step_details import numbers

LIKELIEST = 3  # words that a layer would write
Forward = Callable[[], Tensor]  # -> logits [1, T, V]


@torch.inference_mode()
def follow_path(model: nn.Module, run: Forward, t: int, name: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """For each decoder layer, what its parts add to the residual stream at step t, and the stream behind it.

    "lens" is what the model would write if this layer were the last one: softmax(W norm(x)) (nostalgebraist 2020).
    """
    layers = [one for one in model.modules() if isinstance(one, TransformerLayer) and one.cross_attention is not None]
    if not layers:
        raise DataError("Only a Transformer has a path through layers to show; this model has none.")
    seen: list[dict[str, Tensor]] = [{} for _ in layers]
    handles = []

    def keep(place: int, part: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            seen[place][part] = (output[0] if isinstance(output, tuple) else output)[0, t]  # [D]

        return hook

    def keep_heads(place: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, look: Any) -> None:
            seen[place]["heads"] = look.context[0, :, t]  # [H, D/H]

        return hook

    for place, layer in enumerate(layers):
        assert layer.cross_attention is not None
        parts = {"self": layer.self_attention, "cross": layer.cross_attention, "feed": layer.feed_forward}
        handles += [module.register_forward_hook(keep(place, part)) for part, module in parts.items()]
        handles.append(layer.cross_attention.attention.register_forward_hook(keep_heads(place)))
        handles.append(layer.register_forward_hook(keep(place, "stream")))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [
        {
            "layer": place,
            "heads": [numbers(head) for head in one["heads"]],
            **{part: numbers(one[part]) for part in ("self", "cross", "feed", "stream")},
            "lens": _likeliest(model, one["stream"], name),
        }
        for place, one in enumerate(seen)
    ]


def _likeliest(model: nn.Module, stream: Tensor, name: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    logits: Tensor = model.output(model.decoder_norm(stream))  # type: ignore[operator]  # [V]
    chances, ids = logits.double().softmax(-1).topk(LIKELIEST)
    return [{**name(int(index)), "probability": float(chance)} for chance, index in zip(chances, ids, strict=True)]


@torch.inference_mode()
def weigh_heads(model: nn.Module, run: Forward, written: Sequence[int]) -> list[dict[str, Any]]:
    """How much less likely the translation is without each head: the drop of its log-probability, as `regard heads`
    measures heads by the drop of a score."""

    def logprob() -> float:
        chances = run()[0].double().log_softmax(-1)  # [T, V]
        return float(chances[torch.arange(len(written)), torch.tensor(written, device=chances.device)].sum())

    return [{"name": one.name, "head": one.head or 0, "drop": one.drop} for one in importance(model, logprob)]
