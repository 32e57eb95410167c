"""Sampling: draw each token from the model's probabilities, the same way for a sentence whatever its neighbours."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decode.rules import Ints
from regard.decode.settings import DecodeConfig


class Sampler:
    """Chooses tokens by chance: the inverse of the cumulated probability at a number drawn before the search.

    Each row has its own numbers, drawn on the CPU from its own seed, so a sample depends neither on the other rows
    of the batch nor on the device that draws it.
    """

    def __init__(self, config: DecodeConfig, seeds: Sequence[int], limits: Tensor) -> None:
        self._temperature, self._top_k, self._top_p = config.temperature, config.top_k, config.top_p
        longest = int(limits.max()) if len(limits) else 0
        self._drawn = np.zeros((len(seeds), longest))  # [B, T]
        for row, (seed, limit) in enumerate(zip(seeds, limits.tolist(), strict=True)):
            generator = torch.Generator().manual_seed(seed)
            self._drawn[row, :limit] = torch.rand(limit, generator=generator, dtype=torch.float64).numpy()

    def __call__(self, logprobs: Tensor, step: int, rows: Ints) -> Tensor:
        """Draw from softmax(logprobs / temperature) [N, V], within the top k and the top p, for `rows` [N]."""
        probabilities = (logprobs / self._temperature).softmax(1).double()  # [N, V]
        k = min(self._top_k or logprobs.shape[1], logprobs.shape[1])
        if k < logprobs.shape[1]:
            probabilities, tokens = probabilities.topk(k)  # [N, k]
        elif self._top_p < 1:
            probabilities, tokens = probabilities.sort(dim=1, descending=True, stable=True)  # [N, V]
        else:
            tokens = torch.arange(k, device=logprobs.device).expand_as(probabilities)
        heights = probabilities.cumsum(1)  # [N, k]
        mass = heights[:, -1:]  # [N, 1]
        if self._top_p < 1:
            # The likeliest tokens that together reach p of what is left, the one that crosses it included.
            crossing = (heights < self._top_p * mass).sum(1, keepdim=True).clamp_(max=k - 1)  # [N, 1]
            mass = heights.gather(1, crossing)
        drawn = torch.from_numpy(self._drawn[rows, step, None]).to(logprobs.device)  # [N, 1]
        height = drawn * mass  # [N, 1]
        place = torch.searchsorted(heights, height, right=True).clamp_(max=k - 1)  # [N, 1]
        return tokens.gather(1, place).squeeze(1)


def seed_for(content: bytes, seed: int, sample: int) -> int:
    """A seed made of what is translated, the seed of the settings and the number of the sample."""
    digest = hashlib.blake2b(content, digest_size=8, key=f"{seed}:{sample}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
