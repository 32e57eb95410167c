"""Attributions by gradients of the log-probability of each target word along the source embeddings."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError
from regard.look.case import TOKENS, Attributed, Case, inputs
from regard.look.flow import slope, source_embeddings, source_order

MOST = 2_000_000  # tokens in the backward passes of the first integrated gradients
COMPLETE = 1e-3  # by how much the sum of integrated gradients may differ from the log-probability that it explains


def gradient(case: Case) -> Attributed:
    """Gradient x input: x_s . d log p(y_t) / d x_s, with x_s the embedding of the source token (Denil et al. 2014)."""
    return Attributed(_slopes(case, torch.ones(1, device=case.source.device), range(len(case.target)))[0])


def integrate(case: Case) -> Attributed:
    """Integrated gradients (Sundararajan et al. 2017, eq. 1), from a source of zero vectors to the embeddings:

        x_s . integral over a from 0 to 1 of d log p(y_t | a x) / d x_s

    A row sums to log p(y_t | x) - log p(y_t | 0), and so does each part of the way. For the words of which that does
    not hold to `COMPLETE`, the parts in which it holds least are halved (a ReLU makes the gradient jump there), up to
    `case.steps` gradients; `gap` says how much is missing. A model that jumps itself (hard attention, the edge of a
    window) never gets there.
    """
    T, S, device = len(case.target), len(case.source), case.source.device
    nodes, weights = (torch.tensor(part, device=device) for part in np.polynomial.legendre.leggauss(3))
    fresh = torch.linspace(0, 1, 5, dtype=torch.float64, device=device).unfold(0, 2, 1)  # [N, 2]: parts of the way
    found, gaps = nodes.new_zeros(len(fresh), T, S), nodes.new_zeros(len(fresh), T)  # what is known of these parts
    known: list[tuple[Tensor, Tensor, Tensor]] = []  # the other parts: edges, attributions [N, T, S] and gaps [N, T]
    rows, left = torch.arange(T, device=device), case.steps
    if len(fresh) * len(nodes) * T * (T + S) > MOST:
        raise DataError(
            f"Integrated gradients of {S} source and {T} target tokens would take hours; use the method gradient, or a "
            "shorter sentence."
        )
    while True:
        width = fresh[:, 1:] - fresh[:, :1]  # [N, 1]
        places = fresh.mean(1, keepdim=True) + width * nodes / 2  # [N, 3]
        slopes = _slopes(case, places.flatten(), rows.tolist()).unflatten(0, places.shape)  # [N, 3, R, S]
        found[:, rows] = torch.einsum("nk,nkts->nts", width * weights / 2, slopes)
        values = _values_along(case, fresh.flatten()).unflatten(0, fresh.shape)[..., rows]  # [N, 2, R]
        gaps[:, rows] = (found[:, rows].sum(-1) - values[:, 1] + values[:, 0]).abs()
        edges, found, gaps = (torch.cat(parts) for parts in zip((fresh, found, gaps), *known, strict=True))
        rows = (gaps.sum(0) > COMPLETE).nonzero().flatten()
        left -= places.numel()
        most = left // (2 * len(nodes))  # parts that can be halved
        if not len(rows) or most <= 0:
            return Attributed(found.sum(0), gap=gaps.sum(0))
        worst = gaps[:, rows].amax(1)
        coarse = worst.argsort(descending=True)[:most]
        coarse = coarse[worst[coarse] > COMPLETE / len(worst)]
        others = torch.ones(len(worst), dtype=torch.bool, device=device).index_fill(0, coarse, False)
        known = [(edges[others], found[others], gaps[others])]
        begin, end = edges[coarse].unbind(1)
        middle = (begin + end) / 2
        fresh = torch.cat([torch.stack(half, dim=1) for half in ((begin, middle), (middle, end))])
        found, gaps = found[coarse].repeat(2, 1, 1) / 2, gaps[coarse].repeat(2, 1) / 2  # words that are complete


def _slopes(case: Case, shares: Tensor, words: Sequence[int]) -> Tensor:
    """For each share a, with source embeddings a x: x . the gradient of the value of these R words, [A, R, S]."""
    found = []
    for source, lengths, target, some in _along(case, shares):
        rows = []
        with torch.enable_grad(), source_embeddings(case.model, some) as caught:
            hidden = case.model.hidden(source, lengths, target)  # [A, T, D]
            ids, vectors, leaf = caught[0]
            for t in words:
                value = case.value(case.model.output(hidden[:, t]), target[:, t]).sum()
                rows.append((vectors * slope(value, leaf)).sum(-1))  # [A, S]
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
        yield *(part.expand(len(some), *part.shape[1:]) for part in inputs(case)), some
