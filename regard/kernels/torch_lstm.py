"""Whole recurrences by the kernels of torch: the results of a loop of cells in one call."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._VF import lstm as torch_lstm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def lstm_layer(
    x: Tensor, hidden: Tensor, cell: Tensor, W: nn.Linear, U: nn.Linear, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`regard.layers.recurrent.lstm_layer`."""
    weights = [W.weight, U.weight, *([] if W.bias is None else [W.bias, torch.zeros_like(W.bias)])]  # torch adds two
    start = hidden[None].contiguous(), cell[None].contiguous()
    settings = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False)  # biases, layers, dropout, train, both ways
    with torch.autocast(x.device.type, enabled=False):  # autocast would choose float16
        x = x.to(hidden.dtype)
        if lengths is None:
            states, hidden, cell = torch_lstm(x, start, weights, *settings, True)
            return states, hidden[0], cell[0]
        # Real words only. A row without words reads one word of padding, and its caller masks it.
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        assert order is not None
        assert back is not None
        sorted_start = tuple(part.index_select(1, order) for part in start)
        states, hidden, cell = torch_lstm(packed.data, packed.batch_sizes, sorted_start, weights, *settings)
        states, _ = pad_packed_sequence(packed._replace(data=states), batch_first=True, total_length=x.shape[1])
        return states, hidden[0].index_select(0, back), cell[0].index_select(0, back)  # states are zero on padding


def by_library(rnn: nn.RNNBase, x: Any) -> Any:
    """Call a torch RNN in the dtype of its weights; x [B, T, m] or packed. Autocast would choose float16."""
    with torch.autocast(x.data.device.type, enabled=False):
        return rnn(x.to(next(rnn.parameters()).dtype))
