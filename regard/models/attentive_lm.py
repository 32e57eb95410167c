"""Salton, Ross and Kelleher, "Attentive language models" (IJCNLP 2017); Daniluk et al., "Frustratingly short attention
spans in neural language modeling" (ICLR 2017).

What was new: an LSTM language model that attends to its own past. Its state is the query over all earlier states, and
the readout reads the state and the context. Daniluk splits the state: one part is the key, one the value, one predicts
the next word; mostly the last few words receive weight. The context goes to the readout alone, not into the recurrence,
so all steps are computed at once.

    h_t = LSTM(E y_{t-1}) = [k_t ; v_t ; p_t]               three parts, two (p = v), or the whole each time
    e_i = v_a^T tanh(W k_t + U k_i)  or  k_t . k_i          over i < t, all or the last `window`
    c_t = sum_i softmax(e)_i v_i;  logits = W_o tanh(W_c [p_t ; c_t])
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.attend import Memory
from regard.core.normalise import NORMALISERS
from regard.core.past import Past
from regard.core.products import Linear
from regard.core.scores import SCORES, project_keys
from regard.errors import ConfigError
from regard.layers.attention import Attention
from regard.layers.recurrent import LSTMState, StackedLSTM
from regard.models.contract import AttentionLayout, TextModel, check_bound
from regard.models.lstm_lm import RECIPES as RECIPES  # the baseline and this model are trained alike

SPLITS = {"none": 1, "key-value": 2, "key-value-predict": 3}  # parts of a state


@dataclass(frozen=True)
class AttentiveConfig(Settings):
    """Salton's model with the score that compares the current state with a past one, on the Penn Treebank."""

    vocabulary: int = setting(10_000, "size of the vocabulary", "[1, inf)")
    embedding: int = setting(650, "embedding size (m)", "[1, inf)")
    width: int = setting(650, "size of a layer's state (n)", "[1, inf)")
    layers: int = setting(2, "number of LSTM layers", "[1, 10000]")
    score: str = setting("additive", "score function of attention", SCORES)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    split: str = setting("none", "parts of a state: one for all, key and value, or key, value and prediction", SPLITS)
    window: int = setting(0, "number of past states that may be attended to; 0 = all", "[0, inf)")
    dropout: float = setting(0.5, "dropout on the input of each layer and on the readout", "[0, 1)")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class AttentiveState(NamedTuple):
    lstm: LSTMState
    past: Past  # keys [B, t, k] and values [B, t, v] of the states so far
    position: Tensor  # [B], steps so far


class AttentiveLanguageModel(TextModel):
    """An LSTM language model that attends to its own past states."""

    attention_layout = AttentionLayout(query="current")

    def __init__(self, config: AttentiveConfig) -> None:
        super().__init__()
        self.config = config
        parts = SPLITS[config.split]
        if config.width % parts:
            raise ConfigError(f"width must be a multiple of {parts} to split {config.split}; got {config.width}.")
        self.part = config.width // parts  # size of a key, a value, a prediction
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.lstm = StackedLSTM(config.embedding, config.width, config.layers, config.dropout, bias=True)
        score = SCORES[config.score](self.part, self.part, self.part)
        self.attention = Attention(score, NORMALISERS[config.normaliser])
        self.W_c = Linear(2 * self.part, config.width)
        self.output = Linear(config.width, config.vocabulary)  # W_o
        self.dropout = nn.Dropout(config.dropout)
        for weights in filter(Tensor.dim, self.parameters()):  # a scalar, the strength of a cosine, keeps its value
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> AttentiveState:
        """Zero states and an empty past."""
        lstm = self.lstm.start(rows)
        empty = lstm.hidden[0].new_zeros(rows, 0, self.part)
        position = torch.zeros(rows, dtype=torch.long, device=empty.device)
        return AttentiveState(lstm, Past((empty, empty)), position)

    def step(self, token: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        """token [B] -> logits [B, V]."""
        hidden, lstm = self.lstm.step(self.lstm.project(self.embed(token)), state.lstm)  # [B, n]
        key, value, predict = self.divide(hidden[:, None])  # [B, 1, n / parts]
        keys, values = state.past.tensors
        memory = Memory(keys, values, self.visible(state.past.ages, state.position[:, None]))
        units = self.readout(predict, self.attention(key, memory).context)[:, 0]  # [B, n]
        past = state.past.append(project_keys(self.attention.score, key), value)
        return self.output(units), AttentiveState(lstm, past, state.position + 1)

    def decode(self, words: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        """words [B, T] -> what the softmax layer reads, [B, T, n], all steps at once, and the state after them."""
        hidden, lstm = self.lstm(self.embed(words), state.lstm)  # [B, T, n]
        key, value, predict = self.divide(hidden)  # [B, T, n / parts]
        projected = project_keys(self.attention.score, key)
        past = state.past.append(projected, value)  # S slots
        steps = torch.arange(words.shape[1], device=words.device)  # [T]
        distances = past.ages - (len(steps) - steps)[:, None]  # [T, S], from each step to each slot
        keys, values = past.tensors
        keys = keys.to(projected.dtype)  # under autocast a past in full precision would make the kernels slower
        memory = Memory(keys, values, self.visible(distances, state.position[:, None] + steps))
        units = self.readout(predict, self.attention(key, memory).context)
        return units, AttentiveState(lstm, past, state.position + len(steps))

    def cut(self, state: AttentiveState) -> AttentiveState:
        """The state with the last `window` slots of its past, which are all that the next word may attend to."""
        check_bound("window", self.config.window)
        return state._replace(past=state.past.last(self.config.window))

    def divide(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The key, the value and the prediction of states [B, T, n]; where parts are fewer, the last serves twice."""
        parts = hidden.split(self.part, dim=-1)
        return parts[0], parts[min(1, len(parts) - 1)], parts[-1]

    def visible(self, distances: Tensor, before: Tensor) -> Tensor:
        """The slots strictly before each step and in the window: distances [T, S], steps before [B, T] -> [B, T, S]."""
        farthest = before.clamp(max=self.config.window) if self.config.window else before
        return (distances > 0) & (distances <= farthest[..., None])

    def readout(self, predict: Tensor, context: Tensor) -> Tensor:
        """tanh(W_c [p ; c]): [B, T, .] -> [B, T, n]."""
        return self.dropout(torch.tanh(self.W_c(torch.cat([predict, context], dim=-1))))


PRESETS = {
    "paper": AttentiveConfig(),
    "small": AttentiveConfig(embedding=150, width=300, layers=1, dropout=0.3, spread=0.2),
    "tiny": AttentiveConfig(embedding=64, width=96, layers=1, dropout=0.0, spread=0.2),
}
VARIANTS = {
    "dot": replace(PRESETS["tiny"], score="dot"),
    "general-entmax15": replace(PRESETS["tiny"], score="general", normaliser="entmax15"),
    "window": replace(PRESETS["tiny"], window=2),
    "key-value": replace(PRESETS["tiny"], split="key-value"),
    "key-value-predict": replace(PRESETS["tiny"], split="key-value-predict", score="dot", window=5, layers=2),
}
