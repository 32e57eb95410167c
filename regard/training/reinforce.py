"""Learning attention over pictures: the doubly stochastic penalty of soft attention, REINFORCE for hard attention.

    soft:  -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2                                     (Xu 2015, eq. 14)
    hard:  log p(y|s,a) + lambda_r (log p(y|s,a) - b) log p(s|a) + lambda_e H[s]                 (section 4.1)
           b_k = 0.9 b_{k-1} + 0.1 log p(y|s_k,a)

The gradient of the second line is that of the paper where (log p(y|s,a) - b) counts as a constant. Everything here is
a function of tensors; the baseline is passed in and given back. A model knows nothing of it: places are drawn by a
forward hook on its attention while the block of `draw_places` runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.attend import Look, Memory
from regard.core.normalise import Sample, hard_sample, softmax
from regard.layers.attention import Attention
from regard.symbols import PAD

DECAY = 0.9  # of the moving baseline

Draw = Callable[[Tensor, Tensor | None], Sample]


class Drawn(NamedTuple):
    """What hard attention did at one call: its weights, and what REINFORCE needs of them."""

    weights: Tensor  # [B, T, S], one-hot where a place was drawn
    logprob: Tensor  # [B, T], log p(s_t|a) with its gradient; zero where the expectation was taken
    entropy: Tensor  # [B, T], H[s_t] with its gradient


@contextmanager
def draw_places(
    attention: Attention, expected: Tensor | None = None, draw: Draw = hard_sample
) -> Iterator[list[Drawn]]:
    """While the block runs, every attention call selects one place drawn from the softmax of its scores (eq. 8).

    Rows of the batch where `expected` [B] is True take the expectation instead, as soft attention does; they learn by
    plain back-propagation. `hard_sample` draws with torch's own generator.
    """
    drawn: list[Drawn] = []

    def hook(module: nn.Module, args: tuple[Any, ...], look: Look) -> Look:
        memory: Memory = args[1]
        assert look.scores is not None
        sample = draw(look.scores, memory.mask)
        weights, logprob = sample.weights, sample.logprob
        alpha = softmax(look.scores, memory.mask)  # [B, T, S]
        if expected is not None:
            weights = torch.where(expected[:, None, None], alpha, weights)
            logprob = logprob.masked_fill(expected[:, None], 0.0)
        drawn.append(Drawn(weights, logprob, entropy(alpha)))
        return Look(weights @ memory.values, weights, look.scores)

    handle = attention.register_forward_hook(hook)
    try:
        yield drawn
    finally:
        handle.remove()


def entropy(weights: Tensor) -> Tensor:
    """H = - sum_i alpha_i log alpha_i of weights [..., S]; a weight of zero adds nothing, and no NaN."""
    return -torch.xlogy(weights, weights.clamp(min=torch.finfo(weights.dtype).tiny)).sum(dim=-1)


def doubly_stochastic(weights: Tensor, target: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2, summed over the batch: over time every cell should get a total weight of one.

    weights [B, T, S]; steps where target [B, T] is PAD do not count, nor do rows that are nothing else.
    """
    real = target != PAD  # [B, T]
    seen = (weights * real[..., None]).sum(dim=1)  # [B, S]
    return ((1 - seen).square() * real.any(dim=1, keepdim=True)).sum()


def words_logprob(logits: Tensor, target: Tensor) -> Tensor:
    """log p(y_t|...) of every word of target [B, T], zero where it is PAD: logits [B, T, V] -> [B, T]."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))  # [B, T, V]: bf16 is too coarse for a logarithm
    logprob = exact.log_softmax(dim=-1).gather(-1, target[..., None]).squeeze(-1)  # [B, T]
    return logprob.masked_fill(target == PAD, 0.0)


def reinforce(words: Tensor, places: Tensor, reward: Tensor, baseline: float | Tensor, strength: float = 1.0) -> Tensor:
    """What to minimise so that its gradient is the paper's estimator (eq. 12, with a baseline); summed over the batch.

    words [B] is log p(y|s,a), places [B] is log p(s|a), both with gradients. reward [B] and the baseline are constants
    to the gradient; with reward = words and strength 1 its expectation is the gradient of the bound (eq. 10) exactly.
    """
    advantage = (reward - baseline).detach()  # [B]
    return -(words + strength * advantage * places).sum()


def update_baseline(baseline: Tensor, reward: Tensor, rows: Tensor) -> Tensor:
    """b_k = 0.9 b_{k-1} + 0.1 times the mean reward of an update, a sum over `rows` rows; the first mean is b_1.

    A baseline that is not known yet is NaN.
    """
    mean = reward / rows
    moved = DECAY * baseline + (1 - DECAY) * mean
    return torch.where(rows > 0, torch.where(baseline.isnan(), mean, moved), baseline)
