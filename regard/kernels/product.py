"""x W^T + b for the few rows of a decoding step, many times over: the answer of nn.Linear, sooner."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Product:
    """Linear layers of one input, side by side, for the steps of one search: x [B, m] -> [B, n + ...].

    Several rows are multiplied quickest on a CPU by weights that are turned round, one row by weights as they are. The
    turned copy is made when it is first needed and lives as long as this object, so that it can never be out of date.
    """

    def __init__(self, *layers: nn.Linear) -> None:
        self.weight = layers[0].weight if len(layers) == 1 else torch.cat([layer.weight for layer in layers])  # [n, m]
        self.bias = layers[0].bias if len(layers) == 1 else None
        self.turned: Tensor | None = None  # [m, n]
        assert len(layers) == 1 or all(layer.bias is None for layer in layers)

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) == 1 or not x.is_cpu:
            return F.linear(x, self.weight, self.bias)
        if self.turned is None:
            self.turned = self.weight.t().contiguous()
        return torch.mm(x, self.turned) if self.bias is None else torch.addmm(self.bias, x, self.turned)
