"""How exact the products are while a model is trained on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Products of float32 numbers as `train.precision` says; the earlier mode is restored afterwards.

    "float32" is exact in the library's recurrent and convolution kernels too, where torch by itself takes the short
    mantissa of TF32. With "bf16" those kernels stay outside of autocast and take it.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
