"""What is minimised, as sums over a batch; the loop divides by tokens or sentences, since the papers differ in that."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import Batch, PackedBatch, pack
from regard.kernels.choose import END_TO_END, batches_path, loss_path
from regard.kernels.cross_entropy import linear_consistency, linear_cross_entropy
from regard.symbols import PAD

# Added to a weight before its logarithm, which is finite then also for the exact zeros of sparse normalisers. A weight
# however small keeps its gradient, 1 / weight, which a floor would cut off just where the model gives no weight to the
# gold most surely; and 1 / LEAST still fits into float32 with room for factors on top.
LEAST = 1e-30


def likelihood(model: nn.Module, *inputs: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """`cross_entropy` of what a model is given to write: the last of its inputs, target [B, T].

    Where the logits are a linear layer of `model.hidden(...)`, they are never all in memory at once. On a CPU a
    model that takes sentences end to end computes no padding.
    """
    target = inputs[-1]
    if loss_path(getattr(model, "output", None)).name == "plain":
        return cross_entropy(model(*inputs), target, smoothing)
    packed = _end_to_end(model, *inputs)
    if packed:
        return packed_likelihood(model, packed, smoothing)
    return output_likelihood(model, model.hidden(*inputs), target, smoothing)  # type: ignore[operator]


def _end_to_end(model: nn.Module, *inputs: Tensor) -> PackedBatch | None:
    """On a CPU, a batch that has padding as sentences end to end, if the model takes them and no hook watches it."""
    if not inputs[-1].is_cpu or len(inputs) != 3 or batches_path(model, "cpu").name != END_TO_END:
        return None
    source, lengths, target = inputs
    words = (target != PAD).sum(dim=1)  # [B]
    full = lengths.sum() + words.sum() == source.numel() + target.numel()
    if full or any(module._forward_hooks for module in model.modules()):
        return None
    return pack(Batch(lengths, source, lengths, target, words))


def output_likelihood(
    model: nn.Module, hidden: Tensor, target: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`likelihood` from what the output layer reads, hidden [B, T, D]."""
    output: Any = model.output
    if loss_path(output).name == "plain":
        return cross_entropy(output(hidden), target, smoothing)
    return linear_cross_entropy(hidden, output.weight, output.bias, target, smoothing, PAD)


def consistent_likelihood(model: nn.Module, *inputs: Tensor, weight: float, smoothing: float = 0.0) -> Tensor:
    """R-Drop (Liang et al. 2021): two passes with different dropout, p and q, shall agree; summed over real tokens.

    (CE(p) + CE(q)) / 2 + weight / 4 (KL(p || q) + KL(q || p)),  half of the paper's loss with alpha = weight
    """
    packed = _end_to_end(model, *inputs)
    if packed:
        return packed_consistent_likelihood(model, packed, weight, smoothing)
    *rest, target = (part.repeat(2, *[1] * (part.dim() - 1)) for part in inputs)  # [2B, ...]
    if loss_path(getattr(model, "output", None)).name != "plain":
        hidden = model.hidden(*rest, target).unflatten(0, (2, -1))  # type: ignore[operator]  # [2, B, T, D]
        return _consistent(model, hidden, inputs[-1], weight, smoothing)
    logits = model(*rest, target)
    total, _ = cross_entropy(logits, target, smoothing)
    logprob = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)  # [2B, T, V]
    apart = divergence(*logprob.chunk(2))  # [B, T]
    return total / 2 + weight / 4 * (apart * (inputs[-1] != PAD)).sum()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of log-probabilities [..., V] -> [...]."""
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1)


def packed_consistent_likelihood(model: nn.Module, batch: PackedBatch, weight: float, smoothing: float = 0.0) -> Tensor:
    """`consistent_likelihood` of sentences end to end, for a model that `can_pack`."""
    source, slots, words, queries, target = batch
    inputs = *_twice(source, slots), *_twice(words, queries)
    hidden = model.hidden_packed(*inputs).unflatten(1, (2, -1)).transpose(0, 1)  # type: ignore[operator]
    return _consistent(model, hidden, target, weight, smoothing)  # hidden [2, 1, M, D]


def _twice(row: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The sentences of a row [1, N] at their places [B, S], and after them the same ones again: [1, 2N], [2B, S]."""
    return row.repeat(1, 2), torch.cat([places, torch.where(places < 0, places, places + row.shape[1])])


def _consistent(model: nn.Module, hidden: Tensor, target: Tensor, weight: float, smoothing: float) -> Tensor:
    """hidden [2, ..., D] of two passes, target [...]."""
    output: Any = model.output
    return linear_consistency(hidden, output.weight, output.bias, target, weight, smoothing, PAD)[0]


def packed_likelihood(model: nn.Module, batch: PackedBatch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """`likelihood` of sentences end to end, for a model that `can_pack`."""
    *inputs, target = batch
    return output_likelihood(model, model.hidden_packed(*inputs), target, smoothing)  # type: ignore[operator]


def can_pack(model: nn.Module) -> bool:
    """Whether a model computes sentences end to end, and its loss from them."""
    return batches_path(model, "cuda").name == END_TO_END


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The loss to minimise and the plain negative log-likelihood, summed over all real tokens.

    logits [B, T, V], target [B, T]. Smoothing takes `smoothing` of the probability and spreads it over all V words
    (torch's convention: the gold word gets its share of it too). With uniform logits the loss is log V a token.
    """
    flat, gold = logits.flatten(0, 1), target.flatten()  # [B T, V], [B T]
    if not smoothing:
        plain = F.cross_entropy(flat, gold, ignore_index=PAD, reduction="sum")
        return plain, plain.detach()
    logprob = flat.to(torch.promote_types(flat.dtype, torch.float32)).log_softmax(dim=-1)  # [B T, V], once for both
    plain = F.nll_loss(logprob, gold, ignore_index=PAD, reduction="sum")
    spread = -(logprob.mean(dim=-1) * (gold != PAD)).sum()
    return (1 - smoothing) * plain + smoothing * spread, plain.detach()


def guided_alignment(weights: Tensor, links: Tensor) -> Tensor:
    """- sum_ij A_ij log alpha_ij with A the links of each target word, its row summing to one (Chen 2016).

    weights [B, T, S], links [B, T, S] of zeros and ones. Target words without a link are left out. The sum is over all
    target words, so that divided by the tokens of the batch it is what Garg 2019 add to the likelihood.
    """
    rows = links.sum(dim=-1, keepdim=True)
    gold = links / rows.clamp(min=1)  # [B, T, S]
    exact = weights.to(torch.promote_types(weights.dtype, torch.float32))  # bfloat16 would lose the logarithm
    return -(gold * (exact + LEAST).log()).sum()


def coverage_loss(weights: Tensor, words: Tensor) -> Tensor:
    """sum_t sum_s min(alpha_ts, c_ts) with c_t = sum of alpha_k over the steps k < t (See 2017, eq. 12).

    weights [B, T, S], words [B, T] True for the real target words. A step gives 0 where it attends to words that no
    step before has attended to, and at most 1.
    """
    exact = weights.to(torch.promote_types(weights.dtype, torch.float32))
    before = exact.cumsum(dim=1) - exact  # [B, T, S]
    return (torch.minimum(exact, before).sum(dim=-1) * words).sum()
