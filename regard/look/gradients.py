"""Attributions by gradients of the log-probability of each target word along the source embeddings."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError
from regard.look.case import Attributed, Case, inputs, rows_at_once
from regard.look.flow import slope, source_embeddings, source_order

MOST = 2_000_000  # tokens in the backward passes of the first integrated gradients
PARTS = 4  # of the way, at first
GRID = 64  # equal steps of the way, between which the log-probability is measured to place the parts
COMPLETE = 1e-3  # what the parts of the way may miss of the log-probability before more gradients are computed


def gradient(case: Case) -> Attributed:
    """Gradient x input: x_s . d log p(y_t) / d x_s, with x_s the embedding of the source token (Denil et al. 2014)."""
    return Attributed(_slopes(case, torch.ones(1, device=case.source.device), range(len(case.target)))[0])


def integrate(case: Case) -> Attributed:
    """Integrated gradients (Sundararajan et al. 2017, eq. 1), from a source of zero vectors to the embeddings:

        x_s . integral over a from 0 to 1 of d log p(y_t | a x) / d x_s

    A row sums to log p(y_t | x) - log p(y_t | 0). Each part of the way is integrated by Gauss-Legendre; parts are short
    where the log-probability changes, and words that miss more than `COMPLETE` are computed again with more parts, up
    to `case.steps` gradients.

    Where a ReLU opens or closes inside a part, the gradient jumps, and the sum differs from the change of the
    log-probability by r. A linear regression (control variates) divides r: the source word s gets r cov(g_s, g) /
    var(g), where g_s is its term of the gradient and g the sum of these, over the nodes of the part and, with the same
    weight, over those of all parts. This is exact for one jump between two nodes. `gap` says how much was divided.
    """
    T, S, device = len(case.target), len(case.source), case.source.device
    if takes_hours(S, T):
        raise DataError(
            f"Integrated gradients of {S} source and {T} target tokens would take hours; use the method gradient, or a "
            "shorter sentence."
        )
    nodes, weights = (torch.tensor(part, device=device) for part in np.polynomial.legendre.leggauss(3))
    weights = weights / 2
    changes = _values_along(case, torch.linspace(0, 1, GRID + 1, device=device)).diff(dim=0).abs()  # [GRID, T]
    found, gap, rows, parts = nodes.new_zeros(T, S), nodes.new_zeros(T), torch.arange(T, device=device), PARTS
    while True:
        edges = _place(changes[:, rows], parts)  # [N + 1]
        width = edges.diff()[:, None]  # [N, 1]
        places = (edges[:-1, None] + edges[1:, None] + width * nodes) / 2  # [N, 3]
        slopes = _slopes(case, places.flatten(), rows.tolist()).unflatten(0, places.shape)  # [N, 3, R, S]
        mean = torch.einsum("k,nkrs->nrs", weights, slopes)  # [N, R, S]
        missing = _values_along(case, edges)[:, rows].diff(dim=0) - width * mean.sum(-1)  # [N, R]
        apart = slopes - mean[:, None]
        both = torch.einsum("k,nkrs,nkr->nrs", weights, apart, apart.sum(-1))  # cov(g_s, g); its sum is var(g)
        both = both + both.mean(0)
        shares = both / both.sum(-1, keepdim=True).clamp(min=torch.finfo(both.dtype).tiny)
        found[rows] = (width[..., None] * mean + missing[..., None] * shares).sum(0)
        gap[rows] = missing.abs().sum(0)
        rows, parts = (gap > COMPLETE).nonzero().flatten(), 4 * parts
        if not len(rows) or 3 * parts > case.steps:
            return Attributed(found, gap=gap)


def takes_hours(source: int, target: int) -> bool:
    """Whether the first integrated gradients of a sentence of these lengths would read more than `MOST` tokens."""
    return PARTS * 3 * target * (source + target) > MOST


def _place(changes: Tensor, parts: int) -> Tensor:
    """The edges of parts of the way, which are short where the values change most: [GRID, R] -> [parts + 1]."""
    pace = changes.sum(1).sqrt()
    passed = torch.nn.functional.pad((pace + 0.1 * pace.mean() + 1e-12).cumsum(0), (1, 0)).cpu()  # [GRID + 1]
    wanted = np.linspace(0, float(passed[-1]), parts + 1)
    return torch.tensor(np.interp(wanted, passed, np.linspace(0, 1, len(passed))), device=changes.device)


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


@torch.no_grad()
def _values_along(case: Case, shares: Tensor) -> Tensor:
    """The value [A, T] of every word with source embeddings a x, for each share a."""
    found = []
    for source, lengths, target, some in _along(case, shares):
        with source_embeddings(case.model, some):
            found.append(case.value(case.model(source, lengths, target), target))
    return torch.cat(found).double()


def _along(case: Case, shares: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Batches of the same sentence: source, lengths, target, and the share of each row."""
    for some in shares.split(rows_at_once(case.source, len(case.target) + len(case.source))):
        yield *(part.expand(len(some), *part.shape[1:]) for part in inputs(case)), some
