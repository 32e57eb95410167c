"""Dropout with fewer random draws on a CPU. Models whose seeds keep the numbers of earlier runs use nn.Dropout."""

from torch import Tensor, nn

from regard.kernels.choose import dropout


class Dropout(nn.Dropout):
    """nn.Dropout: zero a share p of the elements and scale the rest by 1 / (1 - p), in training only."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p else x
