"""Products of 16-bit numbers whose inner width is no multiple of eight, with zeros up to one.

A GPU reads such rows sixteen bytes at a time; for others it has kernels of a third of the speed. The paper's Bahdanau,
with embeddings of 620 numbers, has such products.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.kernels.recur import product_dtype

WIDTH = 8


def padded(x: Tensor) -> Tensor:
    """x [n, D] with zeros up to a multiple of eight, on a GPU and in 16 bits."""
    return F.pad(x, (0, -x.shape[-1] % WIDTH)) if x.is_cuda and x.element_size() == 2 else x


def is_aligned(model: nn.Module) -> bool:
    """Whether no linear layer of a model needs zeros."""
    return all(part.in_features % WIDTH == 0 for part in model.modules() if isinstance(part, nn.Linear))


class Aligned(TorchFunctionMode):
    """While it is entered, linear layers multiply by their padded matrices."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear or kwargs or args[0].shape[-1] % WIDTH == 0:
            return func(*args, **(kwargs or {}))
        x, weight, *bias = args
        dtype = product_dtype(x)
        return func(padded(x.to(dtype)), padded(weight.to(dtype)), *bias)
