"""The LSTMN's layer: an LSTM that keeps every hidden and memory vector on two tapes and looks back at all of them.

Training and decoding run the same code. The tapes of a layer lie in one buffer that is allocated once; a step writes
one slot of it and looks at views of the others, so that nothing is copied, whether or not gradients are needed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.attend import Memory
from regard.errors import ConfigError
from regard.kernels.repeated import Repeated
from regard.layers.attention import Attention
from regard.layers.transformer import grow

ROOM = 32  # slots that a fresh state has; the tapes double when they are full


class Tapes(NamedTuple):
    """What an LSTMN carries from step to step.

    A state that has been stepped from is spent: its tape is written on. No gradient flows from one call to the next.
    """

    tape: Tensor  # [B, L, room, 3n]: W_h h_i, h_i and c_i side by side
    summary: Tensor  # [B, L, n], h~_{t-1}
    position: Tensor  # [B], steps so far: so many slots are filled


class Heard(NamedTuple):
    """What a layer hears of a source besides its input."""

    enter: Callable[[Tensor], Tensor] | None = None  # the last hidden state [B, n] -> what joins the input, [B, 5n]
    added: Tensor | None = None  # [B, T, n], what joins the memory vectors


class Reader(nn.Module):
    """Stacked LSTMN layers over a text: layer by layer, and in each layer word by word."""

    def __init__(
        self, input_width: int, width: int, layers: int, dropout: float, span: int = 0, recall: bool = True
    ) -> None:
        super().__init__()
        if layers < 1 or span < 0:
            raise ConfigError(f"layers must be at least 1 and span at least 0; got {layers} and {span}.")
        widths = [input_width, *[width] * (layers - 1)]
        self.layers = nn.ModuleList(Layer(wide, width, span, recall) for wide in widths)
        self.width, self.dropout = width, nn.Dropout(dropout)

    def start(self, rows: int) -> Tapes:
        tape = self.layers[0].U.weight.new_zeros(rows, len(self.layers), ROOM, 3 * self.width)  # type: ignore[union-attr, operator]
        position = torch.zeros(rows, dtype=torch.long, device=tape.device)
        return Tapes(tape, tape.new_zeros(rows, len(self.layers), self.width), position)

    def forward(
        self, x: Tensor, state: Tapes, hear: Callable[[int, Tensor], Heard] | None = None
    ) -> tuple[list[Tensor], Tapes]:
        """x [B, T, m] -> what each layer wrote, [h_t ; c_t] as [B, T, 2n]. `hear(k, x)`: what layer k hears besides."""
        filled = int(state.position[0]) if len(x) else 0
        tape = grow(state.tape, filled + x.shape[1])  # [B, L, room, 3n]
        written, summaries = [], []
        for k, layer in enumerate(self.layers):
            x = self.dropout(x)
            heard = Heard() if hear is None else hear(k, x)
            rows, summary = layer(x, tape[:, k], state.summary[:, k], filled, heard)  # [B, T, 2n], [B, n]
            written.append(rows)
            summaries.append(summary)
            x = rows[..., : self.width]  # [B, T, n]
        summary = torch.stack(summaries, dim=1).detach()  # [B, L, n]
        return written, Tapes(tape, summary, state.position + x.shape[1])


class Layer(nn.Module):
    """One layer. Everything that depends on the input alone is computed for all steps at once, before the loop."""

    def __init__(self, input_width: int, width: int, span: int, recall: bool) -> None:
        super().__init__()
        self.width, self.span = width, span
        self.W_x = nn.Linear(input_width, 5 * width)  # for the query, then for the gates i, f, o and the candidate
        self.W_h = nn.Linear(width, width, bias=False)
        self.W_s = nn.Linear(width, width, bias=False) if recall else None
        self.U = nn.Linear(width, 4 * width, bias=False)  # the columns of W that act on h~
        self.attention = Attention(Perceptron(width))

    def forward(self, x: Tensor, tape: Tensor, summary: Tensor, filled: int, heard: Heard) -> tuple[Tensor, Tensor]:
        """x [B, T, m], tape [B, room, 3n] with so many slots filled, summary [B, n] -> rows [B, T, 2n], summary."""
        keys, values = slots(tape, filled)
        hidden = values[:, -1, : self.width] if filled else torch.zeros_like(summary)  # [B, n]
        added = None if heard.added is None else heard.added.unbind(1)
        drives = self.W_x(x)  # [B, T, 5n]
        ask = Repeated(drives[..., : self.width], *([] if self.W_s is None else [self.W_s.weight]))
        push = Repeated(drives[..., self.width :], self.U.weight)
        file = Repeated(drives.new_zeros(()).expand(*x.shape[:2], self.width), self.W_h.weight)
        rows = []
        for t in range(x.shape[1]):
            entered = None if heard.enter is None else heard.enter(hidden)  # [B, 5n]
            query = ask() if self.W_s is None else ask(summary)  # [B, n]
            if entered is not None:
                query = query + entered[:, : self.width]
            seen = self.attention(query[:, None], Memory(keys, values, self.visible(keys))).context[:, 0]  # [B, 2n]
            summary, cell = seen.chunk(2, dim=-1)  # [B, n]
            gates = push(summary)  # [B, 4n]
            if entered is not None:
                gates = gates + entered[:, self.width :]
            i, f, o = torch.sigmoid(gates[:, : 3 * self.width]).chunk(3, dim=-1)
            cell = f * cell + i * torch.tanh(gates[:, 3 * self.width :])  # [B, n]
            if added is not None:
                cell = cell + added[t]
            hidden = o * torch.tanh(cell)  # [B, n]
            rows.append(torch.cat([file(hidden), hidden, cell], dim=-1))  # [B, 3n]
            tape, keys, values = Write.apply(tape, rows[-1], filled + t)  # type: ignore[no-untyped-call]
        return torch.stack(rows, dim=1)[..., self.width :], summary

    def visible(self, keys: Tensor) -> Tensor | None:
        """The last `span` of the slots, [1, 1, S]."""
        places = keys.shape[1]
        if not 0 < self.span < places:
            return None
        return torch.arange(places, device=keys.device)[None, None] >= places - self.span


class Perceptron(nn.Module):
    """v^T tanh(q + k), where query and keys come projected to one width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))  # [..., T, S, n]
        return self.v(hidden).squeeze(-1)  # [..., T, S]


def slots(tape: Tensor, filled: int) -> tuple[Tensor, Tensor]:
    """Keys [B, filled, n] and values [B, filled, 2n] of the first slots of a tape [B, room, 3n], as views."""
    width = tape.shape[-1] // 3
    return tape[:, :filled, :width], tape[:, :filled, width:]


class Write(torch.autograd.Function):
    """Write a row [B, 3n] behind the others and return the tape, its keys and its values: no slot is ever copied.

    Autograd forbids writing into a tensor that an earlier step has saved for its gradient. Here it is sound, because
    a slot is written once and never before it is read; so the write goes past the version counter, and the gradients
    of all later looks gather in one buffer on the way back, each slot's part leaving with the row written there.
    """

    @staticmethod
    def forward(ctx: Any, tape: Tensor, row: Tensor, slot: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.slot, ctx.shape = slot, tape.shape
        shared = tape.data
        shared[:, slot] = row
        return shared, *slots(shared, slot + 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        gathered, keys, values = grads
        if gathered is None:
            some = keys if keys is not None else values
            if some is None:
                return None, None, None
            gathered = some.new_zeros(ctx.shape)  # [B, room, 3n]
        for part, grad in zip(slots(gathered, ctx.slot + 1), (keys, values), strict=True):
            if grad is not None:
                part += grad
        return gathered, gathered[:, ctx.slot], None
