"""x W^T + b for the few rows of a decoding step, many times over: the answer of nn.Linear, sooner."""

import torch
from torch import Tensor


class Product:
    """weight [n, m] and bias [n] of a linear layer, for the steps of one search: x [B, m] -> [B, n].

    Several rows are multiplied quickest on a CPU by weights that are turned round, one row by weights as they are. The
    turned copy is made when it is first needed and lives as long as this object, so that it can never be out of date.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.plain, self.bias = weight.t(), bias
        self.turned = None if weight.is_cpu else self.plain  # [m, n]

    def __call__(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """x W^T + base, where `base` [B, n] is the bias unless it is given."""
        weight, base = self.plain, self.bias if base is None else base
        if len(x) > 1:
            if self.turned is None:
                self.turned = self.plain.contiguous()
            weight = self.turned
        return torch.mm(x, weight) if base is None else torch.addmm(base, x, weight)
