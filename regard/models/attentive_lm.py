"""Salton, Ross and Kelleher, "Attentive language models" (IJCNLP 2017); Daniluk et al., "Frustratingly short attention
spans in neural language modeling" (ICLR 2017).

What was new: an LSTM language model that looks back. Its state asks which of its own past states matter for the next
word, and the readout sees both. Daniluk asks one vector to do less: a part of the state is the key that others find
it by, another what they see of it, a third what predicts the next word; and finds that mostly the last few words are
looked at. The context goes to the readout alone, not into the recurrence, so that all steps are computed at once.

    h_t = LSTM(E y_{t-1}) = [k_t ; v_t ; p_t]               three parts, two (p = v), or the whole each time
    e_i = v^T tanh(W k_t + U k_i)  or  k_t . k_i            over i < t, all or the last `window`
    c_t = sum_i softmax(e)_i v_i;  logits = W_o tanh(W_c [p_t ; c_t])
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import setting
from regard.core.attend import Memory
from regard.core.scores import Additive, dot, project_keys
from regard.errors import ConfigError
from regard.layers.attention import Attention
from regard.layers.recurrent import LSTMState, StackedLSTM
from regard.layers.transformer import grow
from regard.models.contract import Looking, check_target, shift_right

ROOM = 32  # steps that a fresh state has room for; the buffers double when they are full


@dataclass(frozen=True)
class AttentiveConfig:
    """Salton's single model with Bahdanau's score, on the Penn Treebank."""

    vocabulary: int = setting(10_000, "words or pieces that the model knows")
    embedding: int = setting(650, "size of a word vector (m)")
    width: int = setting(650, "size of a layer's state (n)")
    layers: int = setting(2, "LSTM layers")
    score: str = setting("additive", "how the state is compared with the past ones", ("additive", "dot"))
    split: str = setting(
        "none", "parts of a state: one for all, key and value, or key, value and prediction",
        ("none", "key-value", "key-value-predict"),
    )  # fmt: skip
    window: int = setting(0, "how many of the last states may be looked at; 0 = all of them")
    dropout: float = setting(0.5, "share of each layer's input and of the readout dropped in training")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]")


SCORES: dict[str, Callable[[int], Any]] = {
    "additive": lambda width: Additive(width, width, width),
    "dot": lambda _: dot,
}
SPLITS = {"none": 1, "key-value": 2, "key-value-predict": 3}


class AttentiveState(NamedTuple):
    """What a step carries to the next. A state that has been stepped from is spent: its buffers are written on."""

    lstm: LSTMState
    keys: Tensor  # [B, room, k], of the states so far
    values: Tensor  # [B, room, v]
    position: Tensor  # [B], steps so far


class AttentiveLanguageModel(nn.Module):
    """An LSTM language model that looks back at its own states."""

    looking = Looking(query="current", shift=0, cross=())

    def __init__(self, config: AttentiveConfig) -> None:
        super().__init__()
        self.config = config
        parts = SPLITS[config.split]
        if config.width % parts:
            raise ConfigError(f"width must be a multiple of {parts} to split {config.split}; got {config.width}.")
        self.part = config.width // parts  # size of a key, a value, a prediction
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.lstm = StackedLSTM(config.embedding, config.width, config.layers, config.dropout, bias=True)
        self.attention = Attention(SCORES[config.score](self.part))
        self.W_c = nn.Linear(2 * self.part, config.width)
        self.W_o = nn.Linear(config.width, config.vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> AttentiveState:
        """Zero states and empty buffers."""
        hidden = self.embed.weight.new_zeros(rows, self.config.layers, self.config.width)
        room = hidden.new_zeros(rows, ROOM, self.part)
        position = torch.zeros(rows, dtype=torch.long, device=hidden.device)
        return AttentiveState(LSTMState(hidden, torch.zeros_like(hidden)), room, torch.zeros_like(room), position)

    def step(self, token: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        """token [B] -> logits [B, V]; the buffers of `state` are written in place."""
        hidden, lstm = self.lstm.run(self.embed(token[:, None]), state.lstm)  # [B, 1, n]
        key, value, predict = self.divide(hidden)  # [B, 1, n / parts]
        filled = int(state.position[0]) if len(token) else 0
        past = Memory(state.keys[:, :filled], state.values[:, :filled], self.visible(filled, 1, filled, token.device))
        logits = self.readout(predict, self.attention(key, past).context)[:, 0]  # [B, V]
        keys, values = grow(state.keys, filled + 1), grow(state.values, filled + 1)
        keys[:, filled], values[:, filled] = project_keys(self.attention.score, key)[:, 0], value[:, 0]
        return logits, AttentiveState(lstm, keys, values, state.position + 1)

    def forward(self, target: Tensor) -> Tensor:
        """Logits [B, T, V] of target [B, T], all steps at once."""
        check_target(target)
        hidden, _ = self.lstm.run(self.embed(shift_right(target)), self.start(len(target)).lstm)  # [B, T, n]
        key, value, predict = self.divide(hidden)  # [B, T, n / parts]
        steps = target.shape[1]
        mask = self.visible(0, steps, steps, target.device)  # [T, T]
        memory = Memory(project_keys(self.attention.score, key), value, mask)
        return self.readout(predict, self.attention(key, memory).context)

    def divide(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The key, the value and the prediction of states [B, T, n]; where parts are fewer, the last serves twice."""
        parts = hidden.split(self.part, dim=-1)
        return parts[0], parts[min(1, len(parts) - 1)], parts[-1]

    def visible(self, first: int, queries: int, slots: int, device: torch.device) -> Tensor:
        """What the steps first, first + 1, ... may look at: slots strictly before each, and in the window. [T, S]"""
        steps = first + torch.arange(queries, device=device)[:, None]  # [T, 1]
        distance = steps - torch.arange(slots, device=device)  # [T, S]
        return (distance > 0) & (distance <= (self.config.window or slots))

    def readout(self, predict: Tensor, context: Tensor) -> Tensor:
        """W_o tanh(W_c [p ; c]): [B, T, .] -> logits [B, T, V]."""
        return self.W_o(self.dropout(torch.tanh(self.W_c(torch.cat([predict, context], dim=-1)))))


PRESETS = {
    "paper": AttentiveConfig(),
    "small": AttentiveConfig(embedding=150, width=300, layers=1, dropout=0.3, spread=0.2),
    "tiny": AttentiveConfig(embedding=64, width=96, layers=1, dropout=0.0, spread=0.2),
}
VARIANTS = {
    "dot": replace(PRESETS["tiny"], score="dot"),
    "window": replace(PRESETS["tiny"], window=2),
    "key-value": replace(PRESETS["tiny"], split="key-value"),
    "key-value-predict": replace(PRESETS["tiny"], split="key-value-predict", score="dot", window=5, layers=2),
}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "optimiser": "sgd",
        "rate": 1.0,
        "clip": 5.0,
        "normalise": "sentences",
        "batch_tokens": 700,
        "schedule": "plateau",
        "epochs": 39,
        "best_by": "loss",
    },
    "small": {"rate": 0.002, "clip": 1.0, "batch_tokens": 1_024, "schedule": "cosine", "epochs": 20, "best_by": "loss"},
    "tiny": {"rate": 0.01, "clip": 1.0, "batch_tokens": 640, "epochs": 6, "best_by": "loss"},
}
