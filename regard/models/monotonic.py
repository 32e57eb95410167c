"""Raffel, Luong, Liu, Weiss and Eck, "Online and linear-time attention by enforcing monotonic alignments" (ICML 2017).

What was new: attention that only moves forward. At each step it goes on from the word where it stopped last, and at
each word decides whether to stop; what comes before is never looked at again. At test one word is attended to; training
takes the expectation over all ways to stop, which has a gradient.

    e_ij = g v^T tanh(W s_{i-1} + U h_j + b) / |v| + r   (V in the paper for U);   p_ij = sigmoid(e_ij + noise)
    q_ij = (1 - p_{i,j-1}) q_{i,j-1} + alpha_{i-1,j};     alpha_ij = p_ij q_ij;   alpha_0 is one at the first word
    at test: the first j, from where step i - 1 stopped, with p_ij > 0.5; where there is none, the context is zero

The noise, N(0, 1) in training only, teaches e to be far from zero, so that expectation and choice agree; r begins below
zero, so that attention begins by going on. The paper puts this into several models; here it is the attention of
RNNsearch (`bahdanau`), which is otherwise unchanged.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import setting
from regard.core.attend import Memory
from regard.core.normalise import ForwardOnly
from regard.core.scores import NormedAdditive
from regard.layers.attention import Attention
from regard.models import bahdanau
from regard.models.bahdanau import Bahdanau, Decoder, Sizes, rnnsearch_config


@dataclass(frozen=True)
class MonotonicConfig(Sizes):
    """Monotonic attention in the sizes of RNNsearch."""

    attention: int = setting(1000, "hidden size of the perceptron that decides where to stop", "[1, inf)")
    test: str = setting("hard", "attention outside training: one word, or its expectation", ("hard", "expectation"))
    noise: float = setting(1.0, "standard deviation of the noise on the scores in training", "[0, inf)")
    offset: float = setting(-4.0, "initial r: how unlikely it is to stop at a word")


class MonotonicState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [B, n], s_{i-1}
    previous: Tensor  # [B, 1, S], alpha_{i-1}


class Monotonic(Bahdanau):
    """RNNsearch whose attention moves forward only."""

    def __init__(self, config: MonotonicConfig) -> None:
        rnnsearch, n = rnnsearch_config(config), config.width
        score = NormedAdditive(n, 2 * n, config.attention)
        attention = Attention(score, ForwardOnly(config.noise, config.test == "hard"))
        super().__init__(rnnsearch, MonotonicDecoder(rnnsearch, 2 * n, attention))
        self.config = config
        score.reset(config.offset)  # again: RNNsearch has drawn or zeroed all of its parameters


class MonotonicDecoder(Decoder):
    """Bahdanau's decoder of the main text, which remembers where it stopped."""

    def start(self, memory: Memory) -> MonotonicState:
        hidden = super().start(memory).hidden
        first = torch.arange(memory.values.shape[1], device=hidden.device) == 0  # [S]
        return MonotonicState(memory, hidden, first.to(hidden.dtype).expand(len(hidden), 1, -1))

    def step(self, input_gates: Tensor, state: MonotonicState) -> tuple[tuple[Tensor, Tensor], MonotonicState]:
        """c_i = att(s_{i-1}, alpha_{i-1});  s_i = GRU(s_{i-1}, y_{i-1}, c_i)."""
        look = self.attention(state.hidden[:, None], state.memory, previous=state.previous)  # not fused: has weights
        context = look.context.squeeze(1)  # [B, 2n]
        hidden = self.gru(input_gates + self.C(context), state.hidden)
        return (hidden, context), MonotonicState(state.memory, hidden, look.weights.to(state.previous.dtype))


PRESETS = {
    "paper": MonotonicConfig(),
    "small": MonotonicConfig(embedding=256, width=512, attention=512, readout=256, dropout=0.3, spread=0.05),
    "tiny": MonotonicConfig(embedding=64, width=96, attention=96, readout=64, spread=0.1, offset=-1.0),
}
VARIANTS = {"expectation": replace(PRESETS["tiny"], test="expectation")}
RECIPES = bahdanau.RECIPES
