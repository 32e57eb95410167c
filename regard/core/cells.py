"""Recurrent cells as the papers print them: tensors in, tensors out.

A *drive* is what enters a cell besides its own state, already multiplied by its matrices: W x, or W x + C c with a
context. Gates are stacked along the last dimension: reset, update, candidate in a GRU; i, f, g, o in an LSTM.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Linear = Callable[[Tensor], Tensor]  # [B, n] -> [B, m]
Blend = Callable[[Tensor, Tensor, Tensor], Tensor]  # (update, old, new) -> state; it keeps the precision of `old`


def keep(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """z * h + (1 - z) * h~: the update gate keeps the old state (Cho 2014, eq. 7; torch)."""
    return torch.lerp(new.to(old.dtype), old, update.to(old.dtype))


def write(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """(1 - z) * h + z * h~: the update gate writes the new state (Bahdanau 2015, appendix A.1.1)."""
    return torch.lerp(old, new.to(old.dtype), update.to(old.dtype))


# The drive of an update gate that leaves the state exactly as it is.
SHUT: dict[Blend, float] = {keep: torch.inf, write: -torch.inf}


def halves(drive: Tensor) -> tuple[Tensor, Tensor]:
    """[..., 3n] -> both gates [..., 2n] and the candidate [..., n]."""
    n = drive.shape[-1] // 3
    gates, candidate = drive.split([2 * n, n], dim=-1)
    return gates, candidate


def gru(drive: Tensor, state: Tensor, U_gates: Linear, U: Linear, blend: Blend) -> Tensor:
    """The papers' GRU, reset before the product: h~ = tanh(drive + U (r h)). drive [B, 3n], state [B, n] -> [B, n]."""
    gates, candidate = halves(drive)  # [B, 2n], [B, n]
    reset, update = torch.sigmoid(gates + U_gates(state)).chunk(2, dim=-1)  # [B, n]
    new = torch.tanh(candidate + U(reset * state))  # [B, n]
    return blend(update, state, new)


def gru_reset_after(drive: Tensor, pushed: Tensor, state: Tensor, blend: Blend) -> Tensor:
    """torch's GRU: h~ = tanh(drive + r * pushed), with pushed [B, 3n] = U h + b: one product, reset after it."""
    gates, candidate = halves(drive)  # [B, 2n], [B, n]
    pushed_gates, pushed_candidate = halves(pushed)
    reset, update = torch.sigmoid(gates + pushed_gates).chunk(2, dim=-1)  # [B, n]
    return blend(update, state, torch.tanh(candidate + reset * pushed_candidate))


def lstm(drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g;  h' = o tanh(c'). drive, pushed = U h [B, 4n], cell [B, n] -> h', c' [B, n]."""
    i, f, g, o = (drive + pushed).to(cell.dtype).chunk(4, dim=-1)  # [B, n]
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell
