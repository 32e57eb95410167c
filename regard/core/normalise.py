"""Normalisers: scores [..., T, S] into weights of the same shape, zero wherever the mask is False.

A normaliser is called as `normalise(scores, mask)`; mask is boolean, True = may look, or None for everywhere.
A row that may look nowhere gets exact zeros, forward and backward: never NaN, and no weight for padding. A score of
-inf counts as masked.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.masks import causal_mask, window_mask
from regard.errors import ShapeError


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """exp(e_s) / sum over visible s of exp(e_s).

    >>> scores = torch.tensor([[1.0, 2.0, 3.0]])
    >>> core.softmax(scores)
    tensor([[0.0900, 0.2447, 0.6652]])
    >>> core.softmax(scores, torch.tensor([[True, True, False]]))
    tensor([[0.2689, 0.7311, 0.0000]])
    """
    masked = scores == -math.inf  # [..., T, S]
    if mask is not None:
        masked = masked | ~mask
    filled = scores.masked_fill(masked, torch.finfo(scores.dtype).min)
    # A row of equal large negative scores has a finite softmax, so its gradient is finite before it is zeroed.
    return torch.softmax(filled, dim=-1).masked_fill(masked, 0.0)


@dataclass(frozen=True)
class Causal:
    """A normaliser in which the last query may look at every slot, the one before at all but the last, and so on.

    With T = S that is the causal triangle; with T = 1, one step with its past in the memory, everything is visible.
    `causal_softmax` is that of `softmax`.

    >>> core.Causal(core.softmax)(torch.zeros(2, 2))
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """

    normalise: Callable[[Tensor, Tensor | None], Tensor]

    def __call__(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        queries, slots = scores.shape[-2:]
        return self.normalise(scores, _and(mask, causal_mask(slots, scores.device, queries)))

    @property
    def __name__(self) -> str:
        return f"causal {getattr(self.normalise, '__name__', type(self.normalise).__name__)}"


causal_softmax = Causal(softmax)


def is_causal_softmax(normalise: object) -> bool:
    """Whether a normaliser is `causal_softmax`, also where a model made it."""
    return isinstance(normalise, Causal) and normalise.normalise is softmax


def hard_argmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """One at the highest visible score (the first of equals), zero elsewhere. It has no gradient.

    >>> scores = torch.tensor([[1.0, 2.0, 3.0]])
    >>> core.hard_argmax(scores, torch.tensor([[True, True, False]]))
    tensor([[0., 1., 0.]])
    """
    visible = _visible(scores, mask)
    best = _hide(scores, visible).argmax(dim=-1, keepdim=True)  # [..., T, 1]
    return torch.zeros_like(scores).scatter(-1, best, 1.0).masked_fill(~visible, 0.0)


class Sample(NamedTuple):
    """A one-hot choice and the logarithm of the probability with which it was made: the result of `hard_sample`.

    >>> choice = core.hard_sample(torch.tensor([[0.0, 100.0]]))
    >>> choice.weights, choice.logprob
    (tensor([[0., 1.]]), tensor([0.]))
    """

    weights: Tensor  # [..., T, S], one-hot; zeros where nothing is visible
    logprob: Tensor  # [..., T]; zero where nothing is visible


def hard_sample(scores: Tensor, mask: Tensor | None = None, generator: torch.Generator | None = None) -> Sample:
    """Choose one slot with the probabilities of the softmax (Xu 2015, hard attention).

    The weights carry no gradient; `logprob` does, which is what REINFORCE needs.

    >>> weights, logprob = core.hard_sample(torch.zeros(1, 4))  # one of four slots with equal scores
    >>> weights.sum(), logprob.exp()
    (tensor(1.), tensor([0.2500]))
    """
    visible = _visible(scores, mask)
    anywhere = visible.any(dim=-1)  # [..., T]
    log_weights = torch.log_softmax(_hide(scores, visible), dim=-1)  # [..., T, S]
    flat = log_weights.detach().exp().reshape(-1, scores.shape[-1])
    chosen = torch.multinomial(flat, 1, generator=generator).reshape(*scores.shape[:-1], 1)  # [..., T, 1]
    weights = torch.zeros_like(scores).scatter(-1, chosen, 1.0).masked_fill(~visible, 0.0)
    logprob = log_weights.gather(-1, chosen).squeeze(-1).masked_fill(~anywhere, 0.0)  # [..., T]
    return Sample(weights, logprob)


@dataclass(frozen=True)
class Window:
    """Luong's local-m: softmax over the slots with `|s - centre| <= half_width`, nothing outside.

    centre [B, T] is the position to look around, counted from zero like the slots; local-m takes the time step itself.

    >>> scores, centre = torch.zeros(1, 1, 5), torch.tensor([[3]])
    >>> core.Window(half_width=1)(scores, None, centre)
    tensor([[[0.0000, 0.0000, 0.3333, 0.3333, 0.3333]]])
    """

    half_width: int = 10

    def __call__(self, scores: Tensor, mask: Tensor | None, centre: Tensor) -> Tensor:
        return softmax(scores, _and(mask, self.visible(scores, centre)))

    def visible(self, scores: Tensor, centre: Tensor) -> Tensor:
        """The slots of the window, [B, T, S]."""
        if centre.shape != scores.shape[:-1]:
            raise ShapeError(
                f"A window needs one centre for each query, {list(scores.shape[:-1])}; got {list(centre.shape)}. "
                f"Positions count from zero in source order."
            )
        return window_mask(centre, self.half_width, scores.shape[-1])


@dataclass(frozen=True)
class GaussianWindow(Window):
    """Luong's local-p: the window's softmax times exp(-(s - p)^2 / (2 sigma^2)), sigma = half_width / 2.

    The Gaussian multiplies *after* the softmax and the product is not renormalised, so that a row sums to at most one.
    The centre p [B, T] is a real number: rounding it would cut the gradient to whatever predicts it. `released` takes
    the window around floor(p), as the authors' code does; the Gaussian keeps the real p in both.

    >>> scores, centre = torch.zeros(1, 1, 5), torch.tensor([[3.0]])
    >>> core.GaussianWindow(half_width=1)(scores, None, centre)
    tensor([[[0.0000, 0.0000, 0.0451, 0.3333, 0.0451]]])
    """

    released: bool = False

    def __call__(self, scores: Tensor, mask: Tensor | None, centre: Tensor) -> Tensor:
        weights = super().__call__(scores, mask, centre)  # [B, T, S]
        centre = centre.to(torch.promote_types(centre.dtype, torch.float32))
        slots = torch.arange(scores.shape[-1], device=scores.device, dtype=centre.dtype)
        sigma = self.half_width / 2
        gaussian = torch.exp(-((slots - centre[..., None]) ** 2) / (2 * sigma**2))  # [B, T, S]
        return weights * gaussian.to(weights.dtype)

    def visible(self, scores: Tensor, centre: Tensor) -> Tensor:
        return super().visible(scores, centre.floor() if self.released else centre)


class ForwardOnly(nn.Module):
    """Monotonic attention (Raffel 2017): the probability of stopping at each slot, from the slot of the step before on.

        p_j = sigmoid(e_j);  q_j = (1 - p_{j-1}) q_{j-1} + previous_j;  alpha_j = p_j q_j

    `previous` [..., T, S] are the weights of the step before; a row sums to at most one, since attention may reach the
    end without stopping. In training, noise N(0, noise^2) is added to the scores; otherwise, if `hard`, all weight is
    at the first slot with p_j > 0.5 from the previous one on, which has no gradient.

    >>> scores = torch.tensor([[9.0, -1.0, 2.0, 3.0]])
    >>> previous = torch.tensor([[0.0, 1.0, 0.0, 0.0]])  # attention stopped at slot 1
    >>> core.ForwardOnly().eval()(scores, None, previous)  # and stops now at the next slot that scores above zero
    tensor([[0., 0., 1., 0.]])
    """

    def __init__(self, noise: float = 1.0, hard: bool = True) -> None:
        super().__init__()
        self.noise, self.hard = noise, hard

    def forward(self, scores: Tensor, mask: Tensor | None, previous: Tensor) -> Tensor:
        visible = _visible(scores, mask)
        if self.hard and not self.training:
            reached = previous.cumsum(dim=-1) > 0.5  # [..., T, S]
            stops = (scores > 0) & visible & reached
            return (stops & (stops.cumsum(dim=-1) == 1)).to(scores.dtype)
        noisy = scores + self.noise * torch.randn_like(scores) if self.training and self.noise else scores
        exact = noisy.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~visible, -math.inf)
        passing = F.logsigmoid(-exact)  # log(1 - p_j)
        # q_j = sum over k <= j of previous_k prod over k <= l < j of (1 - p_l): no quotient, so nothing underflows
        before = passing.cumsum(dim=-1) - passing  # [..., T, S], of all l < j
        ways = before[..., :, None] - before[..., None, :]  # [..., T, S, S], from k to j
        forwards = causal_mask(scores.shape[-1], scores.device)  # [S, S]
        ways = ways.masked_fill(~forwards, -math.inf).exp()
        reaching = (ways @ previous.to(ways.dtype)[..., None]).squeeze(-1)  # [..., T, S], q
        return (torch.sigmoid(exact) * reaching).to(scores.dtype).masked_fill(~visible, 0.0)


def sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The point of the simplex nearest to the scores (Martins 2016): p = max(e - tau, 0); exact zeros.

    tau is (sum of the k highest scores - 1) / k, where k is the largest number of slots that keeps all k above tau.

    >>> scores = torch.tensor([[0.0, 1.5, 2.0]])
    >>> core.softmax(scores), core.sparsemax(scores)
    (tensor([[0.0777, 0.3482, 0.5741]]), tensor([[0.0000, 0.2500, 0.7500]]))
    """
    if not scores.shape[-1]:
        return scores  # an empty memory has no highest score
    visible = _visible(scores, mask)
    shifted = _shift(_hide(scores, visible))  # [..., T, S]
    ordered = shifted.sort(dim=-1, descending=True).values  # [..., T, S]
    count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=shifted.dtype)
    tau = (ordered.cumsum(dim=-1) - 1) / count  # [..., T, S]
    support = (ordered > tau).sum(dim=-1, keepdim=True)  # [..., T, 1]; the highest score is always in it
    weights = (shifted - tau.gather(-1, support - 1)).clamp(min=0)  # [..., T, S]
    return weights.to(scores.dtype).masked_fill(~visible, 0.0)


def entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax (Peters 2019), halfway between softmax and sparsemax: p = max(e / 2 - tau, 0)^2.

    With the k highest of z = e / 2, mean m and variance w, tau = m - sqrt(1/k - w).

    >>> scores = torch.tensor([[0.0, 1.0, 2.0]])
    >>> for normalise in (core.softmax, core.entmax15, core.sparsemax):
    ...     print(normalise(scores))
    tensor([[0.0900, 0.2447, 0.6652]])
    tensor([[0.0000, 0.1693, 0.8307]])
    tensor([[0., 0., 1.]])
    """
    if not scores.shape[-1]:
        return scores  # an empty memory has no highest score
    visible = _visible(scores, mask)
    weights = _Entmax15.apply(_shift(_hide(scores, visible) / 2))
    return weights.to(scores.dtype).masked_fill(~visible, 0.0)  # [..., T, S]


class _Entmax15(torch.autograd.Function):
    """p = max(z - tau, 0)^2 with its own gradient: differentiating through the square roots would give inf - inf."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, halves: Tensor) -> Tensor:
        ordered = halves.sort(dim=-1, descending=True).values  # [..., T, S]
        count = torch.arange(1, halves.shape[-1] + 1, device=halves.device, dtype=halves.dtype)
        mean = ordered.cumsum(dim=-1) / count
        variance = ordered.square().cumsum(dim=-1) / count - mean.square()
        tau = mean - (1 / count - variance).clamp(min=0).sqrt()  # [..., T, S]
        support = (tau <= ordered).sum(dim=-1, keepdim=True)  # [..., T, 1]
        weights = (halves - tau.gather(-1, support - 1)).clamp(min=0).square()
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors  # type: ignore[attr-defined]
        roots = weights.sqrt()  # dp/dz = 2 (z - tau) for the slot itself, shared out over the support
        scaled = 2 * grads[0] * roots
        return scaled - roots * (scaled.sum(-1, keepdim=True) / roots.sum(-1, keepdim=True))


# The normalisers by their names in the settings of models.
NORMALISERS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


def _visible(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The mask at the full shape of the scores, without the slots that score -inf."""
    finite = scores != -math.inf
    return finite if mask is None else finite & mask


def _hide(scores: Tensor, visible: Tensor) -> Tensor:
    """Scores with hidden slots at the lowest finite number: -inf minus -inf would be NaN in a row of hidden slots."""
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min)


def _shift(scores: Tensor) -> Tensor:
    """Scores with the highest at zero, for sums over sorted scores, which need float32 at least.

    Slots hidden at the lowest number would overflow. The sparse normalisers give no weight below -1: -2 loses nothing.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (scores - scores.amax(dim=-1, keepdim=True).detach()).clamp(min=-2)


def _and(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else mask & other
