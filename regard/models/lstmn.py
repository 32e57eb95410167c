"""Cheng, Dong and Lapata, "Long short-term memory-networks for machine reading" (EMNLP 2016).

What was new: an LSTM that does not squeeze its past into one state. It keeps the hidden and the memory vector of every
word on two tapes and looks back at all of them, with the same weights on both, before each step (intra-attention).

    a_i = v^T tanh(W_h h_i + W_x x_t + W_s h~_{t-1});  s = softmax(a) over i < t
    [h~_t ; c~_t] = sum_i s_i [h_i ; c_i]
    [i ; f ; o ; c^] = [sig ; sig ; sig ; tanh](W [h~_t ; x_t]);  c_t = f c~_t + i c^;  h_t = o tanh(c_t)

A stacked layer reads the h_t of the layer below and has tapes of its own. At the first step the tapes are empty and
what is seen is zero, as with the slot of zeros that the released code begins with (and may look back at later on).

As encoder and decoder the paper joins two of them in two ways. Shallow fusion: an ordinary attention over the source,
asked with the state before the step as Bahdanau does, enters the decoder as input. Deep fusion: the decoder looks at
both tapes of the source, and what it sees there enters the memory through a gate of its own:

    b_j = u^T tanh(W_g g_j + W_x x_t + W_l g~_{t-1});  [g~_t ; a~_t] = sum_j softmax(b)_j [g_j ; a_j]
    r_t = sig(W_r [g~_t ; x_t]);  c_t = r_t a~_t + f c~_t + i c^
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
from regard.layers.attention import Attention
from regard.layers.lstmn import Heard, Perceptron, Reader, Tapes
from regard.models.contract import Looking, check_batch, check_target, shift_right


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
        """Empty tapes, and h~_0 = 0."""
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


class LSTMNState(NamedTuple):
    """What a step of the decoder carries to the next."""

    memory: Memory
    tapes: Tapes
    glimpse: Tensor  # [B, L, n], g~_{t-1}: what each layer last saw of the source; zero in shallow fusion


class LSTMN(nn.Module):
    """An LSTMN that reads, an LSTMN that writes, and the fusion between them.

    As in the released code the decoder begins with tapes of its own; what it knows of the source, it looks up.
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
        """Empty tapes, and nothing seen of the source yet."""
        tapes = self.decoder.start(len(memory.keys))
        return LSTMNState(memory, tapes, torch.zeros_like(tapes.summary))

    def step(self, token: Tensor, state: LSTMNState) -> tuple[Tensor, LSTMNState]:
        """token [B] -> logits [B, V]; the tape of `state` is written in place."""
        logits, state = self.decode(token[:, None], state)
        return logits[:, 0], state

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], each step reading the true word before it."""
        check_target(target, source)
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
    "small": LSTMNLanguageConfig(dropout=0.3, spread=0.2),
    "tiny": LSTMNLanguageConfig(embedding=64, width=96, spread=0.2),
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
        "normalise": "sentences",
        "schedule": "decay",
        "epochs": 30,
        "best_by": "loss",
    },
    "small": {"rate": 0.002, "clip": 1.0, "batch_tokens": 1_024, "schedule": "cosine", "epochs": 20, "best_by": "loss"},
    "tiny": {"rate": 0.01, "clip": 1.0, "batch_tokens": 640, "epochs": 6, "best_by": "loss"},
}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"rate": 0.001, "clip": 5.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
