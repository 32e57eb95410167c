"""Recurrent cells and encoders: the papers' own GRU, torch's, and the stacked LSTM.

All products that do not depend on the previous state are taken out of the time loop: a cell receives them as `drives`,
for all steps at once, and adds only what the state (and a context) contributes. A cell's `over(drives)` is a function
that makes one step of the loop after another.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.kernels.lerp import lerp
from regard.kernels.lstm import lstm_cell, prefers_loop
from regard.kernels.product import Product
from regard.kernels.repeated import Repeated
from regard.layers.dropout import Dropout

Move = Callable[..., Tensor]  # (state [B, n], and context [B, c] if any) -> the state after the next step
Blend = Callable[[Tensor, Tensor, Tensor], Tensor]  # the state keeps its precision where autocast lowers the rest


def keep(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """z * h + (1 - z) * h~: the update gate keeps the old state (Cho 2014, eq. 7; torch)."""
    return lerp(new.to(old.dtype), old, update.to(old.dtype))


def write(update: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """(1 - z) * h + z * h~: the update gate writes the new state (Bahdanau 2015, appendix A.1.1)."""
    return lerp(old, new.to(old.dtype), update.to(old.dtype))


SHUT: dict[Blend, float] = {
    keep: torch.inf,
    write: -torch.inf,
}  # what an update gate is driven with to leave the state as it is


class GateInputs(nn.Module):
    """W x for the reset gate, the update gate and the candidate side by side: [..., m] -> [..., 3n].

    The candidate carries a bias and the gates none, as in the released code of Cho and Bahdanau.
    """

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.W = nn.Linear(input_width, 3 * width, bias=False)
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.W.weight, candidate_bias(self.b))


def candidate_bias(b: Tensor) -> Tensor:
    """A bias for the candidate alone: [n] -> [3n]."""
    return torch.cat([b.new_zeros(2 * len(b)), b])


class ResetBeforeGRU(nn.Module):
    """The papers' GRU cell: the reset gate acts on the state *before* the product, h~ = tanh(drive + U (r * h) + C c).

    A drive [B, 3n] holds the parts of r, z and h~ that do not depend on the state, in that order.
    """

    def __init__(self, width: int, blend: Blend) -> None:
        super().__init__()
        self.blend = blend
        self.U_gates = nn.Linear(width, 2 * width, bias=False)
        self.U = nn.Linear(width, width, bias=False)

    def over(self, drives: Tensor, *context: Tensor) -> Move:
        """The steps of a loop over drives [B, T, 3n]; `context` is C [3n, c] where a context joins every step."""
        gates = 2 * self.U.out_features
        push_gates = Repeated(drives[..., :gates], self.U_gates.weight, *(C[:gates] for C in context))
        push_new = Repeated(drives[..., gates:], self.U.weight, *(C[gates:] for C in context))

        def move(state: Tensor, *context: Tensor) -> Tensor:
            reset, update = torch.sigmoid(push_gates(state, *context)).chunk(2, dim=-1)  # [B, n]
            new = torch.tanh(push_new(reset * state, *context))  # [B, n]
            return self.blend(update, state, new)

        return move

    def forward(self, drive: Tensor, state: Tensor) -> Tensor:
        """One step: drive [B, 3n], state [B, n] -> [B, n]."""
        return self.over(drive[:, None])(state)


class ResetAfterGRU(nn.Module):
    """torch's GRU cell (and dl4mt's): h~ = tanh(drive + r * (U h + b) + C c), all products with the state in one."""

    def __init__(self, width: int, blend: Blend) -> None:
        super().__init__()
        self.blend = blend
        self.U = nn.Linear(width, 3 * width, bias=False)
        self.b = nn.Parameter(torch.zeros(width))

    def over(self, drives: Tensor, *context: Tensor) -> Move:
        """The steps of a loop over drives [B, T, 3n]; `context` is C [3n, c] where a context joins every step."""
        gates = 2 * len(self.b)
        push = Repeated(candidate_bias(self.b).expand_as(drives), self.U.weight)
        drive = Repeated(drives, *context)

        def move(state: Tensor, *context: Tensor) -> Tensor:
            pushed, driven = push(state), drive(*context)  # [B, 3n]
            both = torch.sigmoid(driven[..., :gates] + pushed[..., :gates])  # [B, 2n]
            reset, update = both.chunk(2, dim=-1)
            new = torch.tanh(driven[..., gates:] + reset * pushed[..., gates:])  # [B, n]
            return self.blend(update, state, new)

        return move

    def forward(self, drive: Tensor, state: Tensor) -> Tensor:
        """One step: drive [B, 3n], state [B, n] -> [B, n]."""
        return self.over(drive[:, None])(state)


GRU_CELLS: dict[str, type[ResetBeforeGRU] | type[ResetAfterGRU]] = {"paper": ResetBeforeGRU, "torch": ResetAfterGRU}


class PaperEncoder(nn.Module):
    """GRU over a sentence in one or both directions, with the papers' cell; all directions advance in one loop.

    A direction keeps its state on padding, h <- m * h_new + (1 - m) * h, so that the last column holds the state after
    the last real word, and the backward direction begins there with its zero state. The update gate, shut, does that.
    """

    def __init__(self, input_width: int, width: int, directions: int, blend: Blend) -> None:
        super().__init__()
        self.width, self.directions, self.blend = width, directions, blend
        self.inputs = nn.ModuleList(GateInputs(input_width, width) for _ in range(directions))
        self.U_gates = nn.Parameter(torch.empty(directions, width, 2 * width))  # applied as h @ U
        self.U = nn.Parameter(torch.empty(directions, width, width))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, S, m] -> states of all words [B, S, directions * n], and the final ones [B, directions * n]."""
        B, S, _ = x.shape
        n, padding = self.width, (torch.arange(S, device=x.device) >= lengths[:, None])[..., None]  # [B, S, 1]
        orders: list[Callable[[Tensor], Tensor]] = [lambda x: x, lambda x: x.flip(1)][: self.directions]  # both ways
        drives = torch.stack([order(inputs(x)) for order, inputs in zip(orders, self.inputs, strict=True)])
        rest = torch.stack([order(padding) for order in orders])  # [dirs, B, S, 1]
        reset, update, new = drives.split(n, dim=-1)  # [dirs, B, S, n]
        shut = update.masked_fill(rest, SHUT[self.blend])
        push_gates = Repeated(torch.cat([reset, shut], dim=-1), self.U_gates.mT)
        push_new = Repeated(new, self.U.mT)
        state, states = x.new_zeros(self.directions, B, n), []
        for _ in range(S):
            reset, update = torch.sigmoid(push_gates(state)).chunk(2, dim=-1)  # [dirs, B, n]
            state = self.blend(update, state, torch.tanh(push_new(reset * state)))  # [dirs, B, n]
            states.append(state)
        read = torch.stack(states, dim=2)  # [dirs, B, S, n]
        return torch.cat([order(row) for order, row in zip(orders, read, strict=True)], dim=-1), torch.cat([*state], -1)


class TorchEncoder(nn.Module):
    """The same interface on torch's GRU kernels (reset after the product): another function, and faster."""

    def __init__(self, input_width: int, width: int, directions: int) -> None:
        super().__init__()
        self.gru = nn.GRU(input_width, width, batch_first=True, bidirectional=directions == 2)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        states, final = run_packed(self.gru, x, lengths)
        return states, final.movedim(0, 1).flatten(1)


def gru_encoder(cell: str, input_width: int, width: int, directions: int, blend: Blend) -> PaperEncoder | TorchEncoder:
    """The encoder for a cell's name: "paper" (reset before the product) or "torch" (after it, library kernels)."""
    if cell == "torch":
        return TorchEncoder(input_width, width, directions)
    return PaperEncoder(input_width, width, directions, blend)


def run_packed(rnn: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
    """Run a torch RNN over real words only, x [B, S, m] -> states [B, S, n], zero on padding, and the final state."""
    # Rows must have a word for torch to pack them; an empty row reads one zero word, and its caller masks it.
    packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    states, final = by_library(rnn, packed)
    padded, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
    return padded, final


def by_library(rnn: nn.RNNBase, x: Any, state: tuple[Tensor, ...] | None = None) -> Any:
    """Call a torch RNN in the dtype of its weights; x [B, T, m] or packed.

    Autocast would run it in float16 even where bfloat16 was asked for; unscaled gradients overflow there.
    """
    dtype = next(rnn.parameters()).dtype
    with torch.autocast(x.data.device.type, enabled=False):
        return rnn(x.to(dtype), None if state is None else tuple(part.to(dtype) for part in state))


def reverse_words(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Turn the first lengths[b] places of row b around and leave the rest: [B, S, ...] -> the same shape."""
    places = torch.arange(tokens.shape[1], device=tokens.device)  # [S]
    turned = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)  # [B, S]
    index = turned.reshape(*turned.shape, *[1] * (tokens.dim() - 2)).expand_as(tokens)
    return tokens.gather(1, index)


class LSTMState(NamedTuple):
    """Hidden and cell state of every layer."""

    hidden: Tensor  # [B, L, n]
    cell: Tensor  # [B, L, n]


class StackedLSTM(nn.Module):
    """L layers of LSTM (Zaremba's form): all steps at once, or one after another with a vector fed back.

    [i; f; g; o] = W x + U h (torch's order of gates); c = f c + i g; h = o tanh(c). Dropout acts on the input of every
    layer, never on the recurrent connections. `feed_width` columns more in the first layer take the vector fed back.
    """

    def __init__(
        self, input_width: int, width: int, layers: int, dropout: float, feed_width: int = 0, bias: bool = False
    ) -> None:
        super().__init__()
        self.input_width, self.dropout = input_width, Dropout(dropout)
        self.lstm = nn.LSTM(
            input_width + feed_width,
            width,
            layers,
            bias=bias,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
        )

    def read(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, LSTMState]:
        """Read whole sentences from a zero state: x [B, S, m] -> top states [B, S, n], and the last state."""
        if prefers_loop(x):
            nothing = x.new_zeros(len(x), self.lstm.num_layers, self.lstm.hidden_size)
            return self.walk(x, LSTMState(nothing, nothing), lengths.clamp(min=1) - 1)
        states, (hidden, cell) = run_packed(self.lstm, self.dropout(x), lengths)
        return states, LSTMState(hidden.transpose(0, 1), cell.transpose(0, 1))

    def run(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """All steps from a given state, without feeding: x [B, T, m] -> top states [B, T, n]."""
        if prefers_loop(x):
            return self.walk(x, state, x.new_full((len(x),), x.shape[1] - 1, dtype=torch.long))
        start = (state.hidden.transpose(0, 1).contiguous(), state.cell.transpose(0, 1).contiguous())
        states, (hidden, cell) = by_library(self.lstm, self.dropout(x), start)
        return states, LSTMState(hidden.transpose(0, 1), cell.transpose(0, 1))

    def walk(self, x: Tensor, state: LSTMState, last: Tensor) -> tuple[Tensor, LSTMState]:
        """The same as a loop, layer after layer; the state returned is the one after step last[b] of row b."""
        rows, after = torch.arange(len(x), device=x.device), []
        for k, (into, across, *biases) in enumerate(self.lstm.all_weights):
            push = Repeated(nn.functional.linear(self.dropout(x), into, _bias(biases)), across)
            hidden, cell, steps = state.hidden[:, k], state.cell[:, k], []  # [B, n]
            for _ in range(x.shape[1]):
                hidden, cell = lstm_cell(push(hidden), cell)
                steps.append((hidden, cell))
            x, cells = (torch.stack(part, dim=1) for part in zip(*steps, strict=True))  # [B, T, n]
            after.append((x[rows, last], cells[rows, last]))
        return x, LSTMState(*(torch.stack(part, dim=1) for part in zip(*after, strict=True)))

    def project(self, x: Tensor) -> Tensor:
        """The part of the first layer's gates that comes from x [B, T, m], for all steps at once: [B, T, 4n]."""
        into, _, *biases = self.lstm.all_weights[0]
        return nn.functional.linear(self.dropout(x), into[:, : self.input_width], _bias(biases))


class LSTMSteps:
    """The same layers one step at a time, for one search: their weights are laid out once."""

    def __init__(self, stack: StackedLSTM) -> None:
        self.dropout, layers = stack.dropout, stack.lstm.all_weights
        self.pushes = [(Product(into, _bias(biases)), Product(across)) for into, across, *biases in layers]

    def __call__(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """x [B, m], with the vector fed back behind it if there is one -> top state [B, n], state."""
        after, before = [], zip(state.hidden.unbind(1), state.cell.unbind(1), strict=True)  # [B, n]
        for (push_in, push_across), (hidden, cell) in zip(self.pushes, before, strict=True):
            pushed = push_across(hidden, push_in(self.dropout(x)))  # [B, 4n]
            after.append(lstm_cell(pushed, cell))
            x = after[-1][0]
        return x, LSTMState(*(torch.stack(part, dim=1) for part in zip(*after, strict=True)))


class FedSteps:
    """The steps of a stacked LSTM in a loop that feeds a vector back; each is `steps(feed)`: [B, f] -> [B, n]."""

    def __init__(self, stack: StackedLSTM, drives: Tensor, state: LSTMState) -> None:
        """drives [B, T, 4n] are those of `project`."""
        self.dropout = stack.dropout
        self.hidden, self.cell = list(state.hidden.unbind(1)), list(state.cell.unbind(1))  # L times [B, n]
        (into, across, *_), *above = stack.lstm.all_weights
        self.pushes = [Repeated(drives, into[:, stack.input_width :], across)]
        for into, across, *biases in above:
            bias = _bias(biases)  # [4n]
            constant = drives.new_zeros(()) if bias is None else bias
            self.pushes.append(Repeated(constant.expand_as(drives), into, across))

    def __call__(self, feed: Tensor) -> Tensor:
        for k, push in enumerate(self.pushes):
            pushed = push(self.dropout(feed), self.hidden[k])  # [B, 4n]
            self.hidden[k], self.cell[k] = lstm_cell(pushed, self.cell[k])
            feed = self.hidden[k]
        return feed

    def state(self) -> LSTMState:
        """The state after the steps made so far."""
        return LSTMState(torch.stack(self.hidden, dim=1), torch.stack(self.cell, dim=1))


def _bias(biases: Sequence[Tensor]) -> Tensor | None:
    """nn.LSTM has two biases that are added, or none: [4n]."""
    return biases[0] + biases[1] if biases else None
