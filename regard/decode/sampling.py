"""Sampling: draw each token from the model's probabilities, the same way for a sentence whatever its neighbours."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.settings import DecodeConfig


def draw(seeds: Sequence[int], limits: Tensor) -> Tensor:
    """The numbers in [0, 1) that choose the tokens of each row, [B, T].

    Each row has its own, drawn on the CPU from its own seed before the search, so a sample depends neither on the other
    rows of the batch nor on the device.
    """
    drawn = torch.zeros(len(seeds), int(limits.max()) if len(limits) else 0, dtype=torch.float64)
    for row, seed, limit in zip(drawn, seeds, limits.tolist(), strict=True):
        row[:limit] = torch.rand(limit, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.to(limits.device)


def sample(logprobs: Tensor, drawn: Tensor | None, config: DecodeConfig) -> Tensor:
    """Draw from softmax(logprobs / temperature) [A, V], within the top k and the top p: the inverse of the cumulated
    probability at `drawn` [A, 1]. Returns tokens [A, 1]."""
    assert drawn is not None
    V = logprobs.shape[1]
    probabilities = (logprobs / config.temperature).softmax(1).double()  # [A, V]
    k = min(config.top_k or V, V)
    if k < V:
        probabilities, tokens = probabilities.topk(k)  # [A, k]
    elif config.top_p < 1:
        probabilities, tokens = probabilities.sort(dim=1, descending=True, stable=True)  # [A, V]
    else:
        tokens = torch.arange(k, device=logprobs.device).expand_as(probabilities)
    heights = probabilities.cumsum(1)  # [A, k]
    mass = heights[:, -1:]  # [A, 1]
    if config.top_p < 1:
        # The likeliest tokens that together reach p of what is left, the one that crosses it included.
        crossing = (heights < config.top_p * mass).sum(1, keepdim=True).clamp_(max=k - 1)  # [A, 1]
        mass = heights.gather(1, crossing)
    place = torch.searchsorted(heights, drawn * mass, right=True).clamp_(max=k - 1)  # [A, 1]
    return tokens.gather(1, place)


def seed_for(content: bytes, seed: int, sample: int) -> int:
    """A seed made of what is translated, the seed of the settings and the number of the sample."""
    digest = hashlib.blake2b(content, digest_size=8, key=f"{seed}:{sample}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
