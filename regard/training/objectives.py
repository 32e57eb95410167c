"""Losses, as sums over a batch; the loop divides by tokens or sentences, since the papers differ."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import Batch, PackedBatch, pack
from regard.kernels.choose import END_TO_END, batches_path, loss_path
from regard.kernels.cross_entropy import linear_consistency, linear_cross_entropy
from regard.symbols import PAD

# Added to a weight before the logarithm, so that it is finite for the exact zeros of sparse normalisers. Unlike a
# floor, it keeps the gradient 1 / weight of tiny weights, where the model is most wrong; 1 / LEAST fits into float32.
LEAST = 1e-30


def likelihood(model: nn.Module, *inputs: Any, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """`cross_entropy` of the last input, target [B, T], or of a `PackedBatch`.

    If the logits are a linear layer of `model.hidden(...)`, they are never all in memory at once. On a CPU, a model
    that supports packed sentences computes no padding.
    """
    packed = _packed(model, *inputs)
    if packed:
        *rest, target = packed
        return output_likelihood(model, model.hidden_packed(*rest), target, smoothing)  # type: ignore[operator]
    if loss_path(getattr(model, "output", None)).name == "plain":
        return cross_entropy(model(*inputs), inputs[-1], smoothing)
    return output_likelihood(model, model.hidden(*inputs), inputs[-1], smoothing)  # type: ignore[operator]


def _packed(model: nn.Module, *inputs: Any) -> PackedBatch | None:
    """A packed batch. On a CPU, a padded batch is packed if the model supports it and has no forward hooks."""
    if isinstance(inputs[0], PackedBatch):
        return inputs[0]
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
    """`likelihood` from the input of the output layer, hidden [B, T, D]."""
    output: Any = model.output
    if loss_path(output).name == "plain":
        return cross_entropy(output(hidden), target, smoothing)
    return linear_cross_entropy(hidden, output.weight, output.bias, target, smoothing, PAD)


def consistent_likelihood(model: nn.Module, *inputs: Any, weight: float, smoothing: float = 0.0) -> Tensor:
    """R-Drop (Liang et al. 2021) for two passes with different dropout, p and q; summed over real tokens.

    (CE(p) + CE(q)) / 2 + weight / 4 (KL(p || q) + KL(q || p)),  half of the paper's loss with alpha = weight
    """
    packed, target = _packed(model, *inputs), inputs[-1]
    output: Any = getattr(model, "output", None)
    if packed:
        source, slots, words, queries, target = packed
        twice = *_twice(source, slots), *_twice(words, queries)
        hidden = model.hidden_packed(*twice).unflatten(1, (2, -1)).transpose(0, 1)  # type: ignore[operator]
    else:
        both = [part.repeat(2, *[1] * (part.dim() - 1)) for part in inputs]  # [2B, ...]
        if loss_path(output).name == "plain":
            logits = model(*both)
            total, _ = cross_entropy(logits, both[-1], smoothing)
            logprob = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)  # [2B, T, V]
            apart = divergence(*logprob.chunk(2))  # [B, T]
            return total / 2 + weight / 4 * (apart * (target != PAD)).sum()
        hidden = model.hidden(*both).unflatten(0, (2, -1))  # type: ignore[operator]  # [2, B, T, D]
    return linear_consistency(hidden, output.weight, output.bias, target, weight, smoothing, PAD)[0]


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of log-probabilities [..., V] -> [...]."""
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1)


def _twice(row: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """A row of packed sentences [1, N] and its positions [B, S], duplicated: [1, 2N], [2B, S]."""
    return row.repeat(1, 2), torch.cat([places, torch.where(places < 0, places, places + row.shape[1])])


def can_pack(model: nn.Module) -> bool:
    """Whether a model supports packed sentences on a GPU."""
    return batches_path(model, "cuda").name == END_TO_END


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The smoothed loss and the plain negative log-likelihood, summed over all real tokens.

    logits [B, T, V], target [B, T]. The probability `smoothing` is spread over all V words, including the gold word
    (torch's convention). With uniform logits the loss is log V per token.
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
    """- sum_ij A_ij log alpha_ij, where A are the links of each target word, normalised to sum to 1 (Chen 2016).

    weights [B, T, S], links [B, T, S] of zeros and ones. Target words without a link are skipped. Divided by the tokens
    of the batch, the sum is the alignment loss of Garg 2019.
    """
    rows = links.sum(dim=-1, keepdim=True)
    gold = links / rows.clamp(min=1)  # [B, T, S]
    exact = weights.to(torch.promote_types(weights.dtype, torch.float32))  # bfloat16 would lose the logarithm
    return -(gold * (exact + LEAST).log()).sum()


def coverage_loss(weights: Tensor, words: Tensor) -> Tensor:
    """sum_t sum_s min(alpha_ts, c_ts) with c_t = sum of alpha_k over the steps k < t (See 2017, eq. 12).

    weights [B, T, S], words [B, T] True for real target words. The loss of a step is at most 1, and 0 if it attends
    only to words that no earlier step attended to.
    """
    exact = weights.to(torch.promote_types(weights.dtype, torch.float32))
    before = exact.cumsum(dim=1) - exact  # [B, T, S]
    return (torch.minimum(exact, before).sum(dim=-1) * words).sum()
