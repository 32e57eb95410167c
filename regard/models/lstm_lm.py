"""Zaremba, Sutskever and Vinyals, "Recurrent neural network regularization" (2014): the plain LSTM language model.

What was new: dropout that leaves the recurrent connections alone. Here it is the baseline of the attentive language
models: the past is one state of fixed size, and there is no attention.

    h_t = LSTM(E y_{t-1});  p(y_t) = softmax(W h_t + b)
"""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from regard.config import Settings, setting
from regard.core.products import Linear
from regard.layers.recurrent import LSTMState, StackedLSTM
from regard.models.contract import AttentionLayout, TextModel


@dataclass(frozen=True)
class LSTMLanguageConfig(Settings):
    """Zaremba's medium model."""

    vocabulary: int = setting(10_000, "size of the vocabulary", "[1, inf)")
    embedding: int = setting(650, "embedding size (m)", "[1, inf)")
    width: int = setting(650, "size of a layer's state (n)", "[1, inf)")
    layers: int = setting(2, "number of LSTM layers", "[1, 10000]")
    dropout: float = setting(0.5, "dropout on the input of each layer and on the top states", "[0, 1)")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]", "[0, inf)")


class LSTMLanguageModel(TextModel):
    """Stacked LSTMs that write a text word by word."""

    attention_layout = AttentionLayout(query="current")

    def __init__(self, config: LSTMLanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.lstm = StackedLSTM(config.embedding, config.width, config.layers, config.dropout, bias=True)
        self.dropout = nn.Dropout(config.dropout)
        self.output = Linear(config.width, config.vocabulary)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> LSTMState:
        """Zero states."""
        return self.lstm.start(rows)

    def step(self, token: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """token [B] -> logits [B, V]."""
        top, state = self.lstm.step(self.lstm.project(self.embed(token)), state)  # [B, n]
        return self.output(self.dropout(top)), state

    def decode(self, words: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """words [B, T]: the inputs y_0 ... y_{T-1}. Returns top states [B, T, n], and the state after them."""
        top, state = self.lstm(self.embed(words), state)
        return self.dropout(top), state


PRESETS = {
    "paper": LSTMLanguageConfig(),
    "small": LSTMLanguageConfig(embedding=150, width=300, layers=1, dropout=0.3, spread=0.2),
    "tiny": LSTMLanguageConfig(embedding=64, width=96, layers=1, dropout=0.0, spread=0.2),
}
VARIANTS = {"two-layers": replace(PRESETS["tiny"], layers=2)}
RECIPES: dict[str, dict[str, object]] = {
    "paper": {
        "optimiser": "sgd", "rate": 1.0, "clip": 5.0, "normalise": "sentences", "batch_tokens": 700,
        "schedule": "decay", "decay": 1 / 1.2, "decay_after": 5, "epochs": 39, "best_by": "loss",
    },
    "small": {"rate": 0.002, "clip": 1.0, "batch_tokens": 1_024, "schedule": "cosine", "epochs": 20, "best_by": "loss"},
    "tiny": {"rate": 0.01, "clip": 1.0, "batch_tokens": 640, "epochs": 6, "best_by": "loss"},
}  # fmt: skip
