"""Inside a model: every number of one decoding step, its path through the layers of a Transformer, and the worth of
heads.

A reader, or the page, can recompute a step:

scores   from `left` and `right`, the terms of query and memory in the score formula
weights  from the scores, by the normaliser
context  from weights and values
output   from the logits
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core import scores as formulas
from regard.errors import ConfigError, numbered
from regard.layers.attention import Attention
from regard.layers.transformer import PreNorm, TransformerLayer
from regard.look.change import Zero, all_heads, change
from regard.look.record import AttentionCall, attentions, record
from regard.models.contract import attentions_to_source

BEST = 10  # words of the output to list


@torch.inference_mode()
def watch(model: nn.Module, name: str | None, run: Callable[[], Tensor]) -> tuple[str, list[AttentionCall], Tensor]:
    """Run a forward pass and keep the calls of one attention module; by default the second-to-last over the source."""
    cross = attentions_to_source(model)
    chosen = name or cross[max(0, len(cross) - 2)]
    with record(model, [chosen]) as seen:
        logits = run()
    return chosen, seen.calls(chosen), logits


@torch.inference_mode()
def explain(module: Attention, calls: list[AttentionCall], t: int, head: int) -> dict[str, Any]:
    """Row t of the calls as numbers: query, the terms of the score, scores, weights, values, context."""
    call, row = _find(calls, t)
    heads = call.query.shape[1] if call.query.dim() == 4 else 1
    if not 0 <= head < heads:
        raise ConfigError(f"There is no head {head}: this attention has {numbered('head', heads)}.")
    assert call.memory is not None
    terms = terms_of(module, call)
    shown = {name: _head(terms[name], head) for name in ("left", "right") if name in terms}
    if "left" in shown:
        shown["left"] = shown["left"][row]
    constants = {name: part for name, part in terms.items() if name not in shown}
    return {
        "heads": heads,
        "query": numbers(_head(call.query, head)[row]),
        "formula": {
            name: numbers(part) if isinstance(part, Tensor) else part for name, part in (constants | shown).items()
        },
        "scores": numbers(_head(visible_scores(module, call), head)[row]),
        "weights": numbers(_head(call.weights, head)[row]),
        "values": numbers(_head(call.memory.values, head)),
        "context": numbers(_head(call.context, head)[row]),
        "centre": None if call.centre is None else float(call.centre[0, row]),
        "half_width": int(getattr(module.normalise, "half_width", 0)),
    }


def output(logits: Tensor, chosen: int, word: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """The best words for logits [V] and the chosen one, with the log-sum-exp of all logits."""
    wide = logits.double()
    values, ids = wide.topk(min(BEST, len(wide)))
    listed = [(int(index), float(value)) for index, value in zip(ids, values, strict=True)]
    if chosen not in ids.tolist():
        listed.append((chosen, float(wide[chosen])))
    return {
        "words": [{**word(index), "logit": value, "chosen": index == chosen} for index, value in listed],
        "log_total": float(wide.logsumexp(0)),
        "vocabulary": len(wide),
    }


def _find(calls: list[AttentionCall], t: int) -> tuple[AttentionCall, int]:
    """The call that computed row t, and the index of the row in it."""
    first = 0
    for call in calls:
        rows = call.context.shape[-2]
        if t < first + rows:
            return call, t - first
        first += rows
    if len(calls) == 1 and first == 1:  # a model that attends once, before the first word
        return calls[0], 0
    raise ConfigError(f"There is no step {t}: this translation has steps 0 to {first - 1}.")


def _head(tensor: Tensor, head: int) -> Tensor:
    """[1, T, S] or [1, H, T, S] -> [T, S]"""
    return tensor[0, head if tensor.shape[1] > 1 else 0] if tensor.dim() == 4 else tensor[0]


def visible_scores(module: Attention, call: AttentionCall) -> Tensor:
    """The scores of a call, -inf outside the window of local attention: [B, (H), T, S]."""
    if not hasattr(module.normalise, "visible") or call.centre is None:
        return call.scores
    return call.scores.masked_fill(~module.normalise.visible(call.scores, call.centre), -torch.inf)


def terms_of(module: Attention, call: AttentionCall) -> dict[str, Any]:
    """The formula of a module's score as the page computes it: the terms of the query, `left` [B, (H), T, D], and of
    the memory, `right` [B, (H), S, D], and what is the same for all calls."""
    assert call.memory is not None
    score: Any = module.score
    query, keys = call.query, call.memory.keys
    if isinstance(score, formulas.Covered) and call.extra is not None:
        keys = score.cover(keys, call.extra)
    scale = {formulas.dot: 1.0, formulas.scaled_dot: keys.shape[-1] ** -0.5}.get(score)
    if scale is not None or isinstance(score, formulas.General):
        return {"kind": "dot", "left": query, "right": keys, "scale": scale or 1.0}
    if isinstance(score, formulas.Cosine):
        strength = float(nn.functional.softplus(score.raw_strength))
        return {"kind": "cosine", "left": query, "right": keys, "scale": strength}
    if isinstance(score, formulas.Location):
        return {"kind": "location", "left": query @ score.W.weight[: keys.shape[-2]].T}
    if isinstance(score, formulas.Perceptron) and not isinstance(score, formulas.NormedAdditive):
        return {"kind": "additive", "left": score.project_query(query), "right": keys, "v": score.v.weight[0]}
    # The page has no formula for others, such as the offset of NormedAdditive.
    return {"kind": "fixed" if score is formulas.uniform else "unknown"}


def numbers(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())


LIKELIEST = 3  # words that a layer would predict
TOGETHER = 16  # heads to leave out in one forward pass, if there is room
Forward = Callable[..., Tensor]  # (rows = 1) -> logits [rows, T, V] of the same translation


@torch.inference_mode()
def follow_path(
    model: nn.Module, run: Forward, t: int, name: Callable[[int], dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """For each decoder layer at step t: the residual stream before and after it, the context of each head, and the
    contribution of each sublayer. Without `name`, the same for the encoder layers at source position t.

    "adds" is false in a post-norm layer, where the contributions do not sum to the stream. "lens" is the prediction if
    this layer were the last one, softmax(W norm(x)) (nostalgebraist 2020), each word described by `name`.
    """
    layers = layers_of(model, decodes=name is not None)

    def likeliest(stream: Tensor) -> list[dict[str, Any]]:
        chances, ids = predict_early(model, stream).double().softmax(-1).topk(LIKELIEST)
        return [{**name(int(id)), "probability": float(one)} for one, id in zip(chances, ids, strict=True)]  # type: ignore[misc]

    with follow_layers(layers) as seen:
        run()
    at_step = [
        {part: value[0, :, t] if part.endswith("_heads") else value[0, t] for part, value in one.items()}
        for one in seen
    ]
    return [
        {
            "layer": place,
            "adds": adds(layer),
            **{part: numbers(value) for part, value in one.items()},
            **({} if name is None else {"lens": likeliest(one["stream"])}),
        }
        for place, (layer, one) in enumerate(zip(layers, at_step, strict=True))
    ]


def layers_of(model: nn.Module, decodes: bool) -> list[TransformerLayer]:
    """The layers of a Transformer's decoder, or of its encoder; none for other models."""
    every = [one for one in model.modules() if isinstance(one, TransformerLayer)]
    return [one for one in every if (one.cross_attention is not None) == decodes]


def adds(layer: TransformerLayer) -> bool:
    """Whether the contributions of the sublayers sum to the stream after the layer."""
    return isinstance(layer.join_feed, PreNorm)


@contextmanager
def follow_layers(layers: Sequence[TransformerLayer]) -> Iterator[list[dict[str, Tensor]]]:
    """While the block runs, keep for each layer: `before` and `stream`, its input and output [B, T, D], the
    contributions `self`, `cross` and `feed` [B, T, D], and the contexts of their heads, `self_heads` and `cross_heads`
    [B, H, T, D/H]."""
    seen: list[dict[str, Tensor]] = [{} for _ in layers]

    def keep(place: int, part: str, take: Callable[[Any], Tensor]) -> Callable[..., None]:
        """A hook that keeps `take` of a module's output; as a pre-hook, of its first input."""

        def hook(module: nn.Module, args: Any, *output: Any) -> None:
            seen[place][part] = take(output[0] if output else args[0])

        return hook

    def first(output: Any) -> Tensor:
        found: Tensor = output[0] if isinstance(output, tuple) else output
        return found

    with ExitStack() as stack:
        for place, layer in enumerate(layers):
            parts: dict[str, nn.Module] = {"self": layer.self_attention, "feed": layer.feed_forward}
            if layer.cross_attention is not None:
                parts["cross"] = layer.cross_attention
            for part, module in parts.items():
                stack.enter_context(module.register_forward_hook(keep(place, part, first)))
                attention = getattr(module, "attention", None)  # an SSRU has none
                if isinstance(attention, Attention):
                    heads = keep(place, f"{part}_heads", lambda look: look.context)
                    stack.enter_context(attention.register_forward_hook(heads))
            stack.enter_context(layer.register_forward_pre_hook(keep(place, "before", first)))
            stack.enter_context(layer.register_forward_hook(keep(place, "stream", first)))
        yield seen


def predict_early(model: nn.Module, stream: Tensor) -> Tensor:
    """The logits if the residual stream [..., D] after a decoder layer were that after the last one."""
    logits: Tensor = model.output(model.decoder_norm(stream))  # type: ignore[operator]
    return logits


@torch.inference_mode()
def weigh_heads(
    model: nn.Module, run: Forward, written: Sequence[int], together: int = TOGETHER
) -> list[dict[str, Any]]:
    """The drop of the translation's log-probability without each head, the most important head first.

    Every row of a batch leaves out another head, so that all heads take a few forward passes of `together` rows.
    """
    places = [(name, head) for name in attentions(model) for head in all_heads(model, name)]
    whole = _logprobs(run(), written)[0]
    without: list[float] = []
    for first in range(0, len(places), together):
        some = places[first : first + together]
        silent = []
        for name in {name for name, _ in some}:
            heads = all_heads(model, name)
            out = torch.tensor([[place == (name, head) for head in heads] for place in some])[..., None, None]
            silent.append(Zero(out if heads != [None] else out[:, 0], name))
        with change(model, *silent):
            without += _logprobs(run(len(some)), written)
    found = [
        {"name": name, "head": head or 0, "drop": whole - one}
        for (name, head), one in zip(places, without, strict=True)
    ]
    return sorted(found, key=lambda one: -one["drop"])


def _logprobs(logits: Tensor, written: Sequence[int]) -> list[float]:
    """The log-probability of the translation in each row of logits [B, T, V]."""
    chances = logits.double().log_softmax(-1)  # [B, T, V]
    ids = torch.tensor(written, device=chances.device).expand(len(chances), -1)  # [B, T]
    found: list[float] = chances.gather(-1, ids[..., None]).sum((1, 2)).tolist()
    return found
