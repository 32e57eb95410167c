"""A model of your own, used by every command:

    regard --import own_model train --model nearest --preset tiny --corpus copy --out runs/mine

Run it in this folder, or make your package installable with an entry point, and leave --import out:

    [project.entry-points."regard.models"]
    nearest = "own_model"

The run's config.toml names the package that it needs.
"""

from dataclasses import replace

import torch
from torch import Tensor

from regard.layers.attention import Attention
from regard.models import luong
from regard.models.registry import Entry, register


def distance(query: Tensor, keys: Tensor) -> Tensor:
    """-|q - k|^2. [B, T, D], [B, S, D] -> [B, T, S]"""
    return -torch.cdist(query, keys).square()


class Nearest(luong.Luong):
    """Luong's model with global attention that scores by distance."""

    def __init__(self, config: luong.LuongConfig) -> None:
        super().__init__(replace(config, window="global"))
        self.attention = Attention(distance)


register(
    "nearest",
    Entry(
        Nearest,
        luong.LuongConfig,
        luong.PRESETS,
        "nobody yet",
        "Luong's model whose attention scores by distance",
        {},
        luong.RECIPES,
    ),
)
