"""Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (ICLR 2015).

What was new: the decoder does not depend on one vector of the whole sentence. At every step it attends to the states of
all source words, with its own state as the query; the alignment is learned together with the translation.

    h_j = [->h_j ; <-h_j]                                  states of a bidirectional GRU             (eq. 7)
    e_ij = v^T tanh(W_a s_{i-1} + U_a h_j)                 does word j help to write word i?         (A.1.2)
    alpha_i = softmax(e_i);  c_i = sum_j alpha_ij h_j                                                (eq. 6, 5)

    s_i = (1 - z_i) * s_{i-1} + z_i * s~_i                 a GRU                                     (A.1.1, A.2.2)
    s~_i = tanh(W E y_{i-1} + U (r_i * s_{i-1}) + C c_i)
    z_i = sigmoid(W_z E y_{i-1} + U_z s_{i-1} + C_z c_i)
    r_i = sigmoid(W_r E y_{i-1} + U_r s_{i-1} + C_r c_i)
    s_0 = tanh(W_s <-h_1)                                  the backward state at the first word

    p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c_i))                                  (eq. 4, A.2.2)

The main text, the appendix and the released code differ in which state is the query and which is read out, and dl4mt,
the code that most people built on, has two GRUs. They are different functions: `timing` names them (see DECODERS), and
the main text is the default.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.cells import update_keeps, update_writes
from regard.core.masks import padding_mask
from regard.core.normalise import NORMALISERS
from regard.core.products import Linear
from regard.core.scores import SCORES, make_score
from regard.kernels.choose import Dropout
from regard.kernels.recur import recur
from regard.layers.attention import Attention
from regard.layers.recurrent import GRU_CELLS, GateInputs, GRUEncoder, ResetAfterGRU
from regard.models.contract import AttentionLayout, EncoderDecoder, State, check_batch
from regard.symbols import START


@dataclass(frozen=True)
class Sizes(Settings):
    """The settings that RNNsearch and the models made of it have in common, as published."""

    source_vocabulary: int = setting(30_000, "size of the source vocabulary", "[1, inf)")
    target_vocabulary: int = setting(30_000, "size of the target vocabulary", "[1, inf)")
    embedding: int = setting(620, "embedding size (m)", "[1, inf)")
    width: int = setting(1000, "size of a recurrent state, in each direction (n)", "[1, inf)")
    readout: int = setting(500, "maxout units before the softmax (l)", "[1, inf)")
    dropout: float = setting(0.0, "dropout on embeddings and readout; the paper has none", "[0, 1)")
    spread: float = setting(0.01, "standard deviation of the initial weights that are not recurrent", "[0, inf)")


@dataclass(frozen=True)
class BahdanauConfig(Sizes):
    """RNNsearch-50 as published."""

    attention: int = setting(
        1000, "hidden size of the alignment perceptron (n'), of the scores additive and concat", "[1, inf)"
    )
    score: str = setting("additive", "score function of attention", SCORES)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    output_rank: int = setting(
        0, "rank of a factorised softmax matrix, 620 in the released code; 0 = not factorised", "[0, inf)"
    )
    timing: str = setting(
        "paper", "which state is the query and which is read out", ("paper", "appendix", "released", "conditional")
    )
    cell: str = setting(
        "paper", "GRU with reset before the product, or torch's, after it (conditional: always)", ("paper", "torch")
    )


def rnnsearch_config(config: Any) -> BahdanauConfig:
    """The settings that another model has in common with RNNsearch; the rest as published."""
    names = (field.name for field in fields(BahdanauConfig))
    return BahdanauConfig(**{name: getattr(config, name) for name in names if hasattr(config, name)})


class BahdanauState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [B, n], s_{i-1}


class ReleasedState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [B, n], d_{i-2}
    context: Tensor  # [B, 2n], c_{i-1}
    first: Tensor  # [B, 1], True before the first word


class Bahdanau(EncoderDecoder):
    """RNNsearch: a bidirectional encoder, and a decoder that attends to it: one of those below, or another model's."""

    config: Sizes  # of a model made of this one: its own

    def __init__(self, config: BahdanauConfig, decoder: "Decoder | None" = None, directions: int = 2) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, config.embedding)
        self.encoder = GRUEncoder(config.cell, config.embedding, config.width, directions, blend=update_writes)
        self.decoder = decoder or DECODERS[config.timing](config, memory_width=2 * config.width)
        self.output = Linear(config.output_rank or config.readout, config.target_vocabulary)  # W_o
        self.dropout = Dropout(config.dropout)
        self.attention_layout = AttentionLayout(self.decoder.query, cross=("decoder.attention",))
        initialise(self, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: states [B, S, 2n] as values, U_a h_j as keys."""
        check_batch(source, lengths)
        states, _ = self.encoder(self.dropout(self.embed(source)), lengths)  # [B, S, 2n]
        mask = padding_mask(lengths, source.shape[1])  # [B, 1, S]
        return self.decoder.attention.remember(states, mask, self.decoder.summarise(states, mask))

    def start(self, memory: Memory) -> State:
        """s_0 = tanh(W_s summary)."""
        return self.decoder.start(memory)

    def decode(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns [B, T, l], or [B, T, output_rank]."""
        return self.decoder(words, state)


class Decoder(nn.Module):
    """The main text, section 3.1. RNNencdec is this decoder with a memory of one slot.

    Its state is a `BahdanauState`; another decoder may have another.
    """

    query = "previous"  # the state that computes c_i has not read y_{i-1}
    recurrence = "gru"  # for `regard.explain`

    def __init__(self, config: BahdanauConfig, memory_width: int, attention: Attention | None = None) -> None:
        super().__init__()
        m, n = config.embedding, config.width
        # y_0 is the zero vector, as in the released code: START has no embedding and gets no gradient.
        self.embed = nn.Embedding(config.target_vocabulary, m, padding_idx=START)
        self.attention = attention or Attention(
            make_score(config.score, n, memory_width, config.attention), NORMALISERS[config.normaliser]
        )
        self.initial = Linear(n, n)  # W_s
        self.W = GateInputs(m, n)  # [W_r; W_z; W]
        self.C = Linear(memory_width, 3 * n, bias=False)  # [C_r; C_z; C]
        # U_r, U_z, U, see core.cells.gru. Also with torch's cell: the same functions, the update gate negated.
        self.gru = GRU_CELLS[config.cell](n, update_writes)
        self.readout = Readout(config, memory_width, maxout)
        self.dropout = Dropout(config.dropout)

    def summarise(self, states: Tensor, mask: Tensor) -> Tensor:
        """<-h_1 of states [B, S, 2n]: [B, n]."""
        return states[:, 0].chunk(2, dim=-1)[1]

    def start(self, memory: Memory) -> State:
        assert memory.summary is not None
        hidden = torch.tanh(self.initial(memory.summary)).to(self.initial.weight.dtype)  # [B, n], in full precision
        return BahdanauState(memory, hidden)

    def step(self, input_gates: Tensor, state: State) -> tuple[tuple[Tensor, Tensor], State]:
        """c_i = att(s_{i-1});  s_i = GRU(s_{i-1}, y_{i-1}, c_i);  read out s_i and c_i."""
        context = self.attend(state.hidden, state.memory)
        hidden = self.gru(input_gates + self.C(context), state.hidden)  # input_gates [B, 3n]: W E y_{i-1}
        return (hidden, context), state._replace(hidden=hidden)

    def attend(self, hidden: Tensor, memory: Memory) -> Tensor:
        """hidden [B, n] -> context [B, Dv]."""
        return self.attention(hidden[:, None], memory).context.squeeze(1)

    def forward(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """words [B, T]: the decoder's inputs y_0 ... y_{T-1}. Returns [B, T, l], or [B, T, output_rank]."""
        embedded = self.dropout(self.embed(words))  # [B, T, m]
        (hidden, context), state = recur(self.step, self.W(embedded), state)  # step by step: [B, T, n], [B, T, Dv]
        return self.readout(hidden, embedded, context), state


class AppendixDecoder(Decoder):
    """Appendix A.2.2, to the letter."""

    def step(self, input_gates: Tensor, state: BahdanauState) -> tuple[tuple[Tensor, Tensor], BahdanauState]:
        """As the main text, but read out s_{i-1} and c_i."""
        (_, context), after = super().step(input_gates, state)
        return (state.hidden, context), after


class ReleasedDecoder(Decoder):
    """GroundHog, the code that the authors released: move first, then attend."""

    query = "current"

    def start(self, memory: Memory) -> ReleasedState:
        hidden = super().start(memory).hidden  # [B, n]
        context = hidden.new_zeros(hidden.shape[0], memory.values.shape[-1])  # [B, 2n]
        return ReleasedState(memory, hidden, context, torch.ones_like(hidden[:, :1], dtype=torch.bool))

    def step(self, input_gates: Tensor, state: ReleasedState) -> tuple[tuple[Tensor, Tensor], ReleasedState]:
        """d_{i-1} = GRU(d_{i-2}, y_{i-1}, c_{i-1}), d_0 = s_0;  c_i = att(d_{i-1});  read out d_{i-1} and c_i."""
        moved = self.gru(input_gates + self.C(state.context), state.hidden)
        hidden = torch.where(state.first, state.hidden, moved)
        context = self.attend(hidden, state.memory).to(state.context.dtype)
        return (hidden, context), ReleasedState(state.memory, hidden, context, torch.zeros_like(state.first))


class ConditionalDecoder(Decoder):
    """dl4mt's and Nematus' decoder: one GRU reads the word, the second the context. Both are torch's.

    s_0 comes from the mean of all states, and tanh takes the place of maxout.
    """

    query = "current"

    def __init__(self, config: BahdanauConfig, memory_width: int) -> None:
        super().__init__(config, memory_width)
        n = config.width
        # In place of the main text's modules, which are made first: a seed keeps its initial weights.
        self.initial = Linear(memory_width, n)  # W_s
        self.gru, self.gru_2 = ResetAfterGRU(n, update_keeps), ResetAfterGRU(n, update_keeps)
        self.C = GateInputs(memory_width, n)  # type: ignore[assignment] # with a bias: GRU_2 reads no word
        self.readout = Readout(config, memory_width, torch.tanh)

    def summarise(self, states: Tensor, mask: Tensor) -> Tensor:
        """The mean of states [B, S, 2n] over the words that mask [B, 1, S] shows: [B, 2n]."""
        real = mask.transpose(1, 2).to(states.dtype)  # [B, S, 1]
        return (states * real).sum(1) / real.sum(1).clamp(min=1)

    def step(self, input_gates: Tensor, state: BahdanauState) -> tuple[tuple[Tensor, Tensor], BahdanauState]:
        """s'_i = GRU_1(s_{i-1}, y_{i-1});  c_i = att(s'_i);  s_i = GRU_2(s'_i, c_i);  read out s_i and c_i."""
        half = self.gru(input_gates, state.hidden)
        context = self.attend(half, state.memory)
        hidden = self.gru_2(self.C(context), half)
        return (hidden, context), state._replace(hidden=hidden)


DECODERS = {
    "paper": Decoder,
    "appendix": AppendixDecoder,
    "released": ReleasedDecoder,
    "conditional": ConditionalDecoder,
}


class Readout(nn.Module):
    """squash(U_o s + V_o E y + C_o c), for all steps at once; the paper squashes with maxout."""

    def __init__(self, config: BahdanauConfig, memory_width: int, squash: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        units = 2 * config.readout if squash is maxout else config.readout
        self.squash = squash
        self.U_o = Linear(config.width, units)
        self.V_o = Linear(config.embedding, units, bias=False)
        self.C_o = Linear(memory_width, units, bias=False)
        self.dropout = Dropout(config.dropout)
        self.narrow = Linear(config.readout, config.output_rank, bias=False) if config.output_rank else nn.Identity()

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """[B, T, n], [B, T, m], [B, T, Dv] -> what the softmax layer reads: [B, T, l], or [B, T, output_rank]."""
        units = self.squash(self.U_o(hidden) + self.V_o(embedded) + self.C_o(context))  # [B, T, l]
        return self.narrow(self.dropout(units))


def maxout(x: Tensor) -> Tensor:
    """The larger of each adjacent pair: [..., 2l] -> [..., l]."""
    return torch.maximum(x[..., 0::2], x[..., 1::2])


@torch.no_grad()
def initialise(model: nn.Module, spread: float, scores: bool = True) -> None:
    """The paper's start (B.1): recurrent matrices orthogonal, biases and START zero, everything else N(0, spread^2).

    With `scores`, W and U of the alignment are N(0, 0.001^2) and v is zero: attention is exactly uniform at first.
    Otherwise its U is orthogonal, its W and v are N(0, spread^2), and a scalar (the strength of a cosine) stays.
    """
    for name, weights in model.named_parameters():
        parts = name.split(".")
        if weights.dim() == 1:
            weights.zero_()
        elif scores and "score" in parts:
            weights.normal_(0, 0.0 if "v" in parts else 0.001)
        elif "U" in parts or "U_gates" in parts:
            for matrix in weights.reshape(-1, *weights.shape[-2:]):  # an encoder has one for each direction
                orthogonal_blocks(matrix)
        elif weights.dim():
            weights.normal_(0, spread)
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx].zero_()


def orthogonal_blocks(weights: Tensor) -> None:
    """Fill a matrix of square blocks, along either side, with one random orthogonal matrix for each block."""
    side = min(weights.shape)
    for block in weights.split(side, dim=0 if weights.shape[0] > side else 1):
        nn.init.orthogonal_(block)


PRESETS = {
    "paper": BahdanauConfig(),
    "small": BahdanauConfig(embedding=256, width=512, attention=512, readout=256, dropout=0.3, spread=0.05),
    "tiny": BahdanauConfig(embedding=64, width=96, attention=96, readout=64, spread=0.1),
}
VARIANTS = {name: replace(PRESETS["tiny"], timing=name) for name in DECODERS if name != "paper"} | {
    "torch": replace(PRESETS["tiny"], cell="torch"),
    "factorised": replace(PRESETS["tiny"], output_rank=32),
    "general-sparsemax": replace(PRESETS["tiny"], score="general", normaliser="sparsemax"),
}

# Adadelta, loss by sentence and gradients clipped at 1 are the paper's; the small sizes learn faster with Adam.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"optimiser": "adadelta", "rate": 1.0, "clip": 1.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
