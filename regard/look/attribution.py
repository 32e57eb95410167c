"""Attributions: from which source words did each target word come? One matrix [T, S] for each method of `METHODS`.

A method knows a model by its contract and by what hooks see: `record`, `change` and the source embeddings. The methods
that go through the layers of a Transformer give, for each layer, how much each position takes from every other, and
`roll` multiplies the layers: the encoder's, then those of the decoder, which take from the target prefix and, by
cross-attention, from the encoder.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.nested import map_nested
from regard.core.scores import clip_distances, uniform
from regard.data.batching import pad
from regard.errors import ConfigError, check_known, numbered
from regard.layers.transformer import MultiHead, PostNorm, PreNorm, TransformerLayer
from regard.layers.transformer_parts import RelativeSelfAttention
from regard.look.change import Change, change
from regard.look.flow import source_embeddings, source_order
from regard.look.record import AttentionCall, attentions, record
from regard.look.table import Show, labels, merge
from regard.look.trace import Trace
from regard.look.trace_data import Attended, TraceData
from regard.symbols import UNKNOWN

Array = NDArray[np.float64]
TOKENS = 2048  # of source and target together in one forward pass
CELLS = 1 << 23  # numbers of the vectors that are compared at once
ALL = slice(None)
COMPLETE = 1e-3  # by how much the sum of integrated gradients may differ from the log-probability that it explains


@dataclass(frozen=True)
class Case:
    """A sentence to attribute: ids of source [S] and target [T], END last in both."""

    model: Any
    source: Tensor
    target: Tensor
    against: int | None = None  # a token: differences of log p(y_t) and log p(against) are attributed
    words: Sequence[Sequence[int]] = ()  # source positions that are occluded together; what is in none is never
    layer: int | None = None  # of the attention over the source; None: the last but one
    head: int | None = None  # None: the mean of all, or their sum
    shift: int = 0  # 1: row t + 1 is of word t
    first: int = 0  # the first target position whose value is wanted where source words are erased
    steps: int = 48  # of integrated gradients: the most gradients of the whole sentence

    def value(self, logits: Tensor, words: Tensor) -> Tensor:
        """log p(word), or what it has more than that of `against`: logits [..., V] and words [...] -> [...]."""
        logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        value = logprobs.gather(-1, words[..., None]).squeeze(-1)
        return value if self.against is None else value - logprobs[..., self.against]


class Attributed(NamedTuple):
    """What a method found: [T, S], and for methods whose rows sum to one together with the target prefix, that part."""

    values: Tensor  # [T, S]
    prefix: Tensor | None = None  # [T, T]: START, y_1, ... y_{T-1}
    gap: float | None = None  # integrated gradients: the largest difference to what a row must sum to


def attribute(case: Case, method: str) -> Attributed:
    """Attribute every target word of a sentence to its source words by one of `METHODS`."""
    check_known("attribution method", method, METHODS)
    if case.against is not None and not METHODS[method].contrasts:
        able = ", ".join(name for name, one in METHODS.items() if one.contrasts)
        raise ConfigError(
            f"The method {method!r} does not depend on the word that is written, so that two words cannot be compared "
            f"by it; compare them by one of: {able}."
        )
    METHODS[method].needs(case.model)
    was_training, trained = case.model.training, [one for one in case.model.parameters() if one.requires_grad]
    case.model.eval().requires_grad_(False)
    try:
        # Ids that were made under inference mode cannot be part of a graph.
        with torch.inference_mode(False), torch.no_grad():
            return METHODS[method].act(replace(case, source=case.source.clone(), target=case.target.clone()))
    finally:
        case.model.train(was_training)
        for parameter in trained:
            parameter.requires_grad_()


# --- attention


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
        model(*_inputs(case))
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
            for slots in torch.arange(size, device=x.device).split(max(1, TOKENS // x.shape[1])):
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


@dataclass(frozen=True, eq=False)
class Zero(Change):
    """The value vectors of some slots are zero: weights without renormalising; `slots` [B, 1, 1, S] are these."""

    slots: Tensor

    def weigh(self, weights: Tensor, first: int) -> Tensor:
        return weights.masked_fill(self.slots, 0.0)


def _repeat(part: Tensor, rows: int) -> Tensor:
    """The same for every row of a batch; numbers without a batch, such as positions [T], stay."""
    return part.expand(rows, *part.shape[1:]) if part.dim() > 2 else part


def roll(case: Case, one: Callable[..., Layer]) -> Attributed:
    """Multiply what `one` finds in each layer: its inputs and its attention calls -> how positions are mixed."""
    model, layers = case.model, layers_of(case.model)
    names = {module: name for name, module in attentions(model).items()}
    with record(model) as seen, _inputs_of(layers) as given:
        model(*_inputs(case))
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

    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    try:
        yield given
    finally:
        for handle in handles:
            handle.remove()


# --- gradients


def gradient(case: Case) -> Attributed:
    """Gradient x input: x_s . d log p(y_t) / d x_s, with x_s the embedding of the source token (Denil et al. 2014)."""
    return Attributed(_slopes(case, torch.ones(1, device=case.source.device))[0])


def integrate(case: Case) -> Attributed:
    """Integrated gradients (Sundararajan et al. 2017, eq. 1), from a source of zero vectors to the embeddings:

        x_s . integral over a from 0 to 1 of d log p(y_t | a x) / d x_s

    A row sums to log p(y_t | x) - log p(y_t | 0), and so does each part of the way. The parts in which that holds least
    are halved (a ReLU makes the gradient jump there) until it holds to `COMPLETE` in all, or `case.steps` gradients
    were computed; `gap` says how much is missing. A model that jumps itself (hard attention, the edge of a window)
    never gets there.
    """
    nodes, weights = (torch.tensor(part, device=case.source.device) for part in np.polynomial.legendre.leggauss(3))
    edges = torch.linspace(0, 1, 5, dtype=torch.float64, device=nodes.device).unfold(0, 2, 1)  # [N, 2]
    known: list[tuple[Tensor, Tensor, Tensor]] = []  # edges of parts, their attributions [N, T, S] and gaps [N]
    left = case.steps
    while True:
        width = edges[:, 1:] - edges[:, :1]  # [N, 1]
        places = edges.mean(1, keepdim=True) + width * nodes / 2  # [N, 3]
        slopes = _slopes(case, places.flatten()).unflatten(0, places.shape)  # [N, 3, T, S]
        found = torch.einsum("nk,nkts->nts", width * weights / 2, slopes)
        values = _values_along(case, edges.flatten()).unflatten(0, edges.shape)  # [N, 2, T]
        known.append((edges, found, (found.sum(-1) - values[:, 1] + values[:, 0]).abs().amax(-1)))
        edges, found, gaps = (torch.cat(parts) for parts in zip(*known, strict=True))
        left -= places.numel()
        most = left // (2 * len(nodes))  # parts that can be halved
        if float(gaps.sum()) <= COMPLETE or not most:
            return Attributed(found.sum(0), gap=float(gaps.sum()))
        worst = gaps.argsort(descending=True)
        coarse, fine = worst[:most], worst[most:]
        fine = torch.cat([fine, coarse[gaps[coarse] <= COMPLETE / len(gaps)]])
        coarse = coarse[gaps[coarse] > COMPLETE / len(gaps)]
        known = [(edges[fine], found[fine], gaps[fine])]
        begin, end = edges[coarse].unbind(1)
        middle = (begin + end) / 2
        edges = torch.cat([torch.stack(half, dim=1) for half in ((begin, middle), (middle, end))])


def _slopes(case: Case, shares: Tensor) -> Tensor:
    """For each share a, with source embeddings a x: x . the gradient of every word's value, [A, T, S]."""
    found = []
    for source, lengths, target, some in _along(case, shares):
        rows = []
        with torch.enable_grad(), source_embeddings(case.model, some) as caught:
            hidden = case.model.hidden(source, lengths, target)  # [A, T, D]
            ids, vectors, leaf = caught[0]
            for t in range(target.shape[1]):
                value = case.value(case.model.output(hidden[:, t]), target[:, t]).sum()
                slope = torch.zeros_like(leaf)
                if value.requires_grad:
                    (slope,) = torch.autograd.grad(value, leaf, retain_graph=True, materialize_grads=True)
                rows.append((vectors * slope).sum(-1))  # [A, S]
        found.append(torch.stack(rows, dim=1)[:, :, list(source_order(ids[0], case.source))])
    return torch.cat(found).double()


def _values_along(case: Case, shares: Tensor) -> Tensor:
    """The value [A, T] of every word with source embeddings a x, for each share a."""
    found = []
    for source, lengths, target, some in _along(case, shares):
        with source_embeddings(case.model, some):
            found.append(case.value(case.model(source, lengths, target), target))
    return torch.cat(found).double()


def _along(case: Case, shares: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Batches of the same sentence: source, lengths, target, and the share of each row."""
    for some in shares.split(max(1, TOKENS // (len(case.target) + len(case.source)))):
        yield *(part.expand(len(some), *part.shape[1:]) for part in _inputs(case)), some


# --- occlusion


def occlude_masked(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is masked in every attention over the source, in
    the decoder and in the encoder (erasure, Li et al. 2016). A recurrent encoder has still read the word."""
    return _occlude(case, erase_masked, case.words or [[at] for at in range(len(case.source))])


def occlude_unknown(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is replaced by the unknown word."""
    return _occlude(case, erase_unknown, _without_end(case))


def occlude_removed(case: Case) -> Attributed:
    """Occlusion: the log-probability that is lost when a source word is removed from the sentence (leave one out)."""
    return _occlude(case, erase_removed, _without_end(case))


def erase_masked(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that is masked in every attention."""
    modules, cross = attentions(case.model), case.model.attention_layout.cross
    names = [name for name in modules if name in cross or name.split(".")[0].startswith("encoder")]
    hidden = torch.zeros(len(groups), len(case.source), dtype=torch.bool, device=case.source.device)
    for row, group in enumerate(groups):
        hidden[row, list(group)] = True
    with change(case.model, *(Hide(hidden, name) for name in names)):
        return _values(case, [case.source.tolist()] * len(groups))


def erase_unknown(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that become the unknown word."""
    ids = case.source.tolist()
    return _values(case, [[UNKNOWN if at in group else ids[at] for at in range(len(ids))] for group in groups])


def erase_removed(case: Case, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T] of the target words, for each group of source positions that are left out."""
    ids = case.source.tolist()
    return _values(case, [[ids[at] for at in range(len(ids)) if at not in group] for group in groups])


@dataclass(frozen=True, eq=False)
class Hide(Change):
    """Some source positions are masked, other ones in every row of the batch: `hidden` [B, S]."""

    hidden: Tensor
    name: str

    def score(self, scores: Tensor) -> Tensor:
        hidden = self.hidden[:, : scores.shape[-1]]  # a tape that is being written is shorter
        return scores.masked_fill(hidden.view(len(hidden), *[1] * (scores.dim() - 2), -1), float("-inf"))


def _without_end(case: Case) -> list[Sequence[int]]:
    """The words of the source. Its END is neither replaced nor removed: a model reads no sentence without it."""
    last = len(case.source) - 1
    words = case.words or [[at] for at in range(last)]
    return [word for word in words if last not in word]


Erase = Callable[[Case, Sequence[Sequence[int]]], Tensor]


def erase(case: Case, act: Erase, groups: Sequence[Sequence[int]]) -> Tensor:
    """The values [G, T - first] of the target words without each group of source positions, in batches."""
    at_once = max(1, TOKENS // (len(case.target) + len(case.source)))
    return torch.cat([act(case, groups[start : start + at_once]) for start in range(0, len(groups), at_once)])


def _occlude(case: Case, act: Erase, words: Sequence[Sequence[int]]) -> Attributed:
    """What each word is worth: the value that is lost without it; its positions share it equally."""
    whole, *left = erase(case, act, [[], *words])  # [T]
    found = whole.new_zeros(len(case.target), len(case.source))
    for group, value in zip(words, left, strict=True):
        found[:, list(group)] = (whole - value)[:, None] / len(group)
    return Attributed(found)


def _values(case: Case, sources: list[list[int]]) -> Tensor:
    """The value [B, T - first] of the target words after each of these sources."""
    source, lengths = (part.to(case.source.device) for part in pad(sources))
    target = case.target.expand(len(sources), -1)
    hidden = case.model.hidden(source, lengths, target)  # [B, T, D]
    return case.value(case.model.output(hidden[:, case.first :]), target[:, case.first :])


def _inputs(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    lengths = torch.tensor([len(case.source)], device=case.source.device)
    return case.source[None], lengths, case.target[None]


# --- the table of methods


def attends(model: Any) -> list[str]:
    """The attention over the source words; refuses a model without it."""
    modules = attentions(model)
    cross = [name for name in model.attention_layout.cross if modules[name].score is not uniform]
    if not cross:
        raise ConfigError(
            f"{type(model).__name__} has no attention over the source words, but one vector for the whole sentence; "
            f"attribute by gradient, integrated-gradients, occlusion-unknown or occlusion-removed."
        )
    return cross


def layers_of(model: nn.Module) -> list[Any]:
    """The layers of a Transformer, the encoder's first; refuses other models."""
    layers = [module for module in model.modules() if isinstance(module, TransformerLayer)]
    if not any(layer.cross_attention is not None for layer in layers):
        raise ConfigError(
            f"{type(model).__name__} has no Transformer layers, through which this method goes; attribute by gradient, "
            f"integrated-gradients, occlusion-masked or attention."
        )
    if not all(isinstance(layer.self_attention, MultiHead) for layer in layers):
        raise ConfigError(
            "This decoder has a recurrence (SSRU) in place of self-attention, so that its layers cannot be multiplied; "
            "attribute by gradient, integrated-gradients, occlusion-masked or attention."
        )
    return layers


def _anything(model: nn.Module) -> None:
    """Every sequence model will do."""


class Method(NamedTuple):
    """A method: the function, what it needs of a model, what a row is, and whether two words can be compared by it (Yin
    and Neubig 2022, "Interpreting language models with contrastive explanations")."""

    act: Callable[[Case], Attributed]
    needs: Callable[[Any], Any]
    row: str
    contrasts: bool = False


_ONE = "a row sums to one"
_WITH_PREFIX = "a row sums to one together with the target words before it"
_LOST = "the log-probability that the target word loses without the source word"
_SLOPE = "the slope of the log-probability along each source word"
_SUM = "a row sums to the log-probability that the source words add to zero vectors in their place"
METHODS: dict[str, Method] = {
    "attention": Method(attend, attends, "a row sums to one, or to less in a window that is not normalised"),
    "attention-norm": Method(attend_norms, attends, _ONE),
    "rollout": Method(rollout, layers_of, _WITH_PREFIX),
    "alti": Method(alti, layers_of, _WITH_PREFIX),
    "value-zeroing": Method(zero_values, layers_of, _WITH_PREFIX),
    "gradient": Method(gradient, _anything, _SLOPE, True),
    "integrated-gradients": Method(integrate, _anything, _SUM, True),
    "occlusion-masked": Method(occlude_masked, attends, _LOST, True),
    "occlusion-unknown": Method(occlude_unknown, _anything, _LOST, True),
    "occlusion-removed": Method(occlude_removed, _anything, _LOST, True),
}


ERASERS: dict[str, Erase] = {"masked": erase_masked, "unknown": erase_unknown, "removed": erase_removed}


def methods_of(model: nn.Module) -> list[str]:
    """The methods that are defined for a model."""

    def fits(method: Method) -> bool:
        try:
            method.needs(model)
        except ConfigError:
            return False
        return True

    return [name for name, method in METHODS.items() if fits(method)]


# --- in a trace


@dataclass(frozen=True, eq=False)
class Attribution:
    """From which source words each target word came, by one method; `Translator.attribute` makes one.

    `meaning` says what a row of `matrix` is. `source_share` is there for methods whose rows sum to one together with
    the target words before: the part of each row that is the source's.

    >>> found = regard.load("en-fr").attribute("The cat sleeps.", "Le chat dort.", method="alti")
    >>> found.rows[1], found.columns[found.matrix[1].argmax()], found.source_share.shape
    ('chat', 'cat', (5,))
    """

    method: str
    rows: tuple[str, ...]  # target words, </s> last
    columns: tuple[str, ...]  # source words, </s> last
    matrix: NDArray[np.float32]  # [rows, columns]
    meaning: str
    source_share: NDArray[np.float32] | None = None  # [rows]

    @classmethod
    def of(cls, trace: TraceData, name: str, words: bool = True) -> "Attribution":
        """The attribution that a trace has under `name`, between words or between pieces."""
        seen, show = trace.attention[name], Show(words=words)
        rows, columns = (labels(side.text, side.tokens, show) for side in (trace.target, trace.source))
        matrix = merge((seen.weights if seen.scores is None else seen.scores)[0], rows, columns)
        method = METHODS.get(name.partition(_AGAINST)[0].partition(":")[0])
        share = None
        if _SHARE in seen.step_values:
            share = np.array([seen.step_values[_SHARE][list(row.tokens)].mean() for row in rows], dtype=np.float32)
        down, across = (tuple(label.text for label in side) for side in (rows, columns))
        return cls(name, down, across, matrix, method.row if method else "", share)


_AGAINST = " against "  # between a method and the word that it compares with
_DRAWN = "the positive part of each row, as shares"
_SHARE = "source"  # the name of the source's part of each row in a trace


def add_attribution(trace: Trace, case: Case, method: str, against: str = "") -> Trace:
    """The trace with the attribution of its sentence by `method`, which may name a layer and a head after a
    colon, those of `case`; `against` is the text of `case.against`.

    It is kept as a module of the kind "attribution". What it draws are shares: the values themselves, where they are
    shares; else, the positive values of each row, by words, divided by their sum, with the values as its scores.
    """
    columns = labels(trace.source.text, trace.source.tokens, Show())
    kind, name = method.partition(":")[0], method + (f"{_AGAINST}{against}" if against else "")
    found = attribute(replace(case, words=[label.tokens for label in columns]), kind)
    values = found.values.float().cpu().numpy()  # [T, S]
    settings: dict[str, Any] = {"weights": values}
    if METHODS[kind].contrasts:
        by_word = np.add.reduceat(values, [label.tokens[0] for label in columns], axis=1).clip(min=0)  # [T, words]
        total = by_word.sum(-1, keepdims=True)
        shares = np.divide(by_word, total, out=np.zeros_like(by_word), where=total > 0)
        counts = [len(label.tokens) for label in columns]
        settings = {"weights": np.repeat(shares / counts, counts, axis=1), "scores": values, "score": _DRAWN}
    if found.prefix is not None:
        settings["step_values"] = {_SHARE: values.sum(-1).astype(np.float64)}
    settings["weights"] = settings["weights"].clip(0, 1)  # rounding
    seen = Attended(name, kind="attribution", normalise="shares", **settings)
    notes = trace.notes
    if found.gap is not None and found.gap > COMPLETE:
        text = f"integrated gradients miss up to {found.gap:.2g} of the log-probability that they explain"
        notes = (*notes, {"flag": "attribution", "text": text})
    return replace(trace, attention={**trace.attention, name: seen}, notes=notes)
