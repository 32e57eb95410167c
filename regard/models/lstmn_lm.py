"""Cheng, Dong and Lapata, "Long short-term memory-networks for machine reading" (EMNLP 2016): the language model.

What was new: an LSTM that does not compress its past into one state. It keeps the hidden and the memory vector of every
word on two tapes and attends to all of them, with the same weights on both, before each step (`layers.lstmn`).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from regard.config import setting
from regard.core.normalise import NORMALISERS
from regard.core.scores import COMPARISONS
from regard.layers.lstmn import Tape, read, stack
from regard.models import lstm_lm
from regard.models.contract import Looking, TextModel, check_target, shift_right


@dataclass(frozen=True)
class LSTMNLanguageConfig:
    """The language model of the paper, on the Penn Treebank."""

    vocabulary: int = setting(10_000, "size of the vocabulary")
    embedding: int = setting(150, "embedding size (m)")
    width: int = setting(300, "size of a layer's hidden and memory vectors (n)")
    layers: int = setting(1, "number of layers, one to three in the paper")
    span: int = setting(0, "number of last words that may be attended to; 0 = all")
    score: str = setting("additive", "score function of projected queries and keys", COMPARISONS)
    normaliser: str = setting("softmax", "normaliser of the scores", NORMALISERS)
    dropout: float = setting(0.0, "dropout on the input of each layer and on the top states")
    spread: float = setting(0.05, "initial weights are uniform in [-spread, spread]")


class LSTMNLanguageState(NamedTuple):
    tapes: tuple[Tape, ...]


class LSTMNLanguageModel(TextModel):
    """LSTMN layers that write a text word by word."""

    looking = Looking(query="current", shift=0, cross=())

    def __init__(self, config: LSTMNLanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.layers = stack(config, config.span)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.width, config.vocabulary)
        for weights in self.parameters():
            nn.init.uniform_(weights, -config.spread, config.spread)

    def start(self, rows: int) -> LSTMNLanguageState:
        """Empty tapes."""
        return LSTMNLanguageState(tuple(layer.start(rows) for layer in self.layers))  # type: ignore[operator]

    def step(self, token: Tensor, state: LSTMNLanguageState) -> tuple[Tensor, LSTMNLanguageState]:
        """token [B] -> logits [B, V]."""
        hidden, state = self.decode(token[:, None], state)
        return self.output(hidden[:, 0]), state

    def hidden(self, target: Tensor) -> Tensor:
        """Top hidden vectors [B, T, n], each step reading the true word before it."""
        check_target(target)
        return self.decode(shift_right(target), self.start(len(target)))[0]

    def decode(self, words: Tensor, state: LSTMNLanguageState) -> tuple[Tensor, LSTMNLanguageState]:
        """words [B, T], the words read -> top hidden vectors [B, T, n]."""
        written, tapes = read(self.layers, self.embed(words), state.tapes, self.dropout)
        return self.dropout(written[-1][..., : self.config.width]), LSTMNLanguageState(tapes)


PRESETS = {
    "paper": LSTMNLanguageConfig(),
    "small": LSTMNLanguageConfig(dropout=0.3, spread=0.2),
    "tiny": LSTMNLanguageConfig(embedding=64, width=96, spread=0.2),
}
VARIANTS = {
    "three-layers": replace(PRESETS["tiny"], layers=3),
    "span": replace(PRESETS["tiny"], span=3),
    "cosine-sparsemax": replace(PRESETS["tiny"], score="cosine", normaliser="sparsemax"),
}
RECIPES: dict[str, dict[str, object]] = {
    **lstm_lm.RECIPES,  # the baseline and this model are trained alike, but for the paper's own numbers
    "paper": {
        "optimiser": "sgd", "rate": 0.65, "clip": 5.0, "batch_tokens": 1_024, "normalise": "sentences",
        "schedule": "decay", "epochs": 30, "best_by": "loss",
    },
}  # fmt: skip
