"""Attributions by attention: its weights, what the weighted values add, and both through the layers of a Transformer.

The methods that go through layers give, for each layer, how much each position takes from every other, and `roll`
multiplies the layers: the encoder's, then those of the decoder, which take from the target prefix and, by
cross-attention, from the encoder.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.nested import map_nested
from regard.core.scores import clip_distances, uniform
from regard.errors import ConfigError, numbered
from regard.layers.transformer import MultiHead, PostNorm, PreNorm, TransformerLayer
from regard.layers.transformer_parts import RelativeSelfAttention
from regard.look.case import Attributed, Case, inputs, rows_at_once
from regard.look.change import Zero, change
from regard.look.record import AttentionCall, attentions, record

CELLS = 1 << 23  # numbers of the vectors that are compared at once
ALL = slice(None)


def attend(case: Case) -> Attributed:
    """The attention weights of one head, or the mean of a layer's heads (Bahdanau et al. 2015)."""
    _, call = _cross(case)
    weights = call.weights[0] if call.weights.dim() == 4 else call.weights  # [H, T, S]
    return Attributed(_shifted(weights[_heads(case, len(weights))].mean(0), case))


def attend_norms(case: Case) -> Attributed:
    """||a_ts f(x_s)||, the attention weight times the transformed value, each row divided by its sum (Kobayashi et al.
    2020, "Attention is not only a weight", eq. 4-5).

    In a Transformer f(x) = (x W_V + b_V) W_O, summed over the heads before the norm; in a recurrent model the value is
    the encoder state itself.
    """
    module, call = _cross(case)
    heads = _heads(case, call.weights.shape[1]) if call.weights.dim() == 4 else ALL
    norms = torch.cat([parts.norm(dim=-1).T for _, parts in _contributions(module, call, heads)])  # [T, S]
    return Attributed(_shifted(_shares(norms), case))


def _cross(case: Case) -> tuple[nn.Module, AttentionCall]:
    """The chosen attention over the source, the module that it is a part of, and its calls as one."""
    model, cross = case.model, attends(case.model)
    layer = max(len(cross) - 2, 0) if case.layer is None else case.layer
    if not 0 <= layer < len(cross):
        raise ConfigError(
            f"There is no layer {layer} of attention over the source; it has {numbered('layer', len(cross))}."
        )
    with record(model, [cross[layer]]) as seen:
        model(*inputs(case))
    call = seen[cross[layer]]
    memory = seen.calls(cross[layer])[0].memory  # the same in every step
    return model.get_submodule(cross[layer].rpartition(".")[0]), call._replace(memory=memory)


def _heads(case: Case, count: int) -> slice:
    if case.head is None:
        return ALL
    if not 0 <= case.head < count:
        raise ConfigError(f"There is no head {case.head}: this attention has {numbered('head', count)}.")
    return slice(case.head, case.head + 1)


def _contributions(module: Any, call: AttentionCall, heads: slice = ALL) -> Iterator[tuple[Tensor, Tensor]]:
    """What each memory slot adds to the result of an attention call, but for a bias: some rows [R], and for these
    [S, R, D]; row by row, since all of them are large."""
    assert call.memory is not None
    weights, values = call.weights[0], call.memory.values[0]  # [(H), T, S], [(H), S, Dv]
    T, S = weights.shape[-2:]
    if isinstance(module, MultiHead):
        matrix = module.output.weight.unflatten(1, (len(weights), -1))[:, heads]  # [D, H, Dv]
        weights, values = weights[heads], torch.einsum("hsv,dhv->hsd", values[heads], matrix)  # W_O is linear: first
    else:
        weights, values = weights[None], values[None]
    for rows in torch.arange(T, device=weights.device).split(max(1, CELLS // (S * values.shape[-1]))):
        some = weights[:, rows]  # [H, R, S]
        found = torch.einsum("hrs,hsd->srd", some, values)
        if isinstance(module, RelativeSelfAttention):  # a value has a vector for its distance as well
            assert call.extra is not None
            table = module.values.weight  # [K, Dv]
            apart = F.one_hot(clip_distances(call.extra[rows], len(table)), len(table)).to(some)  # [R, S, K]
            vectors = torch.einsum("kv,dhv->hkd", table, matrix)
            found = found + torch.einsum("hrs,rsk,hkd->srd", some, apart, vectors)
        yield rows, found


def _shifted(rows: Tensor, case: Case) -> Tensor:
    """Row t + shift for word t; the last row stays."""
    return torch.cat([rows[case.shift :], rows[len(rows) - case.shift :]])


def _shares(rows: Tensor, rest: Tensor | None = None) -> Tensor:
    """Each row divided by its sum; a row of zeros becomes `rest`."""
    total = rows.sum(-1, keepdim=True)
    return torch.where(total > 0, rows / total.where(total > 0, 1), 0 if rest is None else rest)


# --- through the layers of a Transformer


class Layer(NamedTuple):
    """How much each position of a layer takes from each position below it; in the decoder also from the encoder."""

    own: Tensor  # [S, S], or [T, T] in the decoder
    source: Tensor | None = None  # [T, S]


def rollout(case: Case) -> Attributed:
    """Attention rollout (Abnar and Zuidema 2020, "Quantifying attention flow in Transformers", eq. 1).

    Every attention block takes A = (W + I) / 2, where W is the mean of the heads and I is the residual connection; the
    blocks of all layers are multiplied. Cross-attention gives one half to the source and one half to the prefix.
    """

    def one(layer: TransformerLayer, x: Tensor, given: dict[str, Any], own: AttentionCall, cross: Any) -> Layer:
        half = (own.weights[0].mean(0) + torch.eye(x.shape[1], device=x.device, dtype=x.dtype)) / 2
        return Layer(half) if cross is None else Layer(half / 2, cross.weights[0].mean(0) / 2)

    return roll(case, one)


def alti(case: Case) -> Attributed:
    """ALTI+ (Ferrando et al. 2022, "Towards opening the black box of neural machine translation", section 3).

    The output of an attention block is a sum of transformed vectors, y_i = sum_j T_i(x_j) + bias, of which the residual
    is one; layer norm is linear for a fixed standard deviation. Vector j contributes the share of

        c_ij = max(0, ||y_i||_1 - ||y_i - T_i(x_j)||_1)

    and what cross-attention leaves to the residual belongs to the prefix. A row of source and prefix sums to one;
    where no vector contributes (the bias outweighs all), the residual takes the row.
    """

    def one(layer: TransformerLayer, x: Tensor, given: dict[str, Any], own: AttentionCall, cross: Any) -> Layer:
        mixed, kept, x = _l1_shares(layer.join_self, layer.self_attention, own, x[0], here=True)
        mixed = mixed + torch.diag(kept)
        if cross is None:
            return Layer(mixed)
        shares, kept, _ = _l1_shares(layer.join_cross, layer.cross_attention, cross, x, here=False)
        return Layer(kept[:, None] * mixed, shares)

    return roll(case, one)


def _l1_shares(join: Any, attention: Any, call: AttentionCall, x: Tensor, here: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The shares [T, J] of the slots in the result of an attention block, what the residual x [T, D] has left, [T], and
    the result [T, D]. With `here`, the residual is a part of slot t itself."""
    found = []
    for rows, parts in _contributions(attention, call):
        added = parts.sum(0) if attention.output.bias is None else parts.sum(0) + attention.output.bias
        result = join.leave(x[rows], added)  # [R, D]
        if here:
            parts[rows, torch.arange(len(rows), device=rows.device)] += x[rows]
        else:
            parts = torch.cat([parts, x[None, rows]])
        if not isinstance(join, PreNorm):
            parts = _norm_linear(join, x[rows] + added, parts)
        contributions = torch.relu(result.norm(1, dim=-1) - (result - parts).norm(1, dim=-1))  # [J, R]
        shares = _shares(contributions.T)[:, : call.weights.shape[-1]]
        found.append((shares, 1 - shares.sum(-1), result))
    shares, kept, result = (torch.cat(parts) for parts in zip(*found, strict=True))
    return shares, kept.round() if here else kept, result  # the residual of slot t is all or nothing


def _norm_linear(join: PostNorm, x: Tensor, parts: Tensor) -> Tensor:
    """What layer norm at x [T, D] makes of vectors that sum to it, [J, T, D]: they sum to LN(x) without its bias."""
    norm = join.norm
    if isinstance(norm, nn.LayerNorm):
        x, parts = x - x.mean(-1, keepdim=True), parts - parts.mean(-1, keepdim=True)
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return parts * norm.weight / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def zero_values(case: Case) -> Attributed:
    """Value zeroing (Mohebbi et al. 2023, "Quantifying context mixing in Transformers", eq. 5-6).

    A layer runs again with the value vector of position j replaced by zeros, in all heads and with the same weights:
    c_ij is the cosine distance between its outputs at i, with and without it. Rows are divided by their sums, in the
    decoder together for prefix and source, and the layers are multiplied.
    """

    def one(layer: TransformerLayer, x: Tensor, given: dict[str, Any], own: AttentionCall, cross: Any) -> Layer:
        whole = layer(x, **given)[0].double()  # [1, T, D]

        def without(module: Any, size: int) -> Tensor:
            """How far the output at i moves without the value of j: [T, J]."""
            found = []
            for slots in torch.arange(size, device=x.device).split(rows_at_once(x, x.shape[1])):
                rows = map_nested((x, *given.values()), partial(_repeat, rows=len(slots)))
                with change(module, Zero(F.one_hot(slots, size).bool()[:, None, None])):
                    moved = layer(rows[0], **dict(zip(given, rows[1:], strict=True)))[0].double()  # [J, T, D]
                found.append(1 - F.cosine_similarity(moved, whole, dim=-1))
            return torch.cat(found).T.clamp(min=0).to(x.dtype)

        size = x.shape[1]
        moved = [without(layer.self_attention, size)]
        moved += [without(layer.cross_attention, cross.weights.shape[-1])] if cross is not None else []
        here = F.pad(torch.eye(size, device=x.device, dtype=x.dtype), (0, sum(part.shape[1] for part in moved) - size))
        shares = _shares(torch.cat(moved, dim=-1), here)
        return Layer(shares) if cross is None else Layer(shares[:, :size], shares[:, size:])

    return roll(case, one)


def _repeat(part: Tensor, rows: int) -> Tensor:
    """The same for every row of a batch; numbers without a batch, such as positions [T], stay."""
    return part.expand(rows, *part.shape[1:]) if part.dim() > 2 else part


def roll(case: Case, one: Callable[..., Layer]) -> Attributed:
    """Multiply what `one` finds in each layer: its inputs and its attention calls -> how positions are mixed."""
    model, layers = case.model, layers_of(case.model)
    names = {module: name for name, module in attentions(model).items()}
    with record(model) as seen, _inputs_of(layers) as given:
        model(*inputs(case))
    T, S = len(case.target), len(case.source)
    like = given[layers[0]][0]
    read, prefix = (torch.eye(size, device=like.device, dtype=like.dtype) for size in (S, T))
    source = like.new_zeros(T, S)
    for layer in layers:
        x, rest = given[layer]
        parts = layer.self_attention, layer.cross_attention
        own, cross = (None if part is None else seen[names[part.attention]] for part in parts)
        mixed = one(layer, x, rest, own, cross)
        if mixed.source is None:
            read = mixed.own @ read
        else:
            prefix, source = mixed.own @ prefix, mixed.own @ source + mixed.source @ read
    return Attributed(source, prefix)


@contextmanager
def _inputs_of(layers: Sequence[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, dict[str, Any]]]]:
    """What each layer reads while the block runs: x, and the rest by name."""
    given: dict[nn.Module, tuple[Tensor, dict[str, Any]]] = {}

    def keep(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        given[module] = args[0], dict(zip(("past",), args[1:], strict=False)) | named

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.register_forward_pre_hook(keep, with_kwargs=True))
        yield given


def attends(model: Any) -> list[str]:
    """The attention over the source words; refuses a model without it."""
    modules = attentions(model)
    cross = [name for name in model.attention_layout.cross if modules[name].score is not uniform]
    if not cross:
        raise ConfigError(
            f"{type(model).__name__} has no attention over the source words, but one vector for the whole sentence."
        )
    return cross


def layers_of(model: nn.Module) -> list[Any]:
    """The layers of a Transformer, the encoder's first; refuses other models."""
    layers = [module for module in model.modules() if isinstance(module, TransformerLayer)]
    if not any(layer.cross_attention is not None for layer in layers):
        raise ConfigError(f"{type(model).__name__} has no Transformer layers, through which this method goes.")
    if not all(isinstance(layer.self_attention, MultiHead) for layer in layers):
        raise ConfigError(
            "This decoder has a recurrence (SSRU) in place of self-attention, so that its layers cannot be multiplied."
        )
    return layers
