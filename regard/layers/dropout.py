"""Dropout that costs nothing when it does nothing, and little where random numbers are dear."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 2**16  # a share is rounded to a multiple of 1 / 65536


class Dropout(nn.Dropout):
    """nn.Dropout: zero a share p of the elements and scale the others by 1 / (1 - p), in training only.

    A CPU draws random numbers one after another, on one core, and each draw has 64 bits; sixteen are enough for one
    element, so that one draw serves four.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = round(self.p * STEPS)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.long).random_(-(2**63), None)
        noise = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform in [-2^15, 2^15)
        kept = noise >= dropped - STEPS // 2
        return x * (kept * x.new_tensor(STEPS / (STEPS - dropped)))
