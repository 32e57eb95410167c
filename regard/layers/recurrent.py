"""Recurrent layers: the GRU of the papers, torch's GRU, the stacked LSTM, and the encoders made of them.

Products that do not depend on the previous state are taken for all steps at once: a cell receives them as its
`input_gates` and adds what its state contributes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.cells import SHUT, Blend, update_keeps
from regard.core.products import Linear, matmul
from regard.kernels.choose import Dropout, gru, gru_reset_after, lstm, or_library
from regard.kernels.recur import recur


class GateInputs(nn.Module):
    """W x for the reset gate, the update gate and the candidate side by side: [..., m] -> [..., 3n].

    The candidate has a bias and the gates have none, as in the released code of Cho and Bahdanau.
    """

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.W = Linear(input_width, 3 * width, bias=False)
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        gates = self.W(x)
        return gates + F.pad(self.b, (2 * len(self.b), 0)).to(gates.dtype)

    def as_linear(self) -> nn.Linear:
        """The same map with one bias for all gates, zero where they have none."""
        linear = Linear(self.W.in_features, self.W.out_features, device="meta")
        linear.weight, linear.bias = self.W.weight, nn.Parameter(F.pad(self.b.detach(), (2 * len(self.b), 0)))
        return linear


class Matrices(nn.Module):
    """A linear map without bias for each direction: x [directions, B, n] -> [directions, B, m]."""

    def __init__(self, directions: int, n: int, m: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(directions, m, n))

    def forward(self, x: Tensor) -> Tensor:
        return matmul(x, self.weight.mT)


Matrix = Callable[[int, int], nn.Module]  # (n, m) -> a linear map without bias
one_matrix = partial(Linear, bias=False)


class ResetBeforeGRU(nn.Module):
    """The papers' GRU cell: the reset gate acts on the state *before* the product, h~ = tanh(W x + U (r * h))."""

    def __init__(self, width: int, blend: Blend, matrix: Matrix = one_matrix) -> None:
        super().__init__()
        self.blend = blend
        self.U_gates = matrix(width, 2 * width)
        self.U = matrix(width, width)

    def forward(self, input_gates: Tensor, state: Tensor) -> Tensor:
        """One step: input_gates [..., B, 3n], state [..., B, n] -> [..., B, n]."""
        return gru(input_gates, state, self.U_gates, self.U, self.blend)


class ResetAfterGRU(nn.Module):
    """torch's GRU cell (and dl4mt's): h~ = tanh(W x + r * (U h + b)), all products with the state in one."""

    def __init__(self, width: int, blend: Blend, matrix: Matrix = one_matrix) -> None:
        super().__init__()
        self.blend = blend
        self.U = matrix(width, 3 * width)
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, input_gates: Tensor, state: Tensor) -> Tensor:
        """One step: input_gates [..., B, 3n], state [..., B, n] -> [..., B, n]."""
        return gru_reset_after(input_gates, self.U(state) + F.pad(self.b, (2 * len(self.b), 0)), state, self.blend)


GRU_CELLS: dict[str, type[ResetBeforeGRU] | type[ResetAfterGRU]] = {"paper": ResetBeforeGRU, "torch": ResetAfterGRU}


class GRUEncoder(nn.Module):
    """A GRU over a sentence in one or both directions, which advance together in one loop.

    A direction keeps its state on padding: there the update gate is shut. So the last column holds the state after the
    last real word, and the backward direction, which meets the padding first, enters the last word with its zero state.
    `cell` is "paper" or "torch" (reset after the product, and an update gate that keeps).
    """

    recurrence = "gru"

    def __init__(self, cell: str, input_width: int, width: int, directions: int, blend: Blend) -> None:
        super().__init__()
        self.width, self.blend = width, update_keeps if cell == "torch" else blend
        self.inputs = nn.ModuleList(GateInputs(input_width, width) for _ in range(directions))
        self.cell = GRU_CELLS[cell](width, self.blend, partial(Matrices, directions))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, S, m] -> states of all words [B, S, directions * n], and the final ones [B, directions * n]."""
        n = self.width
        padding = (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[..., None]  # [B, S, 1]
        shut = F.pad(padding.expand(-1, -1, n), (n, n))  # [B, S, 3n], the update gates on padding
        gates = [inputs(x).masked_fill(shut, SHUT[self.blend]) for inputs in self.inputs]  # [B, S, 3n] each

        def step(input_gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            state = self.cell(input_gates, state)  # [directions, B, n]
            return state, state

        both_ways = torch.stack([one.flip(1) if k else one for k, one in enumerate(gates)])  # [directions, B, S, 3n]
        start = x.new_zeros(len(gates), x.shape[0], n, dtype=self.cell.U.weight.dtype)  # type: ignore[arg-type]
        states, last = recur(step, both_ways.transpose(1, 2), start)  # [directions, S, B, n]
        forward_and_back = [read.flip(0) if k else read for k, read in enumerate(states)]  # [S, B, n] each
        return torch.cat(forward_and_back, dim=-1).transpose(0, 1), torch.cat([*last], dim=-1)


class GRULayer(nn.Module):
    """A layer of the papers' GRU with a bias in every gate, as TensorFlow has it: it is called like a `StackedLSTM`.

    Dropout acts on its input, never on the recurrent connections.
    """

    recurrence = "gru"

    def __init__(self, input_width: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width, self.dropout = width, Dropout(dropout)
        self.W = Linear(input_width, 3 * width)
        self.cell = ResetBeforeGRU(width, update_keeps)

    def start(self, rows: int) -> Tensor:
        """The zero state."""
        return self.W.weight.new_zeros(rows, self.width)

    def project(self, x: Tensor) -> Tensor:
        """What x [..., m] adds to the gates, W x + b: [..., 3n]."""
        return self.W(self.dropout(x))

    def step(self, input_gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step: input_gates [B, 3n] (`project`) -> hidden state [B, n], twice."""
        state = self.cell(input_gates, state)
        return state, state

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """All steps: x [B, T, m] -> states [B, T, n], and the last one."""
        return recur(self.step, self.project(x), state)


def reverse_words(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first lengths[b] places of row b and leave the rest: [B, S, ...] -> the same shape."""
    places = torch.arange(tokens.shape[1], device=tokens.device)  # [S]
    reversed_ = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)  # [B, S]
    index = reversed_.reshape(*reversed_.shape, *[1] * (tokens.dim() - 2)).expand_as(tokens)
    return tokens.gather(1, index)


class LSTMState(NamedTuple):
    """Hidden and cell state of every layer, [B, n] each."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]


@or_library
def lstm_layer(
    x: Tensor, hidden: Tensor, cell: Tensor, W: nn.Linear, U: nn.Linear, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of an LSTM layer, [i; f; g; o] = W x + U h: x [B, T, m] -> states [B, T, n], last h and c [B, n].

    With lengths [B] the last ones are those after step lengths[b] of row b, which is at least 1: the caller masks the
    rows without words. States after it are zero.
    """

    def step(input_gates: Tensor, state: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        state = lstm(input_gates, U(state[0]), state[1])
        return state, state

    (states, cells), (hidden, cell) = recur(step, W(x), (hidden, cell))  # [B, T, n]
    if lengths is None:
        return states, hidden, cell
    rows, last = torch.arange(x.shape[0], device=x.device), lengths.clamp(min=1) - 1
    padding = torch.arange(x.shape[1], device=x.device) > last[:, None]  # [B, T]
    return states.masked_fill(padding[..., None], 0), states[rows, last], cells[rows, last]


class StackedLSTM(nn.Module):
    """L layers of LSTM (Zaremba's form): [i; f; g; o] = W x + U h + b; c' = f c + i g; h' = o tanh(c').

    Dropout acts on the input of every layer, never on the recurrent connections.
    """

    recurrence = "lstm"

    def __init__(self, input_width: int, width: int, layers: int, dropout: float, bias: bool = False) -> None:
        super().__init__()
        self.width, self.dropout = width, Dropout(dropout)
        widths = [input_width, *[width] * (layers - 1)]
        self.W = nn.ModuleList(Linear(wide, 4 * width, bias) for wide in widths)
        self.U = nn.ModuleList(Linear(width, 4 * width, bias=False) for _ in widths)

    def start(self, rows: int) -> LSTMState:
        """Zero states."""
        nothing = (self.U[0].weight.new_zeros(rows, self.width),) * len(self.U)  # type: ignore[operator]
        return LSTMState(nothing, nothing)

    def project(self, x: Tensor) -> Tensor:
        """What x [..., m] adds to the gates of the first layer, W_1 x + b_1: [..., 4n]."""
        return self.W[0](self.dropout(x))

    def step(self, input_gates: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """One step: input_gates [B, 4n] of the first layer (`project`) -> top hidden state [B, n], state."""
        after: list[tuple[Tensor, Tensor]] = []
        for k, (W, U, hidden, cell) in enumerate(zip(self.W, self.U, *state, strict=True)):
            input_gates = W(self.dropout(after[-1][0])) if k else input_gates  # [B, 4n]
            after.append(lstm(input_gates, U(hidden), cell))
        return after[-1][0], LSTMState(*zip(*after, strict=True))

    def forward(self, x: Tensor, state: LSTMState, lengths: Tensor | None = None) -> tuple[Tensor, LSTMState]:
        """All steps, layer by layer: x [B, T, m] -> top states [B, T, n], and the state after the last step.

        With lengths [B] it is the state after step lengths[b] of row b.
        """
        after = []
        for W, U, hidden, cell in zip(self.W, self.U, *state, strict=True):
            x, *last = lstm_layer(self.dropout(x), hidden, cell, W, U, lengths)  # type: ignore[arg-type]
            after.append(last)
        return x, LSTMState(*zip(*after, strict=True))
