"""Dropout with fewer random draws on a CPU.

It draws other numbers than nn.Dropout, which models use whose earlier runs must be reproduced by the same seed.
"""

from torch import Tensor, nn

from regard.kernels.choose import dropout


class Dropout(nn.Dropout):
    """nn.Dropout: zero a share p of the elements and scale the rest by 1 / (1 - p), in training only."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p else x
