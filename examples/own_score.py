"""A score and a normaliser of your own: python examples/own_score.py

`attend` takes any function of query and keys as a score, and any function of scores and mask as a normaliser. With a
name in the tables of `regard.core` they can be chosen in the settings of models:

    regard --import own_score train --model luong --preset tiny --corpus copy --out runs/mine \\
        model.score=distance model.normaliser=top-two model.window=global

Run it in this folder. The run's config.toml names the package that it needs.
"""

import torch
from torch import Tensor

from regard import Memory, attend
from regard.core import NORMALISERS, SCORES, sparsemax


def distance(query: Tensor, keys: Tensor) -> Tensor:
    """-|q - k|^2: the nearest key scores highest. [B, T, D], [B, S, D] -> [B, T, S]"""
    return -torch.cdist(query, keys).square()


def top_two(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A softmax over the two best slots. [B, T, S] -> [B, T, S]"""
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    best = scores.topk(2).values[..., -1:]
    return scores.masked_fill(scores < best, -torch.inf).softmax(-1)


SCORES["distance"] = lambda query, key, hidden: distance  # from the widths of query, keys and hidden layer
NORMALISERS["top-two"] = top_two


def main() -> None:
    """Compare three ways to attend to five points on a line."""
    points = torch.tensor([[[0.0], [1.0], [2.0], [3.0], [4.0]]])  # [B, S, D]
    memory = Memory(keys=points, values=points)
    query = torch.tensor([[[1.2]]])  # [B, T, D]
    for name, look in {
        "scaled dot, softmax": attend(query, memory),
        "distance, sparsemax": attend(query, memory, distance, sparsemax),
        "distance, top two": attend(query, memory, distance, top_two),
    }.items():
        weights = ", ".join(f"{weight:.2f}" for weight in look.weights[0, 0].tolist())
        print(f"{name:<20} weights {weights}; context {look.context.item():.2f}")


if __name__ == "__main__":
    main()
