"""Attributions by gradients of the log-probability of each target word along the source embeddings."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from regard.look.case import TOKENS, Attributed, Case, inputs
from regard.look.flow import source_embeddings, source_order

COMPLETE = 1e-3  # by how much the sum of integrated gradients may differ from the log-probability that it explains


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
        yield *(part.expand(len(some), *part.shape[1:]) for part in inputs(case)), some
