"""Attention in a module of your own, recorded without a flag: python examples/own_module.py

Any module that attends through `Attention` can be recorded and changed from outside.
"""

import torch
from torch import Tensor, nn

import regard
from regard.core import Additive
from regard.layers.attention import Attention


class Pool(nn.Module):
    """A sentence as one vector: attention over its words, queried by a learned vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(width))
        self.attention = Attention(Additive(width, width, width))

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """[B, S, D], [B, S] -> [B, D]"""
        memory = self.attention.remember(words, mask[:, None])  # the mask is [B, T, S]: True where it may look
        query = self.query.expand(len(words), 1, -1)  # [B, 1, D]
        return self.attention(query, memory).context[:, 0]


def main() -> None:
    """Pool two sentences and print what was attended to."""
    torch.manual_seed(0)
    pool = Pool(8)
    mask = torch.tensor([[True, True, True], [True, True, False]])  # the second sentence has two words
    with regard.record(pool) as seen:
        pool(torch.randn(2, 3, 8), mask)
    for row in seen["attention"].weights[:, 0].tolist():
        print(", ".join(f"{weight:.2f}" for weight in row))


if __name__ == "__main__":
    main()
