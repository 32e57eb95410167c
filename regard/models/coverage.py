"""Tu, Lu, Liu, Liu and Li, "Modeling coverage for neural machine translation" (ACL 2016).

What was new: attention forgets where it has been, so that words are translated twice or not at all. Here every source
word carries a coverage, what it has been attended to so far, and the score reads it.

    e_ij = v^T tanh(W_a s_{i-1} + U_a h_j + V_a C_{i-1,j})
    linguistic: C_{i,j} = C_{i-1,j} + alpha_ij / Phi_j;   Phi_j = N sigmoid(U_f h_j)
    neural:     C_{i,j} = GRU(C_{i-1,j};  alpha_ij, h_j, s_{i-1}), a vector of d numbers

Phi_j is the fertility, how many target words a source word is expected to give, at most N. C_0 = 0, and a step reads
the coverage before it. Everything else is RNNsearch (`bahdanau`). The loss of See 2017, sum_j min(alpha_ij, c_ij) with
c_i the sum of the weights of all steps before, is a setting for any model that attends to words: `train.coverage=1`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.cells import update_writes
from regard.core.products import Linear
from regard.core.scores import Covered
from regard.layers.attention import Attention
from regard.layers.recurrent import ResetBeforeGRU
from regard.models import bahdanau
from regard.models.bahdanau import Bahdanau, BahdanauConfig, Decoder, Sizes, rnnsearch_config


@dataclass(frozen=True)
class CoverageConfig(Sizes):
    """A neural coverage of ten numbers, in the sizes of RNNsearch."""

    attention: int = setting(1000, "hidden size of the alignment perceptron (n')", "[1, inf)")
    coverage: str = setting(
        "neural", "the sum of weights over a fertility, or a GRU for each word", ("linguistic", "neural")
    )
    coverage_width: int = setting(10, "size of the neural coverage of a word (d)", "[1, inf)")
    fertility: float = setting(
        2.0, "linguistic: maximum fertility of a source word (N); 0 = no fertility, Phi = 1", "[0, inf)"
    )


class CoverageState(NamedTuple):
    memory: Memory
    hidden: Tensor  # [B, n], s_{i-1}
    per_word: Tensor  # [B, S, 1] 1 / Phi_j, or [B, S, 3d] W h_j in the gates of the GRU: the same at every step
    coverage: Tensor  # [B, S, d], C_{i-1}


class Coverage(Bahdanau):
    """RNNsearch whose score reads what has been attended to so far."""

    def __init__(self, config: CoverageConfig) -> None:
        rnnsearch = rnnsearch_config(config)
        super().__init__(rnnsearch, CoverageDecoder(rnnsearch, COVERAGES[config.coverage](config)))
        self.config = config


class CoverageDecoder(Decoder):
    """Bahdanau's decoder of the main text with coverage beside the memory."""

    def __init__(self, config: BahdanauConfig, coverage: "Linguistic | Neural") -> None:
        n = config.width
        super().__init__(config, 2 * n, Attention(Covered(n, 2 * n, config.attention, coverage.width)))
        self.coverage = coverage

    def start(self, memory: Memory) -> CoverageState:
        hidden = super().start(memory).hidden
        nothing = hidden.new_zeros(*memory.values.shape[:2], self.coverage.width)  # [B, S, d]
        return CoverageState(memory, hidden, self.coverage.precompute(memory.values), nothing)

    def step(self, input_gates: Tensor, state: CoverageState) -> tuple[tuple[Tensor, Tensor], CoverageState]:
        """c_i = att(s_{i-1}, C_{i-1});  s_i = GRU(s_{i-1}, y_{i-1}, c_i);  C_i from C_{i-1} and alpha_i."""
        look = self.attention(state.hidden[:, None], state.memory, extra=state.coverage)  # not fused: has weights
        context, weights = look.context.squeeze(1), look.weights.mT  # [B, 2n], [B, S, 1]
        coverage = self.coverage(state.coverage, weights.to(state.coverage.dtype), state.per_word, state.hidden)
        hidden = self.gru(input_gates + self.C(context), state.hidden)
        return (hidden, context), CoverageState(state.memory, hidden, state.per_word, coverage)


class Linguistic(nn.Module):
    """C_{i,j} = C_{i-1,j} + alpha_ij / Phi_j, one number for each word."""

    width = 1

    def __init__(self, config: CoverageConfig) -> None:
        super().__init__()
        self.fertility = config.fertility  # N
        self.U_f = Linear(2 * config.width, 1, bias=False) if config.fertility else None

    def precompute(self, states: Tensor) -> Tensor:
        """1 / Phi_j of states [B, S, 2n]: [B, S, 1]."""
        if self.U_f is None:
            return torch.ones_like(states[..., :1])
        return 1 / (self.fertility * torch.sigmoid(self.U_f(states)))

    def forward(self, coverage: Tensor, weights: Tensor, per_word: Tensor, hidden: Tensor) -> Tensor:
        """coverage [B, S, 1], weights [B, S, 1], per_word [B, S, 1] -> [B, S, 1]; only `Neural` reads hidden."""
        return coverage + weights * per_word


class Neural(nn.Module):
    """C_{i,j} = GRU(C_{i-1,j}; alpha_ij, h_j, s_{i-1}), d numbers for each word."""

    def __init__(self, config: CoverageConfig) -> None:
        super().__init__()
        n, d = config.width, config.coverage_width
        self.width = d
        self.W_h = Linear(2 * n, 3 * d)
        self.W_alpha = Linear(1, 3 * d, bias=False)
        self.W_s = Linear(n, 3 * d, bias=False)
        self.gru = ResetBeforeGRU(d, update_writes)

    def precompute(self, states: Tensor) -> Tensor:
        """W h_j of states [B, S, 2n] in the gates: [B, S, 3d]."""
        return self.W_h(states)

    def forward(self, coverage: Tensor, weights: Tensor, per_word: Tensor, hidden: Tensor) -> Tensor:
        """coverage [B, S, d], weights [B, S, 1], per_word [B, S, 3d], hidden [B, n] -> [B, S, d]."""
        gates = per_word + self.W_alpha(weights) + self.W_s(hidden)[:, None]  # [B, S, 3d]
        return self.gru(gates, coverage)


COVERAGES: dict[str, type[Linguistic] | type[Neural]] = {"linguistic": Linguistic, "neural": Neural}

PRESETS = {
    "paper": CoverageConfig(),
    "small": CoverageConfig(embedding=256, width=512, attention=512, readout=256, dropout=0.3, spread=0.05),
    "tiny": CoverageConfig(embedding=64, width=96, attention=96, readout=64, spread=0.1),
}
VARIANTS = {"linguistic": replace(PRESETS["tiny"], coverage="linguistic")}
RECIPES = bahdanau.RECIPES
