"""Recurrent cells as the papers print them: tensors in, tensors out.

`input_gates` is what enters a cell besides its own state, already multiplied by its matrices: W x, or W x + C c with a
context. `hidden_gates` is U h. The gates are side by side in the last dimension: reset, update, candidate in a GRU;
i, f, g, o in an LSTM.
"""

from collections.abc import Callable

import torch
from torch import Tensor

LinearMap = Callable[[Tensor], Tensor]  # [B, n] -> [B, m]
Blend = Callable[[Tensor, Tensor, Tensor], Tensor]  # (update, old, new) -> state; it keeps the precision of `old`


def update_keeps(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """z * h + (1 - z) * h~: the update gate keeps the old state (Cho 2014, eq. 7; torch)."""
    return torch.lerp(new.to(old.dtype), old, update.to(old.dtype))


def update_writes(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """(1 - z) * h + z * h~: the update gate writes the new state (Bahdanau 2015, appendix A.1.1)."""
    return torch.lerp(old, new.to(old.dtype), update.to(old.dtype))


# The input of an update gate that leaves the state exactly as it is.
SHUT: dict[Blend, float] = {update_keeps: torch.inf, update_writes: -torch.inf}


def gru(input_gates: Tensor, state: Tensor, U_gates: LinearMap, U: LinearMap, blend: Blend) -> Tensor:
    """The papers' GRU: h~ = tanh(W x + U (r h)), reset before the product. Gates [B, 3n], state [B, n] -> same."""
    gates, candidate = input_gates.split([2 * state.shape[-1], state.shape[-1]], dim=-1)  # [B, 2n], [B, n]
    reset, update = torch.sigmoid(gates + U_gates(state)).chunk(2, dim=-1)  # [B, n]
    new = torch.tanh(candidate + U(reset * state))  # [B, n]
    return blend(update, state, new)


def gru_reset_after(input_gates: Tensor, hidden_gates: Tensor, state: Tensor, blend: Blend) -> Tensor:
    """torch's GRU: h~ = tanh(W x + r (U h + b)), reset after the product. Both gates [B, 3n], state [B, n] -> same."""
    sizes = [2 * state.shape[-1], state.shape[-1]]
    (gates, candidate), (more, pushed) = input_gates.split(sizes, -1), hidden_gates.split(sizes, -1)  # [B, 2n], [B, n]
    reset, update = torch.sigmoid(gates + more).chunk(2, dim=-1)  # [B, n]
    return blend(update, state, torch.tanh(candidate + reset * pushed))


def lstm(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g;  h' = o tanh(c'). Both gates [B, 4n], cell [B, n] -> h', c' [B, n]."""
    i, f, g, o = (input_gates + hidden_gates).to(cell.dtype).chunk(4, dim=-1)  # [B, n]
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell
