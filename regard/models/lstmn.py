"""Cheng, Dong and Lapata, "Long short-term memory-networks for machine reading" (EMNLP 2016).

What was new: an LSTM that does not squeeze its past into one state. It keeps the hidden and the memory vector of every
word on two tapes and looks back at all of them, with the same weights on both, before each step (intra-attention).

    a_i = v^T tanh(W_h h_i + W_x x_t + W_s h~_{t-1});  s = softmax(a) over i < t                          (eq. 4-5)
    [h~_t ; c~_t] = sum_i s_i [h_i ; c_i]                                                                 (eq. 6)
    [i ; f ; o ; c^] = [sig ; sig ; sig ; tanh](W [h~_t ; x_t]);  c_t = f c~_t + i c^;  h_t = o tanh(c_t) (eq. 7-9)

A stacked layer reads the h_t of the layer below and has tapes of its own. The tapes begin with a slot of zeros, as in
the released code, so that the first step has something to look at.

As encoder and decoder the paper joins two of them in two ways. Shallow fusion: an ordinary attention over the source,
asked with the state before the step as Bahdanau does, enters the decoder as input. Deep fusion: the decoder looks at
both tapes of the source, and what it sees there enters the memory through a gate of its own:

    b_j = u^T tanh(W_g g_j + W_x x_t + W_l g~_{t-1});  [g~_t ; a~_t] = sum_j softmax(b)_j [g_j ; a_j]     (eq. 12-14)
    r_t = sig(W_r [g~_t ; x_t]);  c_t = r_t a~_t + f c~_t + i c^                                          (eq. 15-16)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.scores import Additive
from regard.errors import ConfigError
from regard.layers.attention import Attention
from regard.layers.transformer import grow
from regard.models.contract import Looking, check_batch, check_target, shift_right

ROOM = 32  # slots that a fresh state has; the tapes double when they are full


@dataclass(frozen=True)
class LSTMNLanguageConfig:
    """The language model of the paper, on the Penn Treebank."""

    vocabulary: int = setting(10_000, "words or pieces that the model knows")
    embedding: int = setting(150, "size of a word vector (m)")
    width: int = setting(300, "size of a layer's hidden and memory vectors (n)")
    layers: int = setting(1, "layers, one to three in the paper")
    span: int = setting(0, "how many of the last words may be looked at; 0 = all of them")
    dropout: float = setting(0.0, "share of each layer's input and of the top states dropped in training")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]")


@dataclass(frozen=True)
class LSTMNConfig:
    """The encoder-decoder; the sizes are those of the released code, which is for textual entailment."""

    source_vocabulary: int = setting(30_000, "words or pieces of the source language")
    target_vocabulary: int = setting(30_000, "words or pieces of the target language")
    embedding: int = setting(300, "size of a word vector (m)")
    width: int = setting(450, "size of a layer's hidden and memory vectors (n)")
    layers: int = setting(1, "layers in the encoder and in the decoder")
    fusion: str = setting("deep", "how the source enters the decoder", ("shallow", "deep"))
    released: bool = setting(False, "as in the released code, the encoder asks without its last summary h~")
    dropout: float = setting(0.0, "share of each layer's input and of the top states dropped in training")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]")


class Tapes(NamedTuple):
    """What an LSTMN carries from step to step.

    A state that has been stepped from is spent: its tape is written on. No gradient flows from one call to the next.
    """

    tape: Tensor  # [B, L, room, 3n]: W_h h_i, h_i and c_i side by side; slot 0 is zero
    summary: Tensor  # [B, L, n], h~_{t-1}
    position: Tensor  # [B], steps so far: slots 0 ... position are filled


class Heard(NamedTuple):
    """What a layer hears of a source besides its input."""

    enter: Callable[[Tensor], Tensor] | None = None  # the last hidden state [B, n] -> what joins the input, [B, 5n]
    added: Tensor | None = None  # [B, T, n], what joins the memory vectors


class LSTMNLanguageModel(nn.Module):
    """LSTMN layers that write a text word by word."""

    looking = Looking(query="current", shift=0, cross=())

    def __init__(self, config: LSTMNLanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.reader = Reader(config.embedding, config.width, config.layers, config.dropout, config.span)
        self.dropout = nn.Dropout(config.dropout)
        self.W = nn.Linear(config.width, config.vocabulary)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> Tapes:
        """Tapes of one zero slot, and h~_0 = 0."""
        return self.reader.start(rows)

    def step(self, token: Tensor, state: Tapes) -> tuple[Tensor, Tapes]:
        """token [B] -> logits [B, V]; the tape of `state` is written in place."""
        logits, state = self.read(token[:, None], state)
        return logits[:, 0], state

    def forward(self, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], each step reading the true word before it."""
        check_target(target)
        return self.read(shift_right(target), self.start(len(target)))[0]

    def read(self, words: Tensor, state: Tapes) -> tuple[Tensor, Tapes]:
        """words [B, T], the words read -> logits [B, T, V] of the words that follow."""
        written, state = self.reader(self.embed(words), state)  # L times [B, T, 2n]
        return self.W(self.dropout(written[-1][..., : self.config.width])), state


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
        tape = grow(state.tape, filled + x.shape[1] + 1)  # [B, L, room, 3n]
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
        """x [B, T, m], tape [B, room, 3n] with slots 0 ... filled, summary [B, n] -> rows [B, T, 2n], summary."""
        keys, values = slots(tape, filled + 1)
        hidden = values[:, -1, : self.width]  # [B, n]
        added = None if heard.added is None else heard.added.unbind(1)
        rows = []
        for t, drive in enumerate(self.W_x(x).unbind(1)):  # [B, 5n]
            if heard.enter is not None:
                drive = drive + heard.enter(hidden)
            query = drive[:, : self.width] if self.W_s is None else drive[:, : self.width] + self.W_s(summary)  # [B, n]
            seen = self.attention(query[:, None], Memory(keys, values, self.visible(keys))).context[:, 0]  # [B, 2n]
            summary, cell = seen.chunk(2, dim=-1)  # [B, n]
            gates = drive[:, self.width :] + self.U(summary)  # [B, 4n]
            i, f, o = torch.sigmoid(gates[:, : 3 * self.width]).chunk(3, dim=-1)
            cell = f * cell + i * torch.tanh(gates[:, 3 * self.width :])  # [B, n]
            if added is not None:
                cell = cell + added[t]
            hidden = o * torch.tanh(cell)  # [B, n]
            rows.append(torch.cat([self.W_h(hidden), hidden, cell], dim=-1))  # [B, 3n]
            tape, keys, values = Write.apply(tape, rows[-1], filled + t + 1)  # type: ignore[no-untyped-call]
        return torch.stack(rows, dim=1)[..., self.width :], summary

    def visible(self, keys: Tensor) -> Tensor | None:
        """The last `span` of the slots [1, 1, S]; the zero slot counts as a word."""
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


class LSTMNState(NamedTuple):
    """What a step of the decoder carries to the next."""

    memory: Memory
    tapes: Tapes
    glimpse: Tensor  # [B, L, n], g~_{t-1}: what each layer last saw of the source; zero in shallow fusion


class LSTMN(nn.Module):
    """An LSTMN that reads, an LSTMN that writes, and the fusion between them.

    As in the released code the decoder begins with a zero slot of its own; what it knows of the source, it looks up.
    """

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        m, n = config.embedding, config.width
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, m)
        self.encoder = Reader(m, n, config.layers, config.dropout, recall=not config.released)
        self.embed_target = nn.Embedding(config.target_vocabulary, m)
        self.decoder = Reader(m, n, config.layers, config.dropout)
        self.fusion = FUSIONS[config.fusion](config)
        self.looking: Looking = self.fusion.looking
        self.dropout = nn.Dropout(config.dropout)
        self.W = nn.Linear(n, config.target_vocabulary)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S] onto the tapes; what of them can be looked at is the fusion's choice."""
        check_batch(source, lengths)
        written, _ = self.encoder(self.embed(source), self.encoder.start(len(source)))  # L times [B, S, 2n]
        return self.fusion.remember(written, padding_mask(lengths, source.shape[1]))

    def start(self, memory: Memory) -> LSTMNState:
        """Tapes of one zero slot, and nothing seen of the source yet."""
        tapes = self.decoder.start(len(memory.keys))
        return LSTMNState(memory, tapes, torch.zeros_like(tapes.summary))

    def step(self, token: Tensor, state: LSTMNState) -> tuple[Tensor, LSTMNState]:
        """token [B] -> logits [B, V]; the tape of `state` is written in place."""
        logits, state = self.decode(token[:, None], state)
        return logits[:, 0], state

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], each step reading the true word before it."""
        return self.decode(shift_right(target), self.start(self.encode(source, lengths)))[0]

    def decode(self, words: Tensor, state: LSTMNState) -> tuple[Tensor, LSTMNState]:
        """words [B, T], the words read -> logits [B, T, V] of the words written."""
        glimpses = []

        def hear(k: int, x: Tensor) -> Heard:
            heard, glimpse = self.fusion(k, x, state.memory, state.glimpse[:, k])
            glimpses.append(glimpse)
            return heard

        written, tapes = self.decoder(self.embed_target(words), state.tapes, hear)  # L times [B, T, 2n]
        logits = self.W(self.dropout(written[-1][..., : self.config.width]))  # [B, T, V]
        return logits, LSTMNState(state.memory, tapes, torch.stack(glimpses, dim=1))


class Shallow(nn.Module):
    """Attention over the top hidden tape of the source, asked with h_{t-1} of the first layer and read by it."""

    looking = Looking(query="previous", shift=0, cross=("fusion.attention",))

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        self.width = config.width
        self.attention = Attention(Additive(config.width, config.width, config.width))
        self.C = nn.Linear(config.width, 5 * config.width, bias=False)

    def remember(self, written: list[Tensor], mask: Tensor) -> Memory:
        """Of L times [B, S, 2n], the last one's hidden vectors [B, S, n]."""
        return self.attention.remember(written[-1][..., : self.width], mask)

    def forward(self, k: int, x: Tensor, memory: Memory, glimpse: Tensor) -> tuple[Heard, Tensor]:
        def enter(hidden: Tensor) -> Tensor:
            return self.C(self.attention(hidden[:, None], memory).context[:, 0])  # [B, 5n]

        return Heard(enter=None if k else enter), glimpse


class Deep(nn.Module):
    """Each layer of the decoder looks at both tapes of the same layer of the encoder."""

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        widths = [config.embedding, *[config.width] * (config.layers - 1)]
        self.layers = nn.ModuleList(Source(wide, config.width) for wide in widths)
        names = tuple(f"fusion.layers.{k}.attention" for k in range(config.layers))
        self.looking = Looking(query="current", shift=0, cross=names)

    def remember(self, written: list[Tensor], mask: Tensor) -> Memory:
        """L times [B, S, 2n] -> keys [B, L, S, n] and values [B, L, S, 2n]."""
        keys = [layer.W_g(rows[..., : layer.width]) for layer, rows in zip(self.layers, written, strict=True)]  # type: ignore[operator]
        return Memory(torch.stack(keys, dim=1), torch.stack(written, dim=1), mask)

    def forward(self, k: int, x: Tensor, memory: Memory, glimpse: Tensor) -> tuple[Heard, Tensor]:
        added, glimpse = self.layers[k](x, Memory(memory.keys[:, k], memory.values[:, k], memory.mask), glimpse)
        return Heard(added=added), glimpse


class Source(nn.Module):
    """r_t a~_t for one layer. It asks with the input and its last glimpse, and needs nothing of the layer itself."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.W_x = nn.Linear(input_width, 2 * width)  # for the query, then for the gate r
        self.W_g = nn.Linear(width, width, bias=False)
        self.W_l = nn.Linear(width, width, bias=False)
        self.W_r = nn.Linear(width, width, bias=False)
        self.attention = Attention(Perceptron(width))

    def forward(self, x: Tensor, memory: Memory, glimpse: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, m], glimpse g~_{t-1} [B, n] -> what joins the memory vectors [B, T, n], and the last glimpse."""
        seen = []
        asked, gate = self.W_x(x).chunk(2, dim=-1)  # [B, T, n]
        for query in asked.unbind(1):
            seen.append(self.attention((query + self.W_l(glimpse))[:, None], memory).context[:, 0])  # [B, 2n]
            glimpse = seen[-1][:, : self.width]  # [B, n]
        glimpses, cells = torch.stack(seen, dim=1).chunk(2, dim=-1)  # [B, T, n]
        return torch.sigmoid(gate + self.W_r(glimpses)) * cells, glimpse


FUSIONS: dict[str, Callable[[LSTMNConfig], Any]] = {"shallow": Shallow, "deep": Deep}


LANGUAGE_PRESETS = {
    "paper": LSTMNLanguageConfig(),
    "small": LSTMNLanguageConfig(dropout=0.3),
    "tiny": LSTMNLanguageConfig(embedding=64, width=96, spread=0.1),
}
LANGUAGE_VARIANTS = {
    "three-layers": replace(LANGUAGE_PRESETS["tiny"], layers=3),
    "span": replace(LANGUAGE_PRESETS["tiny"], span=3),
}
PRESETS = {
    "paper": LSTMNConfig(),
    "small": LSTMNConfig(embedding=256, width=384, dropout=0.3),
    "tiny": LSTMNConfig(embedding=64, width=96, spread=0.1),
}
VARIANTS = {
    "shallow": replace(PRESETS["tiny"], fusion="shallow"),
    "shallow-two-layers": replace(PRESETS["tiny"], fusion="shallow", layers=2),
    "deep-two-layers": replace(PRESETS["tiny"], layers=2),
    "released": replace(PRESETS["tiny"], released=True),
}
LANGUAGE_RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "optimiser": "sgd",
        "rate": 0.65,
        "clip": 5.0,
        "batch_tokens": 1_024,
        "schedule": "plateau",
        "epochs": 30,
        "best_by": "loss",
    },
    "small": {"rate": 0.002, "clip": 1.0, "batch_tokens": 1_024, "schedule": "cosine", "epochs": 20, "best_by": "loss"},
    "tiny": {"rate": 0.005, "clip": 1.0, "batch_tokens": 2_048, "epochs": 6, "best_by": "loss"},
}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.001, "clip": 5.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
