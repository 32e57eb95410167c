"""Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (ICLR 2015).

What was new: the decoder no longer lives on one vector of the whole sentence. At every step it looks back at the states
of all source words and takes the weighted sum that its own state asks for; the alignment is learned with the rest.

    h_j = [->h_j ; <-h_j]                                  states of a bidirectional GRU             (eq. 7)
    e_ij = v^T tanh(W s_{i-1} + U h_j)                     does word j help to write word i?         (A.1.2)
    alpha_i = softmax(e_i);  c_i = sum_j alpha_ij h_j                                                (eq. 5, 6)
    s_i = GRU(s_{i-1}, y_{i-1}, c_i)                                                                 (eq. 4)
    p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c_i))
    s_0 = tanh(W_s <-h_1)                                  the backward state at the first word

The main text, the appendix and the released code differ in which state asks and which state is read out. They are
different functions; `timing` names them, and the main text is the default.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.masks import padding_mask
from regard.core.scores import Additive
from regard.layers.attention import Attention
from regard.layers.dropout import Dropout
from regard.layers.recurrent import (
    GRU_CELLS,
    GateInputs,
    Move,
    ResetAfterGRU,
    candidate_bias,
    gru_encoder,
    keep,
    write,
)
from regard.models.contract import Looking, check_batch, check_target, shift_right
from regard.symbols import START


@dataclass(frozen=True)
class BahdanauConfig:
    """RNNsearch-50 as published."""

    source_vocabulary: int = setting(30_000, "words or pieces of the source language")
    target_vocabulary: int = setting(30_000, "words or pieces of the target language")
    embedding: int = setting(620, "size of a word vector (m)")
    width: int = setting(1000, "size of a recurrent state, in each direction (n)")
    attention: int = setting(1000, "hidden size of the alignment perceptron (n')")
    readout: int = setting(500, "maxout units before the softmax (l)")
    output_rank: int = setting(0, "rank of a factorised softmax matrix, 620 in the released code; 0 = not factorised")
    timing: str = setting(
        "paper", "which state asks and which is read out", ("paper", "appendix", "released", "conditional")
    )
    cell: str = setting("paper", "GRU with the reset before the product, or torch's faster one", ("paper", "torch"))
    dropout: float = setting(0.0, "share of embeddings and readout dropped in training; the paper has none")
    spread: float = setting(0.01, "standard deviation of the initial weights that are not recurrent")


class BahdanauState(NamedTuple):
    """What a step carries to the next."""

    memory: Memory
    hidden: Tensor  # [B, n], s_{i-1}
    context: Tensor  # [B, 2n], the last context: only the released timing carries it on


class Bahdanau(nn.Module):
    """RNNsearch: a bidirectional encoder, and the decoder below that looks at it."""

    looking = Looking(query="previous", shift=0, cross=("decoder.attention",))

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.source_vocabulary, config.embedding)
        self.encoder = gru_encoder(config.cell, config.embedding, config.width, directions=2, blend=write)
        self.decoder = Decoder(config, memory_width=2 * config.width)
        self.dropout = Dropout(config.dropout)
        if config.timing != "paper" and config.timing != "appendix":
            self.looking = self.looking._replace(query="current")
        initialise(self, config.spread)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read source [B, S]: states [B, S, 2n] as values, U h_j as keys."""
        check_batch(source, lengths)
        states, _ = self.encoder(self.dropout(self.embed(source)), lengths)  # [B, S, 2n]
        mask = padding_mask(lengths, source.shape[1])  # [B, 1, S]
        if self.config.timing == "conditional":
            real = mask.transpose(1, 2).to(states.dtype)  # [B, S, 1]
            summary = (states * real).sum(1) / real.sum(1).clamp(min=1)  # [B, 2n]: the mean state of dl4mt
        else:
            summary = states[:, 0, self.config.width :]  # [B, n]: <-h_1
        return self.decoder.attention.remember(states, mask, summary)

    def start(self, memory: Memory) -> BahdanauState:
        """s_0 = tanh(W_s summary)."""
        return self.decoder.start(memory)

    def step(self, token: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        """token [B] -> logits [B, V]."""
        logits, state = self.decoder(token[:, None], state)
        return logits[:, 0], state

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], each step reading the true word before it."""
        check_target(target, source)
        return self.decoder(shift_right(target), self.start(self.encode(source, lengths)))[0]


class Decoder(nn.Module):
    """The GRU that looks, moves and writes. RNNencdec is this decoder with a memory of one slot."""

    def __init__(
        self, config: BahdanauConfig, memory_width: int, score: nn.Module | Callable[..., Tensor] | None = None
    ) -> None:
        super().__init__()
        m, n, wide = config.embedding, config.width, memory_width
        conditional = config.timing == "conditional"
        self.timing = TIMINGS[config.timing]
        # y_0 is the zero vector, as in the released code: START has no embedding and gets no gradient.
        self.embed = nn.Embedding(config.target_vocabulary, m, padding_idx=START)
        self.attention = Attention(score or Additive(n, wide, config.attention))
        self.initial = nn.Linear(wide if conditional or score else n, n)  # W_s
        self.W = GateInputs(m, n)
        self.C = GateInputs(wide, n) if conditional else nn.Linear(wide, 3 * n, bias=False)
        self.cell = ResetAfterGRU(n, keep) if conditional else GRU_CELLS[config.cell](n, write)
        self.half_cell = ResetAfterGRU(n, keep) if conditional else None
        self.readout = Readout(config, memory_width, squash=torch.tanh if conditional else maxout)
        self.dropout = Dropout(config.dropout)

    def start(self, memory: Memory) -> BahdanauState:
        assert memory.summary is not None
        hidden = torch.tanh(self.initial(memory.summary))  # [B, n]
        return BahdanauState(memory, hidden, hidden.new_zeros(len(hidden), memory.values.shape[-1]))

    def forward(self, words: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        """words [B, T], the words read -> logits [B, T, V] of the words written. Only the recurrence is a loop."""
        embedded = self.dropout(self.embed(words))  # [B, T, m]
        f = self.begin(self.W(embedded))
        hiddens, contexts = [], []
        for first in (words == START)[..., None].unbind(1):  # T times [B, 1]
            hidden, state = self.timing(self, f, first, state)
            hiddens.append(hidden)
            contexts.append(state.context)
        return self.readout(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1)), state

    def begin(self, drives: Tensor) -> tuple[Move, ...]:
        """The moves of the decoder's cell (two with the conditional timing), given W E y of all steps: [B, T, 3n]."""
        if isinstance(self.C, GateInputs):
            assert self.half_cell is not None
            alone = candidate_bias(self.C.b).expand_as(drives)  # the second GRU reads the context and no word
            return self.half_cell.over(drives), self.cell.over(alone, self.C.W.weight)
        return (self.cell.over(drives, self.C.weight),)

    def look(self, hidden: Tensor, memory: Memory) -> Tensor:
        """c_i for the query `hidden` [B, n]: [B, 2n]."""
        return self.attention(hidden[:, None], memory).context[:, 0]


# A timing takes the moves f of the cell, which read y_{i-1} at their i-th call, whether y_{i-1} is START [B, 1] and the
# state before the step; it returns the hidden state that is read out, and the state after the step with its context.
Moves = tuple[Move, ...]
Timing = Callable[[Decoder, Moves, Tensor, BahdanauState], tuple[Tensor, BahdanauState]]


def main_text(decoder: Decoder, f: Moves, first: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
    """c_i = att(s_{i-1}); s_i = f(s_{i-1}, y_{i-1}, c_i); read out s_i (section 3.1)."""
    context = decoder.look(state.hidden, state.memory)
    hidden = f[0](state.hidden, context)  # [B, n]
    return hidden, BahdanauState(state.memory, hidden, context)


def appendix(decoder: Decoder, f: Moves, first: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
    """As the main text, but s_{i-1} is read out (A.2.2, to the letter)."""
    _, after = main_text(decoder, f, first, state)
    return state.hidden, after


def released(decoder: Decoder, f: Moves, first: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
    """d_{i-1} = f(d_{i-2}, y_{i-1}, c_{i-1}), with d_0 = s_0; c_i = att(d_{i-1}); read out d_{i-1} (GroundHog)."""
    moved = f[0](state.hidden, state.context)  # [B, n]
    hidden = torch.where(first, state.hidden, moved)
    return hidden, BahdanauState(state.memory, hidden, decoder.look(hidden, state.memory))


def conditional(decoder: Decoder, f: Moves, first: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
    """s'_i = GRU1(s_{i-1}, y_{i-1}); c_i = att(s'_i); s_i = GRU2(s'_i, c_i); read out s_i (dl4mt, Nematus)."""
    half = f[0](state.hidden)  # [B, n]
    context = decoder.look(half, state.memory)
    hidden = f[1](half, context)  # [B, n]
    return hidden, BahdanauState(state.memory, hidden, context)


TIMINGS: dict[str, Timing] = {
    "paper": main_text,
    "appendix": appendix,
    "released": released,
    "conditional": conditional,
}


class Readout(nn.Module):
    """W_o squash(U_o s + V_o E y + C_o c), for all steps at once; the paper squashes with maxout."""

    def __init__(self, config: BahdanauConfig, memory_width: int, squash: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        units = 2 * config.readout if squash is maxout else config.readout
        self.squash = squash
        self.U_o = nn.Linear(config.width, units)
        self.V_o = nn.Linear(config.embedding, units, bias=False)
        self.C_o = nn.Linear(memory_width, units, bias=False)
        self.dropout = Dropout(config.dropout)
        self.narrow = nn.Linear(config.readout, config.output_rank, bias=False) if config.output_rank else nn.Identity()
        self.W_o = nn.Linear(config.output_rank or config.readout, config.target_vocabulary)

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        units = self.squash(self.U_o(hidden) + self.V_o(embedded) + self.C_o(context))  # [B, T, l]
        return self.W_o(self.narrow(self.dropout(units)))  # [B, T, V]


def maxout(x: Tensor) -> Tensor:
    """The larger of each adjacent pair: [..., 2l] -> [..., l]."""
    return x.unflatten(-1, (-1, 2)).amax(dim=-1)


@torch.no_grad()
def initialise(model: nn.Module, spread: float) -> None:
    """The paper's start (B.1): recurrent matrices orthogonal, W and U of the alignment N(0, 0.001^2), v and all biases
    zero, everything else N(0, spread^2). With v = 0 attention is exactly uniform before the first update."""
    for name, weights in model.named_parameters():
        parts = name.split(".")
        if weights.dim() == 1:
            weights.zero_()
        elif "score" in parts:
            weights.normal_(0, 0.0 if "v" in parts else 0.001)
        elif "U" in parts or "U_gates" in parts or parts[-1].startswith("weight_hh"):
            for matrix in weights.reshape(-1, *weights.shape[-2:]):  # an encoder keeps one matrix for each direction
                orthogonal_blocks(matrix)
        else:
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
VARIANTS = {name: replace(PRESETS["tiny"], timing=name) for name in TIMINGS if name != "paper"} | {
    "torch": replace(PRESETS["tiny"], cell="torch"),
    "factorised": replace(PRESETS["tiny"], output_rank=32),
}

# Adadelta, loss by sentence and gradients clipped at 1 are the paper's; the small sizes learn faster with Adam.
RECIPES: dict[str, dict[str, object]] = {
    "paper": {"optimiser": "adadelta", "rate": 1.0, "clip": 1.0, "normalise": "sentences"},
    "small": {"rate": 0.001, "clip": 1.0, "label_smoothing": 0.1},
    "tiny": {"rate": 0.003, "clip": 1.0},
}
