"""Triton: column sums of a tall matrix, for the gradients of norms and biases.

torch's reduction takes five times as long as reading the matrix; here many programs each sum some rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

EACH = 128  # rows of a program if there are many
LAST = 1024  # maximum rows of one program


def column_sums(x: Tensor) -> Tensor:
    """x [N, m] -> [m] in float32, by two launches, or one if there are few rows."""
    if not len(x):
        return torch.zeros(x.shape[1], device=x.device)
    while len(x) > LAST:
        x = _part_sums(x.contiguous(), EACH, 8, 256)
    return _part_sums(x.contiguous(), len(x), 64, 16)[0]


def _part_sums(x: Tensor, each: int, rows: int, columns: int) -> Tensor:
    """The sums of every `each` rows: x [N, m] -> [N / each, m]."""
    N, m = x.shape
    sums = torch.empty(triton.cdiv(N, each), m, dtype=torch.float32, device=x.device)
    _sum[triton.cdiv(m, columns), len(sums)](x, sums, N, m, each, rows, columns, num_warps=4)
    return sums


@triton.jit(do_not_specialize=["N", "each"])
def _sum(x, sums, N, M: tl.constexpr, each, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    begin = tl.program_id(1) * each
    for start in range(begin, tl.minimum(begin + each, N), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < tl.minimum(begin + each, N))[:, None] & (column < M)[None, :]
        total += tl.load(x + row.to(tl.int64)[:, None] * M + column[None, :], inside, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(1) * M + column, tl.sum(total, 0), column < M)
