"""The LSTM with its past on tapes, which it attends to before each step (Cheng, Dong and Lapata 2016, section 3.2).

The equations are in `models.lstmn`. A stacked layer reads the h_t of the layer below and has its own tapes. At the
first step the tapes are empty and the context is zero, as with the slot of zeros that the released code begins with
(and may attend to later).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.core.normalise import NORMALISERS
from regard.core.scores import COMPARISONS
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.past import Past


class LayerState(NamedTuple):
    """What a layer carries from step to step."""

    past: Past  # W_h h_i [B, t, n] as keys, [h_i ; c_i] [B, t, 2n] as values, of all steps so far
    hidden: Tensor  # [B, n], h_{t-1}
    summary: Tensor  # [B, n], h~_{t-1}
    position: Tensor  # [B], steps so far


class LSTMNLayer(nn.Module):
    """One layer. What depends on the input alone, `input_gates` = W_x x + b, is computed for all steps at once."""

    recurrence = "lstmn"  # for `regard.explain`

    def __init__(self, input_width: int, width: int, span: int, recall: bool, attention: Attention) -> None:
        super().__init__()
        self.width, self.span = width, span
        self.W_x = nn.Linear(input_width, 5 * width)  # for the query, then for the gates i, f, o and the candidate
        self.W_h = nn.Linear(width, width, bias=False)
        self.W_s = nn.Linear(width, width, bias=False) if recall else None
        self.U = nn.Linear(width, 4 * width, bias=False)  # the columns of W that act on h~
        self.attention = attention

    def start(self, rows: int) -> LayerState:
        """Empty tapes, and h~_0 = 0."""
        nothing = self.U.weight.new_zeros(rows, self.width)
        past = Past((nothing.new_zeros(rows, 0, self.width), nothing.new_zeros(rows, 0, 2 * self.width)))
        return LayerState(past, nothing, nothing, torch.zeros(rows, dtype=torch.long, device=nothing.device))

    def step(self, input_gates: Tensor, state: LayerState, added: Tensor | float = 0.0) -> tuple[Tensor, LayerState]:
        """input_gates [B, 5n] -> [h_t ; c_t] [B, 2n]. `added` [B, n] to c_t is what deep fusion brings."""
        query, gates = input_gates.split([self.width, 4 * self.width], dim=-1)  # [B, n], [B, 4n]
        if self.W_s is not None:
            query = query + self.W_s(state.summary)
        keys, values = state.past.tensors
        memory = Memory(keys, values, self.visible(state))
        summary, cell = self.attention(query[:, None], memory).context[:, 0].chunk(2, dim=-1)  # h~_t, c~_t [B, n]
        i, f, o, new = (gates + self.U(summary)).chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(new) + added
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        both = torch.cat([hidden, cell], dim=-1)  # [B, 2n]
        past = state.past.append(self.W_h(hidden)[:, None], both[:, None])
        return both, LayerState(past, hidden, summary, state.position + 1)

    def visible(self, state: LayerState) -> Tensor | None:
        """The filled slots, or the last `span` of them: [B, 1, S]."""
        if not self.span:
            return state.past.mask
        ages = state.past.ages  # [1, S]
        return ((ages > 0) & (ages <= state.position.clamp(max=self.span)[:, None]))[:, None]


def stack(config: Any, span: int = 0, recall: bool = True) -> nn.ModuleList:
    """Layers of which each reads the hidden vectors of the one below."""
    n = config.width
    widths = [config.embedding, *[n] * (config.layers - 1)]
    return nn.ModuleList(LSTMNLayer(wide, n, span, recall, compare(config)) for wide in widths)


def read(
    layers: Any, x: Tensor, states: tuple[LayerState, ...], dropout: nn.Module
) -> tuple[list[Tensor], tuple[LayerState, ...]]:
    """Layer by layer, and in each word by word: x [B, T, m] -> [h ; c] of each layer [B, T, 2n], and its state."""
    written, after = [], []
    for layer, state in zip(layers, states, strict=True):
        both, state = recur(layer.step, layer.W_x(dropout(x)), state)  # [B, T, 2n]
        x = both[..., : layer.width]  # [B, T, n]
        written.append(both)
        after.append(state)
    return written, tuple(after)


def compare(config: Any) -> Attention:
    """Attention whose queries and keys are projected by the layer that attends."""
    return Attention(COMPARISONS[config.score](config.width), NORMALISERS[config.normaliser])
